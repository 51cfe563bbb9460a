"""
Files of insert-only tables by any writer, some of them damaged: no result is worse than its inputs. A file that isn't
sound is carried over alone, and stops none of its neighbours.
"""

import bz2
import gzip
import io
import random
from collections import Counter
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyorc
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from compactor.errors import CorruptFileError
from compactor.handles import MemoryReader
from compactor.orc.format.tail import read_stripe_footer, read_tail
from compactor.orc.writing.output import OutputFormat
from compactor.orc.writing.splice import Splicer
from compactor.parquet import assembly, fields, thrift
from compactor.planning.facts import StoredAs
from tests import strategies
from tests.compacting import compact_directory, go_through, insert_only_compaction
from tests.foreign import ORC, PARQUET, compacted, places, rows
from tests.unit.orc.files import MemorySink
from tests.unit.parquet.files import bits, with_footer, written

AVRO = StoredAs("org.apache.hadoop.hive.ql.io.avro.AvroContainerInputFormat", None)
TEXT = StoredAs("org.apache.hadoop.mapred.TextInputFormat", "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe")


def table(first, count=60):
    numbers = range(first, first + count)
    return pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "s": [None if n % 9 == 0 else f"text {n % 7}" for n in numbers],
            "x": [n / 3 for n in numbers],
            "l": [[n] * (n % 3) for n in numbers],
        }
    )


def duck(data):
    """The file under a name whose row groups are only copied."""
    return with_footer(
        data, lambda found: thrift.put(found, fields.FILE_CREATED_BY, thrift.BINARY, b"DuckDB version v1.4.0")
    )


def orc(kind="struct<a:int,b:string>", values=(), **options):
    sink = io.BytesIO()
    with pyorc.Writer(sink, kind, **options) as writer:
        writer.writerows(values)
    return sink.getvalue()


OPTIONS = [
    {"write_page_index": True, "write_page_checksum": True},
    {"write_page_index": True, "data_page_version": "2.0", "compression": "zstd", "data_page_size": 128},
    {"compression": "lz4", "row_group_size": 25, "bloom_filter_options": {"n": True}},
    {"compression": "none", "use_dictionary": False},
]
GOOD = [[written(table(n * 60), **options) for n in range(3)] for options in OPTIONS]
GOOD += [[duck(file) for file in files] for files in GOOD]


PLACES = [[places(file) for file in files] for files in GOOD]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 1 << 40))
def test_a_flipped_bit_takes_no_other_file_along(tmp_path_factory, seed):
    """
    One bit of a footer, a page header, a page index or a Bloom filter: the rows of the other files are read as before,
    and the file itself as far as it was read before.
    """
    drawn = random.Random(seed)
    manner, damaged = drawn.randrange(len(GOOD)), drawn.randrange(3)
    good = GOOD[manner]
    bad = bytearray(good[damaged])
    bad[drawn.choice(PLACES[manner][damaged])] ^= 1 << drawn.randrange(8)
    files = [bytes(bad) if number == damaged else file for number, file in enumerate(good)]
    made, output = compacted(tmp_path_factory.mktemp("flip"), files, PARQUET)
    alone = [copy.path for copy in output.copies]
    before = Counter(row for number, file in enumerate(files) if number != damaged for row in rows(file))
    was = rows(files[damaged])
    if files[damaged] in made.values():
        made = {name: one for name, one in made.items() if one != files[damaged]}
    else:
        assert alone == []
        before += Counter(was if was is not None else [])
    after = [rows(one) for one in made.values()]
    assert None not in after, "a file that isn't the damaged one can't be read"
    assert Counter(row for found in after for row in found) == before


