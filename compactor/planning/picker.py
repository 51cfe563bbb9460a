"""
Should this partition be compacted, how, and how urgently.

Pure: one frozen input, one value out; no clock, no I/O. Keeps Hive's thresholds and their order, and adds two rules: a pick is made only if there is enough to
compact, and the result of a compaction is never picked again (fixed point), whatever the thresholds.
Source: docs/layout.md; Hive's Initiator / InitiatorBase.determineCompactionType.
"""

from dataclasses import dataclass, replace
from typing import Final

from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.acid.listing import FileEntry
from compactor.acid.names import DirKind
from compactor.acid.snapshot import AcidState, ListedDir, data_files
from compactor.planning.included import aborted_inside, enough, included, is_minor_result, overlap, same_range, stranded
from compactor.planning.score import score
from compactor.planning.thresholds import Thresholds, auto_compaction_off, cleanup_off, thresholds_for
from compactor.reasons import Reason

__all__ = ["Pick", "PickInput", "Skip", "Thresholds", "auto_compaction_off", "cleanup_off", "enough", "pick", "thresholds_for"]

_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class PickInput:
    """
    Everything a decision is made from.

    Args:
        state: the partition, resolved under the compactor's write-id list.
        insert_only: whether the table holds whole files without ROW__IDs.
        layout: whose readers there are; decides what a minor may become.
        thresholds: the table's own.
        aborted_count: rows about this partition that the metastore keeps for aborted transactions.
        oldest_abort_age_ms: age of the oldest of those transactions; None without any.
        ready_for_cleaning_hwm: the greatest high watermark of this partition's entries that are ready for cleaning: what lies at or below it has been
            compacted and waits only for the Cleaner.
        oldest_open_age_ms: age of the oldest transaction that is writing to the table; None without any.
        minor_supported: False turns every minor into a major.
        cleanup_off: replaced directories stay by order (`no_cleanup`); queueing a clean-up would be refused each time.
    """

    state: AcidState
    insert_only: bool
    layout: LayoutVersion
    thresholds: Thresholds
    aborted_count: int = 0
    oldest_abort_age_ms: int | None = None
    ready_for_cleaning_hwm: int | None = None
    oldest_open_age_ms: int | None = None
    minor_supported: bool = True
    cleanup_off: bool = False


@dataclass(frozen=True, slots=True)
class Pick:
    """
    One partition worth compacting, how, and how urgently.

    Args:
        score: bytes a reader is spared per byte we write; higher first.
        explanation: the rule that was met, with its figures.
        findings: sentences about what an operator should look at.
    """

    kind: CompactionKind
    score: float
    reason: Reason
    explanation: str
    findings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Skip:
    """Nothing to do now, and why."""

    reason: Reason
    explanation: str
    findings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Due:
    kind: CompactionKind
    reason: Reason
    explanation: str


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Data files by what they are; hidden and side files don't count."""

    under: tuple[FileEntry, ...]
    inserts: tuple[tuple[FileEntry, ...], ...]
    deletes: tuple[tuple[FileEntry, ...], ...]
    base_bytes: int
    delta_bytes: int

    @property
    def without_base(self) -> bool:
        return self.base_bytes == 0 and self.delta_bytes > 0


def pick(facts: PickInput) -> Pick | Skip:
    """Decide about one partition."""
    deltas = included(facts.state)
    findings = _findings(facts)
    skip = _skip(facts, deltas)
    if skip is not None:
        return replace(skip, findings=findings) if findings else skip
    sizes = _sizes(facts, deltas)
    due = _aborted(facts, deltas) or _too_large(facts, sizes) or _several_bases(facts) or _too_many(facts, deltas, sizes)
    if due is None:
        return _or_open_writer(Skip(Reason.BELOW_THRESHOLDS, f"{_counted(deltas)}, {_share(sizes)}: below the thresholds", findings))
    if due.reason is Reason.SEVERAL_BASES:
        return Pick(due.kind, 0.0, due.reason, due.explanation, findings)
    kind = _settle(facts, deltas, due)
    if not enough(facts.state, kind, facts.insert_only):
        pieces = f"{_counted(deltas)} and {'a' if facts.state.base else 'no'} base"
        return _or_open_writer(Skip(Reason.NOT_ENOUGH, f"{due.explanation}; not enough for a {kind}: {pieces}", findings))
    if (there := same_range(facts.state, kind, deltas)) is not None:
        return Skip(Reason.DUPLICATE_RANGE, f"{due.explanation}; the result of a {kind} would have the range of {there.name}", findings)
    return Pick(kind, score(kind, sizes.under, sizes.inserts, sizes.deletes), due.reason, due.explanation, findings)


def _skip(facts: PickInput, deltas: tuple[ListedDir, ...]) -> Skip | None:
    """What keeps a partition from being compacted whatever its thresholds."""
    files = {f.path for f in facts.state.originals + facts.state.obsolete_originals + facts.state.left_originals}
    unknown = [path for path in facts.state.unknown if not (facts.insert_only and path in files)]
    if unknown:
        return Skip(Reason.UNKNOWN_NAME, f"{unknown[0]} can't be explained: a compaction would be refused")
    if (left := stranded(facts.state)) is not None:
        return Skip(Reason.STRANDED_STREAM, left.short)
    if (sentence := overlap(facts.state.base, deltas)) is not None:
        return Skip(Reason.DUPLICATE_RANGE, sentence)
    if is_minor_result(deltas, told_by_name=facts.layout is LayoutVersion.HIVE_4):
        return Skip(Reason.NO_FIXED_POINT, f"{' and '.join(d.name for d in deltas)}: the result of a minor compaction, and nothing since")
    return None


