"""
Parquet files of insert-only tables by parquet-mr of many releases and by Python's libraries: none takes another along,
and what comes out reads as before, for parquet-mr of Hive 3.1's release and of the newest, Arrow and DuckDB.
"""

import random
import zipfile
from contextlib import ExitStack

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import foreign
from tests.foreign import PARQUET, SMALL, Readers, places
from tests.hive.java import PROJECT, UnavailableError
from tests.hive.parquet import RELEASES, ParquetError, ParquetJava, encrypts
from tests.needs import missing
from tests.unit.parquet import files as arrow

pytestmark = [pytest.mark.hive, pytest.mark.timeout(900)]  # whichever comes first has the writers built
USUAL = ("1.7.0", "1.8.1", "1.10.1", "1.13.1", "1.18.1")
"""
Releases in `make test`: before and after texts got minimum and maximum that hold (PARQUET-251), those of Hive 3.1 and
4, and the newest.
"""
JUDGES = ("1.10.1", "1.18.1")
LISTS = """
    optional group la (LIST) { repeated group list { optional int32 element; } }
    optional group lb (LIST) { repeated group bag { optional int32 array_element; } }
    optional group lc (LIST) { repeated int32 array; }
    optional group ld (LIST) { repeated group array { required binary x (UTF8); optional int32 y; } }
    optional group le (LIST) { repeated group le_tuple { optional int32 z; } }
    repeated int64 lf;
    repeated group lg { optional int32 h; repeated binary i (UTF8); }
    optional group lm (MAP) { repeated group map (MAP_KEY_VALUE) { required binary key (UTF8); optional int32 value; } }
    optional group lo (MAP_KEY_VALUE) { repeated group map { required int32 key; optional group value (LIST) {
        repeated group bag { optional binary array_element; } } } }
    """
FLAT = """
    required int32 n; optional int64 q; optional boolean b; optional float f; optional double x; optional binary y;
    optional binary s (UTF8); optional int32 d (DATE); optional fixed_len_byte_array(5) w (DECIMAL(11,3));
    optional binary v (DECIMAL(5,1)); optional int64 u (UINT_64); optional int32 i (INT_8);
    """
NEWER = """
    required int32 n; optional fixed_len_byte_array(2) h (FLOAT16); optional int64 tn (TIMESTAMP(NANOS,true));
    optional int64 tm (TIMESTAMP(MICROS,false)); optional int64 tj (TIME(NANOS,false)); optional int32 z (UNKNOWN);
    optional fixed_len_byte_array(16) u (UUID); optional binary j (JSON); optional float f; optional double x;
    optional binary g (GEOMETRY(OGC:CRS84)); optional int32 i (INTEGER(16,false)); optional group v (VARIANT(1)) {
        required binary metadata; optional binary value; optional group typed_value {
            required group a { optional binary value; optional int32 typed_value; } } }
    optional group m (MAP) { repeated group key_value { required binary key (STRING); optional group value (LIST) {
        repeated group list { optional fixed_len_byte_array(2) element (FLOAT16); } } } }
    """
"""Types that came with parquet-mr 1.16 at the latest."""
TIMES = "required int32 n; optional int96 o; optional int64 t (TIMESTAMP_MILLIS); optional binary s (UTF8);"
NO_DICTIONARY = {"parquet.enable.dictionary": "false"}
BLOOM = {"parquet.bloom.filter.enabled#s": "true", "parquet.bloom.filter.expected.ndv#s": 50}
SHAPES = {
    "flat": (FLAT, "SNAPPY", {"parquet.page.row.count.limit": 30}),
    "times": (TIMES, "UNCOMPRESSED", {}),
    "lists": (LISTS, "GZIP", {"parquet.page.size": 500}),
    "version 2": (FLAT + LISTS, "SNAPPY", {"parquet.writer.version": "PARQUET_2_0"}),
    "reused": (TIMES, "SNAPPY", {"reused": "true", **NO_DICTIONARY}),
    "without statistics": (FLAT, "SNAPPY", {"parquet.column.statistics.enabled": "false"}),
    "Bloom filters": (TIMES, "SNAPPY", {**BLOOM, "parquet.page.row.count.limit": 30}),
    "checksums": (TIMES, "GZIP", {"parquet.page.write-checksum.enabled": "true"}),
    "zstd": (FLAT, "ZSTD", {}),
    "newer types": (NEWER, "SNAPPY", {"parquet.page.row.count.limit": 30}),
    "newer encodings": (NEWER, "SNAPPY", {"parquet.enable.bytestreamsplit": "true", **NO_DICTIONARY}),
    "newer pages": (NEWER, "ZSTD", {"parquet.writer.version": "PARQUET_2_0", "parquet.block.row.count.limit": 20}),
    "Hadoop's LZ4": (FLAT, "LZ4", {}),
    "raw LZ4": (FLAT, "LZ4_RAW", {}),
    "encrypted": (TIMES, "SNAPPY", {"encrypted": "file"}),
    "an encrypted column": (TIMES, "SNAPPY", {"encrypted": "s"}),
}
NOT_JOINED = {("parquetmr", "1.6.0")}
"""It states no version."""
ROWS = (80, 50, 0)
"""Of the files of each shape."""


