"""What isn't sound in a Parquet file is found, each lie by itself; what only looks odd isn't."""

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.errors import CorruptFileError
from compactor.handles import MemoryReader
from compactor.parquet import fields, soundness, thrift
from compactor.parquet.assembly import indexes
from compactor.parquet.footer import read_footer
from compactor.parquet.pages import (
    DATA_PAGE_1,
    DATA_PAGE_2,
    DICTIONARY_PAGE,
    Page,
    inflated,
    longest_entry,
    pages,
)
from compactor.parquet.row_group import load
from compactor.parquet.soundness import require_sound
from compactor.parquet.thrift import MalformedError
from compactor.parquet.writers import BIT_PACKED, DELTA_BINARY_PACKED, PLAIN, RLE
from tests.unit.parquet.files import lies, piece, with_footer, written

TABLE = pa.table(
    {
        "n": pa.array([number if number % 7 else None for number in range(300)], pa.int64()),
        "s": [f"text {number % 9}" for number in range(300)],
        "l": pa.array([[number] * (number % 4) for number in range(300)], pa.list_(pa.int64())),
    }
)
SMALL_PAGES = {"write_page_index": True, "data_page_size": 64, "write_batch_size": 16, "use_dictionary": ["s"]}


def column(number=0, table=TABLE, **options):
    """A column of a file with several pages and indexes, as it is judged."""
    reader = MemoryReader(written(table, **{**SMALL_PAGES, **options}))
    footer = read_footer(reader)
    group, described = footer.row_groups[0], footer.describe(0)[fields.GROUP_COLUMNS][1]
    return soundness._Column(
        footer.schema.leaves[number],
        group.chunks[number],
        described[number][fields.CHUNK_META][1],
        group.rows,
        footer.kept is not None,
        load(reader, group).stored[number],
        *indexes(reader, described)[number],
    )


def refused(judge, *arguments, said="."):
    """The judge refuses what it is given."""
    with pytest.raises(MalformedError, match=said):
        judge(*arguments)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("number", range(3))
def test_each_count_of_a_column_is_compared(number, version):
    """Of values, rows and bytes, by the footer: one more or fewer is a lie."""
    one = column(number, data_page_version=version)
    soundness._require_column(one)
    for less in (-1, 1):
        refused(soundness._require_column, replace(one, rows=one.rows + less))
        for counted in ("values", "raw"):
            chunk = one.chunk._replace(**{counted: getattr(one.chunk, counted) + less})
            refused(soundness._require_column, replace(one, chunk=chunk), said="instead of")
    stored = thrift.I64, one.meta[fields.META_STORED][1] + 1
    refused(soundness._require_column, replace(one, meta={**one.meta, fields.META_STORED: stored}), said="fill")


def test_a_checksum_is_compared_where_there_is_one():
    """A bit of a page's content differs from what its writer summed up."""
    one = column(0, write_page_checksum=True, compression="none")
    soundness._require_column(one)
    broken = bytearray(one.stored)
    broken[next(pages(one.stored)).end - 1] ^= 1
    refused(soundness._require_column, replace(one, stored=bytes(broken)), said="checksum")


def test_a_dictionary_comes_first():
    """One among the pages of values would be another's."""
    one = column(1, compression="none")
    dictionary, values = list(pages(one.stored))[:2]
    assert (dictionary.kind, values.kind) == (DICTIONARY_PAGE, DATA_PAGE_1)
    moved = bytes(one.stored[dictionary.end : values.end]) + bytes(one.stored[: dictionary.end])
    refused(soundness._require_column, replace(one, stored=moved), said="dictionary among|lies elsewhere")


@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize(
    "lie",
    [
        lambda places: places.pop(),
        lambda places: places.reverse(),
        lambda places: places.append(places[-1]),
        lambda places: places[0].update({1: (thrift.I64, places[0][1][1] + 1)}),
        lambda places: places[-1].update({2: (thrift.I32, places[-1][2][1] + 1)}),
        lambda places: places[0].update({3: (thrift.I64, 1)}),
        lambda places: places[1].update({3: (thrift.I64, places[2][3][1])}),
        lambda places: places[-1].update({3: (thrift.I64, 300)}),
        lambda places: places[1].pop(2),
    ],
)
def test_each_place_in_an_offset_index_is_compared(number, lie):
    """With the pages that there are; where values repeat, first rows must ascend at least."""
    one = column(number)
    index, _ = thrift.decode(one.offset_index, 0, {1: {}})
    lie(index[1][1])
    refused(soundness._require_column, replace(one, offset_index=thrift.encode(index)))


