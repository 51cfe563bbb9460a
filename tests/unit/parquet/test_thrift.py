"""The compact protocol: what is decoded encodes to the same bytes, and nothing that isn't it takes long or much."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.handles import MemoryReader
from compactor.parquet import fields, thrift
from compactor.parquet.footer import read_footer
from compactor.parquet.thrift import MalformedError
from tests import strategies
from tests.unit.parquet.files import written

WHOLE = {fields.FILE_SCHEMA: {10: {}}, fields.FILE_ROW_GROUPS: {1: {3: {12: {}, 13: {}}}}, 5: {}}


@settings(max_examples=100)
@given(strategies.parquet_tables(most_files=1), strategies.parquet_options(), st.sampled_from([{}, WHOLE]))
def test_footers_come_back_byte_by_byte(tables, options, shape):
    """Whatever part of a footer is decoded, encoding gives the bytes that pyarrow wrote."""
    footer = read_footer(MemoryReader(written(tables[0], **options))).data
    struct, end = thrift.decode(footer, 0, shape)
    assert end == len(footer)
    assert thrift.encode(struct) == footer
    for number, (kind, _) in struct.items():
        place = thrift.spans(footer, {})[number]
        assert place[0] == kind


def values():
    """Structs as `decode` makes them, with long gaps between ids, negative ids and every size of numbers."""
    leaf = st.one_of(
        st.booleans().map(lambda value: (thrift.TRUE if value else thrift.FALSE, value)),
        st.tuples(st.just(thrift.I16), st.integers(-(2**15), 2**15 - 1)),
        st.tuples(st.just(thrift.I32), st.integers(-(2**31), 2**31 - 1)),
        st.tuples(st.just(thrift.I64), st.integers(-(2**63), 2**63 - 1)),
        st.tuples(st.just(thrift.BINARY), st.binary(max_size=200)),
        st.tuples(st.just(thrift.DOUBLE), st.binary(min_size=8, max_size=8)),
        st.tuples(st.just(thrift.BYTE), st.binary(min_size=1, max_size=1)),
        st.tuples(st.just(thrift.UUID), st.binary(min_size=16, max_size=16)),
    )
    ids = st.integers(-300, 300) | st.integers(1, 20)
    return st.recursive(
        st.dictionaries(ids, leaf, max_size=5),
        lambda inner: st.dictionaries(
            ids,
            st.one_of(
                leaf,
                inner.map(lambda struct: (thrift.STRUCT, thrift.encode(struct))),
                st.lists(inner, max_size=20).map(
                    lambda found: (thrift.LIST, thrift.encoded_list([thrift.encode(one) for one in found]))
                ),
            ),
            max_size=5,
        ),
        max_leaves=5,
    )


@settings(max_examples=200)
@given(values(), st.integers(0, 50))
def test_any_struct_comes_back(struct, before):
    """Decoding is the inverse of encoding, wherever the struct stands."""
    data = bytes(before) + thrift.encode(struct)
    assert thrift.decode(data, before, {}) == (struct, len(data))


@settings(max_examples=300)
@given(st.binary(max_size=300), st.sampled_from([{}, WHOLE]))
def test_other_bytes_are_malformed_or_a_struct(data, shape):
    """Nothing but MalformedError comes of bytes at random, and no value is longer than they are."""
    for read in (
        lambda: thrift.decode(data, 0, shape)[1],
        lambda: max(map(max, thrift.spans(data, {}).values()), default=0),
    ):
        with contextlib.suppress(MalformedError):
            assert read() <= max(len(data), thrift.UUID)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x19" * 1000, "too early|nested"),
        (b"\x1c" * 10_000 + bytes(10_001), "64 levels deep"),
        (b"\x19\xfc\xff\xff\xff\xff\x0f" + bytes(9), "claims 4294967295 elements"),
        (b"\x18\xff\xff\xff\xff\x0f" + bytes(9), "too early|claims"),
        (b"\x1b\xff\xff\xff\xff\x0f\x88" + bytes(9), "claims 4294967295 entries"),
        (b"\x16" + b"\xff" * 20, "64 bits"),
        (b"\x1f\x00\x00", "no wire type 15"),
        (b"\x15\x00\x06\x02\x00\x00", "twice"),
        (b"", "too early"),
    ],
)
def test_hostile_bytes_get_a_sentence(data, said):
    """Depth, counts and lengths that the bytes can't hold are found before anything is made of them."""
    with pytest.raises(MalformedError, match=said):
        thrift.decode(data, 0, {})


@pytest.mark.parametrize("levels", [63, 64, 65, 66])
def test_structs_may_be_nested_64_levels_deep(levels):
    """One struct inside the other, and lists of lists."""
    for data in (b"\x1c" * levels + bytes(levels + 1), b"\x19" + b"\x19" * (levels - 1) + b"\x05\0"):
        if levels <= 64:
            assert thrift.decode(data, 0, {})[1] == len(data)
        else:
            with pytest.raises(MalformedError, match="64 levels deep"):
                thrift.decode(data, 0, {})


READERS = {
    "struct": lambda data: thrift.decode(data, 0, {}),
    "fields": lambda data: thrift.spans(data, {}),
    "head of a list": lambda data: thrift.list_header(data, 0),
    "structs": lambda data: thrift.structs(data, 0),
    "integers": thrift.integers,
    "number": lambda data: thrift.unsigned_at(data, 0),
    "text": lambda data: thrift.binary_at(data, 0),
    "one number of a struct": lambda data: thrift.leading_integer(data, 1),
}


@pytest.mark.parametrize("reader", READERS)
def test_what_ends_too_early_is_told_by_whoever_reads_it(reader):
    """Nothing at all, and a number, a length or a count that goes on behind the end, alone or as a field."""
    alone = reader not in {"struct", "fields", "one number of a struct"}
    for data in (b"", b"\xff\xff" if alone else b"\x16\xff"):
        with pytest.raises(MalformedError, match="too early"):
            READERS[reader](data)


@pytest.mark.parametrize("reader", ["structs", "integers"])
def test_a_list_of_others_is_none(reader):
    """Its elements would be read as what they aren't; without elements a list is of every kind."""
    with pytest.raises(MalformedError, match="a list doesn't hold"):
        READERS[reader](thrift.encoded_list([bytes(8)], thrift.DOUBLE))
    assert READERS[reader](thrift.encoded_list([], thrift.DOUBLE)) == []
