"""
Splits a compaction that would exceed a limit into several smaller ones.

Pure: takes a resolved state and the limits, returns the directories of the next part. When there are too many deltas,
or the file system has no space for the whole result beside its inputs, minors join contiguous runs of deltas first.
Where a minor can't be published (it would need two renames, which can't be made atomic), the part is a major of the
base and the lowest deltas. Runs are cut only between write ids: a result never covers the range of a directory that it
doesn't include.

Each part leaves fewer directories than it found, so the parts come to an end. A run may begin above left-out
directories only if these can't hold rows of aborted writes, because a compaction reports that it has dealt with
everything up to its highest write id.
Source: docs/compaction.md; Hive's CompactorMR (`hive.compactor.max.num.delta`).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from compactor.acid.compaction import CompactionKind
from compactor.acid.names import DirKind
from compactor.acid.snapshot import AcidState, ListedDir, data_files
from compactor.planning.document import PlanParts
from compactor.reasons import Reason
from compactor.words import plural

MOST_COUNTED: Final = 99
"""Largest forecast of the number of parts; beyond it the forecast says "more than"."""


@dataclass(frozen=True, slots=True)
class PartLimits:
    """
    Limits of one compaction.

    Args:
        deltas: directories of deltas and delete deltas (`limits.deltas`); exceeded only where a single write id has
            more, or where the fewest that can be joined are more.
        bytes: bytes that the compaction may write beside its inputs; None: no limit.
        limited_by: the source of `bytes`, for a sentence.
        reason: of the refusal when no part keeps to the limits.
    """

    deltas: int
    bytes: int | None = None
    limited_by: str = ""
    reason: Reason = Reason.LIMIT_EXCEEDED


@dataclass(frozen=True, slots=True)
class Part:
    """The next compaction: its kind and its deltas; `parts` is None when it is the whole."""

    kind: CompactionKind
    deltas: tuple[ListedDir, ...]
    parts: PlanParts | None = None


@dataclass(frozen=True, slots=True)
class Excess:
    """Not even the smallest part keeps to the limits; `sentence` gives the figures."""

    sentence: str


@dataclass(frozen=True, slots=True)
class _EventBlock:
    """Directories that only go together: those of one write id, and overlapping ones."""

    dirs: int
    inserts: int
    deletes: int
    bytes: int
    aborted: bool

    def __add__(self, other: "_EventBlock") -> "_EventBlock":
        return _EventBlock(
            self.dirs + other.dirs,
            self.inserts + other.inserts,
            self.deletes + other.deletes,
            self.bytes + other.bytes,
            self.aborted or other.aborted,
        )

    @property
    def joinable(self) -> bool:
        """Whether a minor of the block joins anything."""
        return max(self.inserts, self.deletes) > 1

    @property
    def joined(self) -> "_EventBlock":
        """The block that a minor of this one leaves."""
        inserts, deletes = min(self.inserts, 1), min(self.deletes, 1)
        return _EventBlock(inserts + deletes, inserts, deletes, self.bytes, aborted=False)


def next_part(
    state: AcidState,
    kind: CompactionKind,
    limits: PartLimits,
    *,
    insert_only: bool,
    minors: bool,
    aborted: Sequence[int],
) -> Part | Excess:
    """
    Choose the part to compact now; an `Excess` only when bytes are short.

    Args:
        state: its deltas are only those that can be included.
        minors: whether a minor of both kinds of deltas can be published.
        aborted: write ids of aborted transactions that the deltas may hold rows of, ascending.
    """
    deltas = state.deltas
    under = 0
    if kind.makes_base:
        under = (
            sum(entry.length for entry in state.originals) if state.base is None else _bytes(state.base, insert_only)
        )
    groups = _grouped(deltas)
    blocks = [_block(group, insert_only, aborted) for group in groups]
    size = under + sum(block.bytes for block in blocks)
    exceeded = _exceeded(kind, len(deltas), size, limits)
    if exceeded is None:
        return Part(kind, deltas)
    if not minors:
        return _lowest_with_base(state, blocks, under, limits, exceeded)
    found = _run(blocks, limits)
    if found is None:
        return Excess(f"{exceeded}; no two neighbouring deltas can be joined within that")
    start, stop = found
    if kind is CompactionKind.MINOR and stop - start == len(blocks):
        return Part(kind, deltas)
    total, whole_at_last = _forecast(blocks, kind, under, limits)
    rest = "" if whole_at_last else "; what is left then can't be joined within the limits"
    why = f"{_counted(total)} because {exceeded}; now a minor of {_range(groups[start:stop])}{rest}"
    return Part(
        CompactionKind.MINOR,
        _among(deltas, groups[start:stop]),
        PlanParts(total, why, wait=len(deltas) <= limits.deltas),
    )


def _among(deltas: Sequence[ListedDir], groups: Sequence[Sequence[ListedDir]]) -> tuple[ListedDir, ...]:
    """The directories of some groups, in walk order."""
    chosen = {listed.name for group in groups for listed in group}
    return tuple(listed for listed in deltas if listed.name in chosen)


def _exceeded(kind: CompactionKind, deltas: int, size: int, limits: PartLimits) -> str | None:
    """A sentence: which limit the whole compaction would exceed, and by how much; None: no limit."""
    if deltas > limits.deltas:
        return f"{deltas} deltas are more than limits.deltas = {limits.deltas}"
    if limits.bytes is not None and size > limits.bytes:
        return f"a {kind} of all would write about {size} bytes, and {limits.limited_by} leaves {limits.bytes}"
    return None


def _lowest_with_base(
    state: AcidState, blocks: Sequence[_EventBlock], under: int, limits: PartLimits, exceeded: str
) -> Part | Excess:
    """A major of the base (or original files) and as many of the lowest deltas as the limits allow."""
    count, size, stop = 0, under, 0
    fewest = 1 if state.base is not None or state.originals else 2
    for block in blocks:
        if (count >= fewest and count + block.dirs > limits.deltas) or (
            limits.bytes is not None and size + block.bytes > limits.bytes
        ):
            break
        count, size, stop = count + block.dirs, size + block.bytes, stop + 1
    if count < fewest:
        return Excess(f"{exceeded}; nor is there room for a part of it")
    if stop == len(blocks):
        return Part(CompactionKind.MAJOR, state.deltas)
    groups = _grouped(state.deltas)[:stop]
    wait = len(state.deltas) <= limits.deltas
    total = 2 if wait else -(-len(state.deltas) // max(count, 1))
    rest = "; the rest when there is room for it" if wait else ""
    why = f"{_counted(total)} because {exceeded}; now a major with {_range(groups)}{rest}"
    return Part(CompactionKind.MAJOR, _among(state.deltas, groups), PlanParts(total, why, wait=wait))


def _run(blocks: Sequence[_EventBlock], limits: PartLimits) -> tuple[int, int] | None:
    """The run to join next. Where no run keeps to the limit of deltas, the run may exceed it."""
    return _best_run(blocks, limits) or _fewest(blocks, replace(limits, deltas=sum(block.dirs for block in blocks)))


def _fewest(blocks: Sequence[_EventBlock], limits: PartLimits) -> tuple[int, int] | None:
    """The run [start, stop) of the fewest directories that joins anything; of equal ones the lowest."""
    best: tuple[int, int, int] | None = None
    for start, first in enumerate(blocks):
        run = _NOTHING
        for stop in range(start, len(blocks)):
            run += blocks[stop]
            if run.joinable or not _fits(run, limits):
                break
        if run.joinable and _fits(run, limits) and (best is None or run.dirs < best[0]):
            best = (run.dirs, start, stop + 1)
        if first.aborted:
            break
    return best[1:] if best is not None else None


def _best_run(blocks: Sequence[_EventBlock], limits: PartLimits) -> tuple[int, int] | None:
    """
    The run [start, stop) that joins the most directories; of equal ones the smallest in bytes, then the lowest. None
    when no run joins anything.
    """
    best: tuple[int, int, int, int] | None = None
    stop, run = 0, _NOTHING
    for start, first in enumerate(blocks):
        if stop <= start:
            stop, run = start, _NOTHING
        while stop < len(blocks) and _fits(run + blocks[stop], limits):
            run, stop = run + blocks[stop], stop + 1
        if run.joinable and (best is None or (-run.dirs, run.bytes) < best[:2]):
            best = (-run.dirs, run.bytes, start, stop)
        if first.aborted:
            break
        if stop > start:
            run = _without(run, first)
    return best[2:] if best is not None else None


_NOTHING: Final = _EventBlock(0, 0, 0, 0, aborted=False)


def _fits(run: _EventBlock, limits: PartLimits) -> bool:
    return run.dirs <= limits.deltas and (limits.bytes is None or run.bytes <= limits.bytes)


def _without(run: _EventBlock, first: _EventBlock) -> _EventBlock:
    return _EventBlock(
        run.dirs - first.dirs,
        run.inserts - first.inserts,
        run.deletes - first.deletes,
        run.bytes - first.bytes,
        run.aborted,
    )


def _sum(blocks: Iterable[_EventBlock]) -> _EventBlock:
    return sum(blocks, _NOTHING)


def _forecast(blocks: Sequence[_EventBlock], kind: CompactionKind, under: int, limits: PartLimits) -> tuple[int, bool]:
    """How many parts the compaction takes, and whether the last part is the whole that was asked for."""
    left = list(blocks)
    for count in range(MOST_COUNTED):
        whole = _sum(left)
        if _exceeded(kind, whole.dirs, under + whole.bytes, limits) is None:
            last = kind.makes_base or whole.joinable
            return count + last, True
        found = _run(left, limits)
        if found is None:
            return count, False
        left[found[0] : found[1]] = [_sum(left[found[0] : found[1]]).joined]
    return MOST_COUNTED + 1, True


def _grouped(deltas: Sequence[ListedDir]) -> list[list[ListedDir]]:
    """
    Directories in groups, in order of their write ids; overlapping directories, such as the statements of one write id,
    stay together.
    """
    groups: list[list[ListedDir]] = []
    reached = -1
    for listed in sorted(deltas, key=lambda one: one.acid.span):
        if not groups or listed.acid.min_write_id > reached:
            groups.append([])
        groups[-1].append(listed)
        reached = max(reached, listed.acid.max_write_id)
    return groups


def _block(group: Sequence[ListedDir], insert_only: bool, aborted: Sequence[int]) -> _EventBlock:
    deletes = sum(listed.acid.kind is DirKind.DELETE_DELTA for listed in group)
    size = sum(_bytes(listed, insert_only) for listed in group)
    holds = any(
        bisect_left(aborted, listed.acid.min_write_id) < bisect_right(aborted, listed.acid.max_write_id)
        for listed in group
    )
    return _EventBlock(len(group), len(group) - deletes, deletes, size, holds)


def _bytes(listed: ListedDir, insert_only: bool) -> int:
    return sum(entry.length for entry in data_files(listed, insert_only=insert_only))


def _range(groups: Sequence[Sequence[ListedDir]]) -> str:
    dirs = [listed for group in groups for listed in group]
    if not dirs:
        return "no deltas"
    first, last = min(one.acid.min_write_id for one in dirs), max(one.acid.max_write_id for one in dirs)
    return f"{plural(len(dirs), 'delta')}, {f'write id {first}' if first == last else f'write ids {first} to {last}'}"


def _counted(total: int) -> str:
    if total < 2:
        return "only a part is planned"
    return f"planned in {f'more than {MOST_COUNTED}' if total > MOST_COUNTED else total} parts"
