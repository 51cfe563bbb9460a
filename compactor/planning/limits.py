"""
Fits a plan to the memory of a task and the space of the store; explains in sentences what was cut, and refuses what
can't be cut small enough.

Pure. A task holds the delete events between the first and the last key of its chunk, so chunks are cut by events as
well as by bytes (`segments`). The chunk of a single stripe, or of stripes that must be merged, can't be cut: the events
that don't fit into memory go to the executor's disk, up to the allowed amount.

`fitted` makes a plan need less space on the store. Chunks that are recoded in tasks of their own exist twice until the
file of their bucket is assembled, so where space is short each bucket becomes one task.
Source: docs/spark.md, "Memory".
"""

from collections.abc import Sequence
from dataclasses import replace

from compactor.errors import RefusedError
from compactor.planning.document import Action, BucketPlan, CompactionPlan, Segment
from compactor.planning.segments import SegmentSource, Sizes, segments
from compactor.reasons import Reason

EVENT_BYTES = 256
"""
Memory of a task for each delete event that it may hold: 28 bytes, several times over while events are sorted, and as
much again for the rows themselves.
"""
SPILLED_BYTES = 84
"""
Disk for each event that doesn't fit into memory: 28 bytes each in a run, in the merged run, and in the one being made.
"""


def fitted(
    plan: CompactionPlan, room_bytes: int | None, room_names: int | None, limited_by: str, reason: Reason
) -> CompactionPlan:
    """
    The plan, or a slower one that needs less space.

    Args:
        room_bytes, room_names: bytes of content, and files and directories, that may be written; None: no limit.
        limited_by: the source of these limits, for a sentence.
        reason: of the refusal.

    Raises:
        RefusedError: even the slower plan doesn't fit; with the figures.
    """
    excess = _excess(plan, room_bytes, room_names)
    if excess is None:
        return plan
    slower = replace(plan, one_by_one=True)
    still = _excess(slower, room_bytes, room_names)
    if still is not None:
        raise RefusedError(reason, f"{plan.entity}: {still}: {limited_by} is the limit")
    instead = f"one task for each bucket instead of {plan.chunks} chunks side by side"
    why = f"{instead} because {excess}: {limited_by} is the limit"
    return replace(slower, warnings=(*plan.warnings, why))


def _excess(plan: CompactionPlan, room_bytes: int | None, room_names: int | None) -> str | None:
    if room_bytes is not None and plan.bytes_needed > room_bytes:
        return f"the result needs about {plan.bytes_needed} bytes, {room_bytes} are free at {plan.location}"
    if room_names is not None and plan.names_needed > room_names:
        return f"the result needs about {plan.names_needed} files and directories, {room_names} are left at {plan.location}"
    return None


def within_memory(bucket: BucketPlan, sources: Sequence[SegmentSource], sizes: Sizes) -> list[str]:
    """
    Sentences about the measures that keep one output file's delete events within a task's memory.

    Raises:
        RefusedError: LIMIT_EXCEEDED; the smallest possible chunk has more events than a task may hold even on disk.
    """
    if not bucket.deletes or bucket.delete_events <= sizes.events:
        return []
    said = []
    every = bucket.delete_events + sum(stripe.events for source in sources for stripe in source.facts.stripes)
    chunks, before = _chunks(bucket.segments), _chunks(segments(sources, replace(sizes, events=every)))
    if len(chunks) > len(before):
        said.append(
            f"{bucket.name} is planned in {len(chunks)} chunks instead of {len(before)} because its {bucket.delete_events} delete events don't fit into the memory "
            f"of one task: {sizes.events} do ({sizes.events_limited_by})"
        )
    largest = min(max(chunks.values(), default=0), bucket.delete_events)
    if largest > sizes.spilled_events:
        raise RefusedError(
            Reason.LIMIT_EXCEEDED,
            f"{bucket.name}: rows that can't be divided have {largest} delete events; a task may hold {sizes.events} in memory ({sizes.events_limited_by}) or "
            f"{sizes.spilled_events} on disk (limits.task_scratch_bytes)",
        )
    if largest > sizes.events:
        said.append(
            f"{bucket.name}: a chunk that can't be divided has {largest} delete events; about {largest * SPILLED_BYTES} bytes of them go to the executor's disk"
        )
    return said


def in_windows(side: BucketPlan, sizes: Sizes) -> list[str]:
    """
    A sentence on the passes in which a bucket's delete events are written, where they don't fit into memory together.
    """
    if side.delete_events <= sizes.events:
        return []
    windows = -(-side.delete_events // sizes.events)
    memory = f"a task may hold {sizes.events} of its {side.delete_events} in memory ({sizes.events_limited_by})"
    return [f"the delete events of {side.name} are joined in {windows} passes because {memory}"]


def _chunks(laid: Sequence[Segment]) -> dict[int, int]:
    """Delete events of each chunk."""
    found: dict[int, int] = {}
    for segment in laid:
        if segment.action is not Action.COPY:
            found[segment.chunk] = found.get(segment.chunk, 0) + segment.events
    return found
