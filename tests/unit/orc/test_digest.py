"""
Digests: equal for equal rows in any order, batches and library; another one for any other value, or the same value
elsewhere.
"""

import re
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.acid.row_id import RowKey
from compactor.acid.types import parse_hive_type, row_type
from compactor.errors import RefusedError
from compactor.orc.digests.digest import Digest, Digester, column_paths, differences
from compactor.orc.digests.digest_values import struct_of
from compactor.orc.digests.lanes import hash_bytes, mixed
from compactor.orc.format.key_columns import KeyColumns
from compactor.orc.format.tail import Tail
from compactor.orc.recode import recode_into
from compactor.orc.rows import RowFilter, RowTally, SourceRows, StripeSource
from compactor.orc.writing.encode import Encoder
from compactor.orc.writing.output import OutputFormat
from compactor.orc.writing.splice import Splicer
from tests import strategies
from tests.recoding import recode
from tests.unit.orc.files import MemorySink, acid_file, insert, opened
from tests.unit.orc.test_recode import deletes

BUCKET = 536870912


def written(row, values):
    return acid_file([insert(RowKey(1, BUCKET, n), value) for n, value in enumerate(values)], row)


def digest_of(data, *, python=False, row_filter=None):
    """What a file's rows hold, as the recoder and verification read them."""
    reader, tail = opened(data)
    digester = Digester(tail.row_tree)
    chunks = list(
        SourceRows(
            StripeSource(reader, tail),
            OutputFormat(tail.tree),
            row_filter or RowFilter(),
            RowTally(),
            python=python,
            digester=digester,
        )
    )
    return digester.digest, chunks


def filled_rows(row, **size):
    return st.lists(strategies.filled(row), **size)


@settings(max_examples=150)
@given(st.data(), strategies.row_structs())
def test_the_order_and_the_batches_dont_matter(data, row):
    """Shuffled and cut anywhere, also as zero-copy slices, rows have one digest; parts add up to it."""
    file = written(row, data.draw(filled_rows(row, min_size=1, max_size=12)))
    expected, (chunk,) = digest_of(file)
    order = np.array(data.draw(st.permutations(range(len(chunk)))), np.intp)
    cut = data.draw(st.integers(0, len(chunk)))
    tree = opened(file)[1].row_tree
    for keys, rows in ((chunk.keys, chunk.rows), (chunk.keys.select(order), chunk.rows.take(order))):
        total = Digest()
        for start, stop in ((0, cut), (cut, len(chunk))):
            if start < stop:
                digester = Digester(tree)
                digester.add(keys.select(slice(start, stop)), struct_of(rows.slice(start, stop), tree), zone=chunk.zone)
                total += digester.digest
        assert total == expected


@settings(max_examples=150)
@given(st.data(), strategies.row_structs())
def test_both_libraries_digest_alike(data, row):
    """A stripe may be read by Arrow before and by pyorc afterwards."""
    file = written(row, data.draw(filled_rows(row, min_size=1, max_size=6)))
    assert digest_of(file)[0] == digest_of(file, python=True)[0]


@settings(max_examples=200)
@given(st.data(), strategies.row_structs())
def test_one_changed_value_changes_its_column(data, row):
    """Whatever the type and depth, and whatever it becomes; other top-level columns stay as they were."""
    values = data.draw(filled_rows(row, min_size=1, max_size=5))
    at = data.draw(st.integers(0, len(values) - 1))
    column = data.draw(st.integers(0, len(row.children) - 1))
    other = data.draw(
        strategies.values(row.children[column]).filter(lambda value: repr(value) != repr(values[at][column]))
    )
    changed = [
        tuple(other if (n, place) == (at, column) else value for place, value in enumerate(found))
        for n, found in enumerate(values)
    ]
    before, after = digest_of(written(row, values))[0], digest_of(written(row, changed))[0]
    tops = {
        path.replace("[", ".").split(".")[0]
        for path in differences(opened(written(row, values))[1].row_tree, before, after)
    }
    assert tops == {opened(written(row, values))[1].row_tree.names[column]}


@settings(max_examples=100)
@given(st.data(), strategies.row_structs())
def test_values_that_change_places_are_noticed(data, row):
    """Two rows that swap the values of a column, and two equal rows under other keys, aren't what they were."""
    values = data.draw(filled_rows(row, min_size=2, max_size=5))
    column = data.draw(st.integers(0, len(row.children) - 1))
    swapped = list(values)
    for one, two in ((0, 1), (1, 0)):
        swapped[one] = tuple(
            values[two][place] if place == column else value for place, value in enumerate(values[one])
        )
    same = repr(values) == repr(swapped)
    assert (digest_of(written(row, values))[0] == digest_of(written(row, swapped))[0]) is same


