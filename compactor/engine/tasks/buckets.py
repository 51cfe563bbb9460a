"""
Runs the tasks of full-ACID tables on executors.

A chunk task recodes one part of a bucket into a scratch file; a bucket task copies stripes, takes in recoded parts, and
writes the bucket's one file; a delete task writes the delete events of one bucket. Each task writes only below a
directory of its own, so a task that is repeated, runs twice, or goes on after its compaction was discarded, does no
harm. Tasks read tails and delete events again, so that plans stay small enough to send.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from compactor.acid.names import DirKind
from compactor.acid.row_id import RowKey, decode_buckets
from compactor.engine.delete_files import DeleteFiles
from compactor.engine.digest_note import note_of
from compactor.engine.inputs import OpenInputs
from compactor.engine.output_format import output_format
from compactor.engine.results import Origin, OutputFile, RowCounts, counted
from compactor.engine.tasks.delete_windows import Written, require_planned, spanning
from compactor.engine.tasks.directory import own_directory
from compactor.engine.tasks.memory import trimmed
from compactor.engine.tasks.specs import BucketTask, ChunkResult, ChunkTask, FileWork, Shared
from compactor.errors import CorruptFileError
from compactor.orc.digests.digest import Digest, Digester
from compactor.orc.events.deletes import DeleteEvents, visible
from compactor.orc.events.event_share import Share
from compactor.orc.events.keys import read_keys
from compactor.orc.format.tail import read_tail
from compactor.orc.reading.single_stripe import BATCH_ROWS
from compactor.orc.recode import MadeStripes, recode_into, write_delete_events
from compactor.orc.rows import RowFilter, StripeSource
from compactor.orc.writing.output import OutputFormat
from compactor.orc.writing.splice import FileSummary, Splicer
from compactor.planning.document import EVERY_FILE, Action, Cut, DeleteScope, FileRole, Segment, all_hit_by
from compactor.planning.document import together as runs_of
from compactor.reasons import Reason
from compactor.spark.results import checksum
from compactor.storage.base import Storage
from compactor.storage.location import join, parent
from compactor.storage.registry import storage_for


def run_task(shared: Shared, task: ChunkTask | BucketTask) -> ChunkResult | OutputFile:
    """Run one task, then return free memory to the system: the process runs further tasks."""
    with trimmed():
        if isinstance(task, ChunkTask):
            whole: FileWork = shared.file(task.file)
            return _Files(shared, whole.part(task.segments)).chunk(task.chunk)
        files = _Files(shared, task.work)
        return files.deletes() if task.work.kind is DirKind.DELETE_DELTA else files.bucket(task)


class _Files:
    """A running task with its inputs, its output format and its directory."""

    def __init__(self, shared: Shared, work: FileWork) -> None:
        self._work = work
        self._storage: Storage = storage_for(work.location)
        self._inputs = {file.path: file for file in work.inputs}
        self._output: OutputFormat = output_format(shared.columns, work.format)
        self._aborted: npt.NDArray[np.int64] = np.array(shared.aborted, dtype=np.int64)
        self._own, self._relative = own_directory(self._storage, work.tasks)
        deletes = [self._inputs[path] for path in work.bucket.deletes]
        self._deletes = DeleteFiles(self._storage, work.location, deletes, self._aborted, work.events_at_once)

    def chunk(self, number: int) -> ChunkResult:
        bucket, segments = self._work.bucket.bucket, self._work.bucket.segments
        name = f"chunk-{bucket:05d}-{number:05d}"
        here = (self._work.directory, bucket, number)
        first = segments[0]
        if first.action is Action.PROBE:
            answer, last = self._probe(first)
            if answer is Action.COPY:
                return ChunkResult(*here, None, RowCounts(first.rows, first.rows), answer, last)
        with self._storage.create(join(self._own, name)) as sink:
            splicer = Splicer(sink, self._output)
            counts, digest, parts = self._recode(segments, splicer)
            splicer.finish("insert")
        answered = Action.RECODE if first.action is Action.PROBE else None
        return ChunkResult(
            *here, f"{self._relative}/{name}" if counts.written else None, counts, answered, digest=digest, parts=parts
        )

    def bucket(self, task: BucketTask) -> OutputFile:
        bucket = self._work.bucket
        made = {part.chunk: part for part in task.parts}
        joined = _Joined(digest=task.digest)
        with (
            self._storage.create(join(self._own, bucket.name)) as sink,
            OpenInputs(self._storage, self._work.location) as files,
        ):
            splicer = Splicer(sink, self._output)
            for together in _by_chunk(bucket.segments):
                self._join(joined, together, made.get(together[0].chunk), splicer, files)
            summary = splicer.finish("insert", note_of(joined.digest, joined.origins, splicer.stripe_rows))
        return self._finished(summary, joined)

    def _join(
        self,
        joined: "_Joined",
        together: Sequence[Segment],
        part: ChunkResult | None,
        splicer: Splicer,
        files: OpenInputs,
    ) -> None:
        """Append the segments of one chunk: copy the stripe, take in the part that another task recoded, or recode."""
        first, size = together[0], sum(segment.bytes for segment in together)
        copy, last = first.action is Action.COPY, None
        if first.action is Action.PROBE:
            answer, last = (part.probed, part.last) if part is not None else self._probe(first)
            copy = answer is Action.COPY
        if copy:
            joined.copied += size
            joined.counts += self._copy(files, first, splicer, joined.origins, last)
            return
        joined.recoded += size
        if part is None:
            counts, digest, parts = self._recode(together, splicer)
        else:
            counts, digest, parts = part.rows, part.digest, part.parts
            self._take_in(part, splicer)
        joined.counts += counts
        joined.digest += digest
        hit_by = all_hit_by(segment.hit_by for segment in together)
        joined.origins += [Origin(None, -1, made.rows, made.checksum, hit_by) for made in parts]

    def deletes(self) -> OutputFile:
        without = self._work.own_write_id if self._work.scope is DeleteScope.OWN else None
        written = Written(self._deletes, self._work.bucket.bucket, without)
        with self._storage.create(join(self._own, self._work.bucket.name)) as sink:
            summary = write_delete_events(written.blocks(BATCH_ROWS), self._output, sink)
        read = sum(file.length for file in self._work.inputs)
        return self._finished(
            summary, _Joined(RowCounts(written.count, summary.rows), [Origin(None, -1, summary.rows)], recoded=read)
        )

    def _finished(self, summary: FileSummary, joined: "_Joined") -> OutputFile:
        """Report the file; without rows it isn't published, because readers have failed on empty files (HIVE-25722)."""
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
            rows=joined.counts,
            stripes=summary.stripes,
            first=summary.first_key,
            last=summary.last_key,
            origins=counted(joined.origins, summary.stripe_rows),
            copied_bytes=joined.copied,
            recoded_bytes=joined.recoded,
            digest=joined.digest,
        )

    def _copy(
        self, files: OpenInputs, segment: Segment, splicer: Splicer, origins: list[Origin], last: RowKey | None
    ) -> RowCounts:
        file = self._inputs[segment.path]
        tail = files.tail(file)
        reader = files.handle(file)  # the store's own handle, so that the store can copy by itself
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

    def _recode(
        self, segments: Sequence[Segment], splicer: Splicer
    ) -> tuple[RowCounts, Digest, tuple[MadeStripes, ...]]:
        """Append the visible rows of some segments; returns their counts, the digest of those encoded anew, and the stripes."""
        digester = Digester(self._output.row) if self._work.digests else None
        with OpenInputs(self._storage, self._work.location) as files:
            runs = runs_of(_alike(segment) for segment in segments)
            sources = [files.source(self._inputs[run.path], run.stripes) for run in runs]
            events = self._applied_events(sources, segments)
            result = recode_into(sources, splicer, RowFilter(events, self._aborted), digester=digester)
        digest = Digest() if digester is None else digester.digest
        return RowCounts(result.rows_in, result.rows_out, result.deleted, result.aborted), digest, result.parts

    def _probe(self, segment: Segment) -> tuple[Action, RowKey | None]:
        """Read the keys of a stripe: COPY with its last key if every row stays, else RECODE."""
        file = self._inputs[segment.path]
        last: RowKey | None = None
        with OpenInputs(self._storage, self._work.location) as files:
            events = self._applied_events([files.source(file, segment.stripes)], [segment])
            for keys in read_keys(files.reader(file), files.tail(file), segment.stripes[0]):
                if not keys.ascending() or (last is not None and keys.key(0) <= last):
                    raise CorruptFileError(f"{file.path}: stripe {segment.stripes[0] + 1} isn't sorted by ROW__ID")
                if (decode_buckets(keys.bucket) != self._work.bucket.bucket).any():
                    raise CorruptFileError(
                        f"{file.path} holds rows of other buckets than {self._work.bucket.bucket}", Reason.WRONG_BUCKET
                    )
                kept = file.role is FileRole.BASE or visible(keys, self._aborted, None).all()
                if not kept or (events is not None and events.mask(keys).any()):
                    return Action.RECODE, None
                last = keys.key(-1)
        return Action.COPY, last

    def _applied_events(self, sources: Sequence[StripeSource], segments: Sequence[Segment]) -> DeleteEvents | None:
        """
        The events that hide rows of some stripes, from the delete files that hit these.

        Raises:
            VerificationError: as `require_planned`.
        """
        if not self._work.bucket.deletes:
            return None
        hit_by = all_hit_by(segment.hit_by for segment in segments)
        events = self._deletes.load(Share(self._work.bucket.bucket, *(spanning(sources) or ())), hit_by)
        if hit_by != EVERY_FILE:
            require_planned(events, sources, sum(segment.events for segment in segments))
        return (
            events.select(np.asarray(events.write_id) == self._work.own_write_id)
            if self._work.scope is DeleteScope.OWN
            else events
        )


def _alike(segment: Segment) -> Segment:
    """The segment without what doesn't matter to reading it: neighbours of one file are read as one source."""
    return replace(segment, action=Action.RECODE, reason="", cut=Cut.NO)


def _by_chunk(segments: Sequence[Segment]) -> list[tuple[Segment, ...]]:
    """Group segments in order: those of one chunk together, each copied segment by itself."""
    groups: list[list[Segment]] = []
    for segment in segments:
        if groups and segment.chunk >= 0 and groups[-1][0].chunk == segment.chunk:
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return [tuple(group) for group in groups]


@dataclass(slots=True)
class _Joined:
    """Counts and origins of a bucket's file, added up while it is written."""

    counts: RowCounts = field(default_factory=RowCounts)
    origins: list[Origin] = field(default_factory=list)
    digest: Digest = field(default_factory=Digest)
    copied: int = 0
    recoded: int = 0
