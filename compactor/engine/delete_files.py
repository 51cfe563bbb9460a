"""
The delete events of a partition: their number in each bucket, the stripes that they may hit, and their files.

Of all data here, only delete keys grow with the number of rows, and no more of them are in memory than allowed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from compactor.acid.row_id import Hit, RowKey, decode_bucket
from compactor.engine.inputs import open_input
from compactor.handles import RandomReader
from compactor.orc.events.deletes import DeleteEvents, Seen
from compactor.orc.events.event_share import Share
from compactor.orc.events.event_windows import event_windows
from compactor.orc.events.hit_by import HitBy
from compactor.orc.events.keys import StripeBounds, stripe_bounds
from compactor.orc.format.tail import Tail, read_tail
from compactor.planning.document import EVERY_FILE, InputFile, chosen_by
from compactor.planning.facts import DeleteFacts, StripeFacts
from compactor.planning.segments import SegmentSource, one_bucket
from compactor.storage.base import Storage

FEWEST_EVENTS: Final = 1 << 16
"""So many events are always kept in memory: fewer aren't worth a temporary file."""


class DeleteFiles:
    """
    The valid delete events in some delete files of a partition.

    Args:
        aborted: write ids whose events don't count.
        most: events that may be in memory at once.
        tails: those that are known, by path; the others are read when they are first needed.
    """

    def __init__(  # noqa: PLR0917 - the sources of the events, and a limit
        self,
        storage: Storage,
        location: str,
        files: Sequence[InputFile],
        aborted: npt.NDArray[np.int64],
        most: int,
        tails: Mapping[str, Tail] = MappingProxyType({}),
    ) -> None:
        self._storage, self._location, self._files = storage, location, files
        self._aborted, self._most, self._tails = aborted, most, dict(tails)

    def load(self, share: Share, hit_by: int = EVERY_FILE) -> DeleteEvents:
        """
        The events of a share, one per key; those beyond the limit are kept on disk.

        Args:
            hit_by: the files that have events of the share, as in `Segment.hit_by`; no others are opened.
        """
        limit = max(self._most, FEWEST_EVENTS)
        return DeleteEvents.load(self._one_by_one(hit_by), aborted=self._aborted, share=share, limit=limit)

    def windows(self, share: Share, seen: Seen | None = None) -> Iterator[DeleteEvents]:
        """
        The events of a share in ascending order, at most the allowed number at a time.

        Args:
            seen: as in `event_windows`.
        """
        return event_windows(self._one_by_one, self._most, aborted=self._aborted, share=share, seen=seen)

    def _one_by_one(self, hit_by: int = EVERY_FILE) -> Iterator[tuple[RandomReader, Tail]]:
        """Open each file only while it is read."""
        for file in chosen_by(hit_by, self._files):
            with open_input(self._storage, self._location, file.path) as reader:
                if file.path not in self._tails:
                    self._tails[file.path] = read_tail(reader, file.logical_length)
                yield reader, self._tails[file.path]