def stored_by(java, folder, release):
    """Files of each shape that a release writes."""
    found = {}
    for shape, (schema, codec, options) in SHAPES.items():
        if "encrypted" in options and not encrypts(release):
            continue
        try:
            found[shape] = []
            for number, count in enumerate(ROWS):
                path = folder / f"{release} {shape} {number}"
                java.write(path, f"message m {{ {schema} }}", count, codec=codec, seed=number, settings=options)
                found[shape].append(path.read_bytes())
        except ParquetError:  # a codec that it hasn't got, or hasn't got without Hadoop's native code
            del found[shape]
    return found


def opened(stack, release):
    try:
        return stack.enter_context(ParquetJava(release))
    except UnavailableError as error:
        missing(str(error))


@pytest.fixture(scope="module")
def javas():
    """The judges."""
    with ExitStack() as stack:
        yield {release: opened(stack, release) for release in JUDGES}


@pytest.fixture(scope="module")
def written(javas, tmp_path_factory):
    """Files by release and shape; of a release when it is first asked for."""
    folder, known = tmp_path_factory.mktemp("written"), {}

    def of(release):
        if release not in known:
            with ExitStack() as stack:
                known[release] = stored_by(javas.get(release) or opened(stack, release), folder, release)
        return known[release]

    return of


@pytest.fixture(scope="module")
def readers(javas, tmp_path_factory):
    """Arrow, DuckDB and parquet-mr. DuckDB's cache takes a file of the same path, length and second for the same one."""
    path = tmp_path_factory.mktemp("read") / "file.parquet"
    duck = duckdb.connect(config={"threads": 1, "enable_external_file_cache": False})

    def by_java(java, data):
        path.write_bytes(data)
        try:
            return java.rows(path)
        except ParquetError:
            return None

    def by_duckdb(data):
        path.write_bytes(data)
        try:
            return list(
                map(repr, duck.execute("select columns(*)::varchar from read_parquet(?)", [str(path)]).fetchall())
            )
        except duckdb.Error:
            return None

    found = {"Arrow": foreign.rows, "DuckDB": by_duckdb}
    for release, java in javas.items():
        found[f"parquet-mr {release}"] = lambda data, java=java: by_java(java, data)
    return Readers(found)


def test_each_reader_reads_what_it_is_given(readers):
    """Of files of one length, which it gets within a second, the rows of each."""
    files = [arrow.written(pa.table({"n": [n]}), store_schema=False) for n in range(4)]
    assert len(set(map(len, files))) == 1
    for name in ("Arrow", "DuckDB", *(f"parquet-mr {release}" for release in JUDGES)):
        assert len({repr(readers.rows(name, file)) for file in files}) == len(files), name


def expected_carried(release, shape):
    """Why the files of a shape are carried over, or None."""
    if shape == "encrypted":
        return "its footer is encrypted, and its number of rows with it"
    if shape == "an encrypted column":
        return "its columns are encrypted"
    if release == "1.7.0":  # it calls itself parquet-mr, and gives no version
        return "its writer, parquet-mr before 1.2.9 or without a version, left dictionaries out of the sizes"
    return None


@pytest.mark.parametrize(
    "release", [release if release in USUAL else pytest.param(release, marks=pytest.mark.long) for release in RELEASES]
)
def test_files_of_every_release_of_parquet_mr(tmp_path, written, readers, release):
    """
    Each shape alone, twice and with a file without rows, copied and encoded anew: one file comes out that reads as
    before, or each is carried over by its true reason.
    """
    assert len(written(release)) >= 8
    for shape, files in written(release).items():
        for small, size in SMALL.items():
            for number, taken in enumerate((files[:1], files[:2], [files[2], files[2]], files)):
                location = tmp_path / f"{shape} {small} {number}"
                outcome = readers.require_unchanged(location, taken, PARQUET, splice={"min_stripe_bytes": size})
                why = expected_carried(release, shape)
                if why is not None or len(taken) == 1:
                    assert outcome.joined == [], shape
                    assert len(taken) == 1 or set(outcome.carried.values()) == {why}, shape
                else:
                    assert outcome.joined == [list(range(len(taken)))], (shape, outcome)


