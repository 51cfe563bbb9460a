"""Stripes of several time zones: stored values pass as they are, zones never mix."""

import zoneinfo

import pytest

from compactor.acid.row_id import RowKey
from compactor.acid.types import acid_type, row_type
from compactor.errors import CorruptFileError, RefusedError
from compactor.orc.format.proto import orc_pb2 as pb
from compactor.orc.format.tail import read_stripe_footer
from compactor.orc.format.zones import may_follow, stripe_zone, zone_of
from compactor.orc.rows import StripeSource
from compactor.orc.writing.output import OutputFormat
from tests.recoding import recode
from tests.unit.orc.files import MemorySink, acid_file, insert, opened, rows_of

BUCKET = 536870912
ROW = row_type([("id", "int"), ("t", "timestamp")])
KOLKATA = "Asia/Kolkata"


def stored(zone, numbers):
    """A file of rows with these numbers, each a second after midnight of some day in 1890 or 2020."""
    rows = [
        insert(RowKey(1, BUCKET, n), (n, ((-2_524_521_600 if n % 2 else 1_577_836_800) + n, 5_000 * n)))
        for n in numbers
    ]
    return acid_file(rows, ROW, timezone=zoneinfo.ZoneInfo(zone))


def recoded(files, **options):
    sink = MemorySink()
    recode([StripeSource(*opened(file)) for file in files], OutputFormat(acid_type(ROW), **options), sink)
    return sink, opened(sink.getvalue())


def test_rows_of_two_zones_between_each_other_get_stripes_of_their_own():
    """A stripe ends where the zone changes, also when the keys of two files interleave; UTC keeps its statistics."""
    sink, (reader, tail) = recoded([stored(KOLKATA, (1, 2, 5)), stored("UTC", (3, 4, 6))])
    assert [stripe_zone(reader, tail, stripe) for stripe in range(len(tail.stripes))] == [
        KOLKATA,
        "GMT",
        KOLKATA,
        "GMT",
    ]
    assert [stripe.number_of_rows for stripe in tail.stripes] == [2, 2, 1, 1]
    assert [tail.stripe_stats(stripe)[8].HasField("timestamps") for stripe in range(4)] == [False, True, False, True]
    assert not tail.footer.statistics[8].HasField("timestamps")
    expected = {
        row[3]: row[5] for file in (stored(KOLKATA, (1, 2, 5)), stored("UTC", (3, 4, 6))) for row in rows_of(file)
    }
    assert [row[5] for row in rows_of(sink)] == [expected[n] for n in range(1, 7)]


def test_hive_3_gets_no_file_of_two_zones():
    """The refusal names both."""
    with pytest.raises(RefusedError, match="time zone GMT would follow some in Asia/Kolkata"):
        recoded([stored(KOLKATA, (1, 2)), stored("UTC", (3, 4))], one_zone=True)


@pytest.mark.parametrize(
    ("zone", "before", "hive_4", "hive_3"),
    [
        ("GMT", None, True, True),
        ("", None, True, True),
        (KOLKATA, KOLKATA, True, True),
        ("GMT", KOLKATA, True, False),
        ("GMT", "", True, False),
        ("", "GMT", False, False),
    ],
)
def test_which_zone_may_follow_which(zone, before, hive_4, hive_3):
    """A stripe without a zone is taken for one of the zone before it; Hive 3.1 mixes up any two."""
    assert (may_follow(zone, before, one_zone=False), may_follow(zone, before, one_zone=True)) == (hive_4, hive_3)


def test_a_zone_whose_name_is_no_text_is_damage():
    """A changed byte in a stripe's footer; said of the file, whatever asks for the zone first."""
    reader, tail = opened(stored(KOLKATA, (1, 2)), "the file")
    footer = read_stripe_footer(reader, tail, 0)
    packed = footer.SerializeToString().replace(b"Kolkata", b"Kolk\xff\xfea")
    with pytest.raises(CorruptFileError, match="the file names a time zone that isn't UTF-8"):
        zone_of(tail, pb.StripeFooter.FromString(packed))
