"""
What lies in a partition, item by item: which directories a query reads, which it ignores, and which the next compaction
takes as inputs.

Pure: works on the resolved states (`acid.snapshot`) of a reader and of a compactor.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from compactor.acid.compaction import CompactionKind
from compactor.acid.listing import FileEntry
from compactor.acid.names import DirKind
from compactor.acid.snapshot import AcidState, ListedDir, data_files
from compactor.planning.picker import enough
from compactor.status.records import Record


class DirectoryStanding(StrEnum):
    """How a query that starts now treats a directory or file."""

    BASE = "base"
    DELTA = "delta"
    DELETE_DELTA = "delete delta"
    ORIGINAL = "original"
    NOT_VISIBLE = "not visible"
    ABORTED = "aborted"
    OBSOLETE = "obsolete"
    UNKNOWN = "unknown"
    EVIDENCE = "evidence"


READ = (DirectoryStanding.BASE, DirectoryStanding.DELTA, DirectoryStanding.DELETE_DELTA, DirectoryStanding.ORIGINAL)


@dataclass(frozen=True, slots=True)
class Item:
    """
    One directory (or original file, or unknown name) of a partition.

    Args:
        files, bytes: count and size of the data files only.
        input: whether a compaction that starts now would have this item as input.
        note: in a few words, why a query or compaction doesn't use the item.
    """

    standing: DirectoryStanding
    name: str
    min_write_id: int | None = None
    max_write_id: int | None = None
    files: int = 0
    bytes: int = 0
    input: bool = False
    note: str = ""

    def record(self) -> Record:
        """The item as an output record, with the fields as keys."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Totals:
    """Directories, files and bytes of a set of items."""

    directories: int
    files: int
    bytes: int

    @classmethod
    def of(cls, items: Sequence[Item]) -> "Totals":
        directories = sum(item.min_write_id is not None for item in items)
        return cls(directories, sum(item.files for item in items), sum(item.bytes for item in items))


def items_of(
    reader: AcidState, compactor: AcidState, *, insert_only: bool, explain: Callable[[ListedDir], str] = lambda _: ""
) -> tuple[Item, ...]:
    """
    All items of a partition directory, in the order in which they are drawn.

    Args:
        reader: the directory as a query that starts now resolves it.
        compactor: the directory as a compaction that starts now resolves it.
        explain: makes the note for a directory that is not visible or aborted: which transaction, and whose.
    """
    worth_it = enough(compactor, CompactionKind.MAJOR, insert_only)
    taken = {listed.acid.name for listed in (compactor.base, *compactor.deltas) if listed is not None and worth_it}
    taken_originals = {file.path for file in compactor.originals if worth_it}

    def item(standing: DirectoryStanding, listed: ListedDir, note: str = "") -> Item:
        files = data_files(listed, insert_only)
        acid = listed.acid
        size = sum(file.length for file in files)
        return Item(
            standing, acid.name, acid.min_write_id, acid.max_write_id, len(files), size, acid.name in taken, note
        )

    def lone(standing: DirectoryStanding, file: FileEntry, note: str = "") -> Item:
        return Item(standing, file.path, files=1, bytes=file.length, note=note)

    def items() -> Iterator[Item]:
        if reader.base is not None:
            yield item(DirectoryStanding.BASE, reader.base)
        for kind, standing in (
            (DirKind.DELTA, DirectoryStanding.DELTA),
            (DirKind.DELETE_DELTA, DirectoryStanding.DELETE_DELTA),
        ):
            yield from (item(standing, listed) for listed in reader.deltas if listed.acid.kind is kind)
        for file in reader.originals:
            note = (
                "not named like a bucket file: nothing is compacted beside it"
                if file.path in reader.unknown and not insert_only
                else ""
            )
            yield replace(lone(DirectoryStanding.ORIGINAL, file, note), input=file.path in taken_originals)
        for excluded in reader.excluded:
            yield item(DirectoryStanding.NOT_VISIBLE, excluded.dir, explain(excluded.dir) or excluded.reason)
        yield from (item(DirectoryStanding.ABORTED, listed, explain(listed)) for listed in reader.aborted)
        yield from (item(DirectoryStanding.OBSOLETE, listed) for listed in reader.obsolete)
        for file in reader.obsolete_originals:
            yield lone(DirectoryStanding.OBSOLETE, file)
        for file in reader.left_originals:
            why = "for it lies in no base and no delta" if insert_only else "and in no list of a compaction"
            yield lone(DirectoryStanding.UNKNOWN, file, f"not read, {why}: stays")
        files = {file.path for file in (*reader.originals, *reader.obsolete_originals, *reader.left_originals)}
        yield from (
            Item(DirectoryStanding.UNKNOWN, name, note="not Hive's: nothing is done about it")
            for name in reader.unknown
            if name not in files
        )

    return tuple(items())


def read_totals(items: Sequence[Item]) -> Totals:
    """Totals of the items that every query opens."""
    return Totals.of([item for item in items if item.standing in READ])
