"""
Oracle and SQL Server, of which no server can be had: what the project says to them compiles, is read by an independent
parser, and names what Hive's own scripts for these products make.
"""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import sqlglot
from sqlalchemy import Table, bindparam, not_, select, tuple_
from sqlalchemy.exc import CompileError
from sqlglot import exp

from compactor.coordination.sql.table import StateTable
from compactor.daemon.queue_metrics import QueueMetrics
from compactor.errors import CompactorError, SettingsError
from compactor.metastore.compaction_queue.claims import _listed
from compactor.metastore.db.database import Database
from compactor.metastore.db.generation import HIVE_3, HIVE_4
from compactor.metastore.db.own_tables import OWN_TABLES
from compactor.metastore.db.schema import _build, _generation, _missing
from compactor.metastore.db.tables import CATALOG, TRANSACTIONS
from compactor.metastore.owned_lists import OwnedLists, parameters_in
from compactor.roles.housekeeper.recovery import Recovery
from compactor_dialects import oracle, sqlserver
from tests.dialects.judge import PARSERS, PRODUCTS, Judge, engine_of, stand_in
from tests.metastore.embedded import columns, create_hive_3
from tests.model.test_roles_life import EVERYTHING, Life
from tests.unit.roles.world import World

VERSIONS = {"3.1.0": HIVE_3, "4.0.0": HIVE_4}
DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
SCRIPTS = DEPLOY / "dialects" / "sql"
EVERY_PRODUCT = pytest.mark.parametrize("product", PRODUCTS)


def life_of(path: Path, product: str, version: str) -> Judge:
    """What the roles ask of the metastore during a life in which all happens that can."""
    judge = Judge(product, version)
    database = Database(f"sqlite:///{path}", create=True)
    database.dialect = stand_in(product)
    with database:
        assert database.schema.generation is VERSIONS[version]
        judge.listen(database)
        life = Life(World(database, path.parent), EVERYTHING, partitioned=True)
        life.live()
        life.end()
        QueueMetrics(life.world.services).run_once()
        Recovery(life.world.services).give_back_claims_of_the_dead()
        state = StateTable(database)
        state.make()
        state.put("members/test", {"a": 1})
        state.put("members/test", {"a": 2})
        state.remove_silent("members", 0)
    assert len(judge.seen) > 80
    assert {statement.split()[0] for statement in judge.seen} >= {"SELECT", "INSERT", "UPDATE", "DELETE"}
    return judge


@pytest.mark.long
@EVERY_PRODUCT
@pytest.mark.parametrize("version", VERSIONS)
def test_no_statement_of_a_life_is_refused(tmp_path, product, version):
    """The roles' statements are written for the product, executed on SQLite, and judged."""
    path = tmp_path / "metastore.db"
    if version == "3.1.0":
        create_hive_3(path)
    assert life_of(path, product, version).wrong == {}


@EVERY_PRODUCT
@pytest.mark.parametrize("version", VERSIONS)
def test_hives_own_tables_of_the_product_are_recognised(product, version):
    """Every table and column that a generation must have is in Hive's script for the product."""
    found = columns(product, version)
    generation = _generation(found, found)
    assert generation is VERSIONS[version]
    assert list(_missing(generation, found)) == []


@EVERY_PRODUCT
@pytest.mark.parametrize("version", VERSIONS)
def test_no_text_is_cut_later_than_the_product_does(product, version):
    """A column that takes less than we cut to would refuse the row; names are Hive's, and never cut."""
    shorter = {}
    for spec in TRANSACTIONS:
        for column in spec.columns:
            kind = columns(product, version).get(spec.name, {}).get(column.name, "")
            size = re.match(r"n?(?:var)?char2?\((\d+)\)", kind)
            length = getattr(column.type, "length", None)
            if size and length and int(size[1]) < length:
                shorter[f"{spec.name}.{column.name}"] = int(size[1])
    assert {name.rpartition("_")[2] for name in shorter} <= {"TABLE"}  # 3.1 on Oracle: 128


