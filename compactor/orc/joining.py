"""
Joins files without ACID columns, as insert-only tables have them, into one: large stripes are copied as bytes,
neighbouring small ones are decoded and written together.

Knows no plan. Files may share a file when all that a reader takes from the tail is the same (`family_of`), so no value
is read differently afterwards. A stripe that Arrow can't rewrite is copied, whatever its size.
Source: docs/orc.md, "Files without ACID columns"; Java's OrcFile.mergeFiles.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from compactor.acid.columns import ColumnRule, converted
from compactor.acid.types import HiveType, Kind
from compactor.errors import RefusedError, VerificationError
from compactor.handles import RandomReader, Sink
from compactor.orc.digests.digest import Digest, Digester
from compactor.orc.format.key_columns import KeyColumns
from compactor.orc.format.proto import orc_pb2 as pb
from compactor.orc.format.statistics import value_bytes
from compactor.orc.format.tail import Tail, read_stripe_footer, read_tail
from compactor.orc.format.zones import UTC, stripe_zone, zone_of
from compactor.orc.reading.arrow import arrow_type, check_recodable, has_nested, settled
from compactor.orc.reading.single_stripe import batch_rows, read_batches
from compactor.orc.writing.copied import difference
from compactor.orc.writing.encode import Encoder
from compactor.orc.writing.output import DEFAULT_BLOCK, DEFAULT_STRIPE, OutputFormat, common_calendar, compatible
from compactor.orc.writing.splice import Splicer
from compactor.orc.writing.writer_choice import check_map_keys, check_unions, needs_pyorc

_BLOCK_STEP: Final = 1 << 16
_BLOOM_STREAMS: Final = (7, 8)
_PLAIN: Final = (UTC, ())
"""The manner of stripes that differ in nothing from having no rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """
    Neighbouring stripes of one file, all treated alike.

    Args:
        stripes: indexes, ascending.
        recode: decode them and write them together with those of the pieces beside them; else copy them as bytes.
    """

    reader: RandomReader
    tail: Tail
    stripes: tuple[int, ...]
    recode: bool


@dataclass(frozen=True, slots=True)
class Joined:
    """
    A file that was written.

    Args:
        length: bytes.
        origins: for each stripe the place of its piece and the number of its stripe there; None: written anew.
        digest: of the rows that were written anew, as they were read; without columns where none was asked for.
    """

    rows: int
    length: int
    copied_bytes: int
    recoded_bytes: int
    origins: tuple[tuple[int, int] | None, ...]
    digest: Digest


def named(tail: Tail, names: Sequence[str]) -> Tail:
    """
    A tail with the table's names for the columns, whose places they keep: for readers that find columns by their places,
    names are nothing that keeps files apart. The same tail where the file has columns that the table lacks.

    Args:
        names: of the table's columns.
    """
    found = tail.footer.types[0].field_names
    if list(found) == list(names[: len(found)]) or len(found) > len(names) or tail.tree.kind is not Kind.STRUCT:
        return tail
    footer = pb.Footer()
    footer.CopyFrom(tail.footer)
    footer.types[0].field_names[:] = names[: len(found)]
    return replace(tail, footer=footer)


Manner = tuple[str, tuple[str, ...]]
"""Time zone of a stripe, and names of the columns that have Bloom filters."""


def manners_of(reader: RandomReader, tail: Tail) -> frozenset[Manner]:
    """
    How the stripes with rows were written.

    Raises:
        CorruptFileError: the footer of a stripe can't be read.
    """
    filled = [index for index in range(len(tail.stripes)) if tail.stripes[index].number_of_rows]
    footers = [read_stripe_footer(reader, tail, index) for index in filled]
    return frozenset((zone_of(tail, footer), _with_bloom_filters(tail, footer)) for footer in footers)


def family_of(tail: Tail, manners: frozenset[Manner]) -> str:
    """
    What files must have in common to share a file: column types with their names and attributes, codec, rows per index
    entry, calendar, user metadata, and of all their stripes time zone and Bloom filters.
    """
    said = hashlib.blake2b(digest_size=8)
    for found in tail.footer.types:
        said.update(found.SerializeToString(deterministic=True) + b";")
    for name, value in sorted(tail.user_metadata.items()):
        said.update(f"{name}={value.hex()};".encode())
    said.update(f"{tail.compression} {tail.stride} {tail.footer.calendar} {tail.splice_class}".encode())
    for manner in sorted(manners - {_PLAIN}):
        said.update(f"{manner}".encode())
    return said.hexdigest()


def why_whole(tail: Tail, manners: frozenset[Manner]) -> str | None:
    """Why none of a file's stripes can stand in another file; None: they can."""
    if tail.is_acid:
        return "it has the columns of a full ACID file"
    if tail.stride < 1:
        return "it has no row index"
    unclear = (compatible(tail, _output(tail, (), DEFAULT_STRIPE), index) for index in range(len(tail.stripes)))
    if (why := next((why for why in unclear if why is not None), None)) is not None:
        return why
    zones = sorted({zone for zone, _ in manners})
    if len(zones) > 1:  # as ORC's own merging leaves them
        return f"its stripes are of several time zones ({', '.join(zone or 'none' for zone in zones)})"
    return None


