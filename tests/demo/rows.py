"""
Writes the metastore rows that Hive leaves when it creates tables, writes, commits and aborts, into any supported
database.

This module plays Hive's side of the protocol, so it uses none of the daemon's classes but the table definitions.
Source: docs/metastore.md; Hive's TxnHandler (openTxns, allocateTableWriteIds, lock, commitTxn, abortTxn) of 3.1 and
4.x.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Column, Connection, Table, and_, delete, func, insert, select, update

from compactor.acid.compaction import LayoutVersion
from compactor.metastore.db.database import Database
from tests.demo.ledger import LedgerSnapshot, compactor_write_ids_string, txns_string, write_ids_string
from tests.demo.tables import DemoTable, DirectoryRows

USER: Final = "hive"
HOST: Final = "demo"

_FORMATS: Final = {
    "orc": (
        "org.apache.hadoop.hive.ql.io.orc.OrcInputFormat",
        "org.apache.hadoop.hive.ql.io.orc.OrcOutputFormat",
        "org.apache.hadoop.hive.ql.io.orc.OrcSerde",
    ),
    "text": (
        "org.apache.hadoop.mapred.TextInputFormat",
        "org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
    ),
}


class MetastoreLedger:
    """
    A ledger that keeps transactions and write ids in Hive's own tables; each call is one database transaction.

    A transaction holds its locks from its first write to its end, as Hive's sessions do.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._schema = database.schema
        self.layout = database.schema.generation.layout

    def open(self) -> int:
        return self._database.write(self._open)

    def write_id(self, txn: int, database: str, table: str) -> int:
        def allocate(connection: Connection) -> int:
            mapped = self._schema.txn_to_write_id
            ours = and_(mapped.c.t2w_database == database, mapped.c.t2w_table == table)
            known = connection.scalar(select(mapped.c.t2w_writeid).where(ours, mapped.c.t2w_txnid == txn))
            if known is not None:
                return int(known)
            write_id = self._next_write_id(connection, database, table)
            connection.execute(
                insert(mapped).values(t2w_txnid=txn, t2w_database=database, t2w_table=table, t2w_writeid=write_id)
            )
            return write_id

        return self._database.write(allocate)

    def touch(self, txn: int, database: str, table: str, partition: str | None, operation: str) -> None:
        def note(connection: Connection) -> None:
            components, mapped = self._schema.txn_components, self._schema.txn_to_write_id
            write_id = connection.scalar(
                select(mapped.c.t2w_writeid).where(
                    mapped.c.t2w_txnid == txn, mapped.c.t2w_database == database, mapped.c.t2w_table == table
                )
            )
            row = {
                "tc_txnid": txn,
                "tc_database": database,
                "tc_table": table,
                "tc_partition": partition,
                "tc_operation_type": "i" if operation == "o" else operation,
                "tc_writeid": write_id,
            }
            same = and_(
                *(
                    components.c[name].is_(None) if value is None else components.c[name] == value
                    for name, value in row.items()
                )
            )
            if connection.scalar(select(func.count()).select_from(components).where(same)):
                return
            connection.execute(insert(components).values(row))
            self._lock(connection, txn, (database, table, partition), operation)

        self._database.write(note)

    def commit(self, txn: int) -> None:
        self._database.write(lambda connection: self._commit(connection, txn))

    def abort(self, txn: int) -> None:
        def end(connection: Connection) -> None:
            txns = self._schema.txns
            connection.execute(update(txns).where(txns.c.txn_id == txn).values(txn_state="a"))
            self._release(connection, txn)

        self._database.write(end)

    def seed(self, database: str, table: str, next_write_id: int) -> None:
        def set_next(connection: Connection) -> None:
            following = self._schema.next_write_id
            connection.execute(
                delete(following).where(following.c.nwi_database == database, following.c.nwi_table == table)
            )
            connection.execute(insert(following).values(nwi_database=database, nwi_table=table, nwi_next=next_write_id))

        self._database.write(set_next)

    def snapshot(self, database: str, table: str) -> LedgerSnapshot:
        high, open_ids, aborted, txns = self._database.read(lambda connection: self._look(connection, database, table))
        return LedgerSnapshot(write_ids_string(f"{database}.{table}", high, open_ids, aborted), txns)

    def compactor_snapshot(self, database: str, table: str) -> LedgerSnapshot:
        high, open_ids, aborted, txns = self._database.read(lambda connection: self._look(connection, database, table))
        lowest = min(open_ids, default=None)
        high = high if lowest is None else min(high, lowest - 1)
        return LedgerSnapshot(
            compactor_write_ids_string(f"{database}.{table}", high, lowest, [one for one in aborted if one <= high]),
            txns,
        )

    def _open(self, connection: Connection) -> int:
        txns = self._schema.txns
        row: dict[str, Any] = {"txn_state": "o", "txn_user": USER, "txn_host": HOST, "txn_type": 0}
        row |= {"txn_started": self._database.now, "txn_last_heartbeat": self._database.now}
        counter = self._schema.next_txn_id
        if counter is not None:
            row["txn_id"] = connection.scalar(select(counter.c.ntxn_next).with_for_update())
            connection.execute(update(counter).values(ntxn_next=counter.c.ntxn_next + 1))
        key = connection.execute(insert(txns).values(row)).inserted_primary_key
        assert key is not None
        txn = int(key[0])
        history = self._schema.min_history_level
        if history is not None:
            lowest = connection.scalar(select(func.min(txns.c.txn_id)).where(txns.c.txn_state == "o"))
            connection.execute(insert(history).values(mhl_txnid=txn, mhl_min_open_txnid=lowest))
        return txn

    def _next_write_id(self, connection: Connection, database: str, table: str) -> int:
        following = self._schema.next_write_id
        ours = and_(following.c.nwi_database == database, following.c.nwi_table == table)
        write_id = connection.scalar(select(following.c.nwi_next).where(ours).with_for_update())
        if write_id is None:
            connection.execute(insert(following).values(nwi_database=database, nwi_table=table, nwi_next=2))
            return 1
        connection.execute(update(following).where(ours).values(nwi_next=following.c.nwi_next + 1))
        return int(write_id)

    def _lock(self, connection: Connection, txn: int, what: tuple[str, str, str | None], operation: str) -> None:
        counter, locks = self._schema.next_lock_id, self._schema.hive_locks
        external = connection.scalar(select(counter.c.nl_next).with_for_update())
        connection.execute(update(counter).values(nl_next=counter.c.nl_next + 1))
        exclusive = "x" if self.layout is LayoutVersion.HIVE_4 else "e"
        connection.execute(
            insert(locks).values(
                hl_lock_ext_id=external,
                hl_lock_int_id=1,
                hl_txnid=txn,
                hl_db=what[0],
                hl_table=what[1],
                hl_partition=what[2],
                hl_lock_state="a",
                hl_lock_type={"i": "r", "o": exclusive}.get(operation, "w"),
                hl_last_heartbeat=0,
                hl_acquired_at=self._database.now,
                hl_user=USER,
                hl_host=HOST,
            )
        )

    def _commit(self, connection: Connection, txn: int) -> None:
        txns, touched, done = self._schema.txns, self._schema.txn_components, self._schema.completed_txn_components
        connection.execute(select(txns.c.txn_id).where(txns.c.txn_id == txn).with_for_update())
        columns = (
            touched.c.tc_database,
            touched.c.tc_table,
            touched.c.tc_partition,
            touched.c.tc_operation_type,
            touched.c.tc_writeid,
        )
        rows = connection.execute(select(*columns).where(touched.c.tc_txnid == txn)).all()
        at = connection.scalar(select(func.max(txns.c.txn_id)))
        for *where, operation, write_id in rows:
            connection.execute(
                insert(done).values(
                    ctc_txnid=txn,
                    ctc_database=where[0],
                    ctc_table=where[1],
                    ctc_partition=where[2],
                    ctc_writeid=write_id,
                    ctc_update_delete="Y" if operation in {"u", "d"} else "N",
                )
            )
            if operation in {"u", "d"}:
                names = ("ws_database", "ws_table", "ws_partition", "ws_txnid", "ws_commit_id", "ws_operation_type")
                connection.execute(
                    insert(self._schema.write_set).values(dict(zip(names, (*where, txn, at, operation), strict=True)))
                )
        connection.execute(delete(touched).where(touched.c.tc_txnid == txn))
        self._release(connection, txn)
        if self.layout is LayoutVersion.HIVE_4:
            connection.execute(update(txns).where(txns.c.txn_id == txn).values(txn_state="c"))
        else:
            connection.execute(delete(txns).where(txns.c.txn_id == txn))

    def _release(self, connection: Connection, txn: int) -> None:
        locks, history = self._schema.hive_locks, self._schema.min_history_level
        connection.execute(delete(locks).where(locks.c.hl_txnid == txn))
        if history is not None:
            connection.execute(delete(history).where(history.c.mhl_txnid == txn))

    def _look(self, connection: Connection, database: str, table: str) -> tuple[int, list[int], list[int], str | None]:
        txns, mapped, following, counter = (
            self._schema.txns,
            self._schema.txn_to_write_id,
            self._schema.next_write_id,
            self._schema.next_txn_id,
        )
        states = {int(txn): str(state) for txn, state in connection.execute(select(txns.c.txn_id, txns.c.txn_state))}
        ours = and_(mapped.c.t2w_database == database, mapped.c.t2w_table == table)
        ids = {
            int(one): int(txn)
            for one, txn in connection.execute(select(mapped.c.t2w_writeid, mapped.c.t2w_txnid).where(ours))
        }
        upcoming = connection.scalar(
            select(following.c.nwi_next).where(following.c.nwi_database == database, following.c.nwi_table == table)
        )
        high = max(ids, default=int(upcoming or 1) - 1)
        by_state = {state: [one for one, txn in ids.items() if states.get(txn) == state] for state in ("o", "a")}
        if counter is not None:
            return high, by_state["o"], by_state["a"], None
        text = txns_string(
            max(states, default=0), *([txn for txn, value in states.items() if value == state] for state in ("o", "a"))
        )
        return high, by_state["o"], by_state["a"], text


