"""
Whether a partition should be compacted, how, and how urgently.

Pure: one frozen input, one value out; no clock, no I/O. Keeps Hive's thresholds and their order, and adds two rules:
the picker picks a partition only if it holds enough to compact, and never picks the result of a compaction again (fixed
point), at any thresholds.

`Load` is what a reader of the partition pays: every byte of rows, every file it opens, and the delete events once per
directory it merges them into. The score ranks partitions against each other; it promises no time.
Source: docs/layout.md; Hive's Initiator / InitiatorBase.determineCompactionType.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.acid.listing import FileEntry
from compactor.acid.names import DirKind, parse_bucket_file, parse_original_file
from compactor.acid.snapshot import AcidState, ListedDir, data_files
from compactor.durations import HOUR_MS
from compactor.planning.included import (
    Stranded,
    aborted_inside,
    enough,
    included,
    is_minor_result,
    overlap,
    same_range,
    stranded,
)
from compactor.planning.thresholds import Thresholds, auto_compaction_off, cleanup_off, thresholds_for
from compactor.reasons import Reason
from compactor.words import plural

OPENING_BYTES: Final = 1 << 20
"""Cost of opening a file and reading its tail, as bytes of rows that a reader reads in about the same time."""


@dataclass(frozen=True, slots=True)
class Load:
    """
    The work of a reader of the whole partition, beside reading its rows, which no compaction spares.

    Args:
        files: files to open.
        delete_bytes: bytes of delete deltas.
        merges: directories with rows that delete events are merged into.
    """

    files: int
    delete_bytes: int
    merges: int

    @property
    def cost(self) -> int:
        return self.delete_bytes * max(1, self.merges) + self.files * OPENING_BYTES


def score(
    kind: CompactionKind,
    under: Sequence[FileEntry],
    inserts: Sequence[Sequence[FileEntry]],
    deletes: Sequence[Sequence[FileEntry]],
) -> float:
    """
    Bytes that a reader is spared per byte that the compaction writes; never negative.

    Args:
        kind: major or minor.
        under: files of the base, or original files.
        inserts: files of each insert delta that would be taken.
        deletes: files of each delete delta that would be taken.
    """
    inserted = [f for files in inserts for f in files]
    deleted = [f for files in deletes for f in files]
    before = Load(len(under) + len(inserted) + len(deleted), _bytes(deleted), len(inserts) + bool(under))
    if kind is CompactionKind.MINOR:
        files = len(under) + _buckets(inserted) + _buckets(deleted)
        after = Load(files, before.delete_bytes, bool(inserts) + bool(under))
        written = _bytes(inserted) + _bytes(deleted)
    else:
        after = Load(_buckets([*under, *inserted]), 0, 1)
        written = _bytes(under) + _bytes(inserted)
    return max(0, before.cost - after.cost) / max(1, written)


def _bytes(files: Iterable[FileEntry]) -> int:
    return sum(f.length for f in files)


def _buckets(files: Iterable[FileEntry]) -> int:
    """
    Number of files that a compaction makes of these: one per bucket; a file whose name states no bucket counts as one.
    """
    return len({_bucket(f) for f in files})


def _bucket(entry: FileEntry) -> int | str:
    if (bucket := parse_bucket_file(entry.name)) is not None:
        return bucket.bucket
    original = parse_original_file(entry.name)
    return entry.path if original is None else original.bucket


__all__ = [
    "Pick",
    "PickInput",
    "Skip",
    "Thresholds",
    "auto_compaction_off",
    "cleanup_off",
    "enough",
    "pick",
    "thresholds_for",
]


@dataclass(frozen=True, slots=True)
class PickInput:
    """
    Everything that a decision is made from.

    Args:
        state: the partition, resolved under the compactor's write-id list.
        insert_only: whether the table holds whole files without ROW__IDs.
        layout: the generation of the readers; decides what a minor may become.
        thresholds: the table's own.
        aborted_count: rows about this partition that the metastore keeps for aborted transactions.
        oldest_abort_age_ms: age of the oldest of those transactions; None without any.
        ready_for_cleaning_hwm: the greatest high watermark of this partition's entries that are ready for cleaning:
            directories at or below it have been compacted and wait only for the Cleaner.
        oldest_open_age_ms: age of the oldest transaction that is writing to the table; None without any.
        cleanup_off: replaced directories stay on purpose (`no_cleanup`), and the Cleaner would refuse each queued
            clean-up.
    """

    state: AcidState
    insert_only: bool
    layout: LayoutVersion
    thresholds: Thresholds
    aborted_count: int = 0
    oldest_abort_age_ms: int | None = None
    ready_for_cleaning_hwm: int | None = None
    oldest_open_age_ms: int | None = None
    cleanup_off: bool = False


@dataclass(frozen=True, slots=True)
class Pick:
    """
    One partition worth compacting, how, and how urgently.

    Args:
        score: bytes that a reader is spared per byte that the compaction writes; higher first.
        explanation: the rule that was met, with its figures.
        findings: sentences about conditions that an operator should look at.
        excess: by which factor the partition passes the threshold that it passes farthest; at least 1.
    """

    kind: CompactionKind
    score: float
    reason: Reason
    explanation: str
    findings: tuple[str, ...] = ()
    excess: float = 1.0


@dataclass(frozen=True, slots=True)
class Skip:
    """No compaction now, and the reason."""

    reason: Reason
    explanation: str
    findings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Due:
    """A rule that is met; `excess` as of a `Pick`, by this rule alone."""

    kind: CompactionKind
    reason: Reason
    explanation: str
    excess: float = 1.0


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Data files by role; hidden files and side files don't count."""

    under: tuple[FileEntry, ...]
    inserts: tuple[tuple[FileEntry, ...], ...]
    deletes: tuple[tuple[FileEntry, ...], ...]
    base_bytes: int
    delta_bytes: int

    @property
    def without_base(self) -> bool:
        return self.base_bytes == 0 and self.delta_bytes > 0