def _aborted(facts: PickInput, deltas: tuple[ListedDir, ...]) -> _Due | None:
    """Aborted rows among committed ones; wholly aborted directories are the Cleaner's, and so is what waits for it."""
    if facts.insert_only:
        return None
    floor = facts.ready_for_cleaning_hwm or 0
    count = min(facts.aborted_count, sum(write_id > floor for write_id in aborted_inside(facts.state, deltas)))
    limits = facts.thresholds
    if count and count > limits.aborted_count:
        return _Due(CompactionKind.MAJOR, Reason.ABORTED_COUNT, f"{count} aborted write ids among committed ones, more than {limits.aborted_count}")
    age = facts.oldest_abort_age_ms
    if count and age is not None and 0 <= limits.aborted_age_ms < age:
        explanation = f"rows of a transaction aborted {_hours(age)} ago lie among committed ones, longer than {_hours(limits.aborted_age_ms)}"
        return _Due(CompactionKind.MINOR, Reason.ABORTED_AGE, explanation)
    return None


def _too_large(facts: PickInput, sizes: _Sizes) -> _Due | None:
    """Deltas too large for their base: fold them in."""
    limit = facts.thresholds.delta_ratio
    if sizes.base_bytes == 0 or not sizes.delta_bytes / sizes.base_bytes > limit:
        return None
    return _Due(CompactionKind.MAJOR, Reason.DELTA_RATIO, f"{_share(sizes)}, more than {limit:g}")


def _several_bases(facts: PickInput) -> _Due | None:
    """Hive 4: a replaced base without any delta is queued so that the Cleaner comes by; not when it will anyway, or mustn't."""
    if facts.layout is LayoutVersion.HIVE_3 or facts.cleanup_off or any(data_files(d, facts.insert_only) for d in facts.state.deltas):
        return None
    floor = facts.ready_for_cleaning_hwm
    replaced = [d.name for d in facts.state.obsolete if d.acid.is_base and (floor is None or d.acid.max_write_id > floor)]
    if not replaced:
        return None
    return _Due(
        CompactionKind.MAJOR, Reason.SEVERAL_BASES, f"{', '.join(replaced)} {'is' if len(replaced) == 1 else 'are'} replaced and waits for nothing else"
    )


def _too_many(facts: PickInput, deltas: tuple[ListedDir, ...], sizes: _Sizes) -> _Due | None:
    """More deltas than readers should merge: fold them together, or into a base where there is none."""
    limit = facts.thresholds.delta_count
    if not len(deltas) > limit:
        return None
    kind = CompactionKind.MAJOR if sizes.without_base else CompactionKind.MINOR
    return _Due(kind, Reason.DELTA_COUNT, f"{_counted(deltas)}, more than {limit}{', and no base' if sizes.without_base else ''}")


def _settle(facts: PickInput, deltas: tuple[ListedDir, ...], due: _Due) -> CompactionKind:
    """
    The kind that can be done.

    Hive 3.1 has no minor of insert-only tables and nothing that makes two renames one. An old abort is worth a major where there is too little for a minor.
    """
    if due.kind is CompactionKind.MAJOR or not facts.minor_supported:
        return CompactionKind.MAJOR
    both_sides = len({d.acid.kind for d in deltas}) > 1
    if facts.layout is LayoutVersion.HIVE_3 and (facts.insert_only or both_sides):
        return CompactionKind.MAJOR
    if due.reason is Reason.ABORTED_AGE and not enough(facts.state, CompactionKind.MINOR, facts.insert_only):
        return CompactionKind.MAJOR
    return CompactionKind.MINOR


def _findings(facts: PickInput) -> tuple[str, ...]:
    """A stream whose rows can't be read any more; else an old open writer that directories of this partition wait for."""
    if (left := stranded(facts.state)) is not None:
        return (left.sentence,)
    age, limit = facts.oldest_open_age_ms, facts.thresholds.open_age_ms
    waiting = [e for e in facts.state.excluded if not e.dir.compacted]
    if age is None or not 0 <= limit < age or not waiting:
        return ()
    count = f"{len(waiting)} directories wait" if len(waiting) > 1 else "1 directory waits"
    return (f"a writer has been open for {_hours(age)}; {count} for it, first {waiting[0].dir.name} ({waiting[0].reason})",)


def _or_open_writer(skip: Skip) -> Skip:
    """An old open writer is why nothing can be done, if there is one."""
    return replace(skip, reason=Reason.OPEN_WRITER) if skip.findings else skip


def _sizes(facts: PickInput, deltas: tuple[ListedDir, ...]) -> _Sizes:
    state = facts.state
    under = state.originals if state.base is None else data_files(state.base, facts.insert_only)

    def of(kind: DirKind) -> tuple[tuple[FileEntry, ...], ...]:
        return tuple(data_files(d, facts.insert_only) for d in deltas if d.acid.kind is kind)

    inserts, deletes = of(DirKind.DELTA), of(DirKind.DELETE_DELTA)
    return _Sizes(under, inserts, deletes, sum(f.length for f in under), sum(f.length for files in (*inserts, *deletes) for f in files))


def _counted(deltas: tuple[ListedDir, ...]) -> str:
    return "1 delta" if len(deltas) == 1 else f"{len(deltas)} deltas"


def _share(sizes: _Sizes) -> str:
    if sizes.base_bytes == 0:
        return "no base to compare with"
    return f"deltas are {sizes.delta_bytes / sizes.base_bytes:.3g} of the base"


def _hours(milliseconds: int) -> str:
    return f"{milliseconds / _HOUR_MS:.3g} h"
