"""
What of a plan is cut smaller so that a task's memory suffices, in sentences; and what can't be cut small enough.

Pure. A task holds the delete events between the first and the last key of its chunk, so chunks are cut by events as well as by bytes (`segments`). The chunk of
a single stripe, or of stripes that must be merged, can't be cut: what doesn't fit into memory goes to the executor's disk, as far as that is allowed.
Source: docs/spark.md, "Memory".
"""

from collections.abc import Sequence
from dataclasses import replace

from compactor.errors import RefusedError
from compactor.planning.document import Action, BucketPlan, Segment
from compactor.planning.segments import Sizes, Source, segments
from compactor.reasons import Reason

EVENT_BYTES = 256
"""Memory of a task for each delete event that it may hold: 28 bytes, some times over while they are sorted, and as much again for the rows themselves."""
SPILLED_BYTES = 84
"""Disk for each event that doesn't fit: 28 bytes, in a run, in the merged run, and in the one being made."""


def within_memory(bucket: BucketPlan, sources: Sequence[Source], sizes: Sizes) -> list[str]:
    """
    What was done about one output file's delete events.

    Raises:
        RefusedError: LIMIT_EXCEEDED, the smallest chunk has more of them than a task may hold, on disk too.
    """
    if not bucket.deletes or bucket.delete_events <= sizes.events:
        return []
    said = []
    chunks, before = _chunks(bucket.segments), _chunks(segments(sources, replace(sizes, events=bucket.delete_events + sum(_all_events(sources)))))
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
    """How the delete events of a bucket are written, where they don't fit into memory together."""
    if side.delete_events <= sizes.events:
        return []
    windows, memory = -(-side.delete_events // sizes.events), f"a task may hold {sizes.events} of its {side.delete_events} in memory"
    return [f"the delete events of {side.name} are joined in {windows} passes because {memory} ({sizes.events_limited_by})"]


def _chunks(laid: Sequence[Segment]) -> dict[int, int]:
    """Delete events of each chunk."""
    found: dict[int, int] = {}
    for segment in laid:
        if segment.action is not Action.COPY:
            found[segment.chunk] = found.get(segment.chunk, 0) + segment.events
    return found


def _all_events(sources: Sequence[Source]) -> list[int]:
    return [stripe.events for source in sources for stripe in source.facts.stripes]