def why_apart(tail: Tail, table: HiveType, rule: ColumnRule) -> str | None:
    """
    Why the table's readers may read a file wrongly if another one's stripes lay beside its own; None: they don't.

    Where a decimal became another type, ORC's reader takes the first value of a batch for all of them after a batch of
    NULLs, if a stripe without any NULL follows it in the same file (ORC-1266; seen with Hive 3.1.3 to 4.1.0).

    Args:
        table: the row of the table's columns.
        rule: how the table's readers find its columns in the file.
    """
    if changed := converted(tail.tree, table, rule, Kind.DECIMAL):
        what = f"the decimals of {', '.join(changed)} have another type in the table, to which readers convert them"
        return f"{what}; where several stripes follow each other they may read wrong values (ORC-1266)"
    return None


def why_copied(tail: Tail) -> str | None:
    """Why even small stripes of a file are copied; None: they can be written anew."""
    try:
        check_recodable(tail.tree, tail.name)
    except RefusedError as error:
        return error.message
    return None


def stripe_sizes(tail: Tail, index: int) -> tuple[int, int, int]:
    """Rows of a stripe, its bytes as stored, and about the bytes that a reader of it handles."""
    stored = tail.stripe_length(index)
    return tail.stripes[index].number_of_rows, stored, max(stored, value_bytes(tail, index))


def join(
    pieces: Sequence[Piece],
    sink: Sink,
    *,
    stripe_bytes: int,
    digests: bool,
    progress: Callable[[int], None] | None = None,
) -> Joined:
    """
    Write the rows of all pieces, in their order, as one file.

    Args:
        pieces: of files of one family, in which no timestamp has nanoseconds that Java refuses (`check_nanoseconds`); at
            least one.
        stripe_bytes: of the stripes that are written anew, in the writer's memory.
        digests: whether to make a digest of the rows that are written anew.
        progress: called with rows since its last call; may raise to stop.

    Raises:
        CorruptFileError: a stripe can't be decoded.
        RefusedError: UNSUPPORTED_FORMAT, the files aren't of one family.
    """
    first = pieces[0]
    blooms = next((_bloom_columns(piece.reader, piece.tail, index) for piece in pieces for index in piece.stripes), ())
    output = _output(first.tail, blooms, stripe_bytes)
    work = _Join(pieces, Splicer(sink, output, first.tail.footer.types), digests=digests, progress=progress)
    return work.run()


class _Join:
    """A file that is being written."""

    def __init__(
        self, pieces: Sequence[Piece], splicer: Splicer, *, digests: bool, progress: Callable[[int], None] | None
    ) -> None:
        self._pieces, self._splicer, self._progress = pieces, splicer, progress
        self._output = splicer.output
        calendar = common_calendar([piece.tail for piece in pieces])
        self._encoder = Encoder(splicer, _bytes_per_row(pieces), calendar, None)
        self._rows = _Rows(self._output.types, Digester(self._output.types) if digests else None)
        self._origins: list[tuple[int, int] | None] = []
        self._copied = self._recoded = 0

    def run(self) -> Joined:
        for number, piece in enumerate(self._pieces):
            for index in piece.stripes:
                if not piece.tail.stripes[index].number_of_rows:
                    continue
                if piece.recode and _rewritable(piece.reader, piece.tail, index):
                    self._encode(piece, index)
                else:
                    self._copy(number, piece, index)
                if self._progress is not None:
                    self._progress(piece.tail.stripes[index].number_of_rows)
        self._finish()
        summary = self._splicer.finish(None, self._pieces[0].tail.user_metadata)
        return Joined(
            summary.rows, summary.length, self._copied, self._recoded, tuple(self._origins), self._rows.digest
        )

    def _copy(self, number: int, piece: Piece, index: int) -> None:
        self._finish()
        self._splicer.add_stripe(piece.reader, piece.tail, index)
        self._origins.append((number, index))
        self._copied += piece.tail.stripe_length(index)

    def _encode(self, piece: Piece, index: int) -> None:
        zone = stripe_zone(piece.reader, piece.tail, index)
        self._encoder.begin(zone)
        for batch in self._rows.of(piece.reader, piece.tail, index, zone):
            self._encoder.gather([batch], None)
        self._recoded += piece.tail.stripe_length(index)

    def _finish(self) -> None:
        """Write all rows that wait."""
        self._encoder.finish()
        self._origins += [None] * (len(self._splicer.stripe_rows) - len(self._origins))


