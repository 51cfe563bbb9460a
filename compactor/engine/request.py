"""The request to the engine: the partition to compact, how, and under which snapshot."""

from dataclasses import dataclass, replace

from compactor.acid.columns import ColumnRule
from compactor.acid.compaction import LayoutVersion
from compactor.acid.write_ids import CompactorWriteIdList, ValidTxnList
from compactor.metastore.model import Entity, QueueEntry, TableFacts
from compactor.planning.facts import NOT_STORED, StoredAs, TableSpec
from compactor.planning.insert_only.formats import format_of
from compactor.spark.resources import requested_resources
from compactor.spark.submitter import JobName, job_name


@dataclass(frozen=True, slots=True)
class CompactionRequest:
    """
    The partition to compact, how, and under which snapshot.

    Args:
        entry: the queue entry. Its `run_as` is the user that a Spark application runs as, where the settings ask for
            that.
        attempt: unique together with the entry's id, for ever: both name the staging directory.
        location: the directory of the partition, or of an unpartitioned table; a Hadoop path string.
        txns: the transactions by which a `_v` suffix is judged, the compaction's own not valid; of a worker
            on Hive 3.1: None.
        visibility_txn: the compaction's own transaction; None on Hive 3.1.
        columns_by: how the table's readers find its columns in an ORC file.
        root: the warehouse root that contains a local location; see `beneath.RootOf`.
        stored: how the directory's files are read; needed of insert-only tables.
    """

    entry: QueueEntry
    attempt: str
    table: TableFacts
    location: str
    layout: LayoutVersion
    write_ids: CompactorWriteIdList
    txns: ValidTxnList | None
    visibility_txn: int | None
    host: str
    columns_by: ColumnRule
    root: str | None = None
    stored: StoredAs = NOT_STORED

    def job(self, place: str) -> JobName:
        """
        Name, group, pool and requested resources of the compaction's Spark jobs.

        Args:
            place: the staging directory.

        Raises:
            RefusedError: BAD_PROPERTY, a requested resource has an impossible value.
        """
        entry, entity = self.entry, self.entry.entity
        asked = requested_resources([entry.properties, self.table.parameters, self.table.database_parameters])
        return JobName(
            job_name(self.host, entity.database, entity.table, entity.partition),
            f"{entry.id}.{self.attempt}",
            entry.pool,
            place,
            asked,
            entry.run_as,
            self.root,
        )

    @property
    def spec(self) -> TableSpec:
        """The table as far as planning needs it: always its current columns, never a partition's."""
        spec = spec_of(self.entry.entity, self.table, self.columns_by)
        return replace(spec, properties=dict(self.entry.properties), file_format=format_of(self.stored))


def spec_of(entity: Entity, table: TableFacts, columns_by: ColumnRule) -> TableSpec:
    """
    A table as far as reading its rows needs it: always its current columns, never a partition's.

    Args:
        columns_by: how the table's readers find its columns in an ORC file.
    """
    return TableSpec(
        name=str(entity),
        columns=tuple((column.name, column.type) for column in table.columns),
        columns_by=columns_by,
        insert_only=table.insert_only,
        transactional=table.transactional,
        sorted=table.sorted,
        buckets=table.buckets,
        parameters=dict(table.parameters),
    )
