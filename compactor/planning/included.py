"""
Which of the current directories a compaction may take, and whether taking them is worth a compaction at all.

Pure: judges a resolved state by names alone. Picker and plan share this module, so that the plan takes what was picked.
Source: docs/layout.md; Hive's Worker / CompactorUtil.isEnoughToCompact; HIVE-29210 for ranges that exist twice.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.acid.names import DirKind
from compactor.acid.snapshot import AcidState, ListedDir
from compactor.acid.write_ids import ValidWriteIdList
from compactor.words import plural


def included(state: AcidState) -> tuple[ListedDir, ...]:
    """
    The current deltas that lie wholly below everything that is left out, in walk order.

    A result whose range covered an excluded directory would hide that directory from readers. So every delta at or
    above an excluded directory is left out, and each delta that is left out excludes others in the same way.
    """
    limit = min((low for e in state.excluded if (low := _first_write_id(e.dir)) is not None), default=None)
    deltas = state.deltas
    while limit is not None:
        lower = min((d.acid.min_write_id for d in deltas if d.acid.max_write_id >= limit), default=limit)
        deltas = tuple(d for d in deltas if d.acid.max_write_id < limit)
        if lower >= limit:
            break
        limit = lower
    return deltas


def enough(state: AcidState, kind: CompactionKind, insert_only: bool) -> bool:
    """
    Whether a compaction of this kind would join anything.

    Major: original files, at least two of base and deltas, or a delta with aborted rows among committed ones; in an
    insert-only table, at least two of base, deltas and original files. Minor: at least three deltas, or two of one kind
    (a delta and its delete delta are what a minor compaction leaves). Rebalance always, as in Hive. Clean-ups never.
    """
    deltas = included(state)
    match kind:
        case CompactionKind.MAJOR:
            pieces = len(deltas) + (state.base is not None)
            if insert_only:
                return pieces + len(state.originals) > 1
            return bool(state.originals) or pieces > 1 or bool(aborted_inside(state, deltas))
        case CompactionKind.MINOR:
            return len(deltas) > 2 or (len(deltas) == 2 and deltas[0].acid.kind is deltas[1].acid.kind)
        case CompactionKind.REBALANCE:
            return True
        case CompactionKind.ABORT_CLEANUP | CompactionKind.DEFERRED_CLEANUP:
            return False


@dataclass(frozen=True, slots=True)
class OnlyCleaning:
    """
    What an entry with not enough to compact leaves to the Cleaner.

    Args:
        highest_write_id: at which the entry ends: the Cleaner removes nothing above.
    """

    highest_write_id: int
    directories: int
    original_files: int

    @property
    def sentence(self) -> str:
        directories = plural(self.directories, "directory", "directories")
        return f"obsolete or aborted: {directories}, {plural(self.original_files, 'original file')}"


def only_cleaning(state: AcidState, write_ids: ValidWriteIdList, layout: LayoutVersion) -> OnlyCleaning | None:
    """
    Whether an entry with not enough to compact calls the Cleaner, because files are obsolete or aborted; None: there is
    nothing to do at all.

    Hive 3.1's Cleaner takes aborted write ids for committed, and forgets them: there the entry ends below them, also
    below those without a directory, for a task of theirs may still write one. It takes an entry that ends at 0 for one
    without an end. When nothing is left to remove for an entry, it later removes for that entry what a next compaction
    replaced, even while readers need it. So it gets no entry of these kinds.

    A directory that reaches above that end stays, so it calls no Cleaner either.

    Args:
        state: resolved under the compactor's write-id list.
        write_ids: that list.
    """
    kept = [excluded.dir.acid.first_written for excluded in state.excluded]
    if layout is LayoutVersion.HIVE_3:
        base = state.base.acid.max_write_id if state.base else 0
        kept += [write_id for write_id in write_ids.aborted if write_id > base]
    highest = min([write_ids.high_watermark, *(write_id - 1 for write_id in kept)])
    gone = sum(listed.acid.max_write_id <= highest for listed in (*state.obsolete, *state.aborted))
    if not (gone or state.obsolete_originals) or highest <= 0:
        return None
    return OnlyCleaning(highest, gone, len(state.obsolete_originals))


def aborted_inside(state: AcidState, deltas: Iterable[ListedDir]) -> list[int]:
    """
    Aborted write ids whose rows lie among committed ones in these deltas, as streaming writers leave them; the result
    of a compaction has none.
    """
    streams = [listed.acid for listed in deltas if not listed.compacted]
    return [
        write_id
        for write_id in sorted(state.mixed_aborted_write_ids)
        if any(acid.min_write_id <= write_id <= acid.max_write_id for acid in streams)
    ]


def why_not_enough(state: AcidState) -> str:
    """A sentence: what the partition holds, and which directories are left out that might have been enough."""
    deltas = included(state)
    deletes = sum(listed.acid.kind is DirKind.DELETE_DELTA for listed in deltas)
    there = ", ".join(
        (
            "a base" if state.base else "no base",
            plural(len(deltas) - deletes, "delta"),
            plural(deletes, "delete delta"),
            plural(len(state.originals), "original file"),
        )
    )
    if not state.excluded:
        return f"not enough to compact: {there}"
    first, others = state.excluded[0], len(state.excluded) - 1
    return f"not enough to compact: {there}; left out: {first.dir.acid.name} ({first.reason})" + (
        f" (and {others} more)" if others else ""
    )


@dataclass(frozen=True, slots=True)
class Stranded:
    """
    A directory that begins at or below a base's write id and ends above it, with only rolled back ids above: readers
    pass over the whole directory.
    """

    stream: ListedDir
    base: ListedDir

    @property
    def short(self) -> str:
        return f"{self.stream.name} lies across {self.base.name}, and all of it above was rolled back"

    @property
    def sentence(self) -> str:
        """The consequence for readers, and that the operator must decide."""
        low, reached = self.stream.acid.min_write_id, self.base.acid.max_write_id
        ids = f"write id {low}" if low == reached else f"write ids {low} to {reached}"
        return (
            f"{self.short}: readers pass over it, so what was committed in {ids} can't be read unless {self.base.name} holds it; "
            "nothing is compacted here before an operator settles that (docs/compaction.md, A stranded stream)"
        )


def stranded(state: AcidState) -> Stranded | None:
    """
    A rolled back stream beside a base whose name claims the stream's lower ids; None without any.

    Hive names a major compaction's base after the watermark, though a stream that straddles the watermark isn't in the
    base. Names alone don't tell whether the stream's rows are.

    Args:
        state: resolved under a compactor's list.
    """
    if state.base is None:
        return None
    reached = state.base.acid.max_write_id
    for listed in state.deltas:
        low, high = listed.acid.span
        if low <= reached < high and state.mixed_aborted_write_ids.issuperset(range(reached + 1, high + 1)):
            return Stranded(listed, state.base)
    return None


def overlap(base: ListedDir | None, deltas: Iterable[ListedDir]) -> str | None:
    """
    A sentence about the first two directories whose ranges overlap without being statements of one write id; readers
    read such rows twice. None without overlap.
    """
    end: dict[DirKind, int] = {}
    before: dict[DirKind, ListedDir] = {}
    for listed in sorted(deltas, key=lambda d: d.acid.span):
        acid = listed.acid
        reached = end.get(acid.kind, 0 if base is None else base.acid.max_write_id)
        previous = before.get(acid.kind, base)
        if acid.min_write_id <= reached and previous is not None and not _statements_of_one(listed, previous):
            return f"{listed.name} overlaps {previous.name}: rows may be there twice"
        end[acid.kind], before[acid.kind] = acid.max_write_id, listed
    return None


def same_range(state: AcidState, kind: CompactionKind, deltas: Sequence[ListedDir]) -> ListedDir | None:
    """
    A directory that already has the range and kind of the result: readers would read both (HIVE-29210).

    Results of aborted compactions don't count; publishing removes them.
    """
    there = [d for d in (state.base, *state.deltas, *state.obsolete, *(e.dir for e in state.excluded)) if d is not None]
    if not deltas:
        return None
    high = max(d.acid.max_write_id for d in deltas)
    if kind.makes_base:
        return next((d for d in there if d.acid.is_base and d.acid.max_write_id == high), None)
    low = min(d.acid.min_write_id for d in deltas)
    kinds = {d.acid.kind for d in deltas}
    twice = (d for d in there if d.acid.kind in kinds and (d.acid.span, d.acid.statement_id) == ((low, high), None))
    return next(twice, None)


def is_minor_result(deltas: Sequence[ListedDir], *, told_by_name: bool) -> bool:
    """
    Whether the deltas are exactly what a minor compaction leaves: one range, at most one directory of each kind.

    Args:
        told_by_name: the layout marks compacted directories (`_v`). Where it doesn't, a delta without a statement id is
            taken for a compacted one.
    """
    if not deltas or len({d.acid.kind for d in deltas}) != len(deltas):
        return False
    one_range = len({d.acid.span for d in deltas}) == 1
    return one_range and all(d.compacted if told_by_name else d.acid.statement_id is None for d in deltas)


def left_below(state: AcidState, *, told_by_name: bool) -> bool:
    """
    Whether a compaction has joined deltas and left out others below them, as only a part of a larger compaction does.

    Args:
        told_by_name: as in `is_minor_result`.
    """
    lowest = min((d.acid.max_write_id for d in state.deltas), default=0)
    results = (
        d
        for d in state.deltas
        if (d.compacted if told_by_name else d.acid.statement_id is None and d.acid.min_write_id < d.acid.max_write_id)
    )
    return any(result.acid.min_write_id > lowest for result in results)


def _first_write_id(listed: ListedDir) -> int | None:
    """
    The smallest write id that only this directory may hold; None for a compacted base that isn't visible yet, because
    other directories hold the same rows.
    """
    if listed.acid.is_base:
        return None if listed.compacted else listed.acid.max_write_id
    return listed.acid.min_write_id


def _statements_of_one(one: ListedDir, other: ListedDir) -> bool:
    a, b = one.acid, other.acid
    one_write_id = a.min_write_id == a.max_write_id == b.min_write_id == b.max_write_id
    return a.kind is b.kind and one_write_id and a.statement_id != b.statement_id
