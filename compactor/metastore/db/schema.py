"""
Detects by tables and columns which of Hive's schemas a database holds, and creates the embedded one.

SCHEMA_VERSION is only a hint: vendors write their own strings there. Source: HIVE-22546 (4.x quotes the names of the
transaction tables).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    ForeignKey,
    Index,
    MetaData,
    Table,
    UniqueConstraint,
    insert,
    inspect,
    select,
    text,
)

from compactor.errors import RefusedError
from compactor.metastore.db.dialects import Dialect
from compactor.metastore.db.generation import HIVE_3, HIVE_4, Generation
from compactor.metastore.db.tables import CATALOG, TRANSACTIONS, Need, TableDefinition
from compactor.reasons import Reason

EMBEDDED_VERSION = "4.1.0"
Columns = Mapping[str, Mapping[str, str]]
"""By table, the real name of each column; both by their names in upper case."""
_SPECS = CATALOG + TRANSACTIONS


@dataclass(frozen=True, slots=True)
class HiveSchema:
    """
    The tables of one metastore database under their real names; column keys are Hive's names in lower case.

    A column that this generation doesn't have is missing from its table's `c`. `next_txn_id` and
    `mv_tables_used` are there on 3.1 only, `txn_lock_tbl` on 4.x only, and the two history tables where the
    installation has them.
    """

    generation: Generation
    schema_version: str
    metadata: MetaData
    ctlgs: Table
    dbs: Table
    database_params: Table
    tbls: Table
    table_params: Table
    partitions: Table
    partition_params: Table
    partition_keys: Table
    partition_key_vals: Table
    sds: Table
    serdes: Table
    serde_params: Table
    cds: Table
    columns_v2: Table
    bucketing_cols: Table
    sort_cols: Table
    txns: Table
    txn_components: Table
    completed_txn_components: Table
    hive_locks: Table
    next_lock_id: Table
    compaction_queue: Table
    next_compaction_queue_id: Table
    completed_compactions: Table
    aux_table: Table
    write_set: Table
    txn_to_write_id: Table
    next_write_id: Table
    mv_tables_used: Table | None = None
    next_txn_id: Table | None = None
    txn_lock_tbl: Table | None = None
    min_history_level: Table | None = None
    min_history_write_id: Table | None = None

    @property
    def next_txn_id_table(self) -> Table:
        """3.1's counter of transactions."""
        assert self.next_txn_id is not None
        return self.next_txn_id

    @property
    def txn_lock_table(self) -> Table:
        """4.x's lock between openers and committers of transactions."""
        assert self.txn_lock_tbl is not None
        return self.txn_lock_tbl


def detect(engine: Engine, dialect: Dialect) -> HiveSchema:
    """
    Find out the schema from the tables and columns of a database.

    Raises:
        RefusedError: UNKNOWN_SCHEMA; there are no metastore tables, or they are of no known generation.
    """
    wanted = {spec.name for spec in _SPECS}
    with engine.connect() as connection:
        inspector = inspect(connection)
        names = {name.upper(): name for name in sorted(inspector.get_table_names()) if name.upper() in wanted}
        if "COMPACTION_QUEUE" not in names and "TBLS" not in names:
            raise RefusedError(
                Reason.UNKNOWN_SCHEMA,
                "this database holds no Hive metastore tables; create them with Hive's schematool, or point to another database",
            )
        columns: Columns = {
            table.upper(): {column["name"].upper(): column["name"] for column in found}
            for (_, table), found in inspector.get_multi_columns(filter_names=list(names.values())).items()
        }
        hint = _schema_version(connection, dialect, names, columns)
    generation = _generation(names, columns)
    missing = sorted(_missing(generation, columns))
    if missing:
        listed = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        raise RefusedError(
            Reason.UNKNOWN_SCHEMA,
            f"metastore schema {hint} isn't one we know: as {generation.layout.value} it lacks {listed}",
        )
    return _build(dialect, generation, hint, names, columns)