class _Rows:
    """Decodes stripes into batches that can be written, and adds them to a digest, numbered from 0."""

    def __init__(self, types: Any, digester: Digester | None) -> None:
        self._schema = pa.schema(list(arrow_type(types, 0)))
        self._nested = has_nested(types)
        self._digester = digester
        self._at = 0

    @property
    def digest(self) -> Digest:
        return Digest() if self._digester is None else self._digester.digest

    def of(self, reader: RandomReader, tail: Tail, index: int, zone: str) -> Iterator[Any]:
        for batch in read_batches(reader, tail, index, rows=batch_rows(tail, index)):
            columns = [settled(column) for column in batch.columns] if self._nested else batch.columns
            made = pa.RecordBatch.from_arrays(columns, schema=self._schema)
            if self._digester is not None:
                values = pa.StructArray.from_arrays(made.columns, fields=list(self._schema))
                self._digester.add(_numbers(self._at, len(made)), values, None, zone)
            self._at += len(made)
            yield made


def check(result: RandomReader, pieces: Sequence[Piece], made: Joined) -> None:
    """
    Compare a file with what it was made of: the tail, samples of each copied stripe, the values of the others.

    Args:
        made: as `join` returned it.

    Raises:
        VerificationError: the first difference.
    """
    try:
        tail, first = read_tail(result), pieces[0].tail
    except RefusedError as error:
        raise VerificationError(error.message) from error
    if [kind.SerializeToString() for kind in tail.footer.types] != [
        kind.SerializeToString() for kind in first.footer.types
    ]:
        raise VerificationError(f"{result.name} has columns {tail.tree} instead of {first.tree}")
    if (tail.compression, tail.stride, tail.user_metadata) != (first.compression, first.stride, first.user_metadata):
        raise VerificationError(f"{result.name} isn't written as {first.name} is")
    rows = sum(piece.tail.stripes[index].number_of_rows for piece in pieces for index in piece.stripes)
    if (tail.rows, len(tail.stripes), tail.length) != (rows, len(made.origins), made.length) or made.rows != rows:
        raise VerificationError(
            f"{result.name} has {tail.rows} rows in {len(tail.stripes)} stripes; {rows} rows went in"
        )
    digested = bool(made.digest.columns)
    decoded = _Rows(tail.tree, Digester(tail.tree) if digested else None)
    for index, origin in enumerate(made.origins):
        if origin is None:
            try:
                for _ in decoded.of(result, tail, index, stripe_zone(result, tail, index)):
                    pass
            except RefusedError as error:
                raise VerificationError(error.message) from error
        else:
            source = pieces[origin[0]]
            if (wrong := difference(result, tail, index, source.reader, source.tail, origin[1])) is not None:
                raise VerificationError(f"{result.name} {wrong}")
    if decoded.digest != made.digest:
        raise VerificationError(f"{result.name} was read back with other values than were read from the inputs")


def _output(tail: Tail, blooms: Sequence[str], stripe_bytes: int) -> OutputFormat:
    block = tail.block_size or DEFAULT_BLOCK
    return OutputFormat(
        types=tail.tree,
        compression=tail.compression,
        block_size=min(max(_BLOCK_STEP, block // _BLOCK_STEP * _BLOCK_STEP), 1 << 22),
        stride=max(1, tail.stride),
        stripe_bytes=stripe_bytes,
        bloom_columns=tuple(blooms),
        one_zone=True,
    )


def _bloom_columns(reader: RandomReader, tail: Tail, index: int) -> tuple[str, ...]:
    """Names of the table's columns that have Bloom filters in a stripe."""
    return _with_bloom_filters(tail, read_stripe_footer(reader, tail, index))


def _with_bloom_filters(tail: Tail, footer: pb.StripeFooter) -> tuple[str, ...]:
    streams = footer.streams
    found = {stream.column for stream in streams if stream.kind in _BLOOM_STREAMS}
    root: pb.Type = tail.footer.types[0]
    return tuple(name for name, column in zip(root.field_names, root.subtypes, strict=True) if column in found)


def _rewritable(reader: RandomReader, tail: Tail, index: int) -> bool:
    """Whether Arrow reads and writes every value of a stripe as it is."""
    try:
        if tail.tree.holds((Kind.UNION,)):
            check_unions(reader, tail, index)
        check_map_keys(reader, tail, index)
    except RefusedError:
        return False
    return not needs_pyorc(reader, tail, index)


def _bytes_per_row(pieces: Sequence[Piece]) -> float | None:
    chosen = [(piece.tail, index) for piece in pieces if piece.recode for index in piece.stripes]
    rows = sum(tail.stripes[index].number_of_rows for tail, index in chosen)
    return sum(tail.stripe_length(index) for tail, index in chosen) / rows if rows else None


def _numbers(first: int, count: int) -> KeyColumns:
    """Keys that number rows, so that a digest tells their order."""
    zeros = np.zeros(count, np.int64)
    small = zeros.astype(np.int32)
    return KeyColumns(small, zeros, small, np.arange(first, first + count, dtype=np.int64), zeros)