def test_an_offset_index_of_flat_values_has_the_rows_of_its_pages():
    """Where values don't repeat, each page's first row is known."""
    one = column(0)
    index, _ = thrift.decode(one.offset_index, 0, {1: {}})
    index[1][1][1][3] = thrift.I64, index[1][1][1][3][1] + 1
    refused(soundness._require_column, replace(one, offset_index=thrift.encode(index)), said="other rows")
    refused(soundness._require_column, replace(one, offset_index=one.offset_index + b"\0"), said="other pages")


def integers(*values):
    """A list of Thrift's."""
    return thrift.LIST, thrift.encoded_list([thrift.encoded_integer(value) for value in values], thrift.I64)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (1, (thrift.LIST, thrift.encoded_list([b"\x02"], thrift.TRUE))),
        (2, (thrift.LIST, thrift.encoded_binaries([b"12345678"]))),
        (3, (thrift.LIST, thrift.encoded_binaries([]))),
        (4, (thrift.I32, 3)),
        (4, (thrift.I32, -1)),
        (4, None),
        (5, integers(1)),
        (7, integers(1, 2, 3)),
    ],
)
def test_each_field_of_a_column_index_is_judged(field, value):
    """It has an entry for each page, an order that there is, and histograms of all levels."""
    one = column(0)
    index, _ = thrift.decode(one.column_index, 0, {})
    if value is None:
        del index[field]
    else:
        index[field] = value
    refused(soundness._require_column, replace(one, column_index=thrift.encode(dict(sorted(index.items())))))


@pytest.mark.parametrize(("nulls", "sound"), [(0, True), (300, True), (301, False), (-1, False)])
def test_nulls_of_a_column_index_are_at_most_all_values(nulls, sound):
    """And at least none; a writer may leave them out."""
    one = column(0, use_dictionary=False, data_page_size=1 << 20, write_batch_size=1024)
    index, _ = thrift.decode(one.column_index, 0, {})
    for known in (True, False):
        if known:
            index[5] = integers(nulls)
        else:
            del index[5]
        changed = replace(one, column_index=thrift.encode(dict(sorted(index.items()))))
        if sound or not known:
            soundness._require_column(changed)
        else:
            refused(soundness._require_column, changed, said="NULLs")
    refused(soundness._require_column, replace(one, column_index=one.column_index + b"\0"), said="isn't one of")


def test_bounds_of_pages_have_their_types_length():
    """Of a page of NULLs alone there are none."""
    table = pa.table({"n": pa.array([*range(16)] + [None] * 100, pa.int64())})
    one = column(0, table)
    soundness._require_column(one)
    index, _ = thrift.decode(one.column_index, 0, {})
    bounds = list(soundness._binaries(index[2][1]))
    assert b"" in bounds
    wrong = [bound[:-1] for bound in bounds]
    index[2] = thrift.LIST, thrift.encoded_binaries(wrong)
    refused(soundness._require_column, replace(one, column_index=thrift.encode(index)), said="minimum")


def test_elements_of_lists_are_judged():
    """Booleans are 1 and 2, or 0; there are as many as the list says, of the type that it says."""
    assert soundness._booleans(thrift.encoded_list([b"\x01", b"\x02", b"\x00"], thrift.TRUE)) == [True, False, False]
    for lie in (
        thrift.encoded_list([b"\x03"], thrift.TRUE),
        thrift.encoded_list([b"\x01"], thrift.I32),
        thrift.encoded_list([b"\x01"], thrift.TRUE) + b"\x01",
    ):
        refused(soundness._booleans, lie, said="booleans")
    refused(lambda: list(soundness._binaries(thrift.encoded_list([b"\x02"], thrift.I32))), said="values")


def bloom(size, content, kinds=(1, 1, 1)):
    """A Bloom filter that says its size, algorithm, hash and compression."""
    kinds = {2 + number: (thrift.STRUCT, {kind: (thrift.STRUCT, {})}) for number, kind in enumerate(kinds)}
    return thrift.encode({1: (thrift.I32, size), **kinds}) + bytes(content)


