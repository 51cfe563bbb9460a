"""
Hive's metastore tables, with the columns that the compactor uses.

One list of columns per table, each with the generation of the schema that must have it. `schema` turns the lists into
SQLAlchemy tables under the names that a database really has. Column keys are Hive's names in lower case; a database
may spell its columns in another case.
Source: Hive's schema scripts 3.1.0 and 4.0.0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from sqlalchemy import BigInteger, Boolean, ColumnElement, DateTime, Integer, LargeBinary, String, Text
from sqlalchemy.types import TypeEngine


class Need(Enum):
    """Which generation of the schema must have a table or a column."""

    ALWAYS = "always"
    HIVE_3 = "3.1"
    HIVE_4 = "4.x"
    OPTIONAL = "optional"


class PartitionName(String):
    """The name of a partition as a transaction, a lock or a compaction stores it; NULL stands for the whole table."""

    def told_apart(self, column: ColumnElement[Any]) -> Sequence[ColumnElement[Any]]:
        """What GROUP BY and ORDER BY take in place of the column: equal only where every character is."""
        return (column,)


class CataloguedName(String):
    """The name of a database, table or partition in the catalog, where every character tells it from others."""


class CataloguedPlace(String):
    """The location of a table or partition in the catalog, where every character tells it from others."""


class Code(String):
    """A letter by which Hive tells types and states apart; upper case is another one than lower case."""


class Remark(String):
    """A short text in which a character that can't be stored may be replaced."""


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """One column; `key`: of the primary key; `default`: an SQL expression; `of_txns`: it names a row of TXNS."""

    name: str
    type: TypeEngine[Any]
    need: Need = Need.ALWAYS
    key: bool = False
    null: bool = True
    default: str | None = None
    of_txns: bool = False


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """One table, which some generation needs."""

    name: str
    columns: tuple[ColumnSpec, ...]
    need: Need
    unique: tuple[tuple[str, ...], ...]
    index: tuple[tuple[str, ...], ...]


def _key(name: str) -> ColumnSpec:
    return ColumnSpec(name, BigInteger(), key=True, null=False)


def _number(
    name: str, need: Need = Need.ALWAYS, *, null: bool = True, default: str | None = None, of_txns: bool = False
) -> ColumnSpec:
    return ColumnSpec(name, BigInteger(), need, null=null, default=default, of_txns=of_txns)


def _text(
    name: str,
    length: int | None = None,
    need: Need = Need.ALWAYS,
    *,
    null: bool = True,
    key: bool = False,
    default: str | None = None,
) -> ColumnSpec:
    return ColumnSpec(name, String(length) if length else Text(), need, key=key, null=null, default=default)


def _partition(name: str) -> ColumnSpec:
    return ColumnSpec(name, PartitionName(767))


def _table(
    name: str,
    *columns: ColumnSpec,
    need: Need = Need.ALWAYS,
    unique: tuple[tuple[str, ...], ...] = (),
    index: tuple[tuple[str, ...], ...] = (),
) -> TableDefinition:
    return TableDefinition(name, columns, need, unique, index)


def _parameters(name: str, owner: str) -> TableDefinition:
    return _table(name, _key(owner), _text("PARAM_KEY", 256, null=False, key=True), _text("PARAM_VALUE"))


