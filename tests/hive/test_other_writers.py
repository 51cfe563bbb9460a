"""
Files that Hive 3 and 4 didn't write: each reads the same for Hive after a compaction, or is refused by its true reason.
"""

import shutil
from collections import Counter
from contextlib import ExitStack
from functools import cache, partial

import pyorc
import pytest

from compactor.acid.types import to_hive_string
from compactor.errors import CompactorError, RefusedError
from compactor.orc.format.tail import read_tail
from compactor.reasons import Reason
from compactor.storage.local_fs.files import LocalReader
from tests.compacting import compact_directory
from tests.foreign import ORC, SMALL, Readers
from tests.hive.java import UnavailableError
from tests.hive.reader import HiveReader, JudgeError
from tests.hive.writers import OLD_HIVES, RELEASES, OrcError, OrcReader, examples, write, write_as_hive
from tests.needs import missing
from tests.unit.orc.files import rows_of

pytestmark = pytest.mark.hive
ZONES = ("UTC", "Asia/Kolkata", "America/New_York", "GMT+05:30")
COLUMNS = [("id", "int"), ("t", "timestamp"), ("l", "array<timestamp>"), ("s", "string")]


def schema(columns):
    return f"struct<{','.join(f'{name}:{kind}' for name, kind in columns)}>"


TYPES = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "timestamp")
NEWER = {"date": "date", "varchar": "varchar(12)", "char": "char(7)", "decimal": "decimal(30,5)"}
NESTED = ("map<string,int>", "array<timestamp>", "struct<a:int,b:array<string>>")
UNION = ("int", "uniontype<int,string>", "string")
"""By itself: stripes with unions and timestamps without a zone aren't rewritten."""


def made(*arguments, by=write):
    try:
        return by(*arguments)
    except UnavailableError as error:
        missing(str(error))


def columns_of(file):
    row = read_tail(LocalReader(str(file))).row_tree
    return [(name, to_hive_string(kind)) for name, kind in zip(row.names, row.children, strict=True)]


@pytest.fixture(scope="module")
def apache(tmp_path_factory):
    """Apache ORC's example files, by name."""
    try:
        return {path.name: path for path in examples(tmp_path_factory.mktemp("examples"))}
    except UnavailableError as error:
        missing(str(error))


@pytest.fixture(scope="module")
def javas():
    """ORC's Java readers by release: that of Hive 3.1, and the newest."""
    with ExitStack() as stack:
        try:
            yield {release: stack.enter_context(OrcReader(release)) for release in ("1.5.13", RELEASES[-1])}
        except UnavailableError as error:
            missing(str(error))


@pytest.fixture(scope="module")
def readers(javas, tmp_path_factory):
    """ORC's Java readers, and its C++ reader."""
    path = tmp_path_factory.mktemp("read") / "file.orc"

    def by_java(java, data):
        path.write_bytes(data)
        try:
            return java.rows(path)
        except OrcError:
            return None

    def by_cpp(data):
        try:
            return list(map(repr, rows_of(data)))
        except (pyorc.ParseError, RuntimeError, ValueError, OverflowError):  # RuntimeError: a zone that only Java knows
            return None

    found = {f"ORC {release}": partial(by_java, java) for release, java in javas.items()}
    return Readers({**found, "C++": by_cpp})


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Files of a release of ORC's Java library, in JVMs of several zones, and those of an old Hive; each made once."""

    @cache
    def of(release):
        folder = tmp_path_factory.mktemp(release)
        if release in RELEASES:
            made(release, "zones", folder, 300, 1, 9999, "true", *ZONES)
            return [(folder / str(number) / "000000_0").read_bytes() for number in range(len(ZONES))]
        files = []
        for number, kinds in enumerate(kinds_of(release)):
            old_table(release, folder / str(number), [(f"c{place}", kind) for place, kind in enumerate(kinds)])
            files.append((folder / str(number) / "000000_0").read_bytes())
        return files

    return of


def values(java, files):
    """The rows of files by a reader of ORC's, without their order."""
    return Counter(row for file in files for row in java.rows(file))


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_of_java_orc(hive_4, javas, tmp_path, written, release):
    """
    Original files of each release, in JVMs of several zones; Hive reads the compacted table as it read them, and so
    does the newest reader of ORC.
    """
    for number, file in enumerate(written(release)):
        location = tmp_path / str(number)
        location.mkdir()
        (location / "000000_0").write_bytes(file)
        before = hive_4.rows(location, schema(COLUMNS))
        assert len(before) == 300
        seen = values(javas[RELEASES[-1]], [location / "000000_0"])
        compact_directory(location, COLUMNS)
        assert hive_4.rows(location, schema(COLUMNS)) == before, (release, ZONES[number])
        assert values(javas[RELEASES[-1]], location.glob("base_*/bucket_*")) == seen