@pytest.mark.parametrize("field", [3, 4])
@pytest.mark.parametrize("values", [pa.array([1, 2], pa.int64()), pa.array([1, None], pa.int64()), pa.array([[1], []])])
def test_levels_have_an_encoding_of_levels_even_where_there_are_none(values, field):
    """Java's readers read them by it, of a column without NULLs and lists too: in PLAIN they find no reader."""
    required = pa.schema([pa.field("v", values.type, nullable=bool(values.null_count))])
    one = column(0, pa.table([values], schema=required), use_dictionary=False)
    page = next(pages(one.stored))
    for encoding, sound in ((RLE, True), (PLAIN, False), (DELTA_BINARY_PACKED, False)):
        changed = replace(page, header={**page.header, field: (thrift.I32, encoding)})
        judged = soundness._require_data_page, one, changed, soundness._written_as(one.meta)
        if sound:
            judged[0](*judged[1:])
        else:
            refused(*judged, said="isn't one of levels")


@pytest.mark.parametrize("field", [5, 6])
def test_a_column_without_levels_has_no_bytes_of_them(field):
    """In a page of version 2: readers look for values behind so many bytes."""
    schema = pa.schema([pa.field("v", pa.int64(), nullable=False)])
    one = column(0, pa.table([[1, 2]], schema=schema), use_dictionary=False, data_page_version="2.0")
    page, allowed = next(pages(one.stored)), soundness._written_as(one.meta)
    assert soundness._require_data_page(one, page, allowed) == 2
    changed = replace(page, header={**page.header, field: (thrift.I32, 1)})
    refused(soundness._require_data_page, one, changed, allowed, said="levels of 1 bytes end at byte 0")


@pytest.mark.parametrize("size", [32, 64])
def test_a_bloom_filter_is_of_the_one_kind_and_as_long_as_it_says(size):
    """In whole blocks; none at all is fine."""
    soundness._require_bloom_filter(b"")
    soundness._require_bloom_filter(bloom(size, size))
    for lie in (bloom(0, 0), bloom(-32, 0), bloom(33, 33), bloom(size, size - 1), bloom(size, size + 1)):
        refused(soundness._require_bloom_filter, lie, said="claims")
    for number in range(3):
        kinds = [2 if number == place else 1 for place in range(3)]
        refused(soundness._require_bloom_filter, bloom(size, size, kinds), said="kind")


@pytest.mark.parametrize("at_once", [0, 8 << 20])
def test_a_bloom_filter_is_judged_with_its_column(monkeypatch, at_once):
    """Of a small row group and of a large one: a filter of another kind answers a reader wrongly, wherever it is copied."""
    monkeypatch.setattr(soundness, "_AT_ONCE", at_once)
    data = written(TABLE, bloom_filter_options={"n": True})
    found = piece(data, recode=False)
    require_sound(found.reader, found.footer, found.row_groups)
    meta = found.footer.describe(0)[fields.GROUP_COLUMNS][1][0][fields.CHUNK_META][1]
    begin = meta[fields.META_BLOOM][1]
    header, end = thrift.decode(data, begin, {2: {}, 3: {}, 4: {}})
    header[3][1].clear()
    header[3][1][2] = thrift.STRUCT, {}
    changed = thrift.encode(header)
    assert len(changed) == end - begin
    broken = MemoryReader(data[:begin] + changed + data[end:])
    with pytest.raises(CorruptFileError, match="in row group 1, column n, its Bloom filter is of a kind"):
        require_sound(broken, found.footer, found.row_groups)


def refused_unless(optional, whole, judge):
    """Each field of a struct is judged: of another type it is a lie, and only some may be left out."""
    judge(thrift.encode(whole))
    for path, left_out in lies(whole):
        if not left_out or path not in optional:
            refused(judge, thrift.encode(whole))


@pytest.mark.parametrize(
    ("index", "shape", "optional"), [("offset_index", {1: {}}, {(2,)}), ("column_index", {}, {(5,), (6,), (7,)})]
)
def test_each_field_of_an_index_has_its_type(index, shape, optional):
    """And all are there that readers need."""
    one = column(0)
    whole, _ = thrift.decode(getattr(one, index), 0, shape)
    refused_unless(optional, whole, lambda data: soundness._require_column(replace(one, **{index: data})))


