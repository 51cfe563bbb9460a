"""
Reads a table or partition as a Hive reader sees it; for commands that only look.

Reads whole files in this process, one after the other, a batch at a time; writes no file except temporary ones.
Source: docs/layout.md; Hive's OrcRawRecordMerger.
"""

from collections.abc import Iterator
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

import numpy as np

from compactor.acid.compaction import LayoutVersion
from compactor.acid.listing import Listing
from compactor.acid.names import looks_acid, parse_dir
from compactor.acid.snapshot import ReadSnapshot
from compactor.engine.delete_files import DeleteFiles
from compactor.engine.digest_note import Note, read_note
from compactor.engine.inputs import OpenInputs, file_facts, read_tails
from compactor.engine.output_format import output_format
from compactor.errors import RefusedError
from compactor.orc.cutting.stripe import stripe_checksum
from compactor.orc.digests.digest import Digest, Digester
from compactor.orc.events.event_share import Share
from compactor.orc.rows import RowFilter, RowTally, SourceRows, StripeSource
from compactor.orc.writing.output import OutputFormat
from compactor.planning.document import FormatSpec, InputFile
from compactor.planning.facts import TableSpec
from compactor.planning.plan import prepare
from compactor.planning.select import everything
from compactor.reasons import Reason
from compactor.storage.base import Storage
from compactor.storage.location import join, parent

EVENTS_AT_ONCE: Final = 4_000_000
"""Delete events of a bucket that may be in memory; further ones go to temporary files."""


class PartitionReading:
    """
    One directory under one reader's snapshot. A context manager: closes the open files.

    Args:
        location: a partition, a directory that holds some of its bases and deltas, or a single base or delta.

    Raises:
        RefusedError: the directory's content can't be resolved, or can't be read as rows of this table.
    """

    def __init__(self, storage: Storage, location: str, spec: TableSpec, snapshot: ReadSnapshot) -> None:
        if spec.insert_only:
            raise RefusedError(
                Reason.UNSUPPORTED_FORMAT,
                f"{spec.name} is insert-only: its rows have no ROW__ID to go by, and its files keep no digest of their inputs",
            )
        self._storage, self.location, listing = _listed(storage, location)
        self.format = output_format(spec.columns, FormatSpec(columns_by=spec.columns_by))
        self.row = self.format.row
        write_ids = snapshot.write_ids
        self._selection = everything(snapshot.resolve(listing), spec, snapshot.layout, write_ids)
        reads = read_tails(storage, self.location, [file for file in self._selection.all_files if not file.empty])
        prepared = prepare(
            self._selection, {read.file.path: file_facts(read, self.row, spec.columns_by) for read in reads}
        )
        self._buckets = prepared.buckets
        self._deletes = [source.file for source in prepared.deletes]
        self._inputs = OpenInputs(storage, self.location)
        beyond = range(
            write_ids.high_watermark + 1, max((file.max_write_id for file in self._selection.all_files), default=0) + 1
        )
        self._invisible = np.array(sorted({*write_ids.aborted, *write_ids.open, *beyond}), np.int64)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inputs.__exit__(kind, error, trace)

    @property
    def buckets(self) -> tuple[int, ...]:
        """The buckets that have files with rows."""
        return tuple(self._buckets)

    @property
    def files(self) -> tuple[InputFile, ...]:
        """The files with rows, in reading order."""
        return tuple(source.file for sources in self._buckets.values() for source in sources)

    def rows(self, bucket: int, digester: Digester | None = None) -> list[SourceRows]:
        """The visible rows of one bucket, file by file."""
        sources = [self._inputs.source(source.file) for source in self._buckets.get(bucket, ()) if source.file.rows]
        deletes = DeleteFiles(self._storage, self.location, self._deletes, self._invisible, EVENTS_AT_ONCE)
        row_filter = RowFilter(deletes.load(Share(bucket)) if self._deletes else None, self._invisible)
        return [SourceRows(source, self.format, row_filter, RowTally(), digester=digester) for source in sources]

    def digest(self) -> Digest:
        """The digest of all visible rows."""
        digester = Digester(self.row)
        for bucket in self.buckets:
            for source in self.rows(bucket, digester):
                for _ in source:
                    pass
        return digester.digest

    def notes(self) -> Iterator[tuple[InputFile, Note | None, Note | None]]:
        """
        For each file of rows with keys: its digest note, and what the note would be of the stripes that it names.

        The digest includes deleted rows. The second is None without a note, or if the note names stripes beyond the
        end.
        """
        for file in self.files:
            if file.raw or not file.rows:
                continue
            tail, reader = self._inputs.tail(file), self._inputs.reader(file)
            note = read_note(tail.user_metadata)
            if note is None:
                yield file, None, None
                continue
            if any(stripe >= len(tail.stripes) for stripe in (*note.stripes, *dict(note.checksums))):
                yield file, note, None
                continue
            checksums = tuple((stripe, stripe_checksum(reader, tail, stripe)) for stripe, _ in note.checksums)
            if not note.stripes:
                yield file, note, replace(note, checksums=checksums)
                continue
            digester = Digester(tail.row_tree)
            for _ in SourceRows(
                StripeSource(reader, tail, note.stripes, trusted=True),
                OutputFormat(tail.tree),
                RowFilter(),
                RowTally(),
                digester=digester,
            ):
                pass
            yield file, note, Note(digester.digest, note.stripes, checksums)

    def stripes(self, file: InputFile) -> int:
        """The number of stripes of a file."""
        return len(self._inputs.tail(file).stripes)


def highest_write_id(storage: Storage, location: str, layout: LayoutVersion) -> int:
    """The highest write id in the names of a directory's bases and deltas; 0 where there are only original files."""
    _, _, listing = _listed(storage, location)
    names = {
        directory.partition("/")[0]
        for directory in (*listing.directories, *(file.path.rpartition("/")[0] for file in listing.files))
    }
    found = [parsed for name in names if name and (parsed := parse_dir(name, layout)) is not None]
    return max((directory.max_write_id for directory in found), default=0)


def _listed(storage: Storage, location: str) -> tuple[Storage, str, Listing]:
    """Store, location and listing of a directory; a base or delta is listed as the only one of its parent."""
    location = location.rstrip("/")
    name = location.rpartition("/")[2]
    try:
        if not looks_acid(name):
            return storage, location, storage.list_tree(location)
        listing = storage.list_tree(parent(location))
    except (FileNotFoundError, NotADirectoryError):
        raise RefusedError(Reason.LOCATION_MISSING, f"there is no directory {location}") from None
    files = tuple(file for file in listing.files if file.path.startswith(f"{name}/"))
    if not files:
        raise RefusedError(
            Reason.LOCATION_MISSING, f"there is no directory {join(parent(location), name)}, or it is empty"
        )
    formats = tuple(item for item in listing.formats if item[0] == name)
    return storage, parent(location), replace(listing, files=files, directories=(name,), formats=formats)
