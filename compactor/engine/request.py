"""The request to the engine: the partition to compact, how, and under which snapshot."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.acid.write_ids import CompactorWriteIdList, ValidTxnList
from compactor.metastore.model import Entity, PartitionFacts, TableFacts
from compactor.planning.facts import TableSpec
from compactor.spark.resources import requested_resources
from compactor.spark.submitter import JobName, job_name


@dataclass(frozen=True, slots=True)
class CompactionRequest:
    """
    The partition to compact, how, and under which snapshot.

    Args:
        entry_id, attempt: together unique for ever: they name the staging directory.
        location: the directory of the partition, or of an unpartitioned table; a Hadoop path string.
        txns: the transactions by which a `_v` suffix is judged, the compaction's own not valid; None on Hive 3.1.
        visibility_txn: the compaction's own transaction; None on Hive 3.1.
        properties: the properties of the queue entry.
        pool: the compaction pool, for scheduling.
        run_as: the user that a Spark application runs as, where the settings ask for that.
        root: the warehouse root that contains a local location; see `beneath.RootOf`.
    """

    entry_id: int
    attempt: str
    entity: Entity
    table: TableFacts
    partition: PartitionFacts | None
    location: str
    kind: CompactionKind
    layout: LayoutVersion
    write_ids: CompactorWriteIdList
    txns: ValidTxnList | None
    visibility_txn: int | None
    properties: Mapping[str, str] = field(default_factory=dict)
    host: str = field(default_factory=socket.getfqdn)
    pool: str | None = None
    run_as: str | None = None
    root: str | None = None

    @property
    def job(self) -> JobName:
        """
        Name, group, pool and requested resources of the compaction's Spark jobs.

        Raises:
            RefusedError: BAD_PROPERTY, a requested resource has an impossible value.
        """
        name = job_name(self.host, self.entity.database, self.entity.table, self.entity.partition)
        asked = requested_resources([self.properties, self.table.parameters, self.table.database_parameters])
        return JobName(
            name, f"{self.entry_id}.{self.attempt}", self.pool, resources=asked, user=self.run_as, root=self.root
        )

    @property
    def spec(self) -> TableSpec:
        """The table as far as planning needs it: always its current columns, never a partition's."""
        return TableSpec(
            name=str(self.entity),
            columns=tuple((column.name, column.type) for column in self.table.columns),
            insert_only=self.table.insert_only,
            transactional=self.table.transactional,
            sorted=self.table.sorted,
            buckets=self.table.buckets,
            parameters=dict(self.table.parameters),
            properties=dict(self.properties),
        )
