"""
Lays out the stripes of one bucket in the order of their keys, each with an action.

Pure. A stripe is copied as bytes when nothing can change in it and it is large enough. Small neighbours are recoded
together where that pays. Where statistics can't exclude a hit, the task checks the stripe first (PROBE). Stripes
whose key ranges interleave with those of another file are merged by key. Of a recoded stripe the layout says, too,
whether rows are cut out of it instead of encoding it anew.
Source: docs/compaction.md; Hive's OrcRawRecordMerger (order), VectorizedOrcAcidRowBatchReader (what statistics may
prove).
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from compactor.acid.row_id import BucketRangeError, Hit, RowKey, decode_bucket
from compactor.planning.document import EVENTS_AT_ONCE, Action, Cut, FormatSpec, InputFile, Segment, together
from compactor.planning.facts import HIGHEST, LOWEST, FileFacts, StripeFacts
from compactor.planning.small import joined

HIGHEST_BUCKET = (1 << 31) - 1
DEFAULT_OUTPUT = FormatSpec()
SMALL_STRIPES = "small stripes"
"""Why stripes are recoded that could be copied."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """
    Sizes that determine the layout; bytes as stored, except for `min_stripe`.

    Args:
        min_stripe: stripes of a smaller `StripeFacts.weight` are recoded together with their neighbours.
        chunk: approximate bytes that one recoding task reads.
        events: delete events that one task may hold in memory.
        events_limited_by: the source of `events`, for a sentence.
        spilled_events: delete events that one task may hold on its machine's disk, used only where a chunk that can't
            be divided has more than `events`.
    """

    min_stripe: int
    chunk: int
    events: int = EVENTS_AT_ONCE
    spilled_events: int = 100_000_000
    events_limited_by: str = "limits.task_memory_bytes"


@dataclass(frozen=True, slots=True)
class SegmentSource:
    """An input file with its facts, and the aborted write ids that may occur in it (ascending)."""

    file: InputFile
    facts: FileFacts
    aborted: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Item:
    """A stripe with its action; `low` and `high` bound its keys. `cut` is what becomes of it in a chunk of its own."""

    source: int
    path: str
    stripe: StripeFacts
    low: RowKey
    high: RowKey
    action: Action
    reason: str
    cut: Cut


@dataclass(frozen=True, slots=True)
class _Group:
    """Stripes that must be treated as one: a single stripe, or several of different files with interleaving keys."""

    items: tuple[_Item, ...]
    action: Action
    reason: str

    @property
    def bytes(self) -> int:
        return sum(item.stripe.bytes for item in self.items)

    @property
    def weight(self) -> int:
        return sum(item.stripe.weight for item in self.items)

    @property
    def events(self) -> int:
        return sum(item.stripe.events for item in self.items)


def segments(
    sources: Sequence[SegmentSource], sizes: Sizes, output: FormatSpec = DEFAULT_OUTPUT
) -> tuple[Segment, ...]:
    """
    Lay out one output file.

    Args:
        sources: all inputs of the bucket; each file's stripes ascend by key, files may come in any order.
        output: its sizes tell which stripes stay apart among others that are recoded.
    """
    items = [item for number, source in enumerate(sources) for item in _judged(number, source, sizes)]
    return _as_segments(_small_ones_together(_groups(items), sizes), sizes, output)


def _judged(number: int, source: SegmentSource, sizes: Sizes) -> list[_Item]:
    items: list[_Item] = []
    floor = RowKey(source.file.min_write_id, -HIGHEST_BUCKET - 1, LOWEST)
    for stripe in source.facts.stripes:
        if stripe.rows == 0:
            continue
        low = max(stripe.first or floor, floor)
        high = stripe.last or RowKey(source.file.max_write_id, HIGHEST_BUCKET, HIGHEST)
        action, reason = _verdict(source, stripe, sizes)
        cut = Cut.NO if action is Action.COPY else _cut(source, stripe, action)
        items.append(_Item(number, source.facts.path, stripe, low, high, action, reason, cut))
        if stripe.last is not None:
            floor = stripe.last if stripe.last_exact else low
    return items


def _verdict(source: SegmentSource, stripe: StripeFacts, sizes: Sizes) -> tuple[Action, str]:
    """
    The action for a stripe. COPY needs every proof; without one the stripe is probed or decoded, and the reason says
    which proof is missing.
    """
    if not source.facts.acid:
        return Action.RECODE, "rows without ROW__ID"
    if source.facts.not_copyable is not None:
        return Action.RECODE, source.facts.not_copyable
    if stripe.first is None or stripe.last is None or stripe.buckets is None:
        return Action.RECODE, "no statistics to rely on"
    if stripe.hit is Hit.CERTAIN:
        return Action.RECODE, "deleted rows"
    doubt = _doubt(source, stripe)
    if doubt is None:
        return Action.COPY, "untouched"
    return (Action.PROBE if stripe.weight >= sizes.min_stripe else Action.RECODE), doubt


def _doubt(source: SegmentSource, stripe: StripeFacts) -> str | None:
    if stripe.hit is Hit.POSSIBLE:
        return "rows may be deleted"
    if _may_be_aborted(source, stripe):
        return "rows may be aborted"
    if not one_bucket(stripe.buckets):
        return "bucket not proven"
    return None if stripe.last_exact else "last key not known"


def _cut(source: SegmentSource, stripe: StripeFacts, action: Action) -> Cut:
    """Whether rows are cut out of a stripe that none is merged with, by the number of those that may go."""
    anywhere, most = stripe.removable
    aborted = _may_be_aborted(source, stripe)
    if not most or not source.facts.acid or source.facts.not_copyable is not None:
        return Cut.NO
    if (stripe.hit is Hit.NONE and not aborted) or _fewest_deleted(stripe) > most:
        return Cut.NO
    if aborted or stripe.events > anywhere or stripe.events >= stripe.rows or not _of_one_write(stripe):
        return Cut.PERHAPS
    return Cut.YES if action is Action.PROBE or stripe.hit is Hit.CERTAIN else Cut.PERHAPS


def _fewest_deleted(stripe: StripeFacts) -> int:
    """Rows that are surely deleted: those of a single write lack no more row ids than statistics tell."""
    first, last = stripe.first, stripe.last
    if first is None or last is None or not _of_one_write(stripe):
        return 0
    return stripe.events - (last.row_id - first.row_id + 1 - stripe.rows)


def _of_one_write(stripe: StripeFacts) -> bool:
    """Whether statistics tell how many rows were deleted before: of several writes they don't."""
    return stripe.first is not None and stripe.last is not None and stripe.first[:2] == stripe.last[:2]


