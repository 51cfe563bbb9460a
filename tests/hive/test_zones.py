"""Timestamps of writers in any time zone: Hive reads the same before and after, whatever it thinks of the zone."""

import zoneinfo

import pytest

from compactor.acid.compaction import LayoutVersion
from compactor.acid.row_id import SyntheticIds
from compactor.acid.types import acid_type, parse_hive_type
from compactor.errors import RefusedError
from compactor.orc.format.tail import read_tail
from compactor.orc.format.zones import stripe_zone
from compactor.orc.rows import StripeSource
from compactor.orc.writing.output import OutputFormat
from compactor.reasons import Reason
from compactor.storage.local_fs.files import LocalReader, LocalWriter
from tests.compacting import compact_directory
from tests.hive.java import UnavailableError
from tests.hive.writers import write
from tests.needs import missing
from tests.recoding import recode

pytestmark = pytest.mark.hive
COLUMNS = "struct<id:int,t:timestamp,l:array<timestamp>,s:string>"
OUTPUT = OutputFormat(acid_type(parse_hive_type(COLUMNS)), bloom_columns=("t", "s"))
BUCKET = 536870912
RELEASE = "1.5.13"
MOVED = (
    "Asia/Kolkata",
    "Europe/Paris",
    "Asia/Tehran",
    "Africa/Casablanca",
    "Asia/Manila",
    "America/Juneau",
    "Pacific/Apia",
    "Africa/Monrovia",
)
ONLY_JAVAS = ("GMT+05:30", "GMT-11:59", "PST", "IST", "EST5EDT", "SystemV/PST8PDT", "Asia/Riyadh87")
OFTEN = (
    "UTC",
    "GMT",
    "Etc/UTC",
    "Europe/London",
    "Asia/Shanghai",
    "America/Los_Angeles",
    "America/Sao_Paulo",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
)
YEARS = {"all of Java": (1, 9999, "true"), "Arrow's": (1700, 2250, "false"), "since 1970": (1972, 2250, "true")}
"""First year, last year, fractions of seconds: what pyorc has to write, and what Arrow can."""
TABLE = [("id", "int"), ("t", "timestamp")]
TIMES = (
    "0001-01-01 00:00:00",
    "1800-01-01 00:00:00",
    "1900-01-01 00:00:00.25",
    "1950-01-01 00:00:00",
    "2020-07-01 00:00:00",
    "2045-07-01 00:00:00.5",
)


def written(directory, zones, count, years):
    try:
        write(RELEASE, "zones", directory, count, *YEARS[years], *zones)
    except UnavailableError as error:
        missing(str(error))
    return [(zone, directory / str(number)) for number, zone in enumerate(zones)]


def recoded(location, output=OUTPUT):
    """The file of original rows as the base that a major compaction makes of it; its zone before and after."""
    reader = LocalReader(str(location / "000000_0"))
    tail = read_tail(reader)
    made = location.with_name(f"{location.name}-after")
    (made / "base_0000005").mkdir(parents=True)
    with LocalWriter(str(made / "base_0000005" / "bucket_00000")) as sink:
        recode([StripeSource(reader, tail, synthetic=SyntheticIds(0, BUCKET, 0))], output, sink)
    after = LocalReader(str(made / "base_0000005" / "bucket_00000"))
    return made, stripe_zone(reader, tail, 0), stripe_zone(after, read_tail(after), 0)


def differences(judge, directory, zones, years, *, count=400, mode="vector"):
    """Zones whose rows Hive reads differently after a compaction, with the first such row."""
    found = {}
    for zone, location in written(directory, zones, count, years):
        made, before, after = recoded(location)
        assert after == before, zone
        rows = judge.rows(location, COLUMNS, mode=mode)
        assert len(rows) == count
        again = judge.rows(made, COLUMNS, mode=mode)
        if rows != again:
            found[zone] = next(pair for pair in zip(rows, again, strict=True) if pair[0] != pair[1])
    return found


@pytest.mark.parametrize("years", YEARS)
def test_hive_4_reads_the_same_in_every_zone(hive_4, tmp_path, years):
    """Zones that moved, zones that only Java knows, and those that most clusters have."""
    assert differences(hive_4, tmp_path, [*MOVED, *ONLY_JAVAS, *OFTEN], years) == {}


@pytest.mark.parametrize("mode", ["vector", "row"])
def test_hive_3_reads_the_same_in_every_zone(hive_3, tmp_path, mode):
    """The same for the older library inside Hive 3.1, row by row and in batches."""
    assert differences(hive_3, tmp_path, [*MOVED[:4], *ONLY_JAVAS[:4]], "all of Java", mode=mode) == {}


