"""
Plans a compaction of a full-ACID table from its selected files, and runs the plan as jobs.

Planning reads tails and delete events on the driver. A first job recodes chunks and writes whole buckets; a second job
puts together the buckets that were cut into several chunks. Of large buckets these jobs make only the layout where the
store allows it, and more jobs write their files in pieces.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from compactor.acid.compaction import LayoutVersion
from compactor.acid.types import ACID_NAMES, row_type
from compactor.engine.delete_files import Deletes
from compactor.engine.inputs import file_facts, read_tails
from compactor.engine.output_format import output_format
from compactor.engine.results import Checked, OutputFile
from compactor.engine.spread import Spreading
from compactor.engine.tasks.buckets import run_task
from compactor.engine.tasks.layout import Layout
from compactor.engine.tasks.specs import (
    BucketTask,
    ChunkResult,
    ChunkTask,
    FileWork,
    LayoutTask,
    Shared,
    inputs_of,
    work_of,
)
from compactor.engine.verify.at_once import run_and_verify
from compactor.errors import RefusedError
from compactor.orc.format.tail import Tail
from compactor.orc.writing.output import compatible
from compactor.planning.document import CompactionPlan, DeleteScope, FileRole
from compactor.planning.format import choose_format
from compactor.planning.plan import plan, prepare
from compactor.planning.segments import Sizes
from compactor.planning.select import Selection
from compactor.reasons import Reason
from compactor.spark.submitter import JobName, Submitter
from compactor.storage.base import Storage

AT_ONCE_BYTES: Final = 16 << 20
"""Bytes of inputs up to which one job writes the result and checks it."""


def _require_telling_names(names: Sequence[str]) -> None:
    """
    Refuse a table whose columns are called as those of a full ACID file: Hive reads its original files, but neither
    reads nor writes ACID files of such a table.

    Raises:
        RefusedError: UNSUPPORTED_FORMAT.

    Source: ORC's SchemaEvolution.checkAcidSchema, which doesn't look at letters' case.
    """
    if [name.lower() for name in names] == [name.lower() for name in ACID_NAMES]:
        what = f"the table's columns have the names of a full ACID file's own columns ({', '.join(names)})"
        raise RefusedError(Reason.UNSUPPORTED_FORMAT, f"{what}: Hive can't read such a table from ACID files")


def plan_full_acid(
    storage: Storage, selection: Selection, location: str, *, sizes: Sizes, stripe_bytes: int
) -> CompactionPlan:
    """
    Read the tails and delete events that planning needs, and plan.

    Args:
        stripe_bytes: size of recoded stripes, unless a property sets another one.

    Raises:
        RefusedError: with its reason; nothing was written.
    """
    _require_telling_names([name for name, _ in selection.spec.columns])
    wanted = [file for file in selection.all_files if not file.empty]
    reads = read_tails(storage, location, wanted, zones=selection.layout is LayoutVersion.HIVE_3)
    tails: dict[str, Tail] = {read.file.path: read.tail for read in reads if read.tail is not None}
    columns = row_type(selection.spec.columns)
    rule = selection.spec.columns_by
    facts = {read.file.path: file_facts(read, columns, rule, layout=selection.layout) for read in reads}
    chosen = choose_format(
        selection.spec,
        selection.layout,
        [facts[file.path] for file in selection.inserts if file.path in facts],
        stripe_bytes,
        sizes.min_stripe,
    )
    output = output_format(selection.spec.columns, chosen)
    for read in reads:
        if read.tail is not None and read.tail.is_acid and read.file.role is not FileRole.DELETE_DELTA:
            why = compatible(read.tail, output)
            if why is not None:
                facts[read.file.path] = file_facts(read, columns, rule, why, layout=selection.layout)
    prepared = prepare(selection, facts)
    deletes = Deletes(storage, location, prepared.deletes, tails, selection.aborted, sizes.events)
    own = selection.min_write_id if prepared.delete_scope is DeleteScope.OWN else None
    known = {}
    buckets = dict(prepared.buckets)
    for bucket in deletes.buckets():
        if selection.major and bucket not in buckets:
            continue
        rows = buckets.get(bucket, ()) if prepared.delete_scope is not DeleteScope.NONE else ()
        several = sum(source.facts.bytes for source in rows) > sizes.chunk
        known[bucket], judged = deletes.look(bucket, rows, own, by_file=several)
        if judged:
            buckets[bucket] = judged
    return plan(replace(prepared, buckets=buckets), known, chosen, location, sizes)


def run_full_acid(
    document: CompactionPlan,
    tasks: str,
    submitter: Submitter,
    job: JobName,
    *,
    digests: bool,
    together: int,
    progress: Callable[[float], None],
    cancelled: Callable[[], bool],
) -> tuple[list[OutputFile], list[Checked] | None]:
    """
    Run a plan's jobs; returns the finished files (those of buckets without rows have no path), and the checks of their
    stripes where the tasks have checked them, too.

    A small compaction is written and checked in one job, since a job takes longer than its work.

    Args:
        tasks: location of the staging directory's `tasks`.
        digests: whether to make digests of recoded rows, so that their values can be verified.
        together: bytes of a bucket's chunks up to which one task recodes them all.
    """
    spreading = Spreading(submitter, job.at("assemble"), tasks, cancelled)
    piece_bytes = spreading.piece_bytes(document)
    shared, first, later = _tasks(document, tasks, digests=digests, together=together, spread=piece_bytes is not None)
    if piece_bytes is None and not later and sum(task.bytes for task in first) <= AT_ONCE_BYTES:
        verified = submitter.run(
            job.at("assemble, verify"), partial(run_and_verify, shared), first, progress=progress, cancelled=cancelled
        )
        return [file for file, _ in verified], [checked for _, checked in verified if checked is not None]
    pieces = 0 if piece_bytes is None else document.pieces
    every = max(1, len(first) + len(later) + pieces)

    def share(before: int, count: int) -> Callable[[float], None]:
        return lambda done: progress((before + done * count) / every)

    step = job.at("recode" if later else "assemble")
    made = submitter.run(step, partial(run_task, shared), first, progress=share(0, len(first)), cancelled=cancelled)
    second = _with_parts(later, [result for result in made if isinstance(result, ChunkResult)])
    run = partial(run_task, Shared.of(document))
    joining = job.at("assemble")
    made += submitter.run(joining, run, second, progress=share(len(first), len(second)), cancelled=cancelled)
    files = [result for result in made if isinstance(result, OutputFile)]
    layouts = [result for result in made if isinstance(result, Layout)]
    if piece_bytes is None or not layouts:
        return files, None
    wide = {_place(task.work): task.bucket for task in (*first, *second) if isinstance(task, LayoutTask)}
    written = spreading.write(layouts, piece_bytes, share(len(first) + len(second), pieces))
    alone = [
        wide[layout.file.directory, layout.file.bucket]
        for layout, file in zip(layouts, written, strict=True)
        if file is None
    ]
    refused = submitter.run(joining, run, alone, progress=lambda _: None, cancelled=cancelled)
    files += [result for result in refused if isinstance(result, OutputFile)]
    return files + [file for file in written if file is not None], None


def _tasks(
    document: CompactionPlan, tasks: str, *, digests: bool, together: int, spread: bool = False
) -> tuple[Shared, list[ChunkTask | BucketTask | LayoutTask], list[BucketTask | LayoutTask]]:
    """
    The tasks that can start at once, with what they share, and those that need chunks which other tasks recode; the
    largest come first.

    Args:
        spread: whether large files are written by several tasks.
    """
    first: list[ChunkTask | BucketTask | LayoutTask] = []
    later: list[BucketTask | LayoutTask] = []
    cut: list[FileWork] = []
    inputs = inputs_of(document)
    for output in document.outputs:
        for bucket in output.buckets:
            work = work_of(document, output, bucket, tasks, inputs=inputs, digests=digests)
            wide = spread and bucket.large
            whole = LayoutTask(BucketTask(work)) if wide else BucketTask(work)
            chunks = document.apart(bucket, 0 if wide else together)
            if not chunks:
                first.append(whole)
                continue
            later.append(whole)
            first += [ChunkTask(len(cut), chunk) for chunk in chunks]
            cut.append(work.part(()))
    shared = Shared.of(document, cut)
    return shared, sorted(first, key=lambda task: -task.bytes), sorted(later, key=lambda task: -task.bytes)


def _with_parts(
    tasks: Sequence[BucketTask | LayoutTask], chunks: Sequence[ChunkResult]
) -> list[BucketTask | LayoutTask]:
    """The tasks, each with the chunks of its file."""
    parts: dict[tuple[str, int], list[ChunkResult]] = {}
    for part in chunks:
        parts.setdefault((part.directory, part.bucket), []).append(part)
    return [task.joining(parts[_place(task.work)]) for task in tasks]


def _place(work: FileWork) -> tuple[str, int]:
    return work.directory, work.bucket.bucket
