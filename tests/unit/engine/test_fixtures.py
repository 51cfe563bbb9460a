"""What Hive 4.0.1 wrote, compacted by us: the rows that Hive printed are still there, row ids included."""

import pytest

from compactor.acid.columns import ColumnRule
from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.acid.write_ids import CompactorWriteIdList, ValidTxnList, ValidWriteIdList
from compactor.engine.compaction import Compaction
from compactor.engine.request import CompactionRequest
from compactor.errors import RefusedError
from compactor.metastore.model import Entity, QueueEntry, QueueState
from compactor.reasons import Reason
from compactor.storage.registry import storage_for
from tests.compacting import InProcess, facts_of, go_through, settings
from tests.fixtures import hive
from tests.reference.reader import read, read_insert_only

KINDS = [CompactionKind.MAJOR, CompactionKind.MINOR]
TXN = 999_999


@pytest.fixture(scope="module", params=KINDS)
def lab(request, tmp_path_factory):
    return request.param, hive.restore(tmp_path_factory.mktemp(request.param))


def request_for(table, location, partition, kind):
    metastore = hive.metastore("before")
    reader = ValidWriteIdList.parse(table.write_ids)
    txns = ValidTxnList.parse(metastore.txns)
    return CompactionRequest(
        entry=QueueEntry(1, Entity("fx", table.name, partition), kind, QueueState.WORKING),
        attempt="a",
        table=facts_of(table, database=hive.DATABASE, location=location, text=table.name == "mm_text"),
        location=str(location),
        layout=LayoutVersion.HIVE_4,
        write_ids=CompactorWriteIdList.from_reader(reader),
        txns=ValidTxnList(TXN, tuple({*txns.open, TXN}), txns.aborted),
        visibility_txn=TXN,
        host="testhost",
        columns_by=ColumnRule.POSITION,
    )


def visible(table, location, committed):
    """Rows before or after the compaction's transaction committed."""
    txns = hive.metastore("before").txns.split(":")
    text = ":".join([str(TXN), txns[1], txns[2], txns[3]]) if committed else hive.metastore("before").txns
    if table.insert_only:
        return sorted((((), row) for row in read_insert_only(location, table.schema, table.write_ids, text)), key=repr)
    return [(tuple(key), row) for key, row in read(location, table.schema, table.write_ids, text)]


@pytest.mark.parametrize("name", sorted(hive.metastore("before").tables))
def test_rows_stay(lab, name):
    """
    Every table of the fixtures, every directory: compacted or refused for a reason, and the rows are the same before
    and after the commit.
    """
    kind, warehouse = lab
    table = hive.metastore("before").tables[name]
    for partition, path, _ in table.directories:
        location = warehouse / path
        before = visible(table, location, committed=False)
        compaction = Compaction(
            request_for(table, location, partition, kind), storage_for(str(location)), InProcess(), settings()
        )
        try:
            published = go_through(compaction)
        except RefusedError as error:
            assert error.reason is Reason.NOT_ENOUGH, f"{name} {partition}: {error.message}"  # noqa: PT017 - either way is checked
            continue
        assert published.directories
        compaction.discard()
        assert visible(table, location, committed=False) == before
        assert visible(table, location, committed=True) == before