_NAMED = 5
"""How many replaced directories are told by name."""


def pick(facts: PickInput) -> Pick | Skip:
    """Decide about one partition."""
    deltas = included(facts.state)
    left = stranded(facts.state)
    findings = _findings(facts, left)
    skip = _skip(facts, deltas, left)
    if skip is not None:
        return replace(skip, findings=findings) if findings else skip
    sizes = _sizes(facts, deltas)
    rules = (
        _many_aborted(facts, deltas),
        _old_abort(facts, deltas),
        _too_large(facts, sizes),
        _several_bases(facts),
        _too_many(facts, deltas, sizes),
    )
    met = [due for due in rules if due is not None]
    if not met:
        return _or_open_writer(
            Skip(
                Reason.BELOW_THRESHOLDS,
                f"{plural(len(deltas), 'delta')}, {_share(sizes)}: below the thresholds",
                findings,
            )
        )
    due = met[0]
    if due.reason is Reason.SEVERAL_BASES:
        return Pick(due.kind, 0.0, due.reason, due.explanation, findings)
    kind = _settle(facts, deltas, due)
    if not enough(facts.state, kind, facts.insert_only):
        pieces = f"{plural(len(deltas), 'delta')} and {'a' if facts.state.base else 'no'} base"
        return _or_open_writer(
            Skip(Reason.NOT_ENOUGH, f"{due.explanation}; not enough for a {kind}: {pieces}", findings)
        )
    if (there := same_range(facts.state, kind, deltas)) is not None:
        return Skip(
            Reason.DUPLICATE_RANGE,
            f"{due.explanation}; the result of a {kind} would have the range of {there.name}",
            findings,
        )
    return Pick(
        kind,
        score(kind, sizes.under, sizes.inserts, sizes.deletes),
        due.reason,
        due.explanation,
        findings,
        max(due.excess for due in met),
    )


