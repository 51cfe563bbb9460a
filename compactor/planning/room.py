"""
Whether there is room for what a plan writes, and what can be done where there isn't enough for the quickest way.

Pure. Chunks that are recoded in tasks of their own exist twice until their bucket's file is put together. Where that is too much, each bucket is one task.
"""

from dataclasses import replace

from compactor.errors import RefusedError
from compactor.planning.document import CompactionPlan
from compactor.reasons import Reason


def fitted(plan: CompactionPlan, room_bytes: int | None, room_names: int | None, limited_by: str, reason: Reason) -> CompactionPlan:
    """
    The plan, or a slower one that needs less room.

    Args:
        room_bytes, room_names: bytes of content, and files and directories, that may be written; None: any.
        limited_by: what sets these limits, for a sentence.
        reason: of the refusal.

    Raises:
        RefusedError: it doesn't fit at all; with the figures.
    """
    excess = _excess(plan, room_bytes, room_names)
    if excess is None:
        return plan
    slower = replace(plan, one_by_one=True)
    still = _excess(slower, room_bytes, room_names)
    if still is not None:
        raise RefusedError(reason, f"{plan.entity}: {still}: {limited_by} is the limit")
    chunks = sum(len({segment.chunk for segment in bucket.segments if segment.chunk >= 0}) for output in plan.outputs for bucket in output.buckets)
    why = f"one task for each bucket instead of {chunks} chunks side by side because {excess}: {limited_by} is the limit"
    return replace(slower, warnings=(*plan.warnings, why))


def _excess(plan: CompactionPlan, room_bytes: int | None, room_names: int | None) -> str | None:
    if room_bytes is not None and plan.bytes_needed > room_bytes:
        return f"the result needs about {plan.bytes_needed} bytes, {room_bytes} are free at {plan.location}"
    if room_names is not None and plan.names_needed > room_names:
        return f"the result needs about {plan.names_needed} files and directories, {room_names} are left at {plan.location}"
    return None