@settings(max_examples=80)
@given(st.data(), strategies.row_structs(), st.sets(st.integers(0, 19)))
def test_what_is_recoded_has_the_digest_of_what_was_read(data, row, gone):
    """
    Rows that are left out don't count; all others come back as they went in. A single row is cut out of the stripe, of
    which no digest is made.
    """
    some = data.draw(filled_rows(row, min_size=1, max_size=4))
    file = written(row, [some[n % len(some)] for n in range(20)])
    reader, tail = opened(file)
    hidden = RowFilter(deletes({RowKey(1, BUCKET, n) for n in gone}))
    sink, digester = MemorySink(), Digester(tail.row_tree)
    splicer = Splicer(sink, OutputFormat(tail.tree))
    result = recode_into([StripeSource(reader, tail)], splicer, hidden, digester=digester)
    splicer.finish("insert")
    expected = digest_of(file, row_filter=hidden)[0]
    assert expected.rows == 20 - len(gone)
    if all(part.checksum is None for part in result.parts):
        assert digester.digest == expected
    if len(gone) < 20:
        assert digest_of(sink.getvalue())[0] == expected


def plain(type_name, values, zone=""):
    """Digest of one column of Arrow's values."""
    row = row_type([("c", type_name)])
    count = len(values)
    digester = Digester(row)
    digester.add(
        KeyColumns.of([RowKey(1, BUCKET, n) for n in range(count)]),
        pa.StructArray.from_arrays([values], names=["c"]),
        zone=zone,
    )
    return digester.digest


def doubles(*bits):
    return pa.array(np.array(bits, np.uint64).view(np.float64))


def test_floats_are_compared_by_their_bits():
    """Zero and minus zero are different values, and so are NaNs with different payloads."""
    found = {
        plain("double", doubles(bits))
        for bits in (0, 1 << 63, 0x7FF8000000000000, 0x7FF8000000000001, 0xFFF8000000000000)
    }
    assert len(found) == 5


def test_null_is_no_value():
    """NULL differs from zero, from an empty text and from an empty list, which differ from nothing in them."""
    assert plain("int", pa.array([None], pa.int32())) != plain("int", pa.array([0], pa.int32()))
    assert plain("string", pa.array([None], pa.string())) != plain("string", pa.array([""]))
    lists = pa.list_(pa.int32())
    assert len({plain("array<int>", pa.array([value], lists)) for value in (None, [], [None], [0])}) == 4


def test_the_zone_belongs_to_a_timestamp():
    """The same stored seconds under another zone are another time; other columns know no zone."""
    moments, numbers = pa.array([1], pa.timestamp("ns")), pa.array([1], pa.int64())
    assert plain("timestamp", moments, "Asia/Kolkata") != plain("timestamp", moments, "GMT")
    assert plain("bigint", numbers, "Asia/Kolkata") == plain("bigint", numbers, "GMT")


@pytest.mark.parametrize(
    "change", [("abc ", "abc"), ("é", "e\u0301"), ("a" * 4097, "a" * 4096), ("\x00", ""), ("x" * 8 + "\x00", "x" * 8)]
)
def test_texts_are_compared_by_their_bytes(change):
    """Nothing is trimmed, normalised or cut."""
    before, after = (plain("string", pa.array([text])) for text in change)
    assert before != after


