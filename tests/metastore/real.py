"""
A Hive client as `tests.metastore.actor` plays it, done by Hive's own TxnHandler: what it leaves in the tables is what
Hive leaves there.

Catalog objects are made by plain rows, as there. Ages are set afterwards, for Hive has no clock but the database's.
"""

from sqlalchemy import update

from tests.metastore.actor import OUTLIVED_MS, Hive

_KINDS = (
    "DEFAULT",
    "REPL_CREATED",
    "READ_ONLY",
    "COMPACTION",
    "MATER_VIEW_REBUILD",
    "SOFT_DELETE",
    "REBALANCE_COMPACTION",
)
_LOCKS = {"r": "SHARED_READ", "w": "SHARED_WRITE", "e": "EXCLUSIVE", "x": "EXCL_WRITE"}
_OPERATIONS = {"i": "INSERT", "u": "UPDATE", "d": "DELETE", "n": "NO_TXN", "s": "SELECT"}
_PURGES_3 = (
    "performTimeOuts",
    "cleanEmptyAbortedTxns",
    "cleanTxnToWriteIdTable",
    "performWriteSetGC",
    "purgeCompactionHistory",
)
_PURGES_4 = (
    "performTimeOuts",
    "cleanEmptyAbortedAndCommittedTxns",
    "cleanTxnToWriteIdTable",
    "removeDuplicateCompletedTxnComponents",
    "performWriteSetGC",
    "purgeCompactionHistory",
)