def deltas(*wanted):
    """Full-ACID deltas and delete deltas, each as `delta` or `delete` tells it."""
    try:
        write(RELEASE, *(word for one in wanted for word in (*one, "--")))
    except UnavailableError as error:
        missing(str(error))


def delta(location, zone, write_id):
    """Rows of a writer in a zone."""
    return (
        "acid",
        location / f"delta_{write_id:07}_{write_id:07}_0000" / "bucket_00000",
        zone,
        0,
        write_id,
        write_id,
        0,
        *TIMES,
    )


def delete(location, write_id, deleted):
    """The first row of one write is deleted by another."""
    return (
        "acid",
        location / f"delete_delta_{write_id:07}_{write_id:07}_0000" / "bucket_00000",
        "UTC",
        2,
        deleted,
        write_id,
        0,
        TIMES[0],
    )


@pytest.mark.parametrize("mode", ["vector", "row"])
def test_copied_and_recoded_stripes_of_two_zones_in_one_file(hive_4, tmp_path, mode):
    """
    Hive 4 takes each stripe's zone from its own footer: two zones, each once copied and once recoded around a deleted
    row.
    """
    zones = ("Asia/Kolkata", "Asia/Kolkata", "UTC", "Europe/Paris", "Asia/Kolkata")
    deltas(
        *(delta(tmp_path, zone, write_id) for write_id, zone in enumerate(zones, 1)),
        delete(tmp_path, 6, 1),
        delete(tmp_path, 7, 4),
    )
    before = hive_4.rows(tmp_path, "struct<id:int,t:timestamp>", mode=mode)
    assert len(before) == 5 * len(TIMES) - 2
    compact_directory(tmp_path, TABLE)
    assert hive_4.rows(tmp_path, "struct<id:int,t:timestamp>", mode=mode) == before
    reader = LocalReader(str(next(tmp_path.glob("base_*/bucket_00000"))))
    tail = read_tail(reader)
    assert [stripe_zone(reader, tail, stripe) for stripe in range(len(tail.stripes))] == [
        "GMT" if zone == "UTC" else zone for zone in zones
    ]
    told = [tail.metadata.stripe_stats[stripe].columns[8].HasField("timestamps") for stripe in range(len(tail.stripes))]
    assert told == [False, True, True, False, True], (
        "the first and the fourth are recoded: what isn't known of their values isn't told"
    )


@pytest.mark.parametrize("years", ["all of Java", "since 1970"])
def test_predicates_find_what_was_recoded(tmp_path, years):
    """
    Java's push-down skips by statistics and Bloom filters: each value of a recoded file is found by its own predicate.
    """
    ((_, location),) = written(tmp_path, ["Asia/Kolkata"], 50, years)
    made, _, _ = recoded(location)
    found = write(RELEASE, "find", location / "000000_0", made / "base_0000005" / "bucket_00000").split()
    assert found == ["50", "0"]


def test_zones_never_share_a_file_for_hive_3(hive_3, tmp_path):
    """
    Its reader takes a zone that it has met before, be it its own, for the one it met last; refused, with the zones
    named. A single zone is compacted.
    """
    two, one = tmp_path / "two", tmp_path / "one"
    deltas(
        delta(two, "Asia/Kolkata", 1),
        delta(two, "UTC", 2),
        *(delta(one, "Asia/Kolkata", number) for number in (1, 2)),
        delete(one, 3, 1),
    )
    before = hive_3.rows(two, "struct<id:int,t:timestamp>")
    with pytest.raises(RefusedError, match=r"time zone Asia/Kolkata .* and in GMT .* in one file") as refused:
        compact_directory(two, TABLE, layout=LayoutVersion.HIVE_3)
    assert refused.value.reason is Reason.UNSUPPORTED_FORMAT
    compact_directory(two, TABLE)
    (made,) = two.glob("base_*")
    made.rename(two / "base_0000002")
    assert hive_3.rows(two, "struct<id:int,t:timestamp>") != before, "Hive 3.1 reads such files now: the rule may go"
    before = hive_3.rows(one, "struct<id:int,t:timestamp>")
    compact_directory(one, TABLE, layout=LayoutVersion.HIVE_3)
    assert hive_3.rows(one, "struct<id:int,t:timestamp>") == before


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("years", YEARS)
def test_every_zone_of_java_and_tzdata(hive_4, tmp_path, years):
    """All ids that Java or tzdata knows, 3,500 local times each."""
    zones = sorted({*write(RELEASE, "ids").split(), *zoneinfo.available_timezones(), *ONLY_JAVAS})
    assert len(zones) > 590
    assert differences(hive_4, tmp_path, zones, years, count=3500) == {}
    print(f"{len(zones)} zones, {len(zones) * 3500} times of {years}: no difference")