def test_each_field_of_a_bloom_filter_has_its_type():
    """And all are there."""
    whole, _ = thrift.decode(bloom(32, 0), 0, {2: {}, 3: {}, 4: {}})
    refused_unless((), whole, lambda data: soundness._require_bloom_filter(data + bytes(32)))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_each_field_of_a_page_header_has_its_type(version):
    """Statistics, checksum and what has a default may be left out."""
    one, page = data_page(0, version, write_page_checksum=True, use_dictionary=False)
    about, statistics = (5, 5) if version == "1.0" else (8, 8)
    whole, begin = thrift.decode(one.stored, 0, {about: {}})
    assert begin == page.begin
    said = {number: (thrift.BINARY, bytes(8)) for number in (1, 2, 5, 6)}
    said |= dict.fromkeys((3, 4), (thrift.I64, 1)) | dict.fromkeys((7, 8), (thrift.TRUE, True))
    thrift.put(whole[about][1], statistics, thrift.STRUCT, dict(sorted(said.items())))
    optional = {(4,), (about, statistics), (8, 7), *((about, statistics, number) for number in range(1, 9))}

    def judge(head):
        changed = replace(one, stored=head + bytes(one.stored[begin:]))
        soundness._require_data_page(changed, next(pages(changed.stored)), soundness._written_as(one.meta))

    refused_unless(optional, whole, judge)


def test_each_field_of_a_dictionarys_header_has_its_type():
    """Whether it is sorted may be left out."""
    one = column(1)
    whole, begin = thrift.decode(one.stored, 0, {7: {}})

    def judge(head):
        changed = replace(one, stored=head + bytes(one.stored[begin:]))
        soundness._require_dictionary(changed, next(pages(changed.stored)))

    refused_unless({(4,), (7, 3)}, whole, judge)