@pytest.mark.parametrize("recode", [False, True])
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 40))
@example(seed=7611722)  # a repetition level: one list becomes two
@example(seed=262145)  # a list goes on after its end: as many rows, fewer values
def test_changed_values_stay_in_their_row_groups(tmp_path_factory, recode, seed):
    """
    Damage inside values that are copied isn't looked for: all row groups but the damaged one are read as before. What
    would be encoded anew is carried over alone when it can't be decoded.
    """
    drawn = random.Random(seed)
    good = [file if recode else duck(file) for file in GOOD[3]]
    last = len(good[1]) - 8 - int.from_bytes(good[1][-8:-4], "little")
    bad = bytearray(good[1])
    bad[drawn.randrange(4, last)] ^= 1 << drawn.randrange(8)
    made, _ = compacted(tmp_path_factory.mktemp("values"), [good[0], bytes(bad), good[2]], PARQUET)
    found = set()
    for one in made.values():
        file = parquet.ParquetFile(io.BytesIO(one))
        for number in range(file.num_row_groups):
            try:
                group = file.read_row_group(number)
            except (pa.ArrowException, OSError, ValueError):
                continue
            found |= {repr(row) for row in zip(*(bits(column) for column in group.columns), strict=True)}
    assert {row for file in (good[0], good[2]) for row in rows(file)} <= found


def _chunk(found):
    return found[fields.FILE_ROW_GROUPS][1][0][fields.GROUP_COLUMNS][1][0]


def _meta(found):
    return _chunk(found)[fields.CHUNK_META][1]


def _zeros(found):
    for number, kind in ((4, thrift.I64), (5, thrift.I32), (6, thrift.I64), (7, thrift.I32)):
        thrift.put(_chunk(found), number, kind, 0)


