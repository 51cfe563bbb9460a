"""
What Hive's own clients and threads write into the metastore, done here by plain inserts: the other side of every test.
"""

import threading

from sqlalchemy import delete, func, insert, select, update

from compactor.metastore.db.database import Database
from compactor.metastore.model import Entity
from tests.metastore.guarded import OF_ANOTHER_PARTY

OUTLIVED_MS = 2 * 24 * 3_600_000
"""Longer than `cleaner.late_writer_hours`, as delivered: after it no task of a transaction writes any more."""


class Hive:
    """A Hive client with hands on the tables; ages are given in milliseconds before now."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.schema = database.schema

    # Catalog

    def create_table(
        self,
        name="db.t",
        *,
        columns=(("a", "int"),),
        keys=(),
        buckets=-1,
        sort=(),
        parameters=None,
        location=None,
        database_parameters=None,
    ):
        """A transactional ORC table; returns its TBL_ID."""
        schema, (database, table) = self.schema, name.split(".")
        with self.database.transaction() as connection:
            db_id = connection.scalar(select(schema.dbs.c.db_id).where(schema.dbs.c.name == database))
            if db_id is None:
                db_id = self._next(connection, schema.dbs.c.db_id)
                connection.execute(
                    insert(schema.dbs).values(
                        db_id=db_id, name=database, ctlg_name="hive", db_location_uri="file:/w/x.db"
                    )
                )
                for key, value in (database_parameters or {}).items():
                    connection.execute(
                        insert(schema.database_params).values(db_id=db_id, param_key=key, param_value=value)
                    )
            cd_id = self._next(connection, schema.cds.c.cd_id)
            connection.execute(insert(schema.cds).values(cd_id=cd_id))
            for position, (column, kind) in enumerate(columns):
                connection.execute(
                    insert(schema.columns_v2).values(
                        cd_id=cd_id, column_name=column, type_name=kind, integer_idx=position
                    )
                )
            sd_id = self._storage(connection, cd_id, location or f"file:/w/{database}.db/{table}", buckets)
            for position, column in enumerate(sort):
                connection.execute(
                    insert(schema.sort_cols).values(sd_id=sd_id, column_name=column, order=1, integer_idx=position)
                )
            tbl_id = self._next(connection, schema.tbls.c.tbl_id)
            row = {
                "tbl_id": tbl_id,
                "db_id": db_id,
                "tbl_name": table,
                "tbl_type": "MANAGED_TABLE",
                "owner": "ann",
                "sd_id": sd_id,
            }
            row |= {"create_time": 0, "last_access_time": 0, "retention": 0, "is_rewrite_enabled": False}
            if "write_id" in schema.tbls.c:
                row["write_id"] = 0
            connection.execute(insert(schema.tbls).values(row))
            for key, value in ({"transactional": "true"} | (parameters or {})).items():
                connection.execute(insert(schema.table_params).values(tbl_id=tbl_id, param_key=key, param_value=value))
            for position, (key, kind) in enumerate(keys):
                connection.execute(
                    insert(schema.partition_keys).values(
                        tbl_id=tbl_id, pkey_name=key, pkey_type=kind, integer_idx=position
                    )
                )
        return tbl_id

    def add_partitions(self, tbl_id, names, *, parameters=None):
        schema = self.schema
        with self.database.transaction() as connection:
            sds = schema.tbls.join(schema.sds, schema.tbls.c.sd_id == schema.sds.c.sd_id)
            cd_id, location = connection.execute(
                select(schema.sds.c.cd_id, schema.sds.c.location).select_from(sds).where(schema.tbls.c.tbl_id == tbl_id)
            ).one()
            for name in names:
                sd_id = self._storage(connection, cd_id, f"{location}/{name}", -1)
                part_id = self._next(connection, schema.partitions.c.part_id)
                row = {
                    "part_id": part_id,
                    "tbl_id": tbl_id,
                    "part_name": name,
                    "sd_id": sd_id,
                    "create_time": 0,
                    "last_access_time": 0,
                }
                connection.execute(insert(schema.partitions).values(row))
                for key, value in (parameters or {}).items():
                    connection.execute(
                        insert(schema.partition_params).values(part_id=part_id, param_key=key, param_value=value)
                    )

    def drop_table(self, tbl_id):
        with self.database.transaction() as connection:
            for table in (self.schema.table_params, self.schema.partition_keys, self.schema.tbls):
                connection.execute(delete(table).where(table.c.tbl_id == tbl_id))

    def _storage(self, connection, cd_id, location, buckets):
        schema = self.schema
        serde_id = self._next(connection, schema.serdes.c.serde_id)
        connection.execute(
            insert(schema.serdes).values(serde_id=serde_id, slib="org.apache.hadoop.hive.ql.io.orc.OrcSerde")
        )
        sd_id = self._next(connection, schema.sds.c.sd_id)
        row = {"sd_id": sd_id, "cd_id": cd_id, "serde_id": serde_id, "location": location, "num_buckets": buckets}
        row |= {
            "input_format": "org.apache.hadoop.hive.ql.io.orc.OrcInputFormat",
            "is_compressed": False,
            "is_storedassubdirectories": False,
        }
        connection.execute(insert(schema.sds).values(row))
        return sd_id

    @staticmethod
    def _next(connection, column):
        return int(connection.scalar(select(func.max(column))) or 0) + 1

    # Transactions

    def begin(self, *, age=60_000, kind=0, silent=None, user="bob", host="client"):
        """Open a transaction; `silent`: heartbeated so long ago."""
        schema = self.schema
        with self.database.transaction() as connection:
            now = self.database.now_ms(connection)
            row = {
                "txn_state": "o",
                "txn_started": now - age,
                "txn_last_heartbeat": now - (age if silent is None else silent),
            }
            row |= {"txn_user": user, "txn_host": host, "txn_type": kind}
            if schema.generation.layout == "hive-4":
                floor = connection.scalar(select(func.min(schema.txns.c.txn_id)).where(schema.txns.c.txn_state == "o"))
                txn_id = connection.execute(insert(schema.txns).values(row)).inserted_primary_key[0]
            else:
                txn_id = connection.scalar(select(schema.next_txn_id.c.ntxn_next).with_for_update())
                connection.execute(update(schema.next_txn_id).values(ntxn_next=txn_id + 1))
                floor = connection.scalar(select(func.min(schema.txns.c.txn_id)).where(schema.txns.c.txn_state == "o"))
                connection.execute(insert(schema.txns).values(row | {"txn_id": txn_id}))
            connection.execute(
                insert(schema.min_history_level).values(
                    mhl_txnid=txn_id, mhl_min_open_txnid=min(floor or txn_id, txn_id)
                )
            )
        return txn_id

    def allocate(self, txn_id, name="db.t"):
        """A write id for the transaction."""
        schema, (database, table) = self.schema, name.split(".")
        with self.database.transaction() as connection:
            counter = schema.next_write_id
            mine = (counter.c.nwi_database == database) & (counter.c.nwi_table == table)
            write_id = connection.scalar(select(counter.c.nwi_next).where(mine).with_for_update())
            if write_id is None:
                write_id = 1
                connection.execute(insert(counter).values(nwi_database=database, nwi_table=table, nwi_next=2))
            else:
                connection.execute(update(counter).where(mine).values(nwi_next=write_id + 1))
            row = {"t2w_txnid": txn_id, "t2w_database": database, "t2w_table": table, "t2w_writeid": write_id}
            connection.execute(insert(schema.txn_to_write_id).values(row))
        return write_id

    def touch(self, txn_id, name="db.t", partition=None, *, operation="i", write_id=None):
        """The transaction writes there; returns the write id."""
        database, table = name.split(".")
        write_id = write_id or self.allocate(txn_id, name)
        row = {
            "tc_txnid": txn_id,
            "tc_database": database,
            "tc_table": table,
            "tc_partition": partition,
            "tc_operation_type": operation,
            "tc_writeid": write_id,
        }
        with self.database.transaction() as connection:
            connection.execute(insert(self.schema.txn_components).values(row))
        return write_id

    def commit(self, txn_id):
        schema = self.schema
        components, completed = schema.txn_components, schema.completed_txn_components
        with self.database.transaction() as connection:
            for row in connection.execute(select(*components.c).where(components.c.tc_txnid == txn_id)):
                _, database, table, partition, operation, write_id = row
                values = {
                    "ctc_txnid": txn_id,
                    "ctc_database": database,
                    "ctc_table": table,
                    "ctc_partition": partition,
                    "ctc_writeid": write_id,
                }
                connection.execute(
                    insert(completed).values(values | {"ctc_update_delete": "Y" if operation in "ud" else "N"})
                )
            connection.execute(delete(components).where(components.c.tc_txnid == txn_id))
            self._end(connection, txn_id)
            if schema.generation.layout == "hive-4":
                connection.execute(update(schema.txns).where(schema.txns.c.txn_id == txn_id).values(txn_state="c"))
            else:
                connection.execute(delete(schema.txns).where(schema.txns.c.txn_id == txn_id))

    def abort(self, txn_id, *, silent=OUTLIVED_MS):
        """Roll back; `silent`: its last heartbeat was so long ago, by default so long that its tasks are over."""
        with self.database.transaction() as connection:
            self._end(connection, txn_id)
            connection.execute(
                update(self.schema.txns).where(self.schema.txns.c.txn_id == txn_id).values(txn_state="a")
            )
        self.fall_silent(txn_id, silent)

    def fall_silent(self, txn_id, silent=OUTLIVED_MS):
        """The last heartbeat of a transaction was so long ago."""
        txns = self.schema.txns
        with self.database.transaction() as connection:
            then = self.database.now_ms(connection) - silent
            connection.execute(update(txns).where(txns.c.txn_id == txn_id).values(txn_last_heartbeat=then))

    def _end(self, connection, txn_id):
        connection.execute(delete(self.schema.hive_locks).where(self.schema.hive_locks.c.hl_txnid == txn_id))
        connection.execute(
            delete(self.schema.min_history_level).where(self.schema.min_history_level.c.mhl_txnid == txn_id)
        )
        if self.schema.min_history_write_id is not None:
            history = self.schema.min_history_write_id
            connection.execute(delete(history).where(history.c.mh_txnid == txn_id))

    def write(self, name="db.t", partition=None, *, operation="i", age=60_000):
        """One committed write; returns (transaction, write id)."""
        txn_id = self.begin(age=age)
        write_id = self.touch(txn_id, name, partition, operation=operation)
        self.commit(txn_id)
        return txn_id, write_id

    def fail_write(self, name="db.t", partition=None, *, age=60_000, silent=OUTLIVED_MS):
        """One aborted write; returns (transaction, write id)."""
        txn_id = self.begin(age=age)
        write_id = self.touch(txn_id, name, partition)
        self.abort(txn_id, silent=silent)
        return txn_id, write_id

    def lock(self, name="db.t", partition=None, *, txn_id=0, kind="r", state="a", silent=0):
        """A lock row; returns its id."""
        schema, (database, table) = self.schema, name.split(".")
        with self.database.transaction() as connection:
            number = connection.scalar(select(schema.next_lock_id.c.nl_next).with_for_update())
            connection.execute(update(schema.next_lock_id).values(nl_next=number + 1))
            row = {
                "hl_lock_ext_id": number,
                "hl_lock_int_id": 1,
                "hl_txnid": txn_id,
                "hl_db": database,
                "hl_table": table or None,
                "hl_partition": partition,
            }
            row |= {"hl_lock_state": state, "hl_lock_type": kind, "hl_user": "bob", "hl_host": "client"}
            beat = 0 if txn_id else self.database.now_ms(connection) - silent
            connection.execute(insert(schema.hive_locks).values(row | {"hl_last_heartbeat": beat}))
        return number

    def unlock(self, number):
        with self.database.transaction() as connection:
            connection.execute(delete(self.schema.hive_locks).where(self.schema.hive_locks.c.hl_lock_ext_id == number))

    def register(self, txn_id, name, write_id):
        """MIN_HISTORY_WRITE_ID: the transaction reads that table."""
        database, table = name.split(".")
        row = {"mh_txnid": txn_id, "mh_database": database, "mh_table": table, "mh_writeid": write_id}
        with self.database.transaction() as connection:
            connection.execute(insert(self.schema.min_history_write_id).values(row))

    # Looking

    def rows(self, table, *columns, where=None):
        query = select(*(table.c[column] for column in columns))
        if where is not None:
            query = query.where(where)
        return self.database.read(lambda connection: sorted(tuple(row) for row in connection.execute(query)))

    def change(self, statement):
        with self.database.transaction() as connection:
            return connection.execution_options(**OF_ANOTHER_PARTY).execute(statement).rowcount

    def queued(self, entity="db.t", **values):
        """A queue row as Hive would have left it; returns its id."""
        queue = self.schema.compaction_queue
        database, _, rest = entity.partition(".")
        table, _, partition = rest.partition("/")
        with self.database.transaction() as connection:
            counter = self.schema.next_compaction_queue_id
            number = connection.scalar(select(counter.c.ncq_next).with_for_update())
            connection.execute(update(counter).values(ncq_next=number + 1))
            row = {
                "cq_id": number,
                "cq_database": database,
                "cq_table": table,
                "cq_partition": partition or None,
                "cq_state": "i",
                "cq_type": "a",
            }
            if "cq_retry_retention" in queue.c:
                row["cq_retry_retention"] = 0
            connection.execute(
                insert(queue).values(
                    row | {f"cq_{key}": value for key, value in values.items() if f"cq_{key}" in queue.c}
                )
            )
        return number

    def finished(self, entity="db.t", *, state="s", kind="a", start=0, **values):
        """A history row; returns its id."""
        history = self.schema.completed_compactions
        database, _, rest = entity.partition(".")
        table, _, partition = rest.partition("/")
        with self.database.transaction() as connection:
            number = max(int(connection.scalar(select(func.max(history.c.cc_id))) or 0), 0) + 1
            row = {
                "cc_id": number,
                "cc_database": database,
                "cc_table": table,
                "cc_partition": partition or None,
                "cc_state": state,
                "cc_type": kind,
            }
            row |= {"cc_start": start, "cc_end": start}
            connection.execute(
                insert(history).values(
                    row | {f"cc_{key}": value for key, value in values.items() if f"cc_{key}" in history.c}
                )
            )
        return number


T = Entity("db", "t")
P = Entity("db", "t", "p=1")


def run_all(actions):
    """Run callables in threads; an exception in one fails the test."""
    errors = []

    def guarded(action):
        try:
            action()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
