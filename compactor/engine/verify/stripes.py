"""
Checks the stripes of one output file on an executor: decodes recoded ones, compares copied ones with their source.

Source: docs/compaction.md; Hive's ColumnizedDeleteEventRegistry, OrcRawRecordMerger, OrcAcidUtils.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compactor.acid.names import DirKind
from compactor.acid.row_id import RowKey, decode_bucket, decode_buckets
from compactor.engine.delete_files import DeleteFiles
from compactor.engine.digest_note import read_note
from compactor.engine.inputs import OpenInputs
from compactor.engine.output_format import output_format
from compactor.engine.results import Checked, Origin, OutputFile
from compactor.engine.tasks.delete_windows import Span
from compactor.engine.tasks.memory import trimmed
from compactor.engine.tasks.specs import FileWork, Shared
from compactor.errors import RefusedError, VerificationError
from compactor.orc.cutting.stripe import stripe_checksum
from compactor.orc.digests.digest import Digest, Digester
from compactor.orc.digests.moved import source_ids
from compactor.orc.events.deletes import DeleteEvents, visible
from compactor.orc.events.event_share import Share
from compactor.orc.events.keys import DELETE, INSERT, acid_stats, read_keys, stripe_bounds
from compactor.orc.format.key_columns import KeyColumns
from compactor.orc.format.schema import same_layout
from compactor.orc.format.tail import Tail, read_tail
from compactor.orc.rows import RowFilter, RowTally, SourceRows, StripeSource
from compactor.orc.writing.copied import difference
from compactor.planning.document import EVERY_FILE, DeleteScope, all_hit_by
from compactor.storage.base import Storage
from compactor.storage.handles import ReadHandle
from compactor.storage.registry import storage_for


@dataclass(frozen=True, slots=True)
class FileCheck:
    """
    The facts that all checks of one output file share.

    Args:
        work: what the file was made from, without segments, which a check doesn't ask for.
        path: location of the staged file.
        file: as its task reported it, without origins.
        count: number of stripes of the file.
    """

    work: FileWork
    path: str
    file: OutputFile
    count: int

    @classmethod
    def of(cls, work: FileWork, file: OutputFile, path: str) -> "FileCheck":
        return cls(work.part(()), path, replace(file, origins=()), sum(origin.count for origin in file.origins))


@dataclass(frozen=True, slots=True)
class VerifyTask:
    """
    Check some stripes of one output file; the first task of a file also checks its tail.

    Args:
        check: what is to be checked, or its number in `Shared.files` where the file has several tasks.
        origins: of each stripe to check, one by one.
        start: number of the first stripe to check.
        hit_by: the delete files that may have events of the recoded ones, as in `Segment.hit_by`.
    """

    check: FileCheck | int
    origins: tuple[Origin, ...]
    start: int
    hit_by: int

    @classmethod
    def whole(cls, check: FileCheck, file: OutputFile) -> "VerifyTask":
        """Check all stripes of a file."""
        return cls._of(check, _one_by_one(file), 0)

    @classmethod
    def parts(cls, number: int, file: OutputFile, stripes: int) -> "list[VerifyTask]":
        """The same check in tasks of so many stripes each; `number` is that of the file's check."""
        origins = _one_by_one(file)
        return [cls._of(number, origins[start : start + stripes], start) for start in range(0, len(origins), stripes)]

    @classmethod
    def _of(cls, check: FileCheck | int, origins: Sequence[Origin], start: int) -> "VerifyTask":
        hit_by = all_hit_by({origin.hit_by for origin in origins if origin.path is None})
        return cls(check, tuple(replace(origin, hit_by=EVERY_FILE) for origin in origins), start, hit_by)


def _one_by_one(file: OutputFile) -> tuple[Origin, ...]:
    return tuple(replace(origin, count=1) for origin in file.origins for _ in range(origin.count))


def verify_stripes(shared: Shared, task: VerifyTask) -> Checked:
    """Run one check on an executor."""
    with trimmed():
        whole: FileCheck = shared.file(task.check) if isinstance(task.check, int) else task.check
        storage = storage_for(whole.work.location)
        with storage.open_read(whole.path) as reader, OpenInputs(storage, whole.work.location) as inputs:
            check = _Check(shared, whole, task, storage, reader, inputs)
            if task.start == 0:
                check.tail_of_file()
            check.stripes()
            return Checked(whole.file.directory, whole.file.name, check.digest)


