"""
The delete events of a partition: how many there are in each bucket, which stripes they may hit, and the files they are read from.

Nothing here is proportional to rows except delete keys, and of those no more is in memory than was allowed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from compactor.acid.row_id import decode_bucket
from compactor.engine.inputs import open_input
from compactor.orc.deletes import DeleteEvents
from compactor.orc.event_share import Share
from compactor.orc.event_windows import event_windows
from compactor.orc.handles import RandomReader
from compactor.orc.keys import StripeBounds, stripe_bounds
from compactor.orc.tail import Tail
from compactor.planning.facts import DeleteFacts, Hit, StripeFacts
from compactor.planning.segments import Source, one_bucket
from compactor.storage.base import Storage

FEWEST_EVENTS: Final = 1 << 16
"""Fewer than these aren't worth a file."""


@dataclass(frozen=True, slots=True, eq=False)
class DeleteFiles:
    """
    Delete files of one partition.

    Args:
        files: paths, and tails.
        aborted: write ids whose events don't count.
    """

    storage: Storage
    location: str
    files: Sequence[tuple[str, Tail]]
    aborted: npt.NDArray[np.int64]

    def load(self, share: Share, most: int) -> DeleteEvents:
        """Their valid events, one per key; those beyond `most` are kept on disk."""
        return DeleteEvents.load(self._one_by_one(), aborted=self.aborted, share=share, limit=max(most, FEWEST_EVENTS))

    def windows(self, share: Share, most: int) -> Iterator[DeleteEvents]:
        """The same in ascending order, `most` at a time."""
        return event_windows(self._one_by_one, most, aborted=self.aborted, share=share)

    def _one_by_one(self) -> Iterator[tuple[RandomReader, Tail]]:
        """Each open only while it is read."""
        for path, tail in self.files:
            with open_input(self.storage, self.location, path) as reader:
                yield reader, tail


class Deletes:
    """
    The delete events of a partition, bucket by bucket.

    Args:
        sources: delete files with their facts; which bucket a file concerns is told by its statistics, never by its name (HIVE-22318).
        tails: of all inputs, by path.
        most: events that may be in memory at once.
    """

    def __init__(  # noqa: PLR0917 - what they are read from, and how many at a time
        self, storage: Storage, location: str, sources: Sequence[Source], tails: Mapping[str, Tail], aborted: Sequence[int], most: int
    ) -> None:
        self._storage = storage
        self._location = location
        self._tails = tails
        self._aborted = np.array(aborted, dtype=np.int64)
        self._most = most
        self._by_bucket: dict[int, list[Source]] = {}
        self._mixed: list[Source] = []
        for source in sources:
            stripes = [stripe for stripe in source.facts.stripes if stripe.rows]
            spans = [stripe.buckets for stripe in stripes]
            known = {decode_bucket(span[0]) for span in spans if span is not None and one_bucket(span)}
            if all(one_bucket(span) for span in spans) and len(known) == 1:
                self._by_bucket.setdefault(known.pop(), []).append(source)
            elif stripes:
                self._mixed.append(source)

    @cached_property
    def _places(self) -> Mapping[int, Sequence[Source]]:
        """The files of each bucket. Those whose statistics prove none (Hive 3.1 compacts without) are read once to find out, not again for every bucket."""
        places = {bucket: list(found) for bucket, found in self._by_bucket.items()}
        for source in self._mixed:
            for bucket in {bucket for events in self._windows([source], None) for bucket in events.buckets()}:
                places.setdefault(bucket, []).append(source)
        return places

    def buckets(self) -> tuple[int, ...]:
        """Buckets that have events."""
        return tuple(sorted(self._places))

    def look(self, bucket: int, rows: Sequence[Source], own: int | None) -> tuple[DeleteFacts, tuple[Source, ...]]:
        """
        What a plan needs of a bucket's events: how many there are, and which stripes they may hit.

        Args:
            rows: the bucket's sources of rows, to be filled in with that; none where no event is applied.
            own: the write id whose own rows' deletes are counted apart; None for no such count.
        """
        sources = self._places.get(bucket, ())
        count = mine = 0
        judged = tuple(rows)
        for events in self._windows(sources, bucket):
            count += len(events)
            mine += 0 if own is None else int((np.asarray(events.write_id) == own).sum())
            judged = tuple(with_hits(source, self._tails.get(source.file.path), events) for source in judged)
        size = sum(source.facts.bytes for source in sources)
        return DeleteFacts(bucket, tuple(source.file.path for source in sources), count, mine, size), judged

    def _windows(self, sources: Sequence[Source], bucket: int | None) -> Iterator[DeleteEvents]:
        files = [(source.file.path, self._tails[source.file.path]) for source in sources]
        return DeleteFiles(self._storage, self._location, files, self._aborted).windows(Share(bucket), self._most)


def with_hits(source: Source, tail: Tail | None, events: DeleteEvents) -> Source:
    """Fill in, stripe by stripe, whether some more delete events can hit, and how many lie between its keys."""
    if tail is None or not len(events):
        return source
    stripes = tuple(_with_hits(stripe, stripe_bounds(tail, stripe.index) if source.facts.acid else None, events) for stripe in source.facts.stripes)
    return replace(source, facts=replace(source.facts, stripes=stripes))


def _with_hits(stripe: StripeFacts, bounds: StripeBounds | None, events: DeleteEvents) -> StripeFacts:
    if stripe.first is None or stripe.last is None:
        return replace(stripe, events=stripe.events + len(events))
    start, stop = events.between(stripe.first, stripe.last)
    hit = max(stripe.hit, Hit(events.hit(bounds).value), key=list(Hit).index) if bounds is not None else stripe.hit
    return replace(stripe, hit=hit, events=stripe.events + stop - start)