CATALOG = (
    _table("VERSION", _key("VER_ID"), _text("SCHEMA_VERSION", 127), _text("VERSION_COMMENT", 255)),
    _table("CTLGS", _key("CTLG_ID"), _text("NAME", 256), _text("LOCATION_URI", 4000)),
    _table(
        "DBS",
        _key("DB_ID"),
        ColumnSpec("NAME", CataloguedName(128)),
        _text("CTLG_NAME", 256, default="'hive'"),
        _text("DB_LOCATION_URI", 4000, null=False),
        _text("DB_MANAGED_LOCATION_URI", 4000, Need.OPTIONAL),
        _text("OWNER_NAME", 128),
        _text("OWNER_TYPE", 10),
        unique=(("NAME", "CTLG_NAME"),),
    ),
    _parameters("DATABASE_PARAMS", "DB_ID"),
    _table(
        "TBLS",
        _key("TBL_ID"),
        _number("DB_ID"),
        ColumnSpec("TBL_NAME", CataloguedName(256)),
        _text("TBL_TYPE", 128),
        _text("OWNER", 767),
        _text("OWNER_TYPE", 10),
        _number("SD_ID"),
        _number("CREATE_TIME", null=False, default="0"),
        _number("LAST_ACCESS_TIME", null=False, default="0"),
        _number("RETENTION", null=False, default="0"),
        ColumnSpec("IS_REWRITE_ENABLED", Boolean(), null=False, default="false"),
        _number("WRITE_ID", Need.OPTIONAL, default="0"),
        unique=(("TBL_NAME", "DB_ID"),),
    ),
    _table(
        "MV_TABLES_USED",
        _number("MV_CREATION_METADATA_ID", null=False),
        _number("TBL_ID", null=False),
        need=Need.HIVE_3,
    ),
    _parameters("TABLE_PARAMS", "TBL_ID"),
    _table(
        "PARTITIONS",
        _key("PART_ID"),
        _number("TBL_ID"),
        ColumnSpec("PART_NAME", CataloguedName(767)),
        _number("SD_ID"),
        _number("CREATE_TIME", null=False, default="0"),
        _number("LAST_ACCESS_TIME", null=False, default="0"),
        _number("WRITE_ID", Need.OPTIONAL, default="0"),
        unique=(("TBL_ID", "PART_NAME"),),
    ),
    _parameters("PARTITION_PARAMS", "PART_ID"),
    _table(
        "PARTITION_KEYS",
        _key("TBL_ID"),
        _text("PKEY_NAME", 128, null=False, key=True),
        _text("PKEY_TYPE", 767, null=False),
        _number("INTEGER_IDX", null=False),
    ),
    _table("PARTITION_KEY_VALS", _key("PART_ID"), _text("PART_KEY_VAL", 256), _key("INTEGER_IDX")),
    _table(
        "SDS",
        _key("SD_ID"),
        _number("CD_ID"),
        _number("SERDE_ID"),
        _text("INPUT_FORMAT", 4000),
        _text("OUTPUT_FORMAT", 4000),
        ColumnSpec("LOCATION", CataloguedPlace(4000)),
        _number("NUM_BUCKETS", null=False, default="-1"),
        ColumnSpec("IS_COMPRESSED", Boolean(), null=False, default="false"),
        ColumnSpec("IS_STOREDASSUBDIRECTORIES", Boolean(), null=False, default="false"),
    ),
    _parameters("SERDE_PARAMS", "SERDE_ID"),
    _table("SERDES", _key("SERDE_ID"), _text("NAME", 128), _text("SLIB", 4000)),
    _table("CDS", _key("CD_ID")),
    _table(
        "COLUMNS_V2",
        _key("CD_ID"),
        _text("COLUMN_NAME", 767, null=False, key=True),
        _text("TYPE_NAME"),
        _number("INTEGER_IDX", null=False),
    ),
    _table("BUCKETING_COLS", _key("SD_ID"), _text("BUCKET_COL_NAME", 256), _key("INTEGER_IDX")),
    _table("SORT_COLS", _key("SD_ID"), _text("COLUMN_NAME", 767), _number("ORDER", null=False), _key("INTEGER_IDX")),
)

_NEW = Need.HIVE_4


def _of_compaction(prefix: str, code: TypeEngine[Any]) -> tuple[ColumnSpec, ...]:
    """The columns that the queue and the history share."""
    return (
        _key(f"{prefix}_ID"),
        _text(f"{prefix}_DATABASE", 128, null=False),
        _text(f"{prefix}_TABLE", 256, null=False),
        _partition(f"{prefix}_PARTITION"),
        ColumnSpec(f"{prefix}_STATE", code, null=False),
        ColumnSpec(f"{prefix}_TYPE", code, null=False),
        _text(f"{prefix}_TBLPROPERTIES", 2048),
        _text(f"{prefix}_WORKER_ID", 128),
        _number(f"{prefix}_ENQUEUE_TIME", _NEW),
        _number(f"{prefix}_START"),
        ColumnSpec(f"{prefix}_RUN_AS", Remark(128)),
        _number(f"{prefix}_HIGHEST_WRITE_ID"),
        ColumnSpec(f"{prefix}_META_INFO", LargeBinary()),
        _text(f"{prefix}_HADOOP_JOB_ID", 32),
        _text(f"{prefix}_ERROR_MESSAGE", None, _NEW),
        _number(f"{prefix}_NEXT_TXN_ID", _NEW),
        _number(f"{prefix}_TXN_ID", _NEW),
        _number(f"{prefix}_COMMIT_TIME", _NEW),
        _text(f"{prefix}_INITIATOR_ID", 128, _NEW),
        _text(f"{prefix}_INITIATOR_VERSION", 128, _NEW),
        _text(f"{prefix}_WORKER_VERSION", 128, _NEW),
        ColumnSpec(f"{prefix}_POOL_NAME", Remark(128), _NEW),
        ColumnSpec(f"{prefix}_NUMBER_OF_BUCKETS", Integer(), Need.OPTIONAL),
        _text(f"{prefix}_ORDER_BY", 4000, Need.OPTIONAL),
    )


