"""How much a column chunk may need when it is decoded."""

import gzip
import struct

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.parquet import fields, thrift, view
from compactor.parquet.encoding import _Written
from compactor.parquet.pages import decoded_bound, inflated, longest_entry, pages
from compactor.parquet.row_group import load
from compactor.parquet.thrift import MalformedError
from compactor.parquet.view import View
from tests import strategies
from tests.unit.orc.files import MemorySink
from tests.unit.parquet.files import piece, with_footer, written

ENTRIES = st.lists(
    st.binary(max_size=8)
    | st.lists(st.sampled_from([b"\0", b"\0\0\0", b"\1", b"\2\0\0\0ab", b"x"]), max_size=6).map(b"".join)
    | st.sampled_from([b"", b"y" * 255, b"z" * 256, b"\0" * 1000]),
    max_size=12,
)


@given(ENTRIES)
def test_the_longest_entry_is_found_whatever_the_entries_hold(entries):
    """Also where they look like lengths, are empty, or begin and end with zero bytes."""
    data = b"".join(struct.pack("<I", len(entry)) + entry for entry in entries)
    assert longest_entry(data, len(entries)) == max(map(len, entries), default=0)
    with pytest.raises(MalformedError, match="too early"):
        longest_entry(data, len(entries) + 1)


@settings(max_examples=25)
@given(strategies.parquet_tables(most_files=1), strategies.parquet_options())
def test_decoded_values_take_no_more_than_their_bound(tables, options):
    """Of every type, with lists in lists, NULLs, dictionaries and none: Arrow's arrays aren't larger."""
    found = piece(written(tables[0], **options), recode=True)
    for number, group in enumerate(found.footer.row_groups):
        loaded = load(found.reader, group)
        schema, by = found.footer.value(fields.FILE_SCHEMA), found.footer.created_by
        decoded = view.table([loaded], schema, by, View.TO_ENCODE, ["memory"])
        assert decoded.nbytes <= sum(bounds(found, number))


def bounds(found, number=0):
    """The bound of each column chunk of a row group."""
    loaded = load(found.reader, found.footer.row_groups[number])
    return [decoded_bound(*each) for each in zip(loaded.stored, loaded.chunks, found.footer.schema.leaves, strict=True)]


TEXTS = ["a", "bc", "def" * 9] * 100
BOUNDS = {
    "numbers": (pa.array(range(300), pa.int64()), False, False, lambda _: 8 * 300),
    "numbers and NULL": (pa.array(range(300), pa.int64()), False, True, lambda _: 8 * 300 + 38),
    "booleans": (pa.array([True] * 300), False, False, lambda _: 38),
    "decimals": (pa.array([1] * 300).cast(pa.decimal128(19)), False, False, lambda _: 16 * 300),
    "lists": (
        pa.array([[[1]]] * 300, pa.list_(pa.list_(pa.int32()))),
        False,
        False,
        lambda _: (4 + 8) * 300 + 8 + 2 * 38,
    ),
    "texts": (pa.array(TEXTS), False, False, lambda raw: 4 * 301 + raw),
    "texts with a dictionary": (pa.array(TEXTS), True, False, lambda raw: 4 * 301 + raw + 42 * 300),
    "long texts with a dictionary": (pa.array([*TEXTS, "x" * 300]), True, False, lambda raw: 4 * 302 + raw + 300 * 301),
}


@pytest.mark.parametrize("kind", BOUNDS)
def test_the_bound_is_what_arrow_takes_at_most(kind):
    """
    A width each, what says whether there is a value at each level, offsets of lists and texts, and all bytes of the
    texts: of a short dictionary its whole length for each value, of another its longest entry.
    """
    values, dictionary, nullable, expected = BOUNDS[kind]
    schema = pa.schema([pa.field("c", values.type, nullable=nullable)])
    found = piece(written(pa.table([values], schema), use_dictionary=dictionary), recode=True)
    (chunk,) = found.footer.row_groups[0].chunks
    assert bounds(found) == [expected(chunk.raw)]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("stated", [None, []])
@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_BYTE_ARRAY", "RLE_DICTIONARY"])
def test_what_repeats_is_seen_in_the_pages(encoding, stated, version):
    """Texts that begin alike, or are alike, take few bytes: also where a footer states another encoding, or none."""
    texts = pa.table({"s": ["x" * 1000] * 2000})
    plain = encoding != "RLE_DICTIONARY"
    options = {"use_dictionary": not plain, "column_encoding": {"s": encoding} if plain else None}
    data = written(texts, data_page_version=version, **options)

    def change(footer):
        meta = footer[fields.FILE_ROW_GROUPS][1][0][fields.GROUP_COLUMNS][1][0][fields.CHUNK_META][1]
        listed = [thrift.encoded_integer(number) for number in ([0, 3] if stated is None else stated)]
        meta[fields.META_ENCODINGS] = thrift.LIST, thrift.encoded_list(listed, thrift.I32)

    (bound,) = bounds(piece(with_footer(data, change), recode=True))
    assert bound > 2_000_000


def test_a_dictionary_has_no_more_bytes_than_its_chunk():
    """By the footer, on which the bound relies."""
    found = piece(written(pa.table({"s": TEXTS})), recode=True)
    loaded = load(found.reader, found.footer.row_groups[0])
    (stored,), (chunk,), (leaf,) = loaded.stored, loaded.chunks, found.footer.schema.leaves
    raw = next(pages(stored)).raw_bytes
    assert decoded_bound(stored, chunk._replace(raw=raw), leaf) > 0
    with pytest.raises(MalformedError, match="claims more bytes"):
        decoded_bound(stored, chunk._replace(raw=raw - 1), leaf)


def test_pages_of_every_kind_are_walked():
    """Of values, of a dictionary, and of an index, which counts none; there are no others."""
    about = {0: 5, 2: 7, 3: 8, 1: 6}

    def header(kind):
        return {1: (thrift.I32, kind), 2: (thrift.I32, 2), 3: (thrift.I32, 2)}

    chunk = b""
    for kind, field in about.items():
        counted = {} if kind == 1 else {1: (thrift.I32, 9)}
        chunk += thrift.encode({**header(kind), field: (thrift.STRUCT, counted)}) + b"ab"
    assert [(page.kind, page.values) for page in pages(chunk)] == [(0, 9), (2, 9), (3, 9), (1, 0)]
    with pytest.raises(MalformedError, match="of the kind 4"):
        list(pages(thrift.encode(header(4)) + b"ab"))


def test_a_page_that_grows_large_is_not_decompressed():
    """A thousandth of its bytes may be stored: two megabytes would take two gigabytes."""
    content = gzip.compress(bytes(97 << 20), 1)
    assert inflated(gzip.compress(b"ab"), 2, 2) == b"ab"
    with pytest.raises(MalformedError, match="a page of 97 MiB is larger"):
        inflated(content, 2, 97 << 20)


def test_what_is_held_back_is_read_as_from_a_file():
    """Zeros stand for what went on to the sink; not a byte more than asked for."""
    sink = MemorySink()
    written = _Written(sink)
    written.write(b"PAR1pages")
    written.hold_back()
    written.write(b"footer")
    assert (sink.getvalue(), written.size) == (b"pages", 15)
    whole = bytes(9) + b"footer"
    for begin in range(16):
        for length in range(16 - begin):
            assert written.read_at(begin, length) == whole[begin : begin + length]