def _may_be_aborted(source: SegmentSource, stripe: StripeFacts) -> bool:
    return bool(source.aborted) and _any_between(source.aborted, stripe.current_ids or stripe.write_ids or (0, HIGHEST))


def keeps_rows(source: SegmentSource, stripe: StripeFacts) -> bool:
    """
    Whether at least one row of a stripe surely stays: the stripe has more rows than delete events, and none can be
    aborted.
    """
    return stripe.rows > stripe.events and not _may_be_aborted(source, stripe)


def one_bucket(buckets: tuple[int, int] | None) -> bool:
    """
    Whether (min, max) of the bucket property prove that all rows decode to one bucket: both ends decode to it, and both
    have the same codec version.
    """
    if buckets is None:
        return False
    try:
        return buckets[0] >> 29 == buckets[1] >> 29 and decode_bucket(buckets[0]) == decode_bucket(buckets[1])
    except BucketRangeError:
        return False


def _any_between(ids: Sequence[int], span: tuple[int, int]) -> bool:
    position = bisect_right(ids, span[0] - 1)
    return position < len(ids) and ids[position] <= span[1]


def _groups(items: Sequence[_Item]) -> list[_Group]:
    """
    Sort stripes by key. Stripes of different files that may interleave become one group, together with all stripes
    between them.
    """
    ordered = sorted(items, key=lambda item: (item.low, item.source, item.stripe.index))
    starts: list[int] = []  # position in `ordered` where each group starts
    active: list[tuple[int, _Item]] = []  # earlier stripes that reach beyond the current key, with their position
    for position, item in enumerate(ordered):
        active = [(at, other) for at, other in active if other.high >= item.low]
        start = min((at for at, other in active if other.source != item.source), default=position)
        while starts and starts[-1] > start:
            starts.pop()
        if start == position:
            starts.append(position)
        active.append((position, item))
    ends = [*starts[1:], len(ordered)] if starts else []
    return [_group(ordered[start:end]) for start, end in zip(starts, ends, strict=True)]