@pytest.mark.timeout(900)  # all writers may have to be built first
@pytest.mark.parametrize("small", SMALL)
def test_insert_only_tables_of_every_writer(tmp_path, written, readers, small):
    """
    Files of each release of ORC's Java library and of each old Hive, alone, twice and beside those of all others: one
    file comes out that each reader reads as before, or they are carried over.
    """
    sizes = {"splice": {"min_stripe_bytes": SMALL[small]}}
    everything = []
    for release in (*RELEASES, *OLD_HIVES):
        files = written(release)
        everything += files[:2]
        readers.require_unchanged(tmp_path / release / "alone", files[:1], ORC, **sizes)
        outcome = readers.require_unchanged(tmp_path / release / "twice", [*files, b"", *files], ORC, **sizes)
        joined = sorted(number for numbers in outcome.joined for number in numbers)
        if release in {"1.4.4", "1.5.13", "1.6.14", "1.8.5", "2.2.2", "2.3.1"}:
            assert joined == list(range(2 * len(files) + 1)), (release, outcome)
    readers.require_unchanged(tmp_path / "all", [*everything, *everything], ORC, **sizes)


def kinds_of(release):
    """Types of the columns of tables of an old Hive."""
    kinds = (*TYPES, *(NEWER[name] for name in OLD_HIVES[release]), *(NESTED[1:] if release == "0.11.0" else NESTED))
    return (kinds, UNION) if release != "0.11.0" else (kinds,)


def old_table(release, location, columns):
    """
    2,000 rows as a table of an old Hive had them: columns without names and, before 1.2, stripes without a zone. More
    rows, and 0.12 can't write its own runs.
    """
    row = schema([(f"_col{number}", kind) for number, (_, kind) in enumerate(columns)])
    made(release, location / "000000_0", "Asia/Kolkata", row, 2_000, 4, by=write_as_hive)


@pytest.mark.parametrize("release", OLD_HIVES)
def test_every_release_of_hive_whose_writer_was_its_own(hive_4, tmp_path, written, release):
    """Hive reads the compacted table as it read that one."""
    for kinds, file in zip(kinds_of(release), written(release), strict=True):
        location = tmp_path / str(len(kinds))
        location.mkdir()
        (location / "000000_0").write_bytes(file)
        columns = [(f"c{number}", kind) for number, kind in enumerate(kinds)]
        before = hive_4.rows(location, schema(columns))
        assert len(before) == 2_000
        compact_directory(location, columns)
        assert hive_4.rows(location, schema(columns)) == before


@pytest.mark.parametrize(
    ("release", "kind", "why"),
    [
        ("0.11.0", "decimal", "decimals have no precision"),  # each value has a scale of its own
        ("0.12.0", "decimal", "decimals have no precision"),
        (
            "0.11.0",
            "map<string,int>",
            "may hold NULL among the keys of a map",
        ),  # it notes which values there are for each column
        ("0.11.0", "uniontype<int,string>", "may hold NULL in a union"),
    ],
)
def test_what_only_old_hives_wrote_is_refused(tmp_path, release, kind, why):
    old_table(release, tmp_path, [("a", "int"), ("b", kind)])
    with pytest.raises(RefusedError, match=why) as refused:
        compact_directory(tmp_path, [("a", "int"), ("b", "decimal(38,10)" if kind == "decimal" else kind)])
    assert refused.value.reason is (Reason.SCHEMA_MISMATCH if kind == "decimal" else Reason.UNSUPPORTED_FORMAT)


def test_text_that_hive_2_cut_inside_a_letter(hive_4, tmp_path):
    """Its writer counts bytes, not letters, of VARCHAR and CHAR."""
    columns = [("a", "int"), ("b", "varchar(20)"), ("c", "char(20)")]
    old_table("2.1.1", tmp_path, columns)
    before = hive_4.rows(tmp_path, schema(columns))
    compact_directory(tmp_path, columns)
    assert hive_4.rows(tmp_path, schema(columns)) == before


@pytest.mark.parametrize(
    "name", ["col.dot.orc", "orc-file-presto-string.orc", "orc-file-no-double-statistic.orc", "orc_split_elim.orc"]
)
def test_apaches_examples(hive_4, tmp_path, apache, name):
    """Files of Presto and others, as they come with Apache ORC's own tests."""
    shutil.copy(apache[name], tmp_path / "000000_0")
    columns = columns_of(tmp_path / "000000_0")
    before = hive_4.rows(tmp_path, schema(columns))
    compact_directory(tmp_path, columns)
    assert hive_4.rows(tmp_path, schema(columns)) == before != []


