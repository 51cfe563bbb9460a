"""
What one listing of a partitioned table's directory tells of the places in it: which places are there, which are
missing, and which directories lie in each.

Pure: knows names and positions. `roles.cleaner.partition` decides what they mean.
Source: docs/operations.md, Cleaner.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from compactor.acid.listing import Listing
from compactor.acid.names import STAGING_PREFIX, TRASH_PREFIX, has_hidden_part, is_hidden, looks_acid
from compactor.roles.cleaner.trash import KEPT
from compactor.storage.location import join


@dataclass(frozen=True, slots=True)
class TableListing:
    """
    One listing. Files aren't kept: a hundred thousand partitions have many.

    Args:
        location: of the table.
        directories: all below it (`Listing.directories`); empty when it couldn't be listed.
        listed_ms: the database clock, before the listing.
    """

    location: str
    directories: Sequence[str]
    listed_ms: int

    def places(self) -> set[str]:
        """
        Every directory that holds ACID directories, or leftovers of the daemon's attempts and removals.

        Neither quarantine makes a place, since it is left for good, nor trash directly in the table's directory, which
        holds a partition that was dropped. A name with `=` is a partition's, even if it begins with `_` or `base_`.
        Below a hidden directory nothing of the table lies: statements stage there what they write, with names of ACID
        directories.
        """
        found = set()
        for path in self.directories:
            parts = path.split("/")
            for depth, part in enumerate(parts):
                if part.startswith((STAGING_PREFIX, TRASH_PREFIX)):
                    is_trash = part.startswith(TRASH_PREFIX)
                    if not (is_trash and (depth == 0 or part.endswith(KEPT))):
                        found.add(join(self.location, *parts[:depth]))
                    break
                if "=" in part:  # a key may begin with `_` or `base_`
                    continue
                if is_hidden(part):
                    break
                if looks_acid(part):
                    found.add(join(self.location, *parts[:depth]))
                    break
        return found

    def there(self, locations: Iterable[str]) -> set[str]:
        """The locations that the listing found."""
        listed, root = set(self.directories), root_of(self.location)
        return {
            location for location in locations if location.startswith(root) and location.removeprefix(root) in listed
        }

    def tells_of(self, location: str) -> bool:
        """
        Whether the listing alone shows if the location is there, and what is in it.

        It doesn't when the path has a hidden name, which may be a link that no listing shows; or when the table's
        directory is empty, as a mount point would be.
        """
        below = self._below(location)
        return bool(self.directories) and below != location and not has_hidden_part(below)

    def parts(self, locations: Iterable[str]) -> Iterator[tuple[str, Listing]]:
        """What a separate listing of each location would have shown, without files."""
        inside: dict[str, list[str]] = {self._below(location): [] for location in locations}
        for path in self.directories:
            end = path.find("/")
            while end >= 0:
                if (paths := inside.get(path[:end])) is not None:
                    paths.append(path)
                end = path.find("/", end + 1)
        root = root_of(self.location)
        for place, paths in inside.items():
            below = (path[len(place) + 1 :] for path in paths)
            yield root + place, Listing((), tuple(path for path in below if "/" not in path or not is_hidden(path)))

    def _below(self, location: str) -> str:
        return location.removeprefix(root_of(self.location))


def root_of(location: str) -> str:
    """The beginning that all locations inside a directory have in common."""
    return location.rstrip("/") + "/"


def is_listed(location: str, table_location: str) -> bool:
    """Whether a listing of the table's directory tells if the location is there. Hidden directories aren't listed."""
    root = root_of(table_location)
    return location.startswith(root) and not is_hidden(location.removeprefix(root))