def _skip(facts: PickInput, deltas: tuple[ListedDir, ...], left: Stranded | None) -> Skip | None:
    """The reason that keeps a partition from being compacted at any thresholds; None: no such reason."""
    if facts.state.unknown:
        files = {f.path for f in facts.state.originals + facts.state.obsolete_originals + facts.state.left_originals}
        unknown = [path for path in facts.state.unknown if not (facts.insert_only and path in files)]
        if unknown:
            return Skip(Reason.UNKNOWN_NAME, f"{unknown[0]} can't be explained: a compaction would be refused")
    if left is not None:
        return Skip(Reason.STRANDED_STREAM, left.short)
    if (sentence := overlap(facts.state.base, deltas)) is not None:
        return Skip(Reason.DUPLICATE_RANGE, sentence)
    if is_minor_result(deltas, told_by_name=facts.layout is LayoutVersion.HIVE_4):
        return Skip(
            Reason.NO_FIXED_POINT,
            f"{' and '.join(d.name for d in deltas)}: the result of a minor compaction, and nothing since",
        )
    return None


def _many_aborted(facts: PickInput, deltas: tuple[ListedDir, ...]) -> _Due | None:
    """Too many aborted rows among committed ones."""
    count, limit = _aborted_count(facts, deltas), facts.thresholds.aborted_count
    if not count or not count > limit:
        return None
    explanation = f"{count} aborted write ids among committed ones, more than {limit}"
    return _Due(CompactionKind.MAJOR, Reason.ABORTED_COUNT, explanation, _excess(count, max(1, limit)))


def _old_abort(facts: PickInput, deltas: tuple[ListedDir, ...]) -> _Due | None:
    """Aborted rows that have lain among committed ones for too long."""
    age, limit = facts.oldest_abort_age_ms, facts.thresholds.aborted_age_ms
    if age is None or not 0 <= limit < age or not _aborted_count(facts, deltas):
        return None
    explanation = (
        f"rows of a transaction aborted {_hours(age)} ago lie among committed ones, longer than {_hours(limit)}"
    )
    return _Due(CompactionKind.MINOR, Reason.ABORTED_AGE, explanation, _excess(age, limit))


def _aborted_count(facts: PickInput, deltas: tuple[ListedDir, ...]) -> int:
    """
    Aborted rows among committed ones. Wholly aborted directories don't count, because the Cleaner removes them; nor do
    write ids at or below an entry that waits for the Cleaner.
    """
    if facts.insert_only:
        return 0
    floor = facts.ready_for_cleaning_hwm or 0
    return min(facts.aborted_count, sum(write_id > floor for write_id in aborted_inside(facts.state, deltas)))


def _excess(value: float, limit: float) -> float:
    """By which factor a value passes its limit; 1 where the limit is none to divide by."""
    return max(1.0, value / limit) if limit > 0 else 1.0


def _too_large(facts: PickInput, sizes: _Sizes) -> _Due | None:
    """Deltas that are too large for their base: a major folds them in."""
    limit = facts.thresholds.delta_ratio
    if sizes.base_bytes == 0 or not sizes.delta_bytes / sizes.base_bytes > limit:
        return None
    excess = _excess(sizes.delta_bytes / sizes.base_bytes, limit)
    return _Due(CompactionKind.MAJOR, Reason.DELTA_RATIO, f"{_share(sizes)}, more than {limit:g}", excess)


def _several_bases(facts: PickInput) -> _Due | None:
    """
    Hive 4: queues a replaced base without any delta, so that the Cleaner visits the partition; not when an entry that
    waits for the Cleaner covers the base, nor when `no_cleanup` is set. The same for deltas that TRUNCATE or an
    overwrite has replaced: no entry of a compaction will clean them.
    """
    if facts.layout is LayoutVersion.HIVE_3 or facts.cleanup_off:
        return None
    floor = facts.ready_for_cleaning_hwm
    overwritten = facts.state.base is not None and not facts.state.base.compacted
    replaced = [
        d.name
        for d in facts.state.obsolete
        if (d.acid.is_base or overwritten) and (floor is None or d.acid.max_write_id > floor)
    ]
    if not replaced or any(data_files(d, facts.insert_only) for d in facts.state.deltas):
        return None
    return _Due(
        CompactionKind.MAJOR,
        Reason.SEVERAL_BASES,
        f"{', '.join(replaced[:_NAMED])}{f' and {len(replaced) - _NAMED} more' if len(replaced) > _NAMED else ''} {'is replaced and waits' if len(replaced) == 1 else 'are replaced and wait'} for nothing else",
    )