TRANSACTIONS = (
    _table(
        "TXNS",
        _key("TXN_ID"),
        _text("TXN_STATE", 1, null=False),
        _number("TXN_STARTED", null=False),
        _number("TXN_LAST_HEARTBEAT", null=False),
        _text("TXN_USER", 128, null=False),
        _text("TXN_HOST", 128, null=False),
        _text("TXN_AGENT_INFO", 128),
        ColumnSpec("TXN_META_INFO", Remark(128)),
        ColumnSpec("TXN_TYPE", Integer()),
    ),
    _table(
        "TXN_COMPONENTS",
        _number("TC_TXNID", null=False, of_txns=True),
        _text("TC_DATABASE", 128, null=False),
        _text("TC_TABLE", 256),
        _partition("TC_PARTITION"),
        _text("TC_OPERATION_TYPE", 1, null=False),
        _number("TC_WRITEID"),
        index=(("TC_TXNID",),),
    ),
    _table(
        "COMPLETED_TXN_COMPONENTS",
        _number("CTC_TXNID", null=False),
        _text("CTC_DATABASE", 128, null=False),
        _text("CTC_TABLE", 256),
        _partition("CTC_PARTITION"),
        ColumnSpec("CTC_TIMESTAMP", DateTime(), null=False, default="CURRENT_TIMESTAMP"),
        _number("CTC_WRITEID"),
        _text("CTC_UPDATE_DELETE", 1, null=False),
        index=(("CTC_DATABASE", "CTC_TABLE", "CTC_PARTITION"),),
    ),
    _table("NEXT_TXN_ID", _number("NTXN_NEXT", null=False), need=Need.HIVE_3),
    _table("TXN_LOCK_TBL", _number("TXN_LOCK", null=False), need=Need.HIVE_4),
    _table(
        "HIVE_LOCKS",
        _key("HL_LOCK_EXT_ID"),
        _key("HL_LOCK_INT_ID"),
        _number("HL_TXNID", null=False),
        _text("HL_DB", 128, null=False),
        _text("HL_TABLE", 256),
        _partition("HL_PARTITION"),
        _text("HL_LOCK_STATE", 1, null=False),
        _text("HL_LOCK_TYPE", 1, null=False),
        _number("HL_LAST_HEARTBEAT", null=False),
        _number("HL_ACQUIRED_AT"),
        _text("HL_USER", 128, null=False),
        _text("HL_HOST", 128, null=False),
        _text("HL_AGENT_INFO", 128),
    ),
    _table("NEXT_LOCK_ID", _number("NL_NEXT", null=False)),
    _table(
        "COMPACTION_QUEUE",
        *_of_compaction("CQ", Code(1)),
        _number("CQ_CLEANER_START", _NEW),
        _number("CQ_RETRY_RETENTION", _NEW, null=False, default="0"),
    ),
    _table("NEXT_COMPACTION_QUEUE_ID", _number("NCQ_NEXT", null=False)),
    _table(
        "COMPLETED_COMPACTIONS",
        *_of_compaction("CC", String(1)),
        _number("CC_END"),
        index=(("CC_DATABASE", "CC_TABLE", "CC_PARTITION"),),
    ),
    _table("AUX_TABLE", _text("MT_KEY1", 128, null=False, key=True), _key("MT_KEY2"), _text("MT_COMMENT", 255)),
    _table(
        "WRITE_SET",
        _text("WS_DATABASE", 128, null=False),
        _text("WS_TABLE", 256, null=False),
        _partition("WS_PARTITION"),
        _number("WS_TXNID", null=False),
        _number("WS_COMMIT_ID", null=False),
        _text("WS_OPERATION_TYPE", 1, null=False),
    ),
    _table(
        "TXN_TO_WRITE_ID",
        _number("T2W_TXNID", null=False),
        _text("T2W_DATABASE", 128, null=False),
        _text("T2W_TABLE", 256, null=False),
        _number("T2W_WRITEID", null=False),
        unique=(("T2W_DATABASE", "T2W_TABLE", "T2W_TXNID"), ("T2W_DATABASE", "T2W_TABLE", "T2W_WRITEID")),
    ),
    _table(
        "NEXT_WRITE_ID",
        _text("NWI_DATABASE", 128, null=False),
        _text("NWI_TABLE", 256, null=False),
        _number("NWI_NEXT", null=False),
        unique=(("NWI_DATABASE", "NWI_TABLE"),),
    ),
    _table("MIN_HISTORY_LEVEL", _key("MHL_TXNID"), _number("MHL_MIN_OPEN_TXNID", null=False), need=Need.OPTIONAL),
    _table(
        "MIN_HISTORY_WRITE_ID",
        _number("MH_TXNID", null=False, of_txns=True),
        _text("MH_DATABASE", 128, null=False),
        _text("MH_TABLE", 256, null=False),
        _number("MH_WRITEID", null=False),
        need=Need.OPTIONAL,
    ),
)
