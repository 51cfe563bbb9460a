"""
What runs on executors for full-ACID tables.

A chunk task recodes one part of a bucket into a scratch file; a bucket task copies stripes, takes in recoded parts, and writes the bucket's one file; a delete
task writes the delete events of one bucket. Each writes only below a directory of its own, so that a task that is repeated, runs twice, or goes on after its
compaction was given up, harms nobody. Tails and delete events are read again here: what was planned stays small enough to travel.
"""

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from compactor.acid.names import DirKind
from compactor.acid.row_id import RowKey, decode_buckets
from compactor.engine.formats import output_format
from compactor.engine.inputs import load_events, opened
from compactor.engine.memory import trimmed
from compactor.engine.results import Origin, OutputFile, RowCounts
from compactor.engine.task_directory import own_directory
from compactor.engine.task_results import checksum
from compactor.errors import CorruptFileError
from compactor.orc.deletes import DeleteEvents, visible
from compactor.orc.keys import read_keys
from compactor.orc.output import OutputFormat
from compactor.orc.recode import RowFilter, Source, Synthetic, recode, write_delete_events
from compactor.orc.splice import FileSummary, Splicer
from compactor.orc.tail import Tail, read_tail
from compactor.planning.document import Action, BucketPlan, DeleteScope, FormatSpec, InputFile, Segment
from compactor.reasons import Reason
from compactor.storage.base import ReadHandle, Storage
from compactor.storage.location import join, parent
from compactor.storage.registry import storage_for

OPEN_FILES: Final = 16


@dataclass(frozen=True, slots=True)
class Work:
    """
    What all tasks of one output file share.

    Args:
        location: the partition's directory; inputs are below it.
        tasks: where task attempts make their directories.
        own_write_id: with scope OWN, whose rows' deletes are applied.
    """

    location: str
    tasks: str
    directory: str
    kind: DirKind
    bucket: BucketPlan
    inputs: tuple[InputFile, ...]
    columns: tuple[tuple[str, str], ...]
    format: FormatSpec
    scope: DeleteScope
    own_write_id: int
    aborted: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChunkTask:
    """Recode one chunk of a bucket, or look at one stripe and recode it if it must be."""

    work: Work
    chunk: int
    segments: tuple[Segment, ...]

    @property
    def bytes(self) -> int:
        return sum(segment.bytes for segment in self.segments)


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """
    Args:
        path: the scratch file, relative to the staging directory; None when no row was left, or the stripe is to be copied.
        probed: what became of a stripe that had to be looked at.
        last: of a stripe that is to be copied: its last key.
    """

    directory: str
    bucket: int
    chunk: int
    path: str | None
    rows: RowCounts
    probed: Action | None = None
    last: RowKey | None = None


@dataclass(frozen=True, slots=True)
class BucketTask:
    """Write a bucket's file; `parts` are the chunks that other tasks have recoded, none when this task does it itself."""

    work: Work
    parts: tuple[ChunkResult, ...]

    @property
    def bytes(self) -> int:
        return sum(segment.bytes for segment in self.work.bucket.segments)


@dataclass(frozen=True, slots=True)
class DeleteTask:
    """Write a bucket's delete events, one per key."""

    work: Work

    @property
    def bytes(self) -> int:
        return sum(file.length for file in self.work.inputs)


def run_task(task: ChunkTask | BucketTask | DeleteTask) -> ChunkResult | OutputFile:
    """Run one task; give memory back afterwards, for the process is used again."""
    with trimmed():
        match task:
            case ChunkTask():
                return _Files(task.work).chunk(task)
            case BucketTask():
                return _Files(task.work).bucket(task)
            case DeleteTask():
                return _Files(task.work).deletes()