def schema_of(product: str):
    """The 4.x tables as the product's dialect types them."""
    dialect = PRODUCTS[product]()
    specs = CATALOG + TRANSACTIONS
    names = {spec.name: spec.name for spec in specs if spec.name != "NEXT_TXN_ID"}
    everything = {spec.name: {column.name: column.name for column in spec.columns} for spec in specs}
    return _build(dialect, HIVE_4, "4.0.0", names, everything)


@EVERY_PRODUCT
def test_our_own_tables_are_those_of_the_script(product):
    """A daemon that may create tables makes what the script makes for one that may not."""
    script = (SCRIPTS / f"grants-{product}.sql").read_text()
    made = re.findall(r"SELECT '(CREATE TABLE .*?;)'", re.sub(r"'\s*(?:\|\||\+)\s*'", "", script), re.DOTALL)
    judge = Judge(product, "4.0.0")
    ours = [judge.judge(PRODUCTS[product]().create_table(table)) for table in OWN_TABLES]
    assert judge.wrong == {}

    def read(statement):
        return sqlglot.parse_one(statement, dialect=PARSERS[product])

    assert [read(statement.rstrip(";")) for statement in made] == [read(statement) for statement in ours]


@EVERY_PRODUCT
def test_the_scripts_are_read_and_give_the_same_rights_as_the_others(product):
    """The product's grants are the list of the script that runs on real servers."""

    def rights(file):
        text = file.read_text()
        return re.findall(r"SELECT '(\w+)'(?: AS relation)?, '([A-Z, ]+)'(?: AS rights)?, (?:CAST\()?(NULL|\d)", text)

    script = SCRIPTS / f"grants-{product}.sql"
    assert rights(script) == rights(DEPLOY / "sql" / "grants-mysql.sql") != []
    client = re.compile(r"^(?:--|SET PAGESIZE|SET NOCOUNT|EXIT).*$", re.MULTILINE)  # words of sqlplus and sqlcmd
    read = sqlglot.parse(client.sub("", script.read_text()), dialect=PARSERS[product])
    assert [type(one) for one in read if one is not None] == [exp.Select] * 5


@EVERY_PRODUCT
def test_the_largest_lists_are_taken(product):
    """A list as long as a dialect may make it, of names that are compared twice, fits into a statement."""
    dialect, tables = PRODUCTS[product](), schema_of(product)
    components, partitions = tables.completed_txn_components.c, tables.partitions.c
    names = [f"p={number}" for number in range(dialect.at_once)]
    judge = Judge(product, "4.0.0")
    for column in (components.ctc_partition, partitions.part_name):
        statement = judge.judge(select(column).where(dialect.among(column, names)))
        assert len(re.findall(r"\?|:\w+", statement)) <= 2100
    pairs = [(number, f"p={number}") for number in range(500)]
    owned = OwnedLists(dialect, *(parameters_in(tables.table_params, "tbl_id") for _ in range(6)))
    owners = {f"owners_{number}": list(range(dialect.at_once)) for number in range(6)}
    assert len(re.findall(r"\?", judge.judge(owned._statement, owners))) <= 2100
    statement = judge.judge(
        select(partitions.part_id).where(dialect.among_pairs(partitions.tbl_id, partitions.part_name, pairs))
    )
    assert len(re.findall(r"\?|:\w+", statement)) <= 2100
    assert dialect.at_once <= 1000
    assert judge.wrong == {}