SHAPES = {
    "half a page index entry": lambda found: _chunk(found).pop(fields.CHUNK_OFFSET_INDEX),
    "zeros for no page index": _zeros,
    "no file_offset": lambda found: _chunk(found).pop(fields.CHUNK_FILE_OFFSET),
    "no total_byte_size": lambda found: found[fields.FILE_ROW_GROUPS][1][0].pop(2),
    "encodings that are a number": lambda found: thrift.put(_meta(found), 2, thrift.I32, 7),
    "a logical type that is a number": lambda found: thrift.put(found[fields.FILE_SCHEMA][1][1], 10, thrift.I32, 7),
    "an index's length that is a set": lambda found: thrift.put(_chunk(found), 5, thrift.SET, b"\x15\x02"),
    "an offset that becomes too large": lambda found: thrift.put(_meta(found), 10, thrift.I64, (1 << 63) - 1),
    "a minimum of three bytes": lambda found: thrift.put(_meta(found), 12, thrift.STRUCT, b"\x28\x03abc\0"),
    "another codec": lambda found: thrift.put(_meta(found), 4, thrift.I32, 0),
    "other bytes of the row group": lambda found: thrift.put(found[fields.FILE_ROW_GROUPS][1][0], 6, thrift.I64, 1),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("small", [1, 8 << 20])
def test_a_footer_that_is_no_footer_is_carried_alone(tmp_path, shape, small):
    """Where row groups are copied, and where they are encoded anew; the files beside it become one."""
    good = [written(table(n * 60), write_page_index=True) for n in range(2)]
    bad = with_footer(written(table(500), write_page_index=True), SHAPES[shape])
    made, _ = compacted(tmp_path, [good[0], bad, good[1]], PARQUET, splice={"min_stripe_bytes": small})
    assert len(made) == 2
    assert bad in made.values()
    (joined,) = [one for one in made.values() if one != bad]
    assert rows(joined) == rows(good[0]) + rows(good[1])


@pytest.mark.parametrize("encoding", [5, 6, 7, 9])
def test_an_encoding_that_a_footer_states_and_no_page_has(tmp_path, encoding):
    """
    Arrow writes no text in DELTA_BINARY_PACKED, no number in DELTA_BYTE_ARRAY, and so on: such columns are encoded anew
    in others.
    """

    def stated(found):
        for chunk in found[fields.FILE_ROW_GROUPS][1][0][fields.GROUP_COLUMNS][1]:
            encodings = b"".join(thrift.encoded_integer(number) for number in (0, 3, encoding))
            thrift.put(chunk[fields.CHUNK_META][1], 2, thrift.LIST, b"\x35" + encodings)

    kinds = {"y": pa.bool_(), "f": pa.float32(), "d": pa.decimal128(21, 2), "i": pa.int32(), "t": pa.string()}
    values = pa.table({name: pa.array([1, 0, None]).cast(kind) for name, kind in kinds.items()})
    files = [with_footer(written(values, use_dictionary=False), stated) for _ in range(2)]
    made, _ = compacted(tmp_path, files, PARQUET)
    (joined,) = made.values()
    assert rows(joined) == rows(files[0]) * 2 != []
    assert parquet.read_metadata(io.BytesIO(joined)).num_row_groups == 1


@pytest.mark.parametrize("small", [1, 8 << 20])
def test_what_not_every_reader_knows_stays_apart(tmp_path, small):
    """
    Codecs and newer encodings: a reader without Zstandard reads the files of the others as before. A file without rows
    has none of them.
    """
    split = {"use_dictionary": False, "column_encoding": {"x": "BYTE_STREAM_SPLIT"}}
    delta = {"use_dictionary": False, "column_encoding": {"n": "DELTA_BINARY_PACKED"}}
    manners = [{"compression": "snappy"}, {"compression": "zstd"}, {"compression": "none"}, split, delta]
    files = [written(table(place * 60), **options) for place, options in enumerate(manners * 2)]
    made, _ = compacted(tmp_path, [written(table(0).slice(0, 0)), *files], PARQUET, splice={"min_stripe_bytes": small})
    expected = [rows(file) + rows(files[place + len(manners)]) for place, file in enumerate(files[: len(manners)])]
    assert sorted(map(rows, made.values())) == sorted(expected)


def as_unknown(found):
    """Of the last column, the logical type UNKNOWN instead of any other."""
    element = found[fields.FILE_SCHEMA][1][-1]
    element.pop(6, None)
    thrift.put(element, 10, thrift.STRUCT, b"\xbc\0\0")


@pytest.mark.parametrize("converted", [True, False])
@pytest.mark.parametrize("unit", ["ms", "us"])
def test_a_minimum_of_milliseconds_has_microseconds(tmp_path, unit, converted):
    """DuckDB makes those of it before it reads, and fails over the whole file: it is carried over alone."""

    def beyond(found):
        if not converted:
            found[fields.FILE_SCHEMA][1][1].pop(6)  # the logical type tells the unit
        lowest = (-(1 << 62)).to_bytes(8, "little", signed=True)
        thrift.put(_meta(found), 12, thrift.STRUCT, b"\x58\x08" + bytes(8) + b"\x18\x08" + lowest + b"\0")

    good = with_footer(
        written(pa.table({"t": pa.array([0, 1], pa.timestamp(unit))})),
        lambda found: converted or found[fields.FILE_SCHEMA][1][1].pop(6),
    )
    bad = with_footer(written(pa.table({"t": pa.array([0, 1], pa.timestamp(unit))})), beyond)
    made, _ = compacted(tmp_path, [good, bad, good], PARQUET)
    assert len(made) == (2 if unit == "ms" else 1)
    assert (bad in made.values()) == (unit == "ms")


@pytest.mark.parametrize("width", range(4))
def test_a_minimum_of_float16_has_two_bytes(tmp_path, width):
    """Java's reader and DuckDB read it as one; that of other FIXED may be shortened."""
    values = pa.table({"h": pa.array([1.0, 2.0], pa.float16())})
    bound = bytes([width]) + bytes(width)
    stated = b"\x58" + bound + b"\x18" + bound + b"\0"
    bad = with_footer(written(values), lambda found: thrift.put(_meta(found), 12, thrift.STRUCT, stated))
    made, _ = compacted(tmp_path, [written(values), bad, written(values)], PARQUET)
    assert len(made) == (1 if width == 2 else 2)
    assert (bad in made.values()) == (width != 2)


UNKNOWN = {
    "texts": (pa.string(), "text", False),
    "FIXED, as parquet-mr's intervals": (pa.binary(12), b"an interval.", False),
    "lists of texts": (pa.list_(pa.string()), ["text"], False),
    "numbers": (pa.int32(), 1, True),
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_texts_of_unknown_type_stay_in_their_file(tmp_path, kind):
    """Of a file with several row groups Arrow reads only the last one's: it couldn't read what they become."""
    arrow_type, value, joined = UNKNOWN[kind]
    values = pa.table({"n": [1, 2, 3], "u": pa.array([value, None, value], arrow_type)})
    files = [with_footer(written(values.slice(0, count)), as_unknown) for count in (3, 2)]
    assert None not in map(rows, files)
    made, _ = compacted(tmp_path, files, PARQUET, splice={"min_stripe_bytes": 1})
    assert len(made) == (1 if joined else 2)
    assert sorted(row for one in made.values() for row in rows(one)) == sorted(rows(files[0]) + rows(files[1]))


EMPTY = table(0, 0)
NOTHING = {
    "Parquet without row groups": (
        PARQUET,
        [written(EMPTY.slice(0, 0)), written(EMPTY.slice(0, 0))],
        written(table(0)),
    ),
    "Parquet of no bytes": (PARQUET, [b"", b""], written(table(0))),
    "ORC without stripes": (ORC, [orc(), orc()], orc(values=[(1, "a")])),
    "ORC of no bytes": (ORC, [b"", b""], orc(values=[(1, "a")])),
    "ORC of both kinds": (ORC, [b"", orc()], orc(values=[(1, "a")])),
    "text of no bytes": (TEXT, [b"", b""], b"1,a"),
    "Avro of no bytes": (AVRO, [b"", b""], b""),
}


@pytest.mark.parametrize("beside", [0, 1, 2])
@pytest.mark.parametrize("what", NOTHING)
def test_files_without_rows_block_nothing(tmp_path, what, beside):
    """
    They are joined with each other, and with those that have rows; what isn't a file to its format's readers, like
    Parquet of no bytes, stays as it is.
    """
    stored, empty, full = NOTHING[what]
    files = [*empty, *[full] * beside]
    made, output = compacted(tmp_path, files, stored)
    carried = [copy for copy in output.copies if copy.bytes == 0]
    assert len(carried) == (sum(not file for file in files) if stored in {PARQUET, AVRO} else 0)
    with_rows = [one for one in made.values() if one]
    if stored == ORC:
        assert sum(len(pyorc.Reader(io.BytesIO(one))) for one in with_rows) == beside
        assert len(made) == 1
    elif stored == TEXT:
        assert b"".join(made.values()).split() == [full] * beside
        assert len(made) == 1
    elif stored == PARQUET:
        assert sum(parquet.read_metadata(io.BytesIO(one)).num_rows for one in with_rows) == 60 * beside


@pytest.mark.parametrize("packed", [gzip.compress, bz2.compress])
def test_compressed_files_without_lines_are_joined(tmp_path, packed):
    """An empty member between two others."""
    ending = ".gz" if packed is gzip.compress else ".bz2"
    for number, data in enumerate([packed(b"1\n"), packed(b""), packed(b"2")], 1):
        path = tmp_path / f"delta_{number:07d}_{number:07d}_0000" / f"000000_0{ending}"
        path.parent.mkdir()
        path.write_bytes(data)
    compaction = insert_only_compaction(tmp_path, TEXT)
    published = go_through(compaction)
    compaction.discard()
    (made,) = (tmp_path / published.directories[0]).glob("0*")
    assert (gzip if ending == ".gz" else bz2).decompress(made.read_bytes()) == b"1\n2"


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(strategies.parquet_tables(most_rows=3), strategies.parquet_options())
def test_tables_of_any_types_are_compacted_where_some_files_have_no_rows(tmp_path_factory, tables, options):
    """No writer's options, types or empty files end a compaction; all rows are in its files."""
    files = [written(one.slice(0, len(one) * (number % 2)), **options) for number, one in enumerate([*tables, *tables])]
    made, _ = compacted(tmp_path_factory.mktemp("types"), files, PARQUET)
    assert Counter(row for one in made.values() for row in rows(one)) == Counter(
        row for one in files for row in rows(one)
    )


ORC_KIND = "struct<a:int,s:string,l:array<int>,d:double,t:timestamp>"
CODECS = (pyorc.CompressionKind.NONE, pyorc.CompressionKind.ZLIB, pyorc.CompressionKind.SNAPPY)
GOOD_ORC = [
    [
        orc(
            ORC_KIND,
            [(n, f"v{n % 5}", [n] * (n % 3), n / 3, datetime(2020, 1, 1, n % 24, tzinfo=UTC)) for n in range(50)],
            compression=codec,
            row_index_stride=20,
            bloom_filter_columns=[1],
        )
        for _ in range(3)
    ]
    for codec in CODECS
]


def places_of_orc(data):
    """The bytes of an ORC file of one stripe that aren't values: row indexes and Bloom filters, and all footers."""
    (stripe,) = read_tail(MemoryReader(data)).stripes
    indexes = range(stripe.offset, stripe.offset + stripe.index_length)
    return [*indexes, *range(indexes.stop + stripe.data_length, len(data))]


def orc_rows(data):
    """All rows, or None where the C++ library can't read them."""
    try:
        return [repr(row) for row in pyorc.Reader(io.BytesIO(data))]
    except (pyorc.ParseError, RuntimeError, ValueError, OverflowError):
        return None


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 1 << 40), st.sampled_from([1, 8 << 20]))
@example(seed=34, small=1)  # of a stream, the length in a stripe's footer
def test_a_flipped_bit_of_orc_takes_no_other_file_along(tmp_path_factory, seed, small):
    """The same for a bit of a stripe's footer, a row index, a Bloom filter, or the file's own footers."""
    drawn = random.Random(seed)
    good, damaged = drawn.choice(GOOD_ORC), drawn.randrange(3)
    bad = bytearray(good[damaged])
    bad[drawn.choice(places_of_orc(good[damaged]))] ^= 1 << drawn.randrange(8)
    files = [bytes(bad) if number == damaged else file for number, file in enumerate(good)]
    made, _ = compacted(tmp_path_factory.mktemp("flip"), files, ORC, splice={"min_stripe_bytes": small})
    expected = Counter(row for number, file in enumerate(files) if number != damaged for row in orc_rows(file))
    if files[damaged] in made.values():
        made = {name: one for name, one in made.items() if one != files[damaged]}
    else:
        expected += Counter(orc_rows(files[damaged]) or orc_rows(good[damaged]))
    after = [orc_rows(one) for one in made.values()]
    assert None not in after, "a file that isn't the damaged one can't be read"
    assert Counter(row for found in after for row in found) == expected


