"""Claims about files without ACID columns that are joined into one."""

import io
import time
from collections.abc import Sequence
from dataclasses import replace
from zoneinfo import ZoneInfo

import pyorc
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from compactor.acid.row_id import RowKey
from compactor.acid.types import HiveType, parse_hive_type, row_type
from compactor.errors import VerificationError
from compactor.handles import MemoryReader
from compactor.orc.format.tail import read_stripe_footer, read_tail
from compactor.orc.joining import Joined, Piece, check, family_of, join, manners_of, why_copied, why_whole
from compactor.orc.joining import named as with_names
from tests import strategies
from tests.unit.orc.files import MemorySink, acid_file, insert, named, opened, plain_file, rows_of

MIB = 1 << 20
ROW = row_type([("id", "int"), ("v", "string")])


def pieces_of(files: Sequence[bytes], recode: Sequence[bool]) -> list[Piece]:
    """One piece a file."""
    made = []
    for number, (data, anew) in enumerate(zip(files, recode, strict=True)):
        reader, tail = opened(data, f"file {number}")
        made.append(Piece(reader, tail, tuple(range(len(tail.stripes))), anew))
    return made


def joined(pieces: Sequence[Piece], *, digests: bool = True) -> tuple[bytes, Joined]:
    sink = MemorySink()
    made = join(pieces, sink, stripe_bytes=MIB, digests=digests)
    return sink.getvalue(), made


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[bytes], list[list[tuple[object, ...]]], list[bool]]:
    """Files of one table, their rows, and which of them are written anew."""
    tree = named(draw(strategies.row_structs()))
    codec = draw(st.sampled_from(["NONE", "ZLIB", "SNAPPY", "LZ4", "ZSTD"]))
    rows = [draw(st.lists(strategies.filled(tree), max_size=12)) for _ in range(draw(st.integers(1, 4)))]
    options = {"compression": pyorc.CompressionKind[codec], "row_index_stride": draw(st.sampled_from([1000, 10_000]))}
    files = [plain_file(tree, some, **options) for some in rows]
    return files, rows, [draw(st.booleans()) for _ in rows]


@given(tables())
def test_a_joined_file_holds_the_rows_of_its_files_in_their_order(
    table: tuple[list[bytes], list[list[tuple[object, ...]]], list[bool]],
) -> None:
    """Whatever is copied and whatever written anew: same rows, same order, same types, and the check agrees."""
    files, _, recode = table
    pieces = pieces_of(files, recode)
    data, made = joined(pieces)
    assert repr(rows_of(data)) == repr([row for one in files for row in rows_of(one)])
    assert made.length == len(data)
    check(MemoryReader(data, "result"), pieces, made)


@given(st.data(), strategies.row_structs())
def test_rows_that_changed_places_are_found(data: st.DataObject, row: HiveType) -> None:
    """A result with the rows of its inputs in another order doesn't agree with them, nor does one with other values."""
    tree = named(row)
    values = data.draw(st.lists(strategies.filled(tree), min_size=2, max_size=6))
    order = data.draw(st.permutations(values))
    sources, others = pieces_of([plain_file(tree, values)], [True]), pieces_of([plain_file(tree, order)], [True])
    _, made = joined(sources)
    result, moved = joined(others)
    assume(None in made.origins and None in moved.origins and repr(values) != repr(order))
    with pytest.raises(VerificationError):
        check(MemoryReader(result, "result"), sources, replace(made, length=moved.length))


@pytest.mark.parametrize("place", [0.001, 0.999])
def test_a_copied_stripe_with_other_bytes_is_found(place: float) -> None:
    """Bytes at a copied stripe's start and end are compared."""
    sources = pieces_of([plain_file(ROW, [(number, f"v{number}") for number in range(5000)])], [False])
    data, made = joined(sources)
    stripe = read_tail(MemoryReader(data)).stripes[0]
    at = stripe.offset + int(place * (stripe.index_length + stripe.data_length + stripe.footer_length))
    changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    with pytest.raises(VerificationError):
        check(MemoryReader(changed, "result"), sources, made)


def test_small_stripes_become_one() -> None:
    """Forty files of a few rows, written anew, are one stripe; a large one between them is copied."""
    files = [plain_file(ROW, [(number, "few")] * 3) for number in range(40)]
    data, _ = joined(pieces_of(files, [True] * 40))
    assert [stripe.number_of_rows for stripe in read_tail(MemoryReader(data)).stripes] == [120]
    data, made = joined(pieces_of(files, [number != 20 for number in range(40)]))
    assert [stripe.number_of_rows for stripe in read_tail(MemoryReader(data)).stripes] == [60, 3, 57]
    assert made.origins == (None, (20, 0), None)