@EVERY_PRODUCT
@pytest.mark.parametrize("count", [0, 1, 1000, 1001, 2500])
def test_a_list_of_numbers_may_have_any_length(product, count):
    """Entries that are put off may be thousands; a list holds 1,000, and a statement 2,100 parameters."""
    queue = schema_of(product).compaction_queue.c
    listed = _listed(queue.cq_id, range(count))
    judge = Judge(product, "4.0.0")
    for condition in (listed, not_(listed)):
        statement = judge.judge(select(queue.cq_id).where(condition, queue.cq_type == "i"))
        assert statement.count("IN (") == -(-count // 1000)
        assert [int(number) for number in re.findall(r"(?<=[(, ])\d+(?=[,)])", statement)] == list(range(count))
    assert judge.wrong == {}


class Listener:
    """Notes what a dialect says to a connection; its answer is 1."""

    def __init__(self, product: str) -> None:
        self.dialect = engine_of(product).dialect
        self.info: dict[str, object] = {}
        self.said: list[str] = []

    def execute(self, statement):
        self.said.append(" ".join(str(statement.compile(dialect=self.dialect)).split()))

    def scalar(self, statement):
        self.execute(statement)
        return 1

    def exec_driver_sql(self, statement):
        self.said.append(statement)


def test_openers_lock_as_hives_does():
    """The table is locked as Hive locks it, but that our wait ends."""
    said = {}
    for product in PRODUCTS:
        listener, table = Listener(product), schema_of(product).txn_lock_table
        dialect = PRODUCTS[product]()
        dialect.share_openers_lock(listener, table)
        dialect.limit_waiting(listener, 1500)
        dialect.own_openers_lock(listener, table)
        said[product] = listener.said
    assert said == {
        "oracle": [
            'LOCK TABLE "TXN_LOCK_TBL" IN SHARE MODE WAIT 60',
            'LOCK TABLE "TXN_LOCK_TBL" IN EXCLUSIVE MODE WAIT 2',
        ],
        "sqlserver": [
            "SELECT [TXN_LOCK_TBL].[TXN_LOCK] FROM [TXN_LOCK_TBL] WITH (TABLOCK, HOLDLOCK)",
            "SET LOCK_TIMEOUT 1500",
            "SELECT [TXN_LOCK_TBL].[TXN_LOCK] FROM [TXN_LOCK_TBL] WITH (TABLOCKX, HOLDLOCK)",
        ],
    }
    for statement in said["sqlserver"]:
        sqlglot.parse_one(statement, dialect="tsql")


def test_a_row_is_waited_for_no_longer_than_was_asked():
    """Oracle takes the limit in the statement alone; other statements stay as they are."""
    connection, (wait,) = Listener("oracle"), engine_of("oracle").dispatch.before_cursor_execute

    def sent(statement):
        return wait(connection, None, statement, {}, None, False)[0]

    assert sent("SELECT a FROM b FOR UPDATE") == "SELECT a FROM b FOR UPDATE WAIT 60"
    PRODUCTS["oracle"]().limit_waiting(connection, 200)
    assert sent("SELECT a FROM b FOR UPDATE") == "SELECT a FROM b FOR UPDATE WAIT 1"
    assert sent("DELETE FROM b") == "DELETE FROM b"


def test_a_lock_that_cannot_be_written_is_an_error_and_no_silence():
    """SQL Server's hint belongs to a table: FOR UPDATE of a join or an alias doesn't compile."""
    txns = schema_of("sqlserver").txns
    dialect = engine_of("sqlserver").dialect
    for origin in (txns.alias("other"), txns.join(txns.alias("other"), txns.c.txn_id == bindparam("x"))):
        with pytest.raises(CompileError, match="FOR UPDATE"):
            select(1).select_from(origin).with_for_update().compile(dialect=dialect)


def test_a_bracket_in_a_name_is_no_pattern():
    """LIKE of SQL Server takes `[a]` for the letter a, unless it is escaped."""
    part_name = schema_of("sqlserver").partitions.c.part_name
    compiled = (
        select(part_name)
        .where(part_name.startswith("p=[a]_/", autoescape=True))
        .compile(dialect=engine_of("sqlserver").dialect)
    )
    assert set(compiled.params.values()) == {"p=/[a]/_//%"}


@pytest.mark.parametrize(("row", "refused"), [((1,), False), ((0,), True), (None, True)])
def test_a_database_without_row_versions_is_refused(row, refused):
    """Under plain locking a statement that reads may miss rows; one line says what to switch on."""
    cursor = SimpleNamespace(execute=lambda _: SimpleNamespace(fetchone=lambda: row))
    if not refused:
        sqlserver._require_row_versions(cursor)
        return
    with pytest.raises(SettingsError, match=r"^database\.url: .*READ_COMMITTED_SNAPSHOT ON$"):
        sqlserver._require_row_versions(cursor)


def test_a_command_that_reads_sends_no_other_statement():
    """SQL Server has no sessions that only read, so statements that write are held back here."""
    (check,) = engine_of("sqlserver", read_only=True).dispatch.before_cursor_execute
    for statement in ("SELECT 1", "with a as (select 1 b) select b from a", "SET LOCK_TIMEOUT 5"):
        check(None, None, statement, (), None, False)
    for statement in ("INSERT INTO t VALUES (1)", "UPDATE t SET a = 1", "DELETE FROM t", "CREATE TABLE t (a int)"):
        with pytest.raises(CompactorError, match="only reads"):
            check(None, None, statement, (), None, False)
    assert len(engine_of("sqlserver").dispatch.before_cursor_execute) == 0


def test_rights_on_oracle_are_those_granted_to_the_user_its_roles_or_all():
    """The owner has every right; others what the server's own lists say, by table or for any table."""
    tables = schema_of("oracle")
    wanted = [(tables.txns, "SELECT"), (tables.txns, "DELETE"), (tables.dbs, "SELECT"), (tables.dbs, "DELETE")]

    def lacking(owner, rows):
        connection = SimpleNamespace(scalar=lambda _: owner, execute=lambda _: rows)
        found = PRODUCTS["oracle"]().lacking(connection, wanted)
        return [(table.name, right) for table, right in found]

    assert lacking(1, []) == []
    assert lacking(None, [("TXNS", "SELECT"), ("*", "CREATE SESSION")]) == [
        ("TXNS", "DELETE"),
        ("DBS", "SELECT"),
        ("DBS", "DELETE"),
    ]
    assert lacking(None, [("*", "SELECT ANY TABLE"), ("TXNS", "DELETE")]) == [("DBS", "DELETE")]
    for statement in (oracle._IS_OWNER, oracle._GRANTED):
        assert isinstance(sqlglot.parse_one(statement, dialect="oracle"), exp.Query)


def test_rights_on_sql_server_are_asked_of_the_server():
    """Each right by a function that answers 1, 0 or NULL."""
    asked: list[str] = []
    tables = schema_of("sqlserver")

    class Server(Listener):
        def scalar(self, statement):
            asked.append(str(statement.compile(dialect=self.dialect)))
            return {"TXNS": 1}.get(next(iter(statement.compile().params.values())).strip("[]"))

    wanted = [(tables.txns, "SELECT"), (tables.dbs, "SELECT")]
    assert PRODUCTS["sqlserver"]().lacking(Server("sqlserver"), wanted) == [wanted[1]]
    assert "has_perms_by_name(?, ?, ?)" in asked[0]


def test_the_judge_sees_what_it_is_for():
    """Each rule of the judge finds a statement that breaks it."""
    tables = schema_of("oracle")
    own = OWN_TABLES[0]
    unknown = Table("TXNS", own.metadata.__class__(), *(column._copy() for column in own.columns))
    judge = Judge("oracle", "4.0.0")
    value = tables.table_params.c.param_value
    for statement in (
        select(value).where(value == "a"),
        select(value).distinct(),
        select(tables.txns.c.txn_id == 1),
        select(unknown.c.value),
        tables.txns.insert().values(txn_id=1, txn_state="o", txn_user=""),
    ):
        judge.judge(statement)
    assert all(judge.seen.values())
    for condition, said in (
        ("0 AND 1 = 1", "a value as a condition: 0"),
        ("TXN_ID = 'a' AND TXN = 1", "no column TXN"),
    ):
        assert list(judge._objections(f"SELECT TXN_ID FROM TXNS WHERE {condition}")) == [said]
    assert list(judge._objections("SELECT TXN_ID, max(TXN_TYPE) FROM TXNS GROUP BY TXN_STATE")) == [
        "TXN_ID isn't grouped"
    ]
    assert list(judge._objections("SELECT TXN_ID FROM TXNS WHERE")) != []
    server = Judge("sqlserver", "4.0.0")
    txns = schema_of("sqlserver").txns.c
    server.judge(select(txns.txn_id).where(tuple_(txns.txn_id, txns.txn_type).in_([(1, 2)])))
    server.judge(select(txns.txn_type % 5).group_by(txns.txn_type % 5))
    server.judge(select(txns.txn_id).where(*(txns.txn_id.in_([number]) for number in range(3))))
    assert [said[0] for said in server.seen.values()] == [
        "pairs in IN",
        "a parameter in GROUP BY",
        "3000 parameters",
    ]