PRESENT, ROW_INDEX = 0, 6


def with_stream_of_another_kind(data, column):
    """The file, in which a stripe's footer calls the row index of a column its bits of NULLs."""
    tail = read_tail(MemoryReader(data))
    stripe, footer = tail.stripes[0], read_stripe_footer(MemoryReader(data), tail, 0)
    (stream,) = [one for one in footer.streams if one.column == column and one.kind == ROW_INDEX]
    stream.kind = PRESENT
    at, changed = stripe.offset + stripe.index_length + stripe.data_length, footer.SerializeToString()
    assert len(changed) == stripe.footer_length
    return data[:at] + changed + data[at + len(changed) :]


def decodes(data):
    """Whether the C++ library finds enough bits in what the stripe's footer calls bits of NULLs."""
    try:
        return bool(list(pyorc.Reader(io.BytesIO(data))))
    except pyorc.ParseError:
        return False


def contradicting():
    """A good file with its rows, and the same with a stripe's footer that makes NULLs of some values of column 3."""
    for base in range(1000):
        values = [(n, f"v{n}", (base + n) / 7) for n in range(100)]
        good = orc(KIND, values, **UNPACKED)
        bad = with_stream_of_another_kind(good, 3)
        if decodes(bad):
            return good, bad, values
    raise AssertionError("no such file was found")