class _Files:
    """One task at work: its inputs, its output format, its directory."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._storage: Storage = storage_for(work.location)
        self._inputs = {file.path: file for file in work.inputs}
        self._output: OutputFormat = output_format(work.columns, work.format)
        self._aborted: npt.NDArray[np.int64] = np.array(work.aborted, dtype=np.int64)
        self._own, self._relative = own_directory(self._storage, work.tasks)
        self._events: DeleteEvents | None = None

    def chunk(self, task: ChunkTask) -> ChunkResult:
        name = f"chunk-{task.work.bucket.bucket:05d}-{task.chunk:05d}"
        here = (task.work.directory, task.work.bucket.bucket, task.chunk)
        if task.segments[0].action is Action.PROBE:
            answer, last, rows = self._probe(task.segments[0])
            if answer is Action.COPY:
                return ChunkResult(*here, None, RowCounts(rows, rows), answer, last)
        with self._storage.create(join(self._own, name)) as sink:
            splicer = Splicer(sink, self._output)
            counts = self._recode(task.segments, splicer)
            splicer.finish("insert")
        answered = Action.RECODE if task.segments[0].action is Action.PROBE else None
        return ChunkResult(*here, f"{self._relative}/{name}" if counts.written else None, counts, answered)

    def bucket(self, task: BucketTask) -> OutputFile:
        parts = {part.chunk: part for part in task.parts}
        bucket = self._work.bucket
        counts, origins, answers = RowCounts(), list[Origin](), list[Action]()
        done: set[int] = set()
        copied = recoded = 0
        with self._storage.create(join(self._own, bucket.name)) as sink, _Opened(self._storage, self._work.location) as files:
            splicer = Splicer(sink, self._output)
            for segment in bucket.segments:
                if segment.action is Action.COPY:
                    counts += self._copy(files, segment, splicer, origins, None)
                    copied += segment.bytes
                    continue
                if segment.chunk in done:
                    continue
                done.add(segment.chunk)
                together = [other for other in bucket.segments if other.chunk == segment.chunk]
                part = parts.get(segment.chunk) or self._here(together)
                if part is not None and part.probed is Action.COPY:
                    answers.append(Action.COPY)
                    counts += self._copy(files, segment, splicer, origins, part.last)
                    copied += segment.bytes
                    continue
                recoded += sum(other.bytes for other in together)
                if segment.action is Action.PROBE:
                    answers.append(Action.RECODE)
                before = splicer.rows
                if part is None:
                    counts += self._recode(together, splicer)
                else:
                    counts += part.rows
                    self._take_in(part, splicer)
                origins.append(Origin(None, -1, splicer.rows - before))
            summary = splicer.finish("insert")
        return self._finished(summary, counts, _counted(origins, summary.stripe_rows), copied=copied, recoded=recoded, answers=tuple(answers))

    def deletes(self) -> OutputFile:
        bucket = self._work.bucket
        events = self._load_events()
        if self._work.scope is DeleteScope.OWN:
            events = _chosen(events, np.asarray(events.write_id) != self._work.own_write_id)
        with self._storage.create(join(self._own, bucket.name)) as sink:
            splicer = Splicer(sink, self._output)
            write_delete_events(events, splicer)
            summary = splicer.finish("delete")
        read = sum(file.length for file in self._work.inputs)
        return self._finished(summary, RowCounts(len(events), summary.rows), (Origin(None, -1, summary.stripes),), recoded=read)

    def _finished(
        self, summary: FileSummary, counts: RowCounts, origins: tuple[Origin, ...], *, copied: int = 0, recoded: int = 0, answers: tuple[Action, ...] = ()
    ) -> OutputFile:
        """Report the file; one without rows is left behind, for empty files make readers fail (HIVE-25722)."""
        work, name = self._work, self._work.bucket.name
        crc = 0
        if summary.rows:
            with self._storage.open_read(join(self._own, name)) as reader:
                crc = checksum(reader)
        return OutputFile(
            path=f"{self._relative}/{name}" if summary.rows else "",
            directory=work.directory,
            kind=work.kind,
            name=name,
            bucket=work.bucket.bucket,
            length=summary.length,
            checksum=crc,
            rows=counts,
            stripes=summary.stripes,
            first=summary.first_key,
            last=summary.last_key,
            origins=origins,
            copied_bytes=copied,
            recoded_bytes=recoded,
            probed=answers,
        )

    def _here(self, segments: Sequence[Segment]) -> ChunkResult | None:
        """Look at a stripe in this task; None: recode."""
        if segments[0].action is not Action.PROBE:
            return None
        answer, last, rows = self._probe(segments[0])
        bucket = self._work.bucket.bucket
        return ChunkResult(self._work.directory, bucket, segments[0].chunk, None, RowCounts(rows, rows), answer, last) if answer is Action.COPY else None

    def _copy(self, files: "_Opened", segment: Segment, splicer: Splicer, origins: list[Origin], last: RowKey | None) -> RowCounts:
        reader, tail = files.get(self._inputs[segment.path])
        for index in segment.stripes:
            splicer.add_stripe(reader, tail, index, last)
            origins.append(Origin(segment.path, index, 1))
        return RowCounts(segment.rows, segment.rows)

    def _take_in(self, part: ChunkResult, splicer: Splicer) -> None:
        """Copy the stripes of a chunk's scratch file."""
        if part.path is None:
            return
        with self._storage.open_read(join(parent(self._work.tasks), part.path)) as reader:
            tail = read_tail(reader)
            for index in range(len(tail.stripes)):
                splicer.add_stripe(reader, tail, index)

    def _recode(self, segments: Sequence[Segment], splicer: Splicer) -> RowCounts:
        with ExitStack() as stack:
            sources = [self._source(stack, segment) for segment in segments]
            result = recode(sources, splicer, RowFilter(self._applied_events(), self._aborted))
        return RowCounts(result.rows_in, result.rows_out, result.deleted, result.aborted)

    def _source(self, stack: ExitStack, segment: Segment) -> Source:
        file = self._inputs[segment.path]
        reader = stack.enter_context(opened(self._storage, self._work.location, file.path))
        ids = file.synthetic
        synthetic = Synthetic(ids.write_id, ids.bucket_property, ids.first_row_id) if ids is not None else None
        return Source(reader, read_tail(reader, file.logical_length), segment.stripes, synthetic)

    def _probe(self, segment: Segment) -> tuple[Action, RowKey | None, int]:
        """Read the keys of a stripe: COPY with its last key if every row stays, else RECODE."""
        file = self._inputs[segment.path]
        events = self._applied_events()
        last: RowKey | None = None
        rows = 0
        with opened(self._storage, self._work.location, file.path) as reader:
            tail = read_tail(reader, file.logical_length)
            for keys in read_keys(reader, tail, segment.stripes[0]):
                if (decode_buckets(keys.bucket) != self._work.bucket.bucket).any():
                    raise CorruptFileError(Reason.WRONG_BUCKET, f"{file.path} holds rows of other buckets than {self._work.bucket.bucket}")
                if not visible(keys, self._aborted, None).all() or (events is not None and events.mask(keys).any()):
                    return Action.RECODE, None, segment.rows
                rows += len(keys)
                last = keys.key(-1)
        return Action.COPY, last, rows

    def _applied_events(self) -> DeleteEvents | None:
        """The events that hide rows of this bucket; read once per task."""
        if not self._work.bucket.deletes or self._work.kind is DirKind.DELETE_DELTA:
            return None
        if self._events is None:
            events = self._load_events()
            self._events = _chosen(events, np.asarray(events.write_id) == self._work.own_write_id) if self._work.scope is DeleteScope.OWN else events
        return self._events

    def _load_events(self) -> DeleteEvents:
        return bucket_events(
            self._storage, self._work.location, [self._inputs[path] for path in self._work.bucket.deletes], self._aborted, self._work.bucket.bucket
        )