def create_embedded(engine: Engine, dialect: Dialect) -> HiveSchema:
    """Create the 4.x tables and the rows that Hive's own script seeds."""
    names = {spec.name: spec.name for spec in _SPECS}
    columns = {spec.name: {column.name: column.name for column in spec.columns} for spec in _SPECS}
    schema = _build(dialect, HIVE_4, EMBEDDED_VERSION, names, columns)
    with engine.begin() as connection:
        schema.metadata.create_all(connection)
        version = schema.metadata.tables["VERSION"]
        connection.execute(
            insert(version).values(ver_id=1, schema_version=EMBEDDED_VERSION, version_comment="created by compactor")
        )
        connection.execute(insert(schema.ctlgs).values(ctlg_id=1, name="hive", location_uri="TBD"))
        connection.execute(
            insert(schema.txns).values(
                txn_id=0, txn_state="c", txn_started=0, txn_last_heartbeat=0, txn_user="", txn_host=""
            )
        )
        connection.execute(insert(schema.next_lock_id).values(nl_next=1))
        connection.execute(insert(schema.next_compaction_queue_id).values(ncq_next=1))
        if schema.txn_lock_tbl is not None:
            connection.execute(insert(schema.txn_lock_tbl).values(txn_lock=1))
    return schema


def _generation(names: Collection[str], columns: Columns) -> Generation:
    return HIVE_4 if "TXN_LOCK_TBL" in names or "CQ_TXN_ID" in columns.get("COMPACTION_QUEUE", ()) else HIVE_3


def _missing(generation: Generation, columns: Columns) -> Iterable[str]:
    for spec in _SPECS:
        if spec.name not in columns:
            if spec.need in generation.needs:
                yield spec.name
            continue
        for column in spec.columns:
            if column.need in generation.needs and column.name not in columns[spec.name]:
                yield f"{spec.name}.{column.name}"
    # A queue that already counts transactions without the lock table is a preview of 4.0, whose CQ_NEXT_TXN_ID has
    # another meaning (HIVE-23107).
    if generation is HIVE_3 and "CQ_NEXT_TXN_ID" in columns.get("COMPACTION_QUEUE", ()):
        yield "TXN_LOCK_TBL"


def _schema_version(connection: Connection, dialect: Dialect, names: Mapping[str, str], columns: Columns) -> str:
    if "VERSION" not in names or "SCHEMA_VERSION" not in columns["VERSION"]:
        return "of unknown version"
    spec = next(spec for spec in CATALOG if spec.name == "VERSION")
    table = _table(dialect, MetaData(), spec, names, columns["VERSION"])
    return str(connection.scalar(select(table.c.schema_version).limit(1)) or "of unknown version")


def _build(
    dialect: Dialect, generation: Generation, hint: str, names: Mapping[str, str], columns: Columns
) -> HiveSchema:
    metadata = MetaData()
    tables = {
        spec.name.lower(): _table(dialect, metadata, spec, names, columns[spec.name])
        for spec in _SPECS
        if spec.name in names and (spec.need is Need.OPTIONAL or spec.need in generation.needs)
    }
    del tables["version"]
    return HiveSchema(generation=generation, schema_version=hint, metadata=metadata, **tables)


def _table(
    dialect: Dialect, metadata: MetaData, spec: TableDefinition, names: Mapping[str, str], real: Mapping[str, str]
) -> Table:
    """A table with the columns that the database has; Hive's name in lower case is the key of each."""
    columns = [
        Column(
            real[column.name],
            dialect.column_types.get(type(column.type), column.type),
            *([ForeignKey(f"{names['TXNS']}.txn_id")] if column.of_txns else []),
            key=column.name.lower(),
            primary_key=column.key,
            nullable=column.null,
            server_default=None if column.default is None else text(column.default),
            autoincrement="auto" if spec.name == "TXNS" else False,
        )
        for column in spec.columns
        if column.name in real
    ]
    extras = [UniqueConstraint(*(name.lower() for name in group)) for group in spec.unique]
    options = dialect.autoincrement if spec.name == "TXNS" else {}
    table = Table(names[spec.name], metadata, *columns, *extras, **options)
    for number, group in enumerate(spec.index):
        if all(name in real for name in group):
            Index(f"{spec.name}_INDEX_{number}", *(table.c[name.lower()] for name in group))
    return table
