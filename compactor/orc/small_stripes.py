"""
Small stripes, decoded many at once: opening one costs Arrow more than its few rows do.

Stripes of one shape are put into one file in memory, one after the other, and decoded together. Everything that is
checked of a stripe alone is checked here, too. Stripes that can't be decoded together are decoded one by one, so that a
message says which of them is damaged.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Final

import pyarrow as pa

from compactor.acid.types import Kind
from compactor.errors import RefusedError
from compactor.orc.digests.digest import Digester
from compactor.orc.format.statistics import value_bytes
from compactor.orc.format.tail import Tail, read_stripe_footer
from compactor.orc.format.zones import zone_of
from compactor.orc.reading.chunks import Chunk
from compactor.orc.reading.consistency import DecodedKeys
from compactor.orc.reading.counts import ValueCounts
from compactor.orc.reading.single_stripe import BATCH_ROWS, FoundStripe, batches_of, image_of_several
from compactor.orc.rows import RowFilter, RowTally, SourceRows, StripeSource
from compactor.orc.writing.output import OutputFormat
from compactor.orc.writing.writer_choice import needs_pyorc

_SMALL_BYTES: Final = 64 << 10
_SMALL_ROWS: Final = 1 << 10
_MOST: Final = 1 << 10
_MOST_BYTES: Final = 16 << 20
_TEXTS: Final = frozenset({Kind.STRING, Kind.VARCHAR, Kind.CHAR, Kind.BINARY})


def readers(
    sources: Sequence[StripeSource],
    output: OutputFormat,
    row_filter: RowFilter,
    tally: RowTally,
    digester: Digester | None,
) -> list[SourceRows]:
    """Readers of sources in key order that don't overlap; neighbours with one small stripe each share a reader."""
    found: list[SourceRows] = []
    for together in _groups(sources):
        if len(together) == 1:
            found.append(SourceRows(together[0], output, row_filter, tally, digester=digester))
        else:
            found.append(_SmallStripes(together, output, row_filter, tally, digester))
    return found


def _groups(sources: Sequence[StripeSource]) -> Iterator[list[StripeSource]]:
    group: list[StripeSource] = []
    shape, rows, size = b"", 0, 0
    for source in sources:
        found = _shape(source)
        (number, *_) = source.chosen or (0,)
        more_rows = source.tail.stripes[number].number_of_rows if found else 0
        more = value_bytes(source.tail, number) if found else 0
        if group and (
            not found
            or (found, source.trusted) != (shape, group[0].trusted)
            or len(group) == _MOST
            or rows + more_rows > BATCH_ROWS
            or size + more > _MOST_BYTES
        ):
            yield group
            group, rows, size = [], 0, 0
        group.append(source)
        shape, rows, size = found, rows + more_rows, size + more
        if not found:
            yield group
            group = []
    if group:
        yield group


def _shape(source: StripeSource) -> bytes:
    """What stripes that are decoded together have in common; empty: this source isn't one."""
    tail, chosen = source.tail, source.chosen
    if len(chosen) != 1 or source.synthetic is not None or not tail.is_acid:
        return b""
    rows = tail.stripes[chosen[0]].number_of_rows
    if not 0 < rows <= _SMALL_ROWS or tail.stripe_length(chosen[0]) > _SMALL_BYTES or not value_bytes(tail, chosen[0]):
        return b""
    if not _tells_lengths(tail, chosen[0]):
        return b""
    if tail.tree.holds((Kind.UNION, Kind.MAP)) or needs_pyorc(source.reader, tail, chosen[0]):
        return b""
    return tail.shape


def _tells_lengths(tail: Tail, index: int) -> bool:
    """Whether statistics say how long texts are. Trino writes none of texts whose bounds are long."""
    columns = tail.stripe_stats(index) or ()
    return all(
        not found.number_of_values or (found.binaries if kind is Kind.BINARY else found.strings).HasField("sum")
        for kind, found in zip((node.kind for node in tail.tree.walk()), columns, strict=True)
        if kind in _TEXTS
    )


class _SmallStripes(SourceRows):
    """Like `SourceRows`, of several sources at once: neighbours in key order, each with one stripe, all of one shape."""

    def __init__(
        self,
        sources: Sequence[StripeSource],
        output: OutputFormat,
        row_filter: RowFilter,
        tally: RowTally,
        digester: Digester | None,
    ) -> None:
        super().__init__(sources[0], output, row_filter, tally, digester=digester)
        self._sources = sources
        self._alone = partial(SourceRows, output=output, row_filter=row_filter, tally=tally, digester=digester)

    def needs_python(self) -> bool:
        return False

    def __iter__(self) -> Iterator[Chunk]:
        try:
            chunks = [self._decoded(stripes, zone) for zone, stripes in self._zones()]
        except (RefusedError, pa.ArrowException):
            for source in self._sources:
                yield from self._alone(source)
            return
        for chunk in chunks:
            kept = self._filtered(chunk)
            if len(kept):
                yield kept

    def _zones(self) -> Iterator[tuple[str, list[FoundStripe]]]:
        """The stripes, cut where the time zone changes."""
        before, stripes = "", list[FoundStripe]()
        for source in self._sources:
            (index,) = source.chosen
            footer = read_stripe_footer(source.reader, source.tail, index)
            zone = zone_of(source.tail, footer)
            if stripes and zone != before:
                yield before, stripes
                stripes = []
            stripes.append(FoundStripe(source.reader, source.tail, index, footer))
            before = zone
        yield before, stripes

    def _decoded(self, stripes: Sequence[FoundStripe], zone: str) -> Chunk:
        ends = list(accumulate((stripe.rows for stripe in stripes), initial=0))
        found = batches_of(image_of_several(stripes, 2 * _MOST_BYTES), ends[-1], BATCH_ROWS, "small stripes")
        batch = pa.concat_batches(list(found))
        chunk = self._chunk(batch, stripes[0].index, 0, zone)
        for stripe, (start, end) in zip(stripes, pairwise(ends), strict=True):
            counts = ValueCounts(stripe.tail, stripe.index)
            counts.add(batch.slice(start, end - start))
            counts.check()
            seen = DecodedKeys(stripe.tail, stripe.index)
            seen.add(chunk.keys.select(slice(start, end)))
            seen.check()
        self._check(chunk.keys, stripes[0].index)
        return chunk