class _Check:
    """A running check."""

    def __init__(  # noqa: PLR0917 - what is to be checked, and what reads it
        self,
        shared: Shared,
        check: FileCheck,
        task: VerifyTask,
        storage: Storage,
        reader: ReadHandle,
        inputs: OpenInputs,
    ) -> None:
        self._check = check
        self._task = task
        self._storage = storage
        self._reader = reader
        self._name = f"{check.file.directory}/{check.file.name}"
        self._deletes = check.file.kind is DirKind.DELETE_DELTA
        try:
            self._tail: Tail = read_tail(reader)
        except RefusedError as error:
            raise VerificationError(f"{self._name}: {error.message}") from error
        self._inputs = {file.path: file for file in check.work.inputs}
        self._opened = inputs
        self._aborted = np.array(shared.aborted, dtype=np.int64)
        self._output = output_format(shared.columns, check.work.format)
        self._digester = Digester(self._output.row) if check.file.digest.columns else None

    @property
    def digest(self) -> Digest:
        """The digest of the values that were read back."""
        return Digest() if self._digester is None else self._digester.digest

    def tail_of_file(self) -> None:
        """Check the tail: types, counts, key index and user metadata must be as Hive's readers expect."""
        tail, task, output = self._tail, self._check, self._output
        if not tail.is_acid or not same_layout(tail.row_tree, output.row, names=True):
            raise self._wrong(f"has columns {tail.tree} instead of those of the table")
        if (tail.compression, tail.stride) != (output.compression, output.stride):
            raise self._wrong(f"is written with {tail.compression.name} and stride {tail.stride}")
        if tail.rows != task.file.rows.written or len(tail.stripes) != task.count or tail.length != task.file.length:
            raise self._wrong(
                f"has {tail.rows} rows in {len(tail.stripes)} stripes; its task reported {task.file.rows.written} in {task.count}"
            )
        if tail.key_index is None:
            raise self._wrong("has no key index, or one that isn't ascending with one entry for each stripe")
        counts = (0, 0, tail.rows) if self._deletes else (tail.rows, 0, 0)
        if acid_stats(tail) != counts or tail.user_metadata.get("hive.acid.version") != b"2":
            raise self._wrong(f"says {acid_stats(tail)} inserts, updates and deletes instead of {counts}")
        note = read_note(tail.user_metadata)
        if task.file.digest.rows and (note is None or note.digest != task.file.digest):
            raise self._wrong("doesn't say what was read from the inputs")
        self._file_statistics()

    def _file_statistics(self) -> None:
        """
        Check that the file's statistics of the key columns cover all stripes: readers skip delete events by them.
        """
        if not self._tail.stripes or self._tail.stride == 0:
            return
        for column in range(1, 6):
            found = self._tail.footer.statistics[column].integers
            stripes = [
                self._tail.metadata.stripe_stats[index].columns[column].integers
                for index in range(len(self._tail.stripes))
            ]
            if (found.minimum, found.maximum) != (
                min(item.minimum for item in stripes),
                max(item.maximum for item in stripes),
            ):
                raise self._wrong(f"has file statistics of column {column} that aren't those of its stripes")

    def stripes(self) -> None:
        events: DeleteEvents | None = None
        if any(origin.path is None for origin in self._task.origins):
            events = self._events()
        for index, origin in enumerate(self._task.origins, self._task.start):
            self._statistics(index)
            if origin.path is not None:
                self._copied(index, origin.path, origin.stripe)
                continue
            if origin.checksum not in {None, stripe_checksum(self._reader, self._tail, index)}:
                raise self._wrong(f"stripe {index + 1} isn't the one whose values were compared with its source")
            self._recoded(index, events, keys_only=origin.checksum is not None)

    def _last_before(self, index: int) -> RowKey | None:
        return self._tail.key_index[index - 1] if index and self._tail.key_index is not None else None

    def _statistics(self, index: int) -> None:
        """Check that a stripe's statistics are possible in this directory, and that it follows the stripe before it."""
        if self._tail.stride == 0:
            return
        bounds = stripe_bounds(self._tail, index)
        if bounds is None:
            raise self._wrong(f"has no statistics of the ACID columns for stripe {index + 1}")
        before = self._last_before(index)
        if before is not None and bounds.last <= before:
            raise self._wrong(f"stripe {index + 1} doesn't come after the one before it")
        wanted = DELETE if self._deletes else INSERT
        if bounds.operation != (wanted, wanted):
            raise self._wrong(f"stripe {index + 1} holds operations {bounds.operation}")
        low, high = self._check.work.write_ids
        ids = bounds.current if self._deletes else bounds.write_id
        if ids is None or ids[0] < low or ids[1] > high:
            raise self._wrong(f"stripe {index + 1} holds write ids {ids}, outside {low} to {high}")
        if {decode_bucket(value) for value in bounds.bucket} != {self._check.file.bucket}:
            raise self._wrong(f"stripe {index + 1} holds rows of another bucket")
        values = self._tail.metadata.stripe_stats[index].columns[6].number_of_values
        if self._deletes and values:
            raise self._wrong(f"stripe {index + 1} holds values beside delete events")

    def _recoded(self, index: int, events: DeleteEvents | None, *, keys_only: bool) -> None:
        """Decode a recoded stripe, check its keys, and add its values, where they are decoded, to the digest."""
        last = self._last_before(index)
        rows = 0
        spans: list[tuple[int, int]] = []
        for keys in self._decoded(index, keys_only=keys_only):
            if not keys.ascending() or (last is not None and keys.key(0) <= last):
                raise self._wrong(f"stripe {index + 1}: keys don't ascend after row {rows}")
            self._keys(index, keys, events)
            rows += len(keys)
            last = keys.key(-1)
            spans = _widened(spans, keys)
        if (
            rows != self._tail.stripes[index].number_of_rows
            or self._tail.key_index is None
            or last != self._tail.key_index[index]
        ):
            raise self._wrong(f"stripe {index + 1} has {rows} rows and ends with {last}; its tail says otherwise")
        columns = self._tail.stripe_stats(index)
        if (
            columns is not None
            and [(column.integers.minimum, column.integers.maximum) for column in columns[1:6]] != spans
        ):
            raise self._wrong(f"stripe {index + 1} has statistics that aren't those of its keys")

    def _decoded(self, index: int, *, keys_only: bool) -> Iterator[KeyColumns]:
        """Decode a stripe; one that can't be decoded, or contradicts its tail, is a VerificationError."""
        try:
            if self._digester is None or keys_only:
                yield from read_keys(self._reader, self._tail, index)
                return
            source = StripeSource(self._reader, self._tail, (index,), trusted=True)
            for chunk in SourceRows(source, self._output, RowFilter(), RowTally(), digester=self._digester):
                yield chunk.keys
        except RefusedError as error:
            raise VerificationError(error.message) from error

    def _keys(self, index: int, keys: KeyColumns, events: DeleteEvents | None) -> None:
        low, high = self._check.work.write_ids
        if (keys.operation != (DELETE if self._deletes else INSERT)).any():
            raise self._wrong(f"stripe {index + 1} mixes operations")
        if (decode_buckets(keys.bucket) != self._check.file.bucket).any():
            raise self._wrong(f"stripe {index + 1} holds rows of another bucket")
        if (keys.write_id > keys.current).any():
            raise self._wrong(f"stripe {index + 1} holds rows that were changed before they were written")
        ids = keys.current if self._deletes else keys.write_id
        if (ids < low).any() or (keys.current > high).any():
            raise self._wrong(f"stripe {index + 1} holds write ids outside {low} to {high}")
        if not visible(keys, self._aborted, None).all():
            raise self._wrong(f"stripe {index + 1} holds rows of aborted write ids")
        if events is not None and events.mask(keys).any():
            raise self._wrong(f"stripe {index + 1} holds deleted rows")

    def _events(self) -> DeleteEvents | None:
        """The delete events that must have been applied to the recoded stripes of this task."""
        work = self._check.work
        if self._deletes or not work.bucket.deletes:
            return None
        files = [self._inputs[path] for path in work.bucket.deletes]
        deletes = DeleteFiles(self._storage, work.location, files, self._aborted, work.events_at_once)
        events = deletes.load(Share(work.bucket.bucket, *(self._recoded_span() or ())), self._task.hit_by)
        if work.scope is not DeleteScope.OWN:
            return events
        return events.select(np.asarray(events.write_id) == work.own_write_id)

    def _recoded_span(self) -> Span | None:
        """The keys that the recoded stripes of this task may hold; None when their statistics are missing."""
        recoded = [
            stripe_bounds(self._tail, index)
            for index, origin in enumerate(self._task.origins, self._task.start)
            if origin.path is None
        ]
        known = [bounds for bounds in recoded if bounds is not None]
        return (
            (min(bounds.first for bounds in known), max(bounds.last for bounds in known))
            if known and len(known) == len(recoded)
            else None
        )

    def _copied(self, index: int, path: str, source: int) -> None:
        """Check that a copied stripe has the statistics, rows, last key, and first and last 4 KiB of its source."""
        file = self._inputs[path]
        tail, reader = self._opened.tail(file), self._opened.reader(file)
        taken = source_ids(tail.row_tree, self._output.row, self._output.columns_by)
        if not self._deletes and taken != list(range(len(taken))):
            raise self._wrong(f"stripe {index + 1} has columns that readers take from others of {path}")
        if (wrong := difference(self._reader, self._tail, index, reader, tail, source)) is not None:
            raise self._wrong(wrong)
        if (
            tail.key_index is not None
            and self._tail.key_index is not None
            and self._tail.key_index[index] != tail.key_index[source]
        ):
            raise self._wrong(f"stripe {index + 1} hasn't the last key of its source, stripe {source + 1} of {path}")

    def _wrong(self, what: str) -> VerificationError:
        return VerificationError(f"{self._name} {what}")


def _widened(spans: list[tuple[int, int]], keys: KeyColumns) -> list[tuple[int, int]]:
    now = [(int(column.min()), int(column.max())) for column in keys.columns]
    return [(min(a[0], b[0]), max(a[1], b[1])) for a, b in zip(spans, now, strict=True)] if spans else now