class Deletes:
    """
    The delete events of a partition, bucket by bucket.

    Args:
        sources: delete files with their facts; a file's statistics tell its bucket, never its name (HIVE-22318).
        tails: the tails of all inputs, by path.
        most: events that may be in memory at once.
    """

    def __init__(  # noqa: PLR0917 - the sources of the events, and a limit
        self,
        storage: Storage,
        location: str,
        sources: Sequence[SegmentSource],
        tails: Mapping[str, Tail],
        aborted: Sequence[int],
        most: int,
    ) -> None:
        self._storage = storage
        self._location = location
        self._tails = tails
        self._aborted = np.array(aborted, dtype=np.int64)
        self._most = most
        self._by_bucket: dict[int, list[SegmentSource]] = {}
        self._mixed: list[SegmentSource] = []
        for source in sources:
            stripes = [stripe for stripe in source.facts.stripes if stripe.rows]
            spans = [stripe.buckets for stripe in stripes]
            known = {decode_bucket(span[0]) for span in spans if span is not None and one_bucket(span)}
            if all(one_bucket(span) for span in spans) and len(known) == 1:
                self._by_bucket.setdefault(known.pop(), []).append(source)
            elif stripes:
                self._mixed.append(source)

    @cached_property
    def _places(self) -> Mapping[int, Sequence[SegmentSource]]:
        """
        The delete files of each bucket.

        A file whose statistics don't prove a single bucket (Hive 3.1's compaction writes none) is read once to find its
        buckets, not again for every bucket.
        """
        places = {bucket: list(found) for bucket, found in self._by_bucket.items()}
        for source in self._mixed:
            for bucket in {bucket for events in self._windows([source], None) for bucket in events.buckets()}:
                places.setdefault(bucket, []).append(source)
        return places

    def buckets(self) -> tuple[int, ...]:
        """The buckets that have delete events, ascending."""
        return tuple(sorted(self._places))

    def look(
        self, bucket: int, rows: Sequence[SegmentSource], own: int | None, *, by_file: bool = False
    ) -> tuple[DeleteFacts, tuple[SegmentSource, ...]]:
        """
        Count a bucket's delete events, and find the stripes that they may hit.

        Args:
            rows: the bucket's sources of rows; empty where no event is applied to rows.
            own: deletes of rows of this write id are counted apart, too; None: no such count.
            by_file: whether to find out which delete files hit which stripes. It pays where several tasks recode the
                bucket's rows: each then opens only the delete files that have events of its rows.

        Returns the facts about the events, and `rows` with the hits filled in.
        """
        sources = self._places.get(bucket, ())
        count = mine = 0
        judged = tuple(rows)
        files = HitBy(_spans(rows), len(sources)) if by_file and len(sources) > 1 else None
        for events in self._windows(sources, bucket, None if files is None else files.add):
            count += len(events)
            mine += 0 if own is None else int((np.asarray(events.write_id) == own).sum())
            judged = tuple(with_hits(source, self._tails.get(source.file.path), events) for source in judged)
        if files is not None:
            judged = _with_files(judged, files.masks())
        size = sum(source.facts.bytes for source in sources)
        return DeleteFacts(bucket, tuple(source.file.path for source in sources), count, mine, size), judged

    def _windows(
        self, sources: Sequence[SegmentSource], bucket: int | None, seen: Seen | None = None
    ) -> Iterator[DeleteEvents]:
        files = [source.file for source in sources]
        tails = {file.path: self._tails[file.path] for file in files}
        found = DeleteFiles(self._storage, self._location, files, self._aborted, self._most, tails)
        return found.windows(Share(bucket), seen)


def with_hits(source: SegmentSource, tail: Tail | None, events: DeleteEvents) -> SegmentSource:
    """Add delete events to each stripe's facts: whether they can hit it, and how many lie between its keys."""
    if tail is None or not len(events):
        return source
    stripes = tuple(
        _with_hits(stripe, stripe_bounds(tail, stripe.index) if source.facts.acid else None, events)
        for stripe in source.facts.stripes
    )
    return replace(source, facts=replace(source.facts, stripes=stripes))


def _spans(sources: Sequence[SegmentSource]) -> list[tuple[RowKey, RowKey] | None]:
    """The bounds of the keys of all stripes, source by source."""
    return [
        None if stripe.first is None or stripe.last is None else (stripe.first, stripe.last)
        for source in sources
        for stripe in source.facts.stripes
    ]


def _with_files(sources: Sequence[SegmentSource], masks: Sequence[int | None]) -> tuple[SegmentSource, ...]:
    """Add to each stripe's facts which delete files hit it; the masks are in the order of `_spans`."""
    of_stripes = iter(masks)
    return tuple(
        replace(
            source,
            facts=replace(
                source.facts,
                stripes=tuple(
                    replace(stripe, hit_by=EVERY_FILE if mask is None else mask)
                    for stripe, mask in zip(
                        source.facts.stripes, islice(of_stripes, len(source.facts.stripes)), strict=True
                    )
                ),
            ),
        )
        for source in sources
    )


def _with_hits(stripe: StripeFacts, bounds: StripeBounds | None, events: DeleteEvents) -> StripeFacts:
    if stripe.first is None or stripe.last is None:
        return replace(stripe, events=stripe.events + len(events))
    start, stop = events.between(stripe.first, stripe.last)
    hit = max(stripe.hit, events.hit(bounds), key=list(Hit).index) if bounds is not None else stripe.hit
    return replace(stripe, hit=hit, events=stripe.events + stop - start)
