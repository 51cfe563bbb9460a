"""
How much memory of Spark's driver a plan's tasks take.

Pure. The driver's JVM holds each task of a job as it is sent, and its result until the job has ended; what the tasks
share is sent from a file. A driver without enough memory dies after hours of work, and takes the other compactions of
its session along; so the plan is refused before anything starts.
Source: measured with PySpark 4.1 (docs/spark.md, "The driver's memory").
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from compactor.errors import RefusedError
from compactor.planning.document import CompactionPlan, InputFile, Segment
from compactor.reasons import Reason

JVM_BYTES: Final = 256 << 20
"""Spark itself, without tasks."""
TASK_BYTES: Final = 4 << 10
"""What Spark notes of a task while its job runs."""
_TIMES: Final = 2
"""How often the content of a task or result is in the heap while it is sent or received."""
_PART_BYTES: Final = 300
_STRIPES_PER_CHECK: Final = 8
_COPIES_PER_TASK: Final = 200
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class _Job:
    """Tasks of one job, and the bytes of tasks and results."""

    tasks: int
    bytes: int

    @property
    def heap(self) -> int:
        return self.tasks * TASK_BYTES + _TIMES * self.bytes


def within_driver(plan: CompactionPlan, together: int, limit: int | None, mend: str) -> CompactionPlan:
    """
    The plan with the tasks of its largest job and the memory that the driver needs in its prediction.

    Args:
        together: as in `CompactionPlan.apart`.
        limit: the memory of the driver's heap; None: it isn't known.
        mend: how to give the driver more memory, for a sentence.

    Raises:
        RefusedError: LIMIT_EXCEEDED, the driver would have too little.
    """
    jobs = _whole_files(plan) if plan.insert_only else _full_acid(plan, together)
    largest = max(jobs, key=lambda job: job.heap)
    needed = JVM_BYTES + largest.heap
    if limit is not None and needed > limit:
        wanted = -(-needed // (_MIB << 8)) << 8
        raise RefusedError(
            Reason.LIMIT_EXCEEDED,
            f"{plan.entity}: {largest.tasks} tasks take about {needed // _MIB} MiB of Spark's driver, which has "
            f"{limit // _MIB}: set spark.driver.memory to at least {wanted}m {mend}",
        )
    return replace(plan, prediction=replace(plan.prediction, tasks=largest.tasks, driver_bytes=needed))


def _full_acid(plan: CompactionPlan, together: int) -> Sequence[_Job]:
    """The job that recodes chunks and writes whole files, the one that joins chunks, and the one that checks."""
    digest = _PART_BYTES + 10 * len(plan.columns)
    inputs = {file.path: _of_input(file) for file in plan.inputs}
    first, first_bytes, later, later_bytes = 0, 0, 0, 0
    for output in plan.outputs:
        for bucket in output.buckets:
            chunks = plan.apart(bucket, together)
            used = {segment.path for segment in bucket.segments}.union(bucket.deletes)
            whole = 400 + digest + _of_segments(bucket.segments) + sum(inputs[path] for path in used)
            first += len(chunks) or 1
            if chunks:
                first_bytes += sum(200 + digest + _of_segments(chunk) for chunk in chunks)
                later, later_bytes = later + 1, later_bytes + whole + len(chunks) * _PART_BYTES
            else:
                first_bytes += whole
    files = sum(len(output.buckets) for output in plan.outputs)
    checks = files + plan.prediction.stripes_after // _STRIPES_PER_CHECK
    check_bytes = 100 * plan.prediction.stripes_after + checks * (200 + digest)
    return _Job(first, first_bytes), _Job(later, later_bytes), _Job(checks, check_bytes)


def _whole_files(plan: CompactionPlan) -> Sequence[_Job]:
    joins = [join for output in plan.outputs for join in output.joins]
    copies = [copy for output in plan.outputs for copy in output.copies]
    size = sum(2 * (150 + len(copy.path) + len(copy.name)) for copy in copies)
    size += sum(500 + _of_segments(join.segments) for join in joins) + sum(map(_of_input, plan.inputs))
    return (_Job(len(joins) + -(-len(copies) // _COPIES_PER_TASK), size),)


def _of_segments(segments: Iterable[Segment]) -> int:
    return sum(
        90 + len(one.path) + len(one.reason) + 5 * len(one.stripes) + one.hit_by.bit_length() // 8 for one in segments
    )


def _of_input(file: InputFile) -> int:
    return 100 + len(file.path) + len(file.directory) + len(file.version)