@pytest.mark.parametrize("small", SMALL)
def test_files_of_all_releases_in_one_table(tmp_path, written, readers, small):
    """Those of each release become one, whatever shape lies between them; the others are carried over."""
    for shape in SHAPES:
        found = [
            (release, file)
            for turn in range(2)
            for release in USUAL
            for file in written(release).get(shape, [])[turn : turn + 1]
        ]
        releases, files = [release for release, _ in found], [file for _, file in found]
        outcome = readers.require_unchanged(tmp_path / shape, files, PARQUET, splice={"min_stripe_bytes": SMALL[small]})
        assert sorted(map(len, outcome.joined)) == [
            2 for release in sorted(set(releases)) if expected_carried(release, shape) is None
        ], shape


@pytest.mark.parametrize("small", SMALL)
def test_files_in_all_manners_in_one_table(tmp_path, written, readers, small):
    """Of one release: codecs, encodings and types that not every reader knows take no other files along."""
    found = written(JUDGES[-1])
    files = [file for turn in range(3) for shape in SHAPES for file in found[shape][turn : turn + 1]]
    readers.require_unchanged(tmp_path / "all", files, PARQUET, splice={"min_stripe_bytes": SMALL[small]})


def test_a_table_of_2200_columns(tmp_path, javas, readers):
    """Copied or encoded anew, it reads as before."""
    schema = "message m { " + " ".join(f"optional int32 measure_{number:04};" for number in range(2200)) + " }"
    files = []
    for number in range(2):
        path = tmp_path / str(number)
        javas[JUDGES[-1]].write(path, schema, 3, seed=number)
        files.append(path.read_bytes())
    for small, size in SMALL.items():
        outcome = readers.require_unchanged(tmp_path / small, files, PARQUET, splice={"min_stripe_bytes": size})
        assert outcome.joined == [[0, 1]]


@pytest.fixture(scope="module")
def fixtures():
    """Files by library and release, then by name."""
    found = {}
    for path in sorted((PROJECT / "tests" / "fixtures" / "foreign").glob("*.zip")):
        with zipfile.ZipFile(path) as packed:
            for name in sorted(packed.namelist()):
                found.setdefault(tuple(name.split("-")[:2]), {})[name] = packed.read(name)
    return found


@pytest.mark.parametrize("small", SMALL)
def test_files_that_lie_here_by_libraries_of_many_releases(tmp_path, fixtures, readers, small):
    """
    Those of pyarrow from 0.11, DuckDB from 0.3, polars from 0.13, fastparquet from 0.8, of parquet-mr 1.6, Trino 476 and
    two writers in Go: twice with a file without rows, and beside all others.
    """
    sizes = {"splice": {"min_stripe_bytes": SMALL[small]}}
    assert len(fixtures) == 20
    for (library, release), files in fixtures.items():
        for shape in {name.rsplit("-", 1)[0] for name in files}:
            some = [file for name, file in files.items() if name.startswith(shape)]
            outcome = readers.require_unchanged(tmp_path / shape, some, PARQUET, **sizes)
            if (library, release) not in NOT_JOINED:
                joined = [[0, 1]] if library == "fastparquet" else [[0, 1, 2]]
                assert outcome.joined == joined, (shape, outcome)
    readers.require_unchanged(
        tmp_path / "all",
        [file for files in fixtures.values() for name, file in files.items() if not name.endswith("-2.parquet")],
        PARQUET,
        **sizes,
    )


def test_a_flipped_bit_takes_no_other_file_along(tmp_path_factory, written, readers, fixtures):
    """
    One bit of a footer, a page header, a page index or a Bloom filter of one file among three: parquet-mr, Arrow and
    DuckDB read the rows of the others as before, and the file itself as far as they read it before.
    """

    @settings(max_examples=60, deadline=None)
    @given(st.integers(0, 1 << 40))
    def flip(seed):
        drawn = random.Random(seed)
        if drawn.random() < 0.5:
            by_shape = written(drawn.choice(JUDGES))
            files = by_shape[drawn.choice([shape for shape in by_shape if "encrypted" not in shape])]
        else:
            of_library = fixtures[drawn.choice(list(fixtures))]
            shape = drawn.choice(list(of_library)).rsplit("-", 1)[0]
            files = [file for name, file in of_library.items() if name.startswith(shape)]
        damaged = drawn.randrange(2)
        bad = bytearray(files[damaged])
        bad[drawn.choice(places(files[damaged]))] ^= 1 << drawn.randrange(8)
        files = [bytes(bad) if number == damaged else file for number, file in enumerate(files)]
        size = drawn.choice(list(SMALL.values()))
        readers.require_unchanged(tmp_path_factory.mktemp("flip"), files, PARQUET, splice={"min_stripe_bytes": size})

    flip()