@settings(max_examples=200)
@given(
    st.lists(st.binary(max_size=40) | st.integers(0, 300).map(lambda count: b"\xff" * count), max_size=30),
    st.integers(0, 20),
)
def test_the_hash_of_bytes_depends_on_the_bytes_alone(texts, before):
    """Not on what lies beside them, nor on how long their neighbours are; as a loop over words would have it."""
    data = b"#" * before + b"".join(texts) + b"##"
    offsets = np.cumsum([before, *map(len, texts)])
    weights = mixed(np.arange(1, 60, dtype=np.uint64)) | np.uint64(1)

    def one(text):
        total = len(text)
        for place in range(max(1, -(-len(text) // 8))):
            word = int.from_bytes(text[8 * place : 8 * place + 8], "little")
            total += fold(shifted(text, place, word), int(weights[place]))
        return total % 2**64

    assert hash_bytes(offsets, np.frombuffer(data, np.uint8)).tolist() == [one(text) for text in texts]


def shifted(text, place, word):
    """The last word stands at the high end."""
    missing = 8 * place + 8 - len(text)
    return (word << 8 * missing) % 2**64 if 0 < missing < 8 else word


def fold(word, weight):
    product = word * weight % 2**64
    return product ^ product >> 32


def test_columns_are_named_by_their_path():
    """As people write them."""
    row = row_type(
        [
            ("a", "int"),
            ("s", "struct<x:int,y:array<string>>"),
            ("m", "map<string,array<int>>"),
            ("u", "uniontype<int,string>"),
        ]
    )
    assert list(column_paths(row)) == [
        "",
        "a",
        "s",
        "s.x",
        "s.y",
        "s.y[]",
        "m",
        "m.key",
        "m.value",
        "m.value[]",
        "u",
        "u.0",
        "u.1",
    ]


def test_unions_differ_by_tag_and_by_value():
    """An int 1 isn't a bigint 1."""
    kind = "uniontype<int,bigint>"

    def union(tags, ints, longs):
        return pa.UnionArray.from_sparse(
            pa.array(tags, pa.int8()), [pa.array(ints, pa.int32()), pa.array(longs, pa.int64())]
        )

    assert parse_hive_type(kind).children
    assert plain(kind, union([0], [1], [7])) == plain(kind, union([0], [1], [8]))
    assert (
        len({plain(kind, union([0], [1], [1])), plain(kind, union([1], [1], [1])), plain(kind, union([0], [2], [1]))})
        == 3
    )


@pytest.mark.parametrize("cuts", [(0, 3, 7, 8), (0, 1, 2, 8)])
def test_slices_of_unions_add_up(cuts):
    """Each slice counts its own tags, not the first ones of the array that it is a slice of."""
    row = row_type([("u", "uniontype<int,string>")])
    union = pa.UnionArray.from_sparse(
        pa.array([0, 1, 1, 0, 1, 0, 0, 1], pa.int8()),
        [pa.array(range(8), pa.int32()), pa.array([f"text {n}" for n in range(8)])],
    )
    keys, values = (
        KeyColumns.of([RowKey(1, BUCKET, n) for n in range(8)]),
        pa.StructArray.from_arrays([union], names=["u"]),
    )
    whole, parts = Digester(row), Digester(row)
    whole.add(keys, values)
    for start, stop in pairwise(cuts):
        parts.add(keys.select(slice(start, stop)), values.slice(start, stop - start))
    assert parts.digest == whole.digest


def test_a_swapped_column_is_noticed():
    """Two columns of one type whose values changed places have the same values in all, and other digests."""
    row = row_type([("a", "int"), ("b", "int")])
    one = digest_of(written(row, [(1, 2), (3, 4)]))[0]
    two = digest_of(written(row, [(2, 1), (4, 3)]))[0]
    assert differences(row, one, two) == ["a", "b"]


def test_a_truncated_text_and_a_shifted_timestamp_are_named():
    """By the column they are in."""
    row = row_type([("id", "int"), ("t", "timestamp"), ("v", "string")])
    values = [(n, (1_600_000_000 + n, 5), f"text {n}") for n in range(50)]
    shifted_by_an_hour = [
        (n, (moment[0] + 3600, moment[1]), text) if n == 7 else (n, moment, text) for n, moment, text in values
    ]
    cut = [(n, moment, text[:-1]) if n == 9 else (n, moment, text) for n, moment, text in values]
    before = digest_of(written(row, values))[0]
    assert differences(row, before, digest_of(written(row, shifted_by_an_hour))[0]) == ["t"]
    assert differences(row, before, digest_of(written(row, cut))[0]) == ["v"]


@pytest.mark.parametrize(
    ("kind", "value", "column", "place"),
    [
        ("decimal(12,2)", "1234567890.12", "d", 8),
        ("array<decimal(12,2)>", ["1234567890.12"], "d[]", 9),
        ("struct<x:decimal(12,2)>", ("1234567890.12",), "d.x", 9),
    ],
)
def test_a_value_that_its_type_cannot_hold_is_refused_with_file_and_column(kind, value, column, place):
    """More digits than the file's own type says, in a stripe that pyorc decodes: no bare exception of Arrow's."""
    row = row_type([("t", "timestamp"), ("d", kind)])
    reader, read = opened(acid_file([insert(RowKey(1, 536870912, 0), ((-5, 7), value))], row))
    read.footer.types[place].precision = 6
    tail = Tail("file", read.postscript, read.footer, read.metadata, read.length)
    told = r"^file: column {} holds values that its type decimal\(6,2\) can't: "
    with pytest.raises(RefusedError, match=told.format(re.escape(column))):
        recode_into(
            [StripeSource(reader, tail)],
            Splicer(MemorySink(), OutputFormat(tail.tree)),
            digester=Digester(tail.row_tree),
        )


def test_a_recode_without_digest_is_the_same():
    """The digest only looks."""
    file = written(row_type([("id", "int")]), [(n,) for n in range(100)])
    sinks = [MemorySink(), MemorySink()]
    tree = opened(file)[1].tree
    recode([StripeSource(*opened(file))], OutputFormat(tree), sinks[0])
    splicer = Splicer(sinks[1], OutputFormat(tree))
    recode_into([StripeSource(*opened(file))], splicer, digester=Digester(tree.children[-1]))
    splicer.finish("insert")
    assert sinks[0].getvalue() == sinks[1].getvalue()


@pytest.mark.parametrize("broken", [False, True])
def test_a_recoder_that_loses_the_zone_is_noticed(monkeypatch, broken):
    """The stored seconds are the same; under another zone's name they are other times."""
    row = row_type([("id", "int"), ("t", "timestamp")])
    values = [(n, (1_600_000_000 + n, 5)) for n in range(50)]
    file = acid_file(
        [insert(RowKey(1, BUCKET, n), value) for n, value in enumerate(values)], row, timezone=ZoneInfo("Asia/Kolkata")
    )
    reader, tail = opened(file)
    if broken:
        monkeypatch.setattr(Encoder, "begin", lambda self, zone: None)
    sink, digester = MemorySink(), Digester(row)
    splicer = Splicer(sink, OutputFormat(tail.tree))
    recode_into([StripeSource(reader, tail)], splicer, digester=digester)
    splicer.finish("insert")
    assert differences(row, digester.digest, digest_of(sink.getvalue())[0]) == (["t"] if broken else [])