def _group(items: Sequence[_Item]) -> _Group:
    if len(items) == 1:
        return _Group(tuple(items), items[0].action, items[0].reason)
    together = tuple(sorted(items, key=lambda item: (item.source, item.stripe.index)))
    return _Group(together, Action.RECODE, "keys interleave with another file's")


def _small_ones_together(groups: Sequence[_Group], sizes: Sizes) -> list[_Group]:
    """
    Turn small copyable stripes into RECODE where it pays to join them with neighbours that are small or recoded, too; a
    single small stripe between large ones is copied.
    """

    def joins(group: _Group) -> bool:
        return group.action is Action.RECODE or (group.action is Action.COPY and group.weight < sizes.min_stripe)

    result: list[_Group] = []
    for small, found in groupby(groups, joins):
        run = list(found)
        if small:
            copyable = [group.action is Action.COPY for group in run]
            for place in joined([group.weight for group in run], copyable):
                run[place] = replace(run[place], action=Action.RECODE, reason=SMALL_STRIPES)
        result += run
    return result


def _as_segments(groups: Sequence[_Group], sizes: Sizes, output: FormatSpec) -> tuple[Segment, ...]:
    made: list[Segment] = []
    chunk = 0
    position = 0
    while position < len(groups):
        group = groups[position]
        if group.action is Action.COPY:
            made.append(_segment(group.items[0], group.action, group.reason, -1))
            position += 1
        elif group.action is Action.PROBE:
            made.append(_segment(group.items[0], group.action, group.reason, chunk, group.items[0].cut))
            chunk += 1
            position += 1
        else:
            end = position
            while end < len(groups) and groups[end].action is Action.RECODE:
                end += 1
            for part in _parts(groups[position:end], sizes):
                cuts = _cuts(part, output)
                made += [
                    _segment(item, Action.RECODE, one.reason, chunk, next(cuts)) for one in part for item in one.items
                ]
                chunk += 1
            position = end
    return together(made)


def _parts(run: Sequence[_Group], sizes: Sizes) -> list[list[_Group]]:
    """
    Cut a run of recoded groups into the shares of single tasks: delete events that fit into a task's memory, and about
    `sizes.chunk` bytes.
    """
    fitting: list[list[_Group]] = [[]]
    events = 0
    for group in run:
        if fitting[-1] and events + group.events > sizes.events:
            fitting.append([])
            events = 0
        fitting[-1].append(group)
        events += group.events
    return [part for piece in fitting for part in _even_parts(piece, sizes.chunk)]


def _even_parts(run: Sequence[_Group], size: int) -> list[list[_Group]]:
    """
    Cut a run of recoded groups into parts of about `size` bytes, none much smaller than the others, but the last where
    small groups come behind a large one.
    """
    total = sum(group.bytes for group in run)
    share = total / max(1, round(total / size))
    parts: list[list[_Group]] = [[]]
    done = filled = 0
    for group in run:
        if done >= share * len(parts) and 2 * filled >= share:
            parts.append([])
            filled = 0
        parts[-1].append(group)
        done += group.bytes
        filled += group.bytes
    return parts


def _cuts(part: Sequence[_Group], output: FormatSpec) -> Iterator[Cut]:
    """
    Of each stripe of a chunk whether rows are cut out of it: not where stripes are merged by key, and of several only
    where it is large enough to stay apart.
    """
    items = [item for group in part for item in group.items]
    unknown = any(item.stripe.first is None or item.stripe.last is None for item in items)
    merged = len(items) > len(part) or (len(items) > 1 and unknown)
    for item in items:
        stripe = item.stripe
        large = (
            2 * stripe.rows >= output.stripe_rows
            if output.stripe_rows is not None
            else 2 * stripe.values >= output.stripe_bytes
        )
        yield item.cut if not merged and (len(items) == 1 or large) else Cut.NO


def _segment(item: _Item, action: Action, reason: str, chunk: int, cut: Cut = Cut.NO) -> Segment:
    stripe = item.stripe
    return Segment(
        action,
        item.path,
        (stripe.index,),
        reason,
        stripe.rows,
        stripe.bytes,
        chunk,
        stripe.events,
        cut,
        stripe.hit_by,
    )