def in_runs(runs, highest):
    """Levels in the hybrid of runs, and the levels; a run of bits has a multiple of eight."""
    width, data, levels = highest.bit_length(), b"", []
    for level, count, bits in runs:
        if bits is None:
            data += unsigned(count << 1) + level.to_bytes((width + 7) // 8, "little")
            levels += [level] * count
        else:
            whole = sum(one << width * place for place, one in enumerate(bits))
            data += unsigned(len(bits) // 8 << 1 | 1) + whole.to_bytes(len(bits) * width // 8, "little")
            levels += bits
    return data, levels


def unsigned(number):
    """Thrift's unsigned number."""
    data = bytearray()
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    return bytes([*data, number])


@st.composite
def levels_in_runs(draw):
    """Runs of levels, none above the highest."""
    highest = draw(st.integers(1, 5))
    level = st.integers(0, highest)
    bits = st.integers(1, 3).flatmap(lambda groups: st.lists(level, min_size=8 * groups, max_size=8 * groups))
    run = st.tuples(level, st.integers(1, 300), st.none() | bits)
    return draw(st.lists(run, min_size=1, max_size=4)), highest


@given(levels_in_runs())
def test_levels_that_begin_a_row_are_counted(drawn):
    """In runs of one value and of bits; where the runs end; a level too many has no place, and a byte less is missed."""
    runs, highest = drawn
    data, levels = in_runs(runs, highest)
    assert soundness._zeros(data, highest, len(levels)) == (levels.count(0), len(data))
    assert soundness._zeros(b"", 0, len(levels)) == (0, 0)
    refused(soundness._zeros, data, highest, len(levels) + 1)
    refused(soundness._zeros, data[:-1], highest, len(levels))
    bits = "".join(f"{level:0{highest.bit_length()}b}" for level in levels)
    packed = int(bits.ljust(-(-len(bits) // 8) * 8, "0"), 2).to_bytes(-(-len(bits) // 8), "big")
    assert soundness._zeros_of_bits(packed, highest, len(levels), "big") == levels.count(0)
    refused(soundness._zeros_of_bits, packed[:-1], highest, len(levels), "big", said="too early")


@pytest.mark.parametrize(
    ("data", "highest", "said"),
    [
        (b"\x10\x03", 2, "above 2"),
        (b"\x10\x02", 1, "above 1"),
        (b"\x03" + b"\xff\xff", 2, "above 2"),
        (b"\x00\x01", 1, "run of none"),
        (b"\x01", 1, "run of none"),
        (b"\x10", 1, "too early"),
    ],
)
def test_levels_that_there_are_not_are_found(data, highest, said):
    """Above the highest, in no run, or behind the end."""
    refused(soundness._zeros, data, highest, 8, said=said)


@pytest.mark.parametrize("blocks", [[b"a" * 100], [b"a" * 60, b"b" * 40]])
def test_lz4_is_read_with_hadoops_frames_and_without(blocks):
    """Each block begins with its length, and that of its compressed bytes; some writers leave all this out."""
    codec, whole = pa.Codec("lz4_raw"), b"".join(blocks)
    packed = [codec.compress(block, asbytes=True) for block in blocks]
    framed = b"".join(
        len(block).to_bytes(4, "big") + len(one).to_bytes(4, "big") + one
        for block, one in zip(blocks, packed, strict=True)
    )
    assert soundness._inflated(framed, 5, len(whole)) == whole
    assert soundness._inflated(codec.compress(whole, asbytes=True), 5, len(whole)) == whole
    refused(soundness._inflated, framed[:-1], 5, len(whole))
    for less in (-1, 1):
        refused(soundness._inflated, framed, 5, len(whole) + less)


@pytest.mark.parametrize("codec", [3, 5])
@pytest.mark.parametrize(
    ("head", "raw", "fits"), [(0, 0, True), (0, 9, False), (9, 9, True), (4, 9, True), (10, 9, False)]
)
def test_a_dictionary_without_entries_is_a_block_of_none(codec, head, raw, fits):
    """
    In LZO, and in LZ4 by Hadoop's frames: arrow-rs writes such a one beside a page of NULLs alone. Nothing else begins
    with a block of none.
    """
    data = head.to_bytes(4, "big") + b"\0\0\0\1\0"
    one = column(1)
    one = replace(one, stored=data, chunk=one.chunk._replace(codec=codec))
    page = Page(DICTIONARY_PAGE, raw, None, {}, 0, 0, len(data))
    if fits:
        soundness._require_codec(one, page)
    else:
        refused(soundness._require_codec, one, page)


CODECS = {"none": 0, "snappy": 1, "gzip": 2, "zstd": 6, "lz4": 7}


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", CODECS)
def test_a_page_is_in_its_columns_codec(codec, version):
    """A footer that names another codec than the pages have is found, of each kind of page."""
    one = column(1, compression=codec, data_page_version=version)
    soundness._require_column(one)
    for other in {*CODECS.values(), 5} - {CODECS[codec]}:
        named = replace(one, chunk=one.chunk._replace(codec=other))
        if {CODECS[codec], other} == {5, 7}:  # some writers call LZ4 without frames by the name of LZ4 with frames
            soundness._require_column(named)
        else:
            refused(soundness._require_column, named)


@pytest.mark.parametrize("kind", [DATA_PAGE_1, DATA_PAGE_2])
@pytest.mark.parametrize("codec", range(8))
def test_what_has_no_bytes_is_in_every_codec(codec, kind):
    """Java's writer compresses no values to no bytes where all of a page are NULL. A single value has some."""
    one = column(1)
    one = replace(one, chunk=one.chunk._replace(codec=codec))
    levels = {5: (thrift.I32, 2), 6: (thrift.I32, 1)} if kind == DATA_PAGE_2 else {}
    size = 3 if levels else 0
    soundness._require_codec(one, Page(kind, size, None, levels, 9, 0, size))
    refused(soundness._require_codec, one, Page(kind, size + 1, None, levels, 9, 0, size))


@pytest.mark.parametrize("codec", ["snappy", "gzip", "zstd", "lz4"])
def test_a_page_of_version_2_may_be_stored_as_it_is(codec):
    """Its header says so, in a column of whichever codec; without that word it is in the codec."""
    one, page = data_page(1, "2.0", compression=codec, use_dictionary=False)
    levels = page.header[5][1] + page.header[6][1]
    plain = inflated(one.stored[page.begin + levels : page.end], CODECS[codec], page.raw_bytes - levels)
    changed = replace(one, stored=bytes(one.stored[page.begin : page.begin + levels]) + plain)
    page = replace(page, begin=0, end=page.raw_bytes)
    soundness._require_codec(changed, replace(page, header={**page.header, 7: (thrift.FALSE, False)}))
    for header in ({**page.header, 7: (thrift.TRUE, True)}, {key: page.header[key] for key in page.header if key != 7}):
        refused(soundness._require_codec, changed, replace(page, header=header))


@pytest.mark.parametrize("number", [0, 1])
def test_entries_of_a_dictionary_are_counted(number):
    """Of numbers by their width, of texts by their lengths; their encoding is PLAIN, by either name."""
    one = column(number, use_dictionary=["n", "s"])
    page = next(pages(one.stored))
    assert page.kind == DICTIONARY_PAGE
    for encoding in (0, 2):
        soundness._require_dictionary(one, replace(page, header={**page.header, 2: (thrift.I32, encoding)}))
    refused(soundness._require_dictionary, one, replace(page, header={**page.header, 2: (thrift.I32, 3)}))
    for values in (page.values - 1, page.values + 1):
        refused(soundness._require_dictionary, one, replace(page, values=values))


def data_page(number, version, **options):
    """A column and its first page of values."""
    one = column(number, data_page_version=version, **options)
    return one, next(page for page in pages(one.stored) if page.kind != DICTIONARY_PAGE)


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize(
    ("field", "value"),
    [(2, 99), (2, 9), (3, 0), (3, 99), (4, 99), (5, {3: (thrift.I64, 400)}), (5, {3: (thrift.I64, -1)})],
)
def test_each_field_of_a_page_of_version_1_is_judged(number, field, value):
    """Encodings of values and levels, and statistics."""
    one, page = data_page(number, "1.0")
    allowed = soundness._written_as(one.meta)
    soundness._require_data_page(one, page, allowed)
    kind, stated = (thrift.I32, value) if isinstance(value, int) else (thrift.STRUCT, thrift.encode(value))
    refused(soundness._require_data_page, one, replace(page, header={**page.header, field: (kind, stated)}), allowed)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_page_has_an_encoding_that_is_counted(version):
    """Java's reader looks for a value in the dictionary alone where no page of values has another encoding."""
    one, page = data_page(1, version)
    allowed = soundness._written_as(one.meta)
    counted = thrift.structs(one.meta[fields.META_ENCODING_STATISTICS][1], 0)
    assert {(found[1][1] == DICTIONARY_PAGE, found[2][1]) for found in counted} == {(True, 0), (False, 8)}
    field = 2 if version == "1.0" else 4
    for encoding in (2, 8):
        header = {**page.header, field: (thrift.I32, encoding)}
        assert soundness._require_data_page(one, replace(page, header=header), allowed) == page.values
    header = {**page.header, field: (thrift.I32, 0)}
    refused(soundness._require_data_page, one, replace(page, header=header), allowed, said="the encoding 0")


def test_levels_of_a_page_may_have_either_encoding():
    """Those of repetition and those of definition, each its own."""
    one, page = data_page(2, "1.0", compression="none")
    allowed = soundness._written_as(one.meta)
    rows = soundness._require_data_page(one, page, allowed)
    header = {**page.header, 3: (thrift.I32, BIT_PACKED)}
    assert soundness._require_data_page(one, replace(page, header=header), allowed) == rows
    levels = bytes([0b01101101]) + bytes(page.values // 8)
    changed = replace(one, stored=levels + bytes(page.raw_bytes - len(levels)))
    for definition in (RLE, BIT_PACKED):
        header = {**page.header, 3: (thrift.I32, definition), 4: (thrift.I32, BIT_PACKED)}
        packed = replace(page, begin=0, end=page.raw_bytes, header=header)
        assert soundness._require_data_page(changed, packed, allowed) == page.values - 5


@pytest.mark.parametrize("codec", range(8))
def test_a_page_without_values_begins_no_row(codec):
    """Of lists as of numbers, in whichever codec; it may have no bytes at all."""
    one, page = data_page(2, "1.0")
    one = replace(one, chunk=one.chunk._replace(codec=codec))
    empty = replace(page, values=0, raw_bytes=0, end=page.begin)
    assert soundness._require_data_page(one, empty, soundness._written_as(one.meta)) == 0


def test_rows_that_cannot_be_counted_are_not_compared():
    """Of pages of lists in LZO, which is decompressed nowhere here, all else is judged."""
    one = column(2, compression="none", use_dictionary=False, data_page_size=1 << 20, write_page_index=False)
    page = next(pages(one.stored))
    in_lzo = replace(one, chunk=one.chunk._replace(codec=3))
    assert soundness._require_data_page(in_lzo, page, soundness._written_as(one.meta)) is None
    stored = bytearray(one.stored)
    stored[page.begin : page.begin + 4] = page.raw_bytes.to_bytes(4, "big")
    in_lzo = replace(in_lzo, stored=bytes(stored))
    soundness._require_column(in_lzo)
    soundness._require_column(replace(in_lzo, rows=one.rows + 1))
    refused(soundness._require_column, replace(one, rows=one.rows + 1), said="301")
    refused(soundness._require_column, replace(in_lzo, chunk=in_lzo.chunk._replace(values=7)), said="instead of 7")


@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize(
    ("field", "change"),
    [
        (2, lambda _: -1),
        (2, lambda _: 1000),
        (3, lambda _: -1),
        (3, lambda _: 1000),
        (4, lambda _: 99),
        (5, lambda length: length + 1),
        (5, lambda length: length - 1),
        (5, lambda _: -1),
        (5, lambda _: 1 << 20),
        (6, lambda _: -1),
        (6, lambda length: length + 1),
    ],
)
def test_each_field_of_a_page_of_version_2_is_judged(number, field, change):
    """NULLs, rows, and the lengths of both kinds of levels."""
    one, page = data_page(number, "2.0")
    allowed = soundness._written_as(one.meta)
    soundness._require_data_page(one, page, allowed)
    header = {**page.header, field: (thrift.I32, change(page.header[field][1]))}
    refused(soundness._require_data_page, one, replace(page, header=header), allowed)


def test_rows_of_repeated_values_are_those_that_begin():
    """In a page of version 2; Arrow before 6 gave the number of values, which is no lie of another's."""
    one, page = data_page(2, "2.0")
    allowed = soundness._written_as(one.meta)
    rows = page.header[3][1]
    for stated in (rows, page.values):
        header = {**page.header, 3: (thrift.I32, stated)}
        assert soundness._require_data_page(one, replace(page, header=header), allowed) == rows
    header = {**page.header, 3: (thrift.I32, rows + 1)}
    assert rows + 1 < page.values
    refused(soundness._require_data_page, one, replace(page, header=header), allowed, said="begin")


def test_a_large_row_group_is_judged_as_a_small_one(monkeypatch):
    """Its bytes are read where they are looked at; a cut file is told."""
    data = written(TABLE, **SMALL_PAGES)
    one = piece(data, recode=False)
    monkeypatch.setattr(soundness, "_AT_ONCE", 0)
    require_sound(one.reader, one.footer, one.row_groups)
    with pytest.raises(CorruptFileError):
        require_sound(MemoryReader(data[:200]), one.footer, one.row_groups)


@pytest.mark.parametrize("data", [b"", b"\x01\0\0\0a", b"\x01\0\0\0a\x02\0\0\0bc"])
def test_entries_end_where_the_dictionary_ends(data):
    """One byte more is told where all is asked for, and one less always."""
    entries = data.count(b"\0\0\0")
    assert longest_entry(data, entries, whole=True) == (0, 1, 2)[entries]
    refused(lambda: longest_entry(data + b"x", entries, whole=True), said="entries of")
    assert longest_entry(data + b"x", entries) == (0, 1, 2)[entries]
    if entries:
        refused(longest_entry, data[:-1], entries)
        refused(longest_entry, data[:2], entries, said="too early")


def test_a_page_without_compression_is_as_long_as_it_says():
    """No codec, and none that is known."""
    assert inflated(b"abc", 0, 3) == b"abc"
    refused(inflated, b"abc", 0, 4, said="3 bytes instead of 4")
    assert inflated(b"abc", 99, 3) is None


def test_a_row_group_without_rows_is_not_judged():
    """No joined file gets it, so that it may hold what it likes."""

    def empty(found):
        group = found[fields.FILE_ROW_GROUPS][1][0]
        group[fields.GROUP_ROWS] = thrift.I64, 0
        for chunk in group[fields.GROUP_COLUMNS][1]:
            chunk[fields.CHUNK_META][1][fields.META_VALUES] = thrift.I64, 0
        found[fields.FILE_ROWS] = thrift.I64, 200

    one = piece(with_footer(written(TABLE, row_group_size=100, write_statistics=False), empty), recode=False)
    assert [group.rows for group in one.footer.row_groups] == [0, 100, 100]
    require_sound(one.reader, one.footer, one.row_groups)