def test_what_a_reader_takes_from_the_tail_makes_the_family() -> None:
    """Files differ in family when their columns, codec, row index, time zone or Bloom filters differ; not by rows."""

    def family(row: HiveType = ROW, rows: Sequence[tuple[object, ...]] = ((1, "a"),), **options: object) -> str:
        reader, tail = opened(plain_file(row, rows, **options))
        return family_of(tail, manners_of(reader, tail))

    times = row_type([("id", "int"), ("v", "timestamp")])
    assert family() == family(rows=[(2, "b")] * 9)
    others = [
        family(row_type([("id", "int"), ("w", "string")])),
        family(row_type([("id", "bigint"), ("v", "string")])),
        family(compression=pyorc.CompressionKind.ZSTD),
        family(row_index_stride=5000),
        family(bloom_filter_columns=["v"]),
        family(times, [(1, (0, 0))]),
        family(times, [(1, (0, 0))], timezone=ZoneInfo("Europe/Paris")),
    ]
    assert len({family(), *others}) == 1 + len(others)


def test_recoded_stripes_keep_bloom_filters() -> None:
    """A column that had Bloom filters has them afterwards."""
    files = [plain_file(ROW, [(number, f"v{number}")] * 3, bloom_filter_columns=["v"]) for number in range(3)]
    data, _ = joined(pieces_of(files, [True] * 3))
    reader = MemoryReader(data)
    assert 8 in {stream.kind for stream in read_stripe_footer(reader, read_tail(reader), 0).streams}


def test_what_cannot_be_joined_says_why() -> None:
    """A full ACID file and one without row index stay whole; columns that nothing can write anew are copied."""

    def whole(data: bytes) -> str | None:
        reader, tail = opened(data)
        return why_whole(tail, manners_of(reader, tail))

    assert whole(plain_file(ROW, [(1, "a")])) is None
    assert "ACID" in (whole(acid_file([insert(RowKey(1, 536870912, 0), (1, "a"))])) or "")
    assert "index" in (whole(plain_file(ROW, [(1, "a")], row_index_stride=0)) or "")
    nested = row_type([("u", "array<uniontype<int,string>>")])
    assert "union" in (why_copied(opened(plain_file(nested, []))[1]) or "")


def test_user_metadata_and_attributes_stay() -> None:
    """What a writer noted in the footer, and beside the types, is in the joined file, too."""

    def noted(number: int) -> bytes:
        buffer = io.BytesIO()
        schema = pyorc.TypeDescription.from_string("struct<id:int>")
        schema.fields["id"].set_attributes({"iceberg.id": "1"})
        with pyorc.Writer(buffer, schema, row_index_stride=10_000) as writer:
            writer.set_user_metadata(by=b"somebody")
            writer.write((number,))
        return buffer.getvalue()

    data, _ = joined(pieces_of([noted(1), noted(2)], [True, True]))
    tail = read_tail(MemoryReader(data))
    assert tail.user_metadata == {"by": b"somebody"}
    assert [(one.key, one.value) for kind in tail.footer.types for one in kind.attributes] == [("iceberg.id", "1")]


def test_stripes_of_a_row_each_cost_a_step_each() -> None:
    """A writer that flushes each row: the time grows with the stripes, no faster."""
    reader, tail = opened(plain_file(ROW, [(1, "x")]), "file")
    many, _ = joined([Piece(reader, tail, (0,) * 2500, False)])
    begun = time.process_time()
    _, made = joined(pieces_of([many], [True]), digests=False)
    assert (made.rows, made.origins) == (2500, (None,))
    assert time.process_time() - begun < 15


def test_columns_found_by_their_places_get_the_tables_names() -> None:
    """Files that differ only in names of columns are of one family; names inside structs and a column too many count."""
    row = "struct<{}:int,{}:struct<x:int>>".format
    values = [(1, (2,)), (3, None)]

    def family(text: str, names: Sequence[str]) -> str:
        reader, tail = opened(plain_file(parse_hive_type(text), values, bloom_filter_columns=[0]), "a file")
        tail = with_names(tail, names)
        return family_of(tail, manners_of(reader, tail))

    one, other = (family(row(*names), ["a", "s", "new"]) for names in (("a", "s"), ("b", "t")))
    assert one == other
    assert family(row("a", "s").replace("x", "y"), ["a", "s"]) != family(row("a", "s"), ["a", "s"])
    assert family(row("a", "s"), ["a"]) != family(row("b", "s"), ["a"])
    assert family(row("a", "s"), []) != family(row("b", "s"), [])
