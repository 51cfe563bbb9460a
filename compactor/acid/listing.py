"""
What a file system reports below a table or partition directory.

Pure values: drivers in `compactor.storage` make them, `acid.snapshot` reads them.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class FileEntry:
    """
    One file; `path` is relative to the candidate directory, with `/` between parts.

    Args:
        version: the store's own mark (an ETag) that differs between two contents of the same name; empty where the
            store has no such mark.
    """

    path: str
    length: int
    mtime_ms: int = 0
    version: str = ""

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class Listing:
    """
    Everything below a candidate directory (table location, or partition location).

    Args:
        files: every file, recursively, except below hidden directories (`names.is_hidden`) of the top level.
        directories: every directory, recursively, including empty ones and hidden top-level ones; paths relative, as in
            `FileEntry`.
        formats: for each base directory that has a `_metadata_acid` file, its `dataFormat` value (`compacted`,
            `truncated`, `dropped`).
        replaced: for each base directory that has such a list, the original files that its compaction took in
            (`compactor.acid.originals`); empty where no file in the directory could be an original file.
    """

    files: tuple[FileEntry, ...]
    directories: tuple[str, ...]
    formats: tuple[tuple[str, str], ...] = ()
    replaced: tuple[tuple[str, tuple[FileEntry, ...]], ...] = ()