def test_a_file_of_hive_0_11_is_refused_for_its_decimals(tmp_path, apache):
    """They have no precision: each value has a scale of its own, which the C++ library cuts to six digits."""
    shutil.copy(apache["orc-file-11-format.orc"], tmp_path / "000000_0")
    columns = [
        (name, kind.replace("decimal(0,0)", "decimal(38,10)")) for name, kind in columns_of(tmp_path / "000000_0")
    ]
    with pytest.raises(RefusedError, match="decimals have no precision") as refused:
        compact_directory(tmp_path, columns)
    assert refused.value.reason is Reason.SCHEMA_MISMATCH


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@pytest.mark.parametrize("name", ["orc-file-no-timezone.orc", "orc-file-dst-no-timezone.orc"])
def test_stripes_without_a_zone_keep_having_none(tmp_path, apache, name, zone):
    """Writers before Hive 1.1 named no zone; each reader takes its own, before and after."""
    shutil.copy(apache[name], tmp_path / "000000_0")
    columns = columns_of(tmp_path / "000000_0")
    try:
        reader = HiveReader("4", zone)
    except UnavailableError as error:
        missing(str(error))
    with reader as hive:
        before = hive.rows(tmp_path, schema(columns))
        compact_directory(tmp_path, columns)
        assert hive.rows(tmp_path, schema(columns)) == before != []


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    directory = tmp_path_factory.mktemp("odd")
    made("1.5.13", "odd", directory)
    return directory


def test_null_among_the_keys_of_a_map_is_refused(odd):
    """Arrow would end the process."""
    with pytest.raises(RefusedError, match="NULL among the keys of a map") as refused:
        compact_directory(odd / "null-key", [("id", "int"), ("m", "map<string,int>")])
    assert refused.value.reason is Reason.UNSUPPORTED_FORMAT


@pytest.mark.parametrize(
    "name", ["nanos-1000000000-0", "nanos-1000000000-1", "nanos-2000000007-0", "nanos-2000000007-1"]
)
def test_nanoseconds_beyond_a_second_are_refused(hive_4, odd, name):
    """Hive's reader fails over them; recoding would make valid timestamps of them."""
    columns = [("id", "int"), ("t", "timestamp"), ("l", "array<timestamp>")]
    with pytest.raises(JudgeError, match="nanos > 999999999"):
        hive_4.rows(odd / name, schema(columns))
    with pytest.raises(CompactorError, match="nanoseconds, which Hive doesn't read") as refused:
        compact_directory(odd / name, columns)
    assert refused.value.reason is Reason.CORRUPT_FILE


@pytest.mark.parametrize("file", ["struct<id:int,n:struct<Foo:int>>", "struct<_col0:int,_col1:struct<Foo:int>>"])
def test_fields_in_other_letters_are_refused(hive_4, tmp_path, file):
    """Hive finds fields by their very letters, and shows NULL else: values must not appear by a compaction."""
    columns = [("id", "int"), ("n", "struct<foo:int>")]
    with (tmp_path / "000000_0").open("wb") as sink, pyorc.Writer(sink, file) as writer:
        writer.write((1, (5,)))
    assert hive_4.rows(tmp_path, schema(columns))[0][1] != (1, (5,))
    with pytest.raises(RefusedError, match="Foo") as refused:
        compact_directory(tmp_path, columns)
    assert refused.value.reason is Reason.SCHEMA_MISMATCH


@pytest.mark.parametrize(("file", "value"), [("bigint", 1), ("array<int>", [1]), ("map<int,int>", {1: 2})])
def test_a_file_without_columns_is_refused(hive_4, tmp_path, file, value):
    """Its root is a single value; it isn't damaged."""
    with (tmp_path / "000000_0").open("wb") as sink, pyorc.Writer(sink, file) as writer:
        writer.write(value)
    with pytest.raises(JudgeError, match="does not support type conversion"):
        hive_4.rows(tmp_path, "struct<a:int>")
    with pytest.raises(RefusedError, match="instead of rows of columns") as refused:
        compact_directory(tmp_path, [("a", "int")])
    assert refused.value.reason is Reason.SCHEMA_MISMATCH


@pytest.mark.parametrize("copy", ["01ab23cd", "01ab23cd45ef67ab"])
def test_copies_with_hexadecimal_names_are_refused(hive_3, hive_4, tmp_path, copy):
    """
    Later releases name files of plain tables so (HIVE-28822). A table that became full ACID with such a file can't be
    read by Hive 3.1 and 4.1.
    """
    for number, name in enumerate(("000000_0", f"000000_0_copy_{copy}")):
        with (tmp_path / name).open("wb") as sink, pyorc.Writer(sink, "struct<id:int>") as writer:
            writer.write((number,))
    for hive in (hive_3, hive_4):
        with pytest.raises(JudgeError, match=r"(?i)bucket ?id out of range: -1"):
            hive.rows(tmp_path, "struct<id:int>")
    with pytest.raises(RefusedError, match="isn't named like a bucket file") as refused:
        compact_directory(tmp_path, [("id", "int")])
    assert refused.value.reason is Reason.UNKNOWN_NAME
