"""What a finished directory consists of, and what was published: values that are compared with what is found later."""

from dataclasses import dataclass

from compactor.acid.listing import Listing
from compactor.acid.names import DirKind


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """One file of a published directory."""

    name: str
    length: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """A directory as it was staged; what is found after the rename must equal it."""

    directory: str
    kind: DirKind
    files: tuple[ManifestFile, ...]

    @property
    def bytes(self) -> int:
        return sum(file.length for file in self.files)


@dataclass(frozen=True, slots=True)
class Published:
    """
    What readers find now (on 4.x: will find once the transaction commits).

    Args:
        copied_bytes, recoded_bytes: of the inputs' stripes (or whole files), by what was done with them.
        written_bytes, files: of the published directories, without markers.
    """

    manifests: tuple[Manifest, ...]
    copied_bytes: int = 0
    recoded_bytes: int = 0
    written_bytes: int = 0
    files: int = 0

    @property
    def directories(self) -> tuple[str, ...]:
        return tuple(manifest.directory for manifest in self.manifests)


def files_below(listing: Listing, directory: str) -> tuple[ManifestFile, ...]:
    """Files of a listing below a directory of it (empty: below its top), with paths relative to that, ascending."""
    prefix = f"{directory}/" if directory else ""
    return tuple(ManifestFile(entry.path.removeprefix(prefix), entry.length) for entry in sorted(listing.files) if entry.path.startswith(prefix))
