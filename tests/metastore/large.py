"""
Fills a metastore of Hive's own schema 4.0.0 with as much as a large warehouse has: a million partitions in 5,000
tables, 100,000 entries in the queue and as many in the history, a million components of either kind, 100,000 open or
aborted transactions.

By the server's own numbers, so that it takes minutes, not hours: an INSERT … SELECT for each table.
"""

from dataclasses import dataclass

from sqlalchemy import text

from compactor.metastore.db.database import Database

DATABASES = 20
OPEN_EVERY = 100
"""One transaction of so many is open, the others were rolled back."""
_IDS = 1_000_000
"""Where the ids of partitions and their storage begin."""
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Size:
    """
    How much of each there is.

    Args:
        cut: 1 is the full size, 50 a fiftieth of it.
    """

    cut: int = 1

    @property
    def tables(self) -> int:
        return max(1_000, 5_000 // self.cut)  # a server reads fewer as a whole, and rightly so

    @property
    def partitions(self) -> int:
        return 1_000_000 // self.cut

    @property
    def queued(self) -> int:
        """Entries that wait for a worker."""
        return 50_000 // self.cut

    @property
    def ready(self) -> int:
        """Entries that are ready for cleaning; `may_go` of them were committed before any open transaction began."""
        return 50_000 // self.cut

    @property
    def may_go(self) -> int:
        return 100 // self.cut

    @property
    def history(self) -> int:
        return 100_000 // self.cut

    @property
    def transactions(self) -> int:
        """Open or rolled back, ten components each."""
        return 100_000 // self.cut

    @property
    def next_txn(self) -> int:
        """The first transaction after all of these."""
        return self.partitions + self.transactions + self.transactions // 10 + 1


def fill(database: Database, size: Size) -> None:
    """Fill an empty metastore, and let the server count what is there."""
    for statement in _statements(size):
        _run(database, statement)
    analyse(database)


def commit(database: Database, size: Size, partitions: int, first: int) -> None:
    """
    Note a commit in every hundredth partition, `partitions` of them, by transactions from `first` on, as many as there
    are commits.
    """
    step = size.partitions // partitions
    columns = '"CTC_TXNID", "CTC_DATABASE", "CTC_TABLE", "CTC_PARTITION", "CTC_WRITEID", "CTC_UPDATE_DELETE"'
    number = f"(n * {step})"
    values = f"{first} + n, {_names(number, size)}, {_partition(number, size)}, 100000 + n, 'N'"
    _run(
        database,
        f'INSERT INTO "COMPLETED_TXN_COMPONENTS" ({columns}) SELECT {values} FROM NUMBERS({partitions})',
        f'INSERT INTO "TXNS" ("TXN_ID", "TXN_STATE", "TXN_STARTED", "TXN_LAST_HEARTBEAT", "TXN_USER", "TXN_HOST")'
        f" SELECT {first} + n, 'c', NOW_MS - 60000, NOW_MS, 'user', 'host' FROM NUMBERS({partitions})",
    )


def queue(database: Database, size: Size, first: int, count: int) -> None:
    """Queue `count` more compactions with ids from `first` on."""
    _run(database, _queued(size, first, count))


def analyse(database: Database) -> None:
    """Let the server count the rows that it plans by."""
    tables = [
        "DBS",
        "TBLS",
        "SDS",
        "PARTITIONS",
        "PARTITION_PARAMS",
        "TABLE_PARAMS",
        "COMPACTION_QUEUE",
        "COMPLETED_COMPACTIONS",
        "TXNS",
        "TXN_COMPONENTS",
        "COMPLETED_TXN_COMPONENTS",
        "TXN_TO_WRITE_ID",
        "NEXT_WRITE_ID",
    ]
    with database.outside_transactions() as connection:
        for name in tables:
            verb = "VACUUM ANALYZE" if _is_postgres(database) else "ANALYZE TABLE"
            connection.exec_driver_sql(f'{verb} "{name}"' if _is_postgres(database) else f"{verb} {name}")


def _is_postgres(database: Database) -> bool:
    return database.engine.dialect.name == "postgresql"


def _run(database: Database, *statements: str) -> None:
    """Run statements in which `NUMBERS(x)` has 0 to x - 1 as `n`, and `NOW_MS` is the time."""
    postgres = _is_postgres(database)
    with database.transaction() as connection:
        if not postgres:
            connection.exec_driver_sql("SET SESSION sql_mode = 'ANSI', foreign_key_checks = 0, unique_checks = 0")
        now_ms = database.now_ms(connection)
        for statement in statements:
            whole, found, count = statement.replace("NOW_MS", str(now_ms)).partition(" FROM NUMBERS(")
            last = int(count.removesuffix(")") or 0) - 1
            if postgres:
                numbers = f" FROM generate_series(0, {last}) AS numbers (n)"
            else:
                numbers = f" FROM (SELECT seq AS n FROM seq_0_to_{last}) AS numbers"
            connection.execute(text(f"{whole}{numbers if found else ''}".replace(":", "\\:")))
        if not postgres:
            connection.exec_driver_sql("SET SESSION sql_mode = DEFAULT, foreign_key_checks = 1, unique_checks = 1")


def _names(number: str, size: Size) -> str:
    """Database and table of a partition, by its number."""
    return f"'scale_' || ({number} % {size.tables} % {DATABASES}), 't_' || ({number} % {size.tables})"


def _partition(number: str, size: Size) -> str:
    return f"'p=' || floor({number} / {size.tables})"


def _queued(size: Size, first: int, count: int) -> str:
    columns = '"CQ_ID", "CQ_DATABASE", "CQ_TABLE", "CQ_PARTITION", "CQ_STATE", "CQ_TYPE", "CQ_ENQUEUE_TIME"'
    values = f"{first} + n, {_names('n', size)}, {_partition('n', size)}, 'i', CASE n % 10 WHEN 0 THEN 'a' ELSE 'i' END"
    return f'INSERT INTO "COMPACTION_QUEUE" ({columns}) SELECT {values}, NOW_MS - {_DAY_MS} + n FROM NUMBERS({count})'


def _statements(size: Size) -> list[str]:
    many = f"FROM NUMBERS({size.partitions})"
    each_table = f"FROM NUMBERS({size.tables})"
    history, first_ready, first_queued = size.history, size.history + 1, size.history + size.ready + 1
    place = f"'file:/scale/scale_' || (n % {size.tables} % {DATABASES}) || '.db/t_' || (n % {size.tables})"
    stored = '"SD_ID", "CD_ID", "SERDE_ID", "INPUT_FORMAT", "NUM_BUCKETS", "IS_COMPRESSED", "IS_STOREDASSUBDIRECTORIES"'
    orc = "'org.apache.hadoop.hive.ql.io.orc.OrcInputFormat', -1"
    txn = f"{size.partitions} + 1 + n"
    later = f"{size.partitions} + {size.transactions} + 1 + n"
    txns = '"TXN_ID", "TXN_STATE", "TXN_STARTED", "TXN_LAST_HEARTBEAT", "TXN_USER", "TXN_HOST", "TXN_TYPE"'
    mapped = '"T2W_TXNID", "T2W_DATABASE", "T2W_TABLE", "T2W_WRITEID"'
    per_table = size.partitions // size.tables
    aborted = size.transactions // size.tables
    no = "false"
    ready = '"CQ_ID", "CQ_DATABASE", "CQ_TABLE", "CQ_PARTITION", "CQ_STATE", "CQ_TYPE", "CQ_ENQUEUE_TIME", "CQ_START"'
    ready += ', "CQ_COMMIT_TIME", "CQ_HIGHEST_WRITE_ID", "CQ_NEXT_TXN_ID", "CQ_TXN_ID"'
    ended = '"CC_ID", "CC_DATABASE", "CC_TABLE", "CC_PARTITION", "CC_STATE", "CC_TYPE", "CC_ENQUEUE_TIME", "CC_START"'
    ended += ', "CC_END", "CC_HIGHEST_WRITE_ID"'
    return [
        (
            'INSERT INTO "DBS" ("DB_ID", "NAME", "DB_LOCATION_URI", "CTLG_NAME") SELECT 1000 + n, \'scale_\' || n,'
            f" 'file:/scale/scale_' || n || '.db', 'hive' FROM NUMBERS({DATABASES})"
        ),
        f'INSERT INTO "CDS" ("CD_ID") SELECT 1000 + n {each_table}',
        (
            'INSERT INTO "COLUMNS_V2" ("CD_ID", "COLUMN_NAME", "TYPE_NAME", "INTEGER_IDX")'
            f" SELECT 1000 + n, 'id', 'bigint', 0 {each_table}"
        ),
        (
            'INSERT INTO "SERDES" ("SERDE_ID", "SLIB") SELECT 1000 + n, \'org.apache.hadoop.hive.ql.io.orc.OrcSerde\''
            f" {each_table}"
        ),
        (
            f'INSERT INTO "SDS" ({stored}, "LOCATION") SELECT 1000 + n, 1000 + n, 1000 + n, {orc}, {no}, {no}, {place}'
            f" {each_table}"
        ),
        (
            'INSERT INTO "TBLS" ("TBL_ID", "CREATE_TIME", "DB_ID", "LAST_ACCESS_TIME", "RETENTION", "SD_ID", "TBL_NAME",'
            f' "TBL_TYPE", "OWNER") SELECT 1000 + n, 0, 1000 + n % {DATABASES}, 0, 0, 1000 + n, \'t_\' || n,'
            f" 'MANAGED_TABLE', 'owner' {each_table}"
        ),
        (
            'INSERT INTO "TABLE_PARAMS" ("TBL_ID", "PARAM_KEY", "PARAM_VALUE")'
            f" SELECT 1000 + n, 'transactional', 'true' {each_table}"
        ),
        (
            'INSERT INTO "PARTITION_KEYS" ("TBL_ID", "PKEY_NAME", "PKEY_TYPE", "INTEGER_IDX")'
            f" SELECT 1000 + n, 'p', 'int', 0 {each_table}"
        ),
        (
            f'INSERT INTO "SDS" ({stored}, "LOCATION") SELECT {_IDS} + n, 1000 + n % {size.tables},'
            f" 1000 + n % {size.tables}, {orc}, {no}, {no}, {place} || '/' || {_partition('n', size)} {many}"
        ),
        (
            'INSERT INTO "PARTITIONS" ("PART_ID", "CREATE_TIME", "LAST_ACCESS_TIME", "PART_NAME", "SD_ID", "TBL_ID")'
            f" SELECT {_IDS} + n, 0, 0, {_partition('n', size)}, {_IDS} + n, 1000 + n % {size.tables} {many}"
        ),
        (
            'INSERT INTO "PARTITION_PARAMS" ("PART_ID", "PARAM_KEY", "PARAM_VALUE")'
            f" SELECT {_IDS} + n, 'numFiles', '2' {many}"
        ),
        (
            f"INSERT INTO \"TXNS\" ({txns}) SELECT {txn}, CASE n % {OPEN_EVERY} WHEN 0 THEN 'o' ELSE 'a' END,"
            f" NOW_MS - 10000000 + n, NOW_MS, 'user', 'host', 0 FROM NUMBERS({size.transactions})"
        ),
        (
            f"INSERT INTO \"TXNS\" ({txns}) SELECT {later}, 'c', NOW_MS - 3600000 + n, NOW_MS, 'user', 'host', 0"
            f" FROM NUMBERS({size.transactions // 10})"
        ),
        (
            'INSERT INTO "TXN_COMPONENTS" ("TC_TXNID", "TC_DATABASE", "TC_TABLE", "TC_PARTITION", "TC_OPERATION_TYPE",'
            f' "TC_WRITEID") SELECT {size.partitions} + 1 + floor(n / 10), {_names("CAST(floor(n / 10) AS DECIMAL(18))", size)},'
            f" 'p=' || (n % {per_table}), 'i', {per_table} + 1 + floor(n / 10 / {size.tables})"
            f" FROM NUMBERS({10 * size.transactions})"
        ),
        (
            'INSERT INTO "COMPLETED_TXN_COMPONENTS" ("CTC_TXNID", "CTC_DATABASE", "CTC_TABLE", "CTC_PARTITION",'
            f' "CTC_WRITEID", "CTC_UPDATE_DELETE") SELECT 1 + n, {_names("n", size)}, {_partition("n", size)},'
            f" 1 + floor(n / {size.tables}), 'N' {many}"
        ),
        f'INSERT INTO "TXN_TO_WRITE_ID" ({mapped}) SELECT 1 + n, {_names("n", size)}, 1 + floor(n / {size.tables}) {many}',
        (
            f'INSERT INTO "TXN_TO_WRITE_ID" ({mapped}) SELECT {txn}, {_names("n", size)},'
            f" {per_table} + 1 + floor(n / {size.tables}) FROM NUMBERS({size.transactions})"
        ),
        (
            'INSERT INTO "NEXT_WRITE_ID" ("NWI_DATABASE", "NWI_TABLE", "NWI_NEXT")'
            f" SELECT {_names('n', size)}, {per_table + aborted} + 1 {each_table}"
        ),
        (
            f'INSERT INTO "COMPLETED_COMPACTIONS" ({ended}) SELECT 1 + n, {_names("n", size)}, {_partition("n", size)},'
            " CASE n % 20 WHEN 0 THEN 'f' ELSE 's' END, 'i', NOW_MS - 7200000 + n, NOW_MS - 7000000 + n,"
            f" NOW_MS - 6900000 + n, 1 FROM NUMBERS({history})"
        ),
        (
            f'INSERT INTO "COMPACTION_QUEUE" ({ready}) SELECT {first_ready} + n, {_names("n", size)},'
            f" {_partition('n', size)}, 'r', 'i', NOW_MS - 7200000, NOW_MS - 7000000, NOW_MS - 6900000 + n, 1,"
            f" CASE WHEN n < {size.may_go} THEN {size.partitions} ELSE"
            f" {size.partitions + OPEN_EVERY // 2} + n % {20 * OPEN_EVERY} END, 1 FROM NUMBERS({size.ready})"
        ),
        _queued(size, first_queued, size.queued),
        f'UPDATE "NEXT_COMPACTION_QUEUE_ID" SET "NCQ_NEXT" = {first_queued + size.queued}',
    ]