def _too_many(facts: PickInput, deltas: tuple[ListedDir, ...], sizes: _Sizes) -> _Due | None:
    """More deltas than readers should merge: a minor joins them, or a major where there is no base."""
    limit = facts.thresholds.delta_count
    if not len(deltas) > limit:
        return None
    kind = CompactionKind.MAJOR if sizes.without_base else CompactionKind.MINOR
    return _Due(
        kind,
        Reason.DELTA_COUNT,
        f"{plural(len(deltas), 'delta')}, more than {limit}{', and no base' if sizes.without_base else ''}",
        _excess(len(deltas), max(1, limit)),
    )


def _settle(facts: PickInput, deltas: tuple[ListedDir, ...], due: _Due) -> CompactionKind:
    """
    The kind of compaction that is possible.

    Hive 3.1 has no minor of insert-only tables and can't make two renames atomic. An old abort is worth a major where
    there is too little for a minor.
    """
    if due.kind is CompactionKind.MAJOR:
        return CompactionKind.MAJOR
    both_sides = len({d.acid.kind for d in deltas}) > 1
    if facts.layout is LayoutVersion.HIVE_3 and (facts.insert_only or both_sides):
        return CompactionKind.MAJOR
    if due.reason is Reason.ABORTED_AGE and not enough(facts.state, CompactionKind.MINOR, facts.insert_only):
        return CompactionKind.MAJOR
    return CompactionKind.MINOR


def _findings(facts: PickInput, left: Stranded | None) -> tuple[str, ...]:
    """
    Sentences for the operator: a stream whose rows can't be read any more; else an old open writer that directories of
    this partition wait for.
    """
    if left is not None:
        return (left.sentence,)
    age, limit = facts.oldest_open_age_ms, facts.thresholds.open_age_ms
    waiting = [e for e in facts.state.excluded if not e.dir.compacted]
    if age is None or not 0 <= limit < age or not waiting:
        return ()
    count = f"{plural(len(waiting), 'directory', 'directories')} {'waits' if len(waiting) == 1 else 'wait'}"
    return (
        f"a writer has been open for {_hours(age)}; {count} for it, first {waiting[0].dir.name} ({waiting[0].reason})",
    )


def _or_open_writer(skip: Skip) -> Skip:
    """Give an old open writer, if there is one, as the reason of a skip."""
    return replace(skip, reason=Reason.OPEN_WRITER) if skip.findings else skip


def _sizes(facts: PickInput, deltas: tuple[ListedDir, ...]) -> _Sizes:
    state = facts.state
    under = state.originals if state.base is None else data_files(state.base, facts.insert_only)

    files = [(d.acid.kind, data_files(d, facts.insert_only)) for d in deltas]
    inserts = tuple(some for kind, some in files if kind is DirKind.DELTA)
    deletes = tuple(some for kind, some in files if kind is DirKind.DELETE_DELTA)
    return _Sizes(
        under,
        inserts,
        deletes,
        sum(f.length for f in under),
        sum(f.length for files in (*inserts, *deletes) for f in files),
    )


def _share(sizes: _Sizes) -> str:
    if sizes.base_bytes == 0:
        return "no base to compare with"
    return f"deltas are {sizes.delta_bytes / sizes.base_bytes:.3g} of the base"


def _hours(milliseconds: int) -> str:
    return f"{milliseconds / HOUR_MS:.3g} h"