class RealHive(Hive):
    """
    Hive's TxnHandler with the actor's words.

    Args:
        party: the JVM (`tests.hive.party`) on the same database.
    """

    def __init__(self, database, party):
        super().__init__(database)
        self.party = party
        self.purges = _PURGES_4 if party.hive_4 else _PURGES_3

    # Transactions

    def begin(self, *, age=60_000, kind=0, silent=None, user="bob", host="client"):
        """Open a transaction; `silent`: heartbeated so long ago."""
        request = {"num_txns": 1, "user": user, "hostname": host} | (
            {"txn_type": _KINDS[kind]} if self.party.hive_4 else {}
        )
        if _KINDS[kind] == "REPL_CREATED":
            request |= {"replPolicy": "db.*", "replSrcTxnIds": [1]}
        (txn_id,) = self.party.call("openTxns", request)["txn_ids"]
        if not age and not silent:
            return txn_id
        txns = self.schema.txns
        with self.database.transaction() as connection:
            now = self.database.now_ms(connection)
            values = {"txn_started": now - age, "txn_last_heartbeat": now - (age if silent is None else silent)}
            connection.execute(update(txns).where(txns.c.txn_id == txn_id).values(values))
        return txn_id

    def allocate(self, txn_id, name="db.t"):
        """A write id for the transaction."""
        database, table = name.split(".")
        (found,) = self.party.call(
            "allocateTableWriteIds", {"dbName": database, "tableName": table, "txnIds": [txn_id]}
        )["txnToWriteIds"]
        return found["writeId"]

    def reallocate(self, txn_id, name="db.t"):
        """
        Another write id in place of the first: the statement waited for its lock, its snapshot was outdated then, and
        Hive 4 compiles it anew (Driver.validateTxnList). Its lock and components keep the first.
        """
        database, table = name.split(".")
        request = {"dbName": database, "tableName": table, "txnIds": [txn_id], "reallocate": True}
        (found,) = self.party.call("allocateTableWriteIds", request)["txnToWriteIds"]
        return found["writeId"]

    def touch(self, txn_id, name="db.t", partition=None, *, operation="i", write_id=None, kind=None):
        """
        The transaction locks what it is going to write, as a statement does that names its partition; returns the write
        id.

        Args:
            kind: of the lock; otherwise Hive's default for the operation.
        """
        if operation == "c":  # a compactor's, which no statement leaves
            return super().touch(txn_id, name, partition, operation=operation, write_id=write_id)
        write_id = write_id or self.allocate(txn_id, name)
        self.ask(txn_id, self.component(name, partition, kind or ("r" if operation == "i" else "w"), operation))
        return write_id

    def touch_dynamic(self, txn_id, name="db.t", partitions=(), *, operation="i"):
        """
        The same by a statement that finds its partitions while it runs: the lock is the table's, the partitions are
        added when it ends; returns the write id.
        """
        write_id = self.allocate(txn_id, name)
        self.ask(
            txn_id,
            self.component(name, None, "r" if operation == "i" else "w", operation) | {"isDynamicPartitionWrite": True},
        )
        if partitions:
            self.add_partitions_written(txn_id, write_id, name, partitions, operation=operation)
        return write_id

    def add_partitions_written(self, txn_id, write_id, name, partitions, *, operation="i"):
        """`addDynamicPartitions`."""
        database, table = name.split(".")
        request = {
            "txnid": txn_id,
            "writeid": write_id,
            "dbname": database,
            "tablename": table,
            "partitionnames": list(partitions),
        }
        self.party.call("addDynamicPartitions", request | {"operationType": _OPERATIONS[operation]})

    def commit(self, txn_id):
        self.party.call("commitTxn", {"txnid": txn_id})

    def abort(self, txn_id, *, silent=OUTLIVED_MS):
        """Roll back; `silent`: its last heartbeat was so long ago, by default so long that its tasks are over."""
        self.party.call("abortTxn", {"txnid": txn_id})
        self.fall_silent(txn_id, silent)

    def heartbeat(self, txn_id=0, lock_id=0):
        """Of a transaction, or of a lock without one."""
        self.party.call("heartbeat", {key: value for key, value in (("txnid", txn_id), ("lockid", lock_id)) if value})

    # Locks

    @staticmethod
    def component(name, partition=None, kind="r", operation="s"):
        """One component of a lock request; `db.` is the database."""
        database, table = name.split(".")
        level = "PARTITION" if partition else "TABLE" if table else "DB"
        names = (
            {"dbname": database}
            | ({"tablename": table} if table else {})
            | ({"partitionname": partition} if partition else {})
        )
        return names | {
            "type": _LOCKS[kind],
            "level": level,
            "operationType": _OPERATIONS[operation],
            "isTransactional": True,
        }

    def ask(self, txn_id, *components):
        """Ask for locks; returns (lock id, whether they are held)."""
        request = {"component": list(components), "user": "bob", "hostname": "client", "agentInfo": "test"} | (
            {"txnid": txn_id} if txn_id else {}
        )
        answer = self.party.call("lock", request)
        return answer["lockid"], answer["state"] == "ACQUIRED"

    def lock(self, name="db.t", partition=None, *, txn_id=0, kind="r", operation="s", state=None, silent=0):
        """
        Ask for one lock; returns its id, held or waiting.

        Args:
            state: "w": as if it waited for a lock that is gone.
            silent: heartbeated so long ago, without a transaction.
        """
        number = self.ask(txn_id, self.component(name, partition, kind, operation))[0]
        locks = self.schema.hive_locks
        values = {"hl_lock_state": state} if state == "w" else {}
        if silent:
            values["hl_last_heartbeat"] = locks.c.hl_last_heartbeat - silent
        if values:
            self.change(update(locks).where(locks.c.hl_lock_ext_id == number).values(values))
        return number

    def held(self, number, txn_id=0):
        """`checkLock`: whether a lock that waited is held now."""
        return (
            self.party.call("checkLock", {"lockid": number} | ({"txnid": txn_id} if txn_id else {}))["state"]
            == "ACQUIRED"
        )

    def unlock(self, number):
        self.party.call("unlock", {"lockid": number})

    # Looking

    def snapshot(self, *names, txn_id=0):
        """What a reader is given: the text of its transaction list, and of its write id list for each of the tables."""
        txns, *write_ids = self.party.call("snapshot", list(names), txn_id)
        return txns, write_ids

    # Hive's own threads

    def keep_house(self):
        """Every purge of Hive's, once."""
        self.party.call("all", *self.purges)

    def claim(self, worker="w"):
        """The queue's next entry for one of Hive's workers: a CompactionInfo by its fields, or None."""
        return self.party.call(
            "findNextToCompact", {"workerId": worker, "workerVersion": "4.0.1"} if self.party.hive_4 else worker
        )

    def forget_table(self, name, tbl_type="MANAGED_TABLE"):
        """`cleanupRecords`, as the metastore does when a table is dropped."""
        database, table = name.split(".")
        facts = {
            "catName": "hive",
            "dbName": database,
            "tableName": table,
            "tableType": tbl_type,
            "parameters": {"transactional": "true"},
        }
        self.party.call("cleanupRecords", "TABLE", {"name": database, "catalogName": "hive"}, facts, None)