def bucket_events(storage: Storage, location: str, files: Sequence[InputFile], aborted: npt.NDArray[np.int64], bucket: int) -> DeleteEvents:
    """The valid delete events of one bucket from some delete files."""
    tails = []
    for file in files:
        with opened(storage, location, file.path) as reader:
            tails.append((file.path, read_tail(reader, file.logical_length)))
    return load_events(storage, location, tails, aborted).for_bucket(bucket)


def _counted(origins: Sequence[Origin], stripe_rows: Sequence[int]) -> tuple[Origin, ...]:
    """Turn the rows of recoded parts into the stripes that hold them."""
    counted = []
    at = 0
    for origin in origins:
        start, rows = at, 0
        while origin.path is None and rows < origin.count:
            rows += stripe_rows[at]
            at += 1
        if origin.path is not None:
            at += 1
        if at > start:
            counted.append(Origin(origin.path, origin.stripe, at - start))
    return tuple(counted)


def _chosen(events: DeleteEvents, chosen: npt.NDArray[np.bool_]) -> DeleteEvents:
    return DeleteEvents(events.write_id[chosen], events.bucket[chosen], events.row_id[chosen], events.current[chosen])


class _Opened:
    """Inputs that stripes are copied from, with their tails; some stay open, for neighbouring segments often share a file."""

    def __init__(self, storage: Storage, location: str) -> None:
        self._storage = storage
        self._location = location
        self._open: OrderedDict[str, tuple[ExitStack, ReadHandle, Tail]] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for stack, _reader, _tail in self._open.values():
            stack.close()

    def get(self, file: InputFile) -> tuple[ReadHandle, Tail]:
        found = self._open.get(file.path)
        if found is None:
            stack = ExitStack()
            reader = stack.enter_context(opened(self._storage, self._location, file.path))
            found = (stack, reader, read_tail(reader, file.logical_length))
            self._open[file.path] = found
            if len(self._open) > OPEN_FILES:
                self._open.popitem(last=False)[1][0].close()
        self._open.move_to_end(file.path)
        return found[1], found[2]