KIND = "struct<a:int,s:string,d:double>"
UNPACKED = {"compression": pyorc.CompressionKind.NONE, "row_index_stride": 1000}


def test_values_that_a_stripes_footer_calls_null_are_no_null(tmp_path):
    """
    The statistics count them. A full ACID table's compaction is refused; an insert-only one's carries the file over
    alone.
    """
    good, bad, values = contradicting()
    (tmp_path / "acid").mkdir()
    for number, data in enumerate((bad, good)):
        (tmp_path / "acid" / f"{number:06}_0").write_bytes(data)
    columns = [("a", "int"), ("s", "string"), ("d", "double")]
    sizes = {"splice": {"min_stripe_bytes": 1 << 20}}
    with pytest.raises(CorruptFileError, match=r"values of column 3, where its statistics count 100"):
        compact_directory(tmp_path / "acid", columns, **sizes)
    made, _ = compacted(tmp_path / "mm", [good, bad, good], ORC)
    assert len(made) == 2
    assert bad in made.values()
    (joined,) = [one for one in made.values() if one != bad]
    assert list(pyorc.Reader(io.BytesIO(joined))) == values * 2


def merged(files):
    """One file with the stripes of all, as ORC's own OrcFile.mergeFiles makes it."""
    readers = [MemoryReader(data) for data in files]
    tails = [read_tail(reader) for reader in readers]
    output = OutputFormat(tails[0].tree, tails[0].compression, tails[0].block_size, tails[0].stride)
    sink = MemorySink()
    splicer = Splicer(sink, output, tails[0].footer.types)
    for reader, tail in zip(readers, tails, strict=True):
        splicer.add_stripe(reader, tail, 0)
    splicer.finish(None, {})
    return sink.getvalue()