class CatalogRows:
    """Writes databases, tables and partitions into Hive's catalog tables."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._schema = database.schema

    def add_database(self, name: str, location: Path, parameters: Mapping[str, str]) -> None:
        def add(connection: Connection) -> None:
            dbs = self._schema.dbs
            db_id = _next_id(connection, dbs.c.db_id)
            row = {
                "db_id": db_id,
                "name": name,
                "ctlg_name": "hive",
                "db_location_uri": _uri(location),
                "owner_name": USER,
                "owner_type": "USER",
            }
            if "db_managed_location_uri" in dbs.c:
                row["db_managed_location_uri"] = _uri(location)
            connection.execute(insert(dbs).values(row))
            _set_parameters(connection, self._schema.database_params, "db_id", db_id, parameters)

        self._database.write(add)

    def add_table(self, table: DemoTable) -> None:
        def add(connection: Connection) -> None:
            schema = self._schema
            tbl_id = _next_id(connection, schema.tbls.c.tbl_id)
            connection.execute(
                insert(schema.tbls).values(
                    tbl_id=tbl_id,
                    db_id=connection.scalar(select(schema.dbs.c.db_id).where(schema.dbs.c.name == table.database)),
                    tbl_name=table.name,
                    tbl_type="MANAGED_TABLE",
                    owner=USER,
                    owner_type="USER",
                    sd_id=self._storage(connection, table, table.location, self._columns(connection, table)),
                    create_time=int(time.time()),
                    last_access_time=0,
                    retention=0,
                    is_rewrite_enabled=False,
                )
            )
            _set_parameters(connection, schema.table_params, "tbl_id", tbl_id, table.parameters)
            keys = [
                {"tbl_id": tbl_id, "pkey_name": name, "pkey_type": kind, "integer_idx": position}
                for position, (name, kind) in enumerate(table.partition_keys)
            ]
            if keys:
                connection.execute(insert(schema.partition_keys), keys)

        self._database.write(add)

    def add_partition(self, table: DemoTable, directory: DirectoryRows) -> None:
        def add(connection: Connection) -> None:
            schema = self._schema
            tbl_id, table_sd = self._identity(connection, table)
            part_id = _next_id(connection, schema.partitions.c.part_id)
            columns = int(connection.scalar(select(schema.sds.c.cd_id).where(schema.sds.c.sd_id == table_sd)) or 0)
            connection.execute(
                insert(schema.partitions).values(
                    part_id=part_id,
                    tbl_id=tbl_id,
                    part_name=directory.name,
                    sd_id=self._storage(connection, table, directory.location, columns),
                    create_time=int(time.time()),
                    last_access_time=0,
                )
            )
            values = [
                {"part_id": part_id, "part_key_val": value or "__HIVE_DEFAULT_PARTITION__", "integer_idx": position}
                for position, value in enumerate(directory.values)
            ]
            connection.execute(insert(schema.partition_key_vals), values)

        self._database.write(add)

    def set_parameters(self, table: DemoTable) -> None:
        def change(connection: Connection) -> None:
            _set_parameters(
                connection, self._schema.table_params, "tbl_id", self._identity(connection, table)[0], table.parameters
            )

        self._database.write(change)

    def set_columns(self, table: DemoTable, *, cascade: bool) -> None:
        """Give the table a new column list; partitions keep the old one unless `cascade`."""

        def change(connection: Connection) -> None:
            schema = self._schema
            tbl_id, table_sd = self._identity(connection, table)
            storages = [table_sd]
            if cascade:
                storages += connection.scalars(
                    select(schema.partitions.c.sd_id).where(schema.partitions.c.tbl_id == tbl_id)
                ).all()
            connection.execute(
                update(schema.sds)
                .where(schema.sds.c.sd_id.in_(storages))
                .values(cd_id=self._columns(connection, table))
            )

        self._database.write(change)

    def drop_table(self, table: DemoTable) -> None:
        """Remove a table from the catalog as DROP TABLE does: table, partitions and their parameters."""

        def drop(connection: Connection) -> None:
            schema = self._schema
            tbl_id, _ = self._identity(connection, table)
            parts = connection.scalars(
                select(schema.partitions.c.part_id).where(schema.partitions.c.tbl_id == tbl_id)
            ).all()
            for owner, column in ((schema.partition_params, "part_id"), (schema.partition_key_vals, "part_id")):
                connection.execute(delete(owner).where(owner.c[column].in_(parts)))
            for owner in (schema.partitions, schema.partition_keys, schema.table_params, schema.tbls):
                connection.execute(delete(owner).where(owner.c.tbl_id == tbl_id))

        self._database.write(drop)

    def _identity(self, connection: Connection, table: DemoTable) -> tuple[int, int]:
        tbls, dbs = self._schema.tbls, self._schema.dbs
        tbl_id, sd_id = connection.execute(
            select(tbls.c.tbl_id, tbls.c.sd_id)
            .join(dbs, dbs.c.db_id == tbls.c.db_id)
            .where(dbs.c.name == table.database, tbls.c.tbl_name == table.name)
        ).one()
        return int(tbl_id), int(sd_id)

    def _columns(self, connection: Connection, table: DemoTable) -> int:
        cd_id = _next_id(connection, self._schema.cds.c.cd_id)
        connection.execute(insert(self._schema.cds).values(cd_id=cd_id))
        rows = [
            {"cd_id": cd_id, "column_name": name, "type_name": kind, "integer_idx": position}
            for position, (name, kind) in enumerate(table.columns)
        ]
        connection.execute(insert(self._schema.columns_v2), rows)
        return cd_id

    def _storage(self, connection: Connection, table: DemoTable, location: Path, columns: int) -> int:
        schema = self._schema
        input_format, output_format, serde = _FORMATS[table.file_format]
        serde_id = _next_id(connection, schema.serdes.c.serde_id)
        connection.execute(insert(schema.serdes).values(serde_id=serde_id, slib=serde))
        sd_id = _next_id(connection, schema.sds.c.sd_id)
        connection.execute(
            insert(schema.sds).values(
                sd_id=sd_id,
                cd_id=columns,
                serde_id=serde_id,
                input_format=input_format,
                output_format=output_format,
                location=_uri(location),
                num_buckets=table.buckets or -1,
                is_compressed=False,
                is_storedassubdirectories=False,
            )
        )
        buckets = [
            {"sd_id": sd_id, "bucket_col_name": name, "integer_idx": position}
            for position, name in enumerate(table.bucket_columns)
        ]
        if buckets:
            connection.execute(insert(schema.bucketing_cols), buckets)
        return sd_id


def _next_id(connection: Connection, column: Column[Any]) -> int:
    return int(connection.scalar(select(func.max(column))) or 0) + 1


def _set_parameters(
    connection: Connection, table: Table, owner: str, owner_id: int, parameters: Mapping[str, str]
) -> None:
    connection.execute(delete(table).where(table.c[owner] == owner_id))
    rows: Sequence[Mapping[str, object]] = [
        {owner: owner_id, "param_key": key, "param_value": value} for key, value in parameters.items()
    ]
    if rows:
        connection.execute(insert(table), rows)


def _uri(location: Path) -> str:
    """A location as Hive stores it: scheme and path, without escapes."""
    return f"file:{location}"
