"""
Bytes changed where nothing checks them: ORC has no checksums.

What a file says about its keys must agree with itself and with the keys, or the compaction is refused: otherwise a
deleted row would come back, or a live one be lost.
"""

import random
import shutil

import pytest

from compactor.acid.compaction import CompactionKind
from compactor.errors import CompactorError, CorruptFileError
from compactor.orc.format.tail import read_tail
from compactor.orc.reading.consistency import check_key_statistics
from compactor.reasons import Reason
from compactor.storage.local_fs.files import LocalReader
from tests.bad_input import damage
from tests.compacting import Attempt, settings
from tests.reference.compare import read_table

FIRST = "delta_0000001_0000001_0000"
DELETES = "delete_delta_0000003_0000003_0000"
FLIPS = 60


def built(warehouse, compression="ZLIB"):
    """Two inserts of two stripes each, and a delete that hits both stripes of the first."""
    table = warehouse.create_table(
        "db",
        "t",
        [("id", "int"), ("v", "string")],
        parameters={"orc.compress": compression, "orc.stripe.row.count": "20"},
    )
    for first in (0, 100):
        with warehouse.begin() as txn:
            txn.insert(table, [(first + number, f"v{number}") for number in range(40)])
    with warehouse.begin() as txn:
        txn.delete(table, lambda row: row[0] in {5, 25})
    return table


def bucket(table, directory):
    return next((table.location / directory).glob("bucket_*"))


def seen(warehouse, table):
    """The rows, or None where the reference reader, which decodes everything, can't read them."""
    try:
        return read_table(warehouse, table)
    except Exception:
        return None


def attempt_at(warehouse, table, *, copy, kind="major"):
    """Stripes that nothing hits are copied, however small, or everything is recoded."""
    return Attempt(
        warehouse, table, CompactionKind(kind), settings=settings(splice={"min_stripe_bytes": 1 if copy else 64 << 20})
    )


@pytest.mark.parametrize("kind", ["major", "minor"])
@pytest.mark.parametrize("directory", [FIRST, DELETES])
@pytest.mark.parametrize("compression", ["NONE", "ZLIB"])
def test_no_flipped_bit_changes_what_a_reader_sees(tmp_path, warehouse, compression, directory, kind):
    """
    Some of the bits of what describes a file, one at a time: the compaction ends with one line of ours, or the rows are
    those that were readable before.
    """
    table = built(warehouse, compression)
    whole = seen(warehouse, table)
    path = bucket(table, directory)
    good = path.read_bytes()
    places = [
        at
        for name, part in damage.parts(good).items()
        if not name.startswith(("data", "index"))
        for at in range(part.start, part.stop)
    ]
    chosen = random.Random(f"{compression} {directory} {kind}")
    lines = []
    before_all = {path.name for path in table.location.iterdir()}
    for at in chosen.sample(places, min(FLIPS, len(places))):
        path.write_bytes(good)
        damage.flip(path, at, 1 << chosen.randrange(8))
        before = seen(warehouse, table)
        attempt = attempt_at(warehouse, table, copy=chosen.random() < 0.7, kind=kind)
        try:
            attempt.run()
        except CompactorError as error:
            lines.append(str(error))
            attempt.compaction.discard()
            attempt.abort()
        else:
            after = seen(warehouse, table)
            assert after == before or (before is None and after == whole), f"byte {at} of {path.name}"
        for name in {path.name for path in table.location.iterdir()} - before_all:
            shutil.rmtree(table.location / name)
    assert lines
    assert not [line for line in lines if "\n" in line]


CONTRADICTIONS = {
    "rowIds that leave out the deleted row": (4, {"minimum": 6}),
    "too many rowIds": (4, {"maximum": 30}),
    "a sum that others have": (4, {"sum": 191}),
    "another write id": (2, {"minimum": 2, "maximum": 2, "sum": 40}),
    "a range the wrong way round": (2, {"minimum": 5, "maximum": 1}),
    "another bucket": (3, {"minimum": 536936448, "maximum": 536936448, "sum": 20 * 536936448}),
}