@pytest.mark.parametrize("small", [1, 8 << 20])
def test_stripes_of_several_zones_stay_in_their_file(tmp_path, small):
    """Such files are carried over, each by itself, and those of one zone beside them become one."""
    moments = [(n, datetime(2020, 1, 1, n, tzinfo=UTC)) for n in range(3)]
    one, other = (
        orc("struct<a:int,t:timestamp>", moments, timezone=ZoneInfo(zone)) for zone in ("UTC", "America/New_York")
    )
    both = merged([one, other])
    made, output = compacted(tmp_path, [both, one, both, one], ORC, splice={"min_stripe_bytes": small})
    assert Counter(made.values())[both] == 2
    assert len(made) == 3
    assert {copy.reason for copy in output.copies} == {"its stripes are of several time zones (America/New_York, GMT)"}


def test_dictionaries_in_raw_lz4_are_read(tmp_path):
    """Parquet's codec 7 is LZ4 without frames: its files are encoded anew, and called damaged no more."""
    files = [
        written(pa.table({"s": [f"city {n % 100:03} of file {file}" for n in range(2000)]}), compression="lz4")
        for file in range(2)
    ]
    made, _ = compacted(tmp_path, files, PARQUET)
    (joined,) = made.values()
    assert rows(joined) == rows(files[0]) + rows(files[1])
    assert parquet.read_metadata(io.BytesIO(joined)).num_row_groups == 1


def test_a_joined_footer_that_could_not_be_read_again_is_not_written(tmp_path, monkeypatch):
    """Where the plan took too many wide files together, all of them are carried over."""
    wide = duck(written(pa.table({f"measure_{n:04}": [n] for n in range(50)})))
    monkeypatch.setattr(assembly, "LONGEST", 20_000)
    made, _ = compacted(tmp_path, [wide] * 3, PARQUET)
    assert sorted(made.values()) == [wide] * 3
