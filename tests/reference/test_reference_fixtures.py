"""The reference reader against the rows that Hive 4.0.1 printed."""

import pytest

from tests.fixtures import hive
from tests.reference.reader import read, read_insert_only
from tests.reference.values import from_jdbc, parse_type

READABLE = sorted(set(hive.metastore("before").tables) - {"types_tsltz"})


@pytest.fixture(scope="module", params=hive.SNAPSHOTS)
def unpacked(request, tmp_path_factory):
    return request.param, hive.restore(tmp_path_factory.mktemp(request.param), request.param)


@pytest.mark.parametrize("name", READABLE)
def test_reference_reads_what_hive_printed(unpacked, name):
    """
    Every readable table, every snapshot: same rows, same ROW__IDs (one partition aside that Hive's own compactor lost).
    """
    snapshot, warehouse = unpacked
    metastore = hive.metastore(snapshot)
    table = metastore.tables[name]
    printed = hive.hive_rows(snapshot, name)
    found = []
    for _, path, keys in table.directories:
        if table.insert_only:
            rows = [
                ((), row) for row in read_insert_only(warehouse / path, table.schema, table.write_ids, metastore.txns)
            ]
        else:
            rows = [
                (tuple(key), row) for key, row in read(warehouse / path, table.schema, table.write_ids, metastore.txns)
            ]
        shown = tuple(
            None if key == "__HIVE_DEFAULT_PARTITION__" and kind != "string" else key
            for key, (_, kind) in zip(keys, table.partition_keys, strict=True)
        )
        found.extend((key, (*row, *shown)) for key, row in rows)
    assert sorted(found, key=repr) == sorted((_as_found(table, row) for row in printed), key=repr)


def _as_found(table, printed):
    key = () if table.insert_only else tuple(int(printed[f"row__{part}"]) for part in ("writeid", "bucketid", "rowid"))
    values = tuple(from_jdbc(parse_type(kind), printed[name]) for name, kind in table.columns)
    return key, (*values, *(printed[name] for name, _ in table.partition_keys))


def test_hive_lost_one_row_in_its_own_compaction():
    """
    `odd_parts` is no oracle for a partition with a non-ASCII name: Hive prints six rows before and five after its
    compactions.
    """
    assert [len(hive.hive_rows(snapshot, "odd_parts")) for snapshot in hive.SNAPSHOTS] == [6, 5, 5]


def test_local_time_zone_timestamps_are_read_though_hive_cannot(tmp_path):
    """
    `types_tsltz` can't be read by Hive; what its writer stored is three times the epoch, whatever the statement said.
    """
    table = hive.metastore("before").tables["types_tsltz"]
    rows = read(hive.restore(tmp_path) / table.path, table.schema, table.write_ids, hive.metastore("before").txns)
    assert [row for _, row in rows] == [(number, "1970-01-01 00:00:00.000000000") for number in (1, 2, 3)]