@pytest.mark.parametrize("what", CONTRADICTIONS)
@pytest.mark.parametrize("where", ["stripe", "file"])
def test_contradicting_statistics_are_refused(warehouse, where, what):
    """
    Changed in the statistics of one stripe, or of the file, well-formed otherwise: the plan is refused, the file and
    the contradiction are named.
    """
    table = built(warehouse)
    column, values = CONTRADICTIONS[what]

    def change(message):
        columns = message.stripe_stats[0].columns if where == "stripe" else message.statistics
        for name, value in values.items():
            setattr(columns[column].integers, name, value)

    path = bucket(table, FIRST)
    damage.rewrite_tail(path, **{"metadata" if where == "stripe" else "footer": change})
    attempt = attempt_at(warehouse, table, copy=True)
    with pytest.raises(CorruptFileError, match="contradicts itself") as caught:
        attempt.plan()
    assert caught.value.reason is Reason.CORRUPT_FILE
    assert FIRST in caught.value.message


@pytest.mark.parametrize(
    "keys", [b"1,536870912,19;1,536870912,38;", b"1,536870912,18;1,536870912,39;", b"1,536870912,19;2,536870912,39;"]
)
def test_a_key_index_that_contradicts_statistics(warehouse, keys):
    """Delete events and row ranges are found by it."""
    table = built(warehouse)

    def change(message):
        next(item for item in message.metadata if item.name == "hive.acid.key.index").value = keys

    damage.rewrite_tail(bucket(table, FIRST), footer=change)
    with pytest.raises(CorruptFileError, match=r"in hive[.]acid[.]key[.]index|after the key"):
        attempt_at(warehouse, table, copy=True).plan()


@pytest.mark.parametrize("directory", [FIRST, DELETES])
def test_statistics_changed_everywhere_alike_are_found_when_keys_are_decoded(warehouse, directory):
    """
    The tail agrees with itself, and not with the rows: found by the task that decodes them, or by planning where no
    rows could be so.
    """
    table = built(warehouse)

    def shift(columns, start):
        columns[5].integers.minimum += start
        columns[5].integers.maximum += start
        columns[5].integers.sum += start * columns[5].number_of_values

    def metadata(message):
        for stripe in message.stripe_stats:
            shift(stripe.columns, -1)

    def footer(message):
        shift(message.statistics, -1)

    path = bucket(table, directory)
    damage.rewrite_tail(path, metadata=metadata, footer=footer)
    with LocalReader(str(path)) as reader:
        check_key_statistics(read_tail(reader))
    attempt = attempt_at(warehouse, table, copy=True)
    with pytest.raises(
        CorruptFileError,
        match=r"contradicts itself: stripe 1 has currentTransaction|outside its directory's range|changed before they were written",
    ):
        attempt.stage()


def test_a_copied_stripe_has_a_readable_footer(warehouse):
    """Copying needs no look at it, but a stripe that nobody can read must not disappear into a larger file."""
    table = built(warehouse)
    path = bucket(table, "delta_0000002_0000002_0000")
    where = damage.parts(path.read_bytes())["stripe footer 0"]
    for at in range(where.start, where.stop):
        damage.flip(path, at)
    attempt = attempt_at(warehouse, table, copy=True)
    assert any(
        segment.action.value == "copy"
        for output in attempt.plan().outputs
        for bucket in output.buckets
        for segment in bucket.segments
    )
    with pytest.raises(CorruptFileError, match="footer of stripe 1"):
        attempt.stage()


def test_values_of_a_copied_stripe_are_carried_over_as_they_are(warehouse):
    """
    What copying can't see, as docs/compaction.md says: a changed value stays what every reader read before, neither
    better nor worse.
    """
    table = built(warehouse, "NONE")
    path = bucket(table, "delta_0000002_0000002_0000")
    data = path.read_bytes()
    at = data.index(b"v10v11")
    damage.flip(path, at, 0x01)
    before = seen(warehouse, table)
    assert any(row[1] == "w10" for _, row in before[None])
    attempt_at(warehouse, table, copy=True).run()
    assert seen(warehouse, table) == before
