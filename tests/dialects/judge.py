"""
The statements of a product of which no server can be had: written by the whole project, run on another product, judged
by a parser.

A `StandIn` is a dialect that runs on SQLite and writes what the product's dialect would: its
types, lists and texts. A `Judge` listens to the engine, compiles each statement for the product, and says
what its server would refuse, as far as a parser and the columns of Hive's own scripts tell.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import sqlglot
from sqlalchemy import ColumnElement, create_engine, event, make_url
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import DDLElement
from sqlalchemy.sql.elements import TextClause
from sqlglot import exp

from compactor.metastore.db.database import Database
from compactor.metastore.db.dialects import Dialect
from compactor.metastore.db.dialects.sqlite import SQLite
from compactor.metastore.db.own_tables import OWN_TABLES
from compactor.metastore.db.sql import BATCH
from compactor_dialects.oracle import Oracle
from compactor_dialects.sqlserver import SQLServer
from tests.metastore.embedded import columns

_DAEMON = Path(__file__).resolve().parents[2] / "compactor"
PRODUCTS: dict[str, type[Dialect]] = {"oracle": Oracle, "sqlserver": SQLServer}
PARSERS = {"oracle": "oracle", "sqlserver": "tsql"}
_BINARY = "Latin1_General_100_BIN2"
_PARAMETERS = 2100
_EQUALS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In)
_TRUTHS = (*_EQUALS, exp.And, exp.Or, exp.Not, exp.Exists, exp.Like, exp.Is, exp.Between)


class _Clock(ColumnElement):
    """The clock of whichever product the statement is compiled for."""

    inherit_cache = True
    type = SQLite().now_ms().type


@compiles(_Clock)
def _clock(_element, compiler, **options):
    products = {one.schemes[0]: one for one in PRODUCTS.values()}
    return compiler.process(products.get(compiler.dialect.name, SQLite)().now_ms(), **options)


def stand_in(product: str) -> Dialect:
    """A dialect that runs on SQLite, and writes as the product's."""
    theirs = PRODUCTS[product]()

    class StandIn(SQLite):
        column_types = {**SQLite.column_types, **theirs.column_types}  # noqa: RUF012 - as the class it stands in for
        at_once = theirs.at_once
        now_ms = staticmethod(_Clock)
        among = staticmethod(theirs.among)
        among_pairs = staticmethod(theirs.among_pairs)
        long_text = staticmethod(theirs.long_text)

        def prepare(self, engine, **options):
            super().prepare(engine, **options)
            event.listen(engine, "connect", _teach)

    return StandIn()


def _teach(connection, _record):
    """What SQLite needs to run the product's expressions."""
    connection.create_collation(_BINARY, lambda one, other: (one > other) - (one < other))
    connection.create_function("to_clob", 1, lambda value: value)


def engine_of(product: str, url: str | None = None, *, read_only: bool = False):
    """An engine of the product without its driver; it never connects."""

    class NoError(Exception):
        pass

    dialect = PRODUCTS[product]()
    driver = SimpleNamespace(
        Error=NoError, DatabaseError=NoError, paramstyle="named" if product == "oracle" else "qmark",
        __version__="26.1.0", version="5.5.0", version_tuple=(26, 1, 0), apilevel="2.0", init_oracle_client=None,
        defaults=SimpleNamespace(),
    )  # fmt: skip
    address = make_url(url or dialect.example).set(drivername=f"{dialect.schemes[0]}+{dialect.driver}")
    engine = create_engine(dialect.connecting(address), module=_Module(driver), **dialect.options(10))
    dialect.prepare(engine, read_only=read_only, idle_transaction_seconds=30)
    if product == "sqlserver":
        engine.dialect.server_version_info = (13, 0)
        engine.dialect._setup_version_attributes()
    else:
        engine.dialect.server_version_info = (12, 1)
    return engine


class _Module:
    """A driver with every name that SQLAlchemy may look up."""

    def __init__(self, known):
        self.__dict__.update(vars(known))

    def __getattr__(self, name):
        return type(name, (), {})


class Judge:
    """
    What a product would refuse of the statements of a database.

    Args:
        version: of Hive's schema.
    """

    def __init__(self, product: str, version: str) -> None:
        self._product = product
        self._version = version
        self._dialect = engine_of(product).dialect
        self._tables = dict(columns(product, version)) | {
            table.name: {column.name: "own" for column in table.columns} for table in OWN_TABLES
        }
        self.seen: dict[str, list[str]] = {}
        """Each statement, as the product's server would get it, and what is wrong with it."""

    @property
    def wrong(self) -> dict[str, list[str]]:
        return {statement: said for statement, said in self.seen.items() if said}

    def listen(self, database: Database) -> None:
        event.listen(database.engine, "before_execute", self._note)

    def _note(self, _connection, element, several, one, _options):
        if isinstance(element, TextClause) or not hasattr(element, "compile") or not _is_ours():
            return
        given = [row for row in ((several or []) if several else [one or {}]) if isinstance(row, Mapping)]
        self.judge(element, given[0] if given else {})

    def judge(self, element, given: Mapping[str, object] | None = None) -> str:
        """Compile a statement, and remember what is wrong with it; returns the statement."""
        given = given or {}
        keys = list(given) if getattr(element, "is_dml", False) else None
        try:
            compiled = element.compile(dialect=self._dialect, **({"column_keys": keys} if keys else {}))
        except Exception as error:
            self.seen[str(element)] = [f"doesn't compile: {error}"]
            return ""
        if isinstance(element, DDLElement):
            statement, values = str(compiled), {}
        else:
            expanded = compiled.construct_expanded_state(given)
            statement, values = expanded.statement, compiled.construct_params(given)
        statement = " ".join(statement.split())
        if statement not in self.seen:
            self.seen[statement] = [] if isinstance(element, DDLElement) else list(self._parameters(compiled, values))
            self.seen[statement] += self._objections(statement)
            self.seen[statement] += self._unstorable(element, values)
            if getattr(element, "_for_update_arg", None) is not None:
                self.seen[statement] += self._unlocked(statement)
        return statement

    def _parameters(self, compiled, values) -> Iterator[str]:
        """More parameters than the product takes, were each list as long as it may be."""
        if self._product == "sqlserver":
            larger = dict(values)
            for name, bind in compiled.binds.items():
                found = values.get(name)
                if bind.expanding and found and isinstance(next(iter(found)), int | str):
                    named = name.startswith(("owners", "partitions", "among", "tables"))
                    most = PRODUCTS[self._product].at_once if named else BATCH
                    larger[name] = (
                        list(found) + [next(iter(found))] * (most - len(found)) if self._grows(found) else found
                    )
            count = len(compiled.construct_expanded_state(larger).positional_parameters)
            if count > _PARAMETERS:
                yield f"{count} parameters"

    @staticmethod
    def _grows(found) -> bool:
        return all(isinstance(one, int) for one in found)

    def _unstorable(self, element, values) -> Iterator[str]:
        if self._product == "oracle" and getattr(element, "is_dml", False):
            kinds = self._tables.get(element.table.name.upper(), {})
            for name, value in values.items():
                if value == "" and kinds.get(name.upper(), "").endswith("not null"):
                    yield f"{name}: an empty text is NULL"

    def _unlocked(self, statement: str) -> Iterator[str]:
        if self._product == "sqlserver" and "WITH (UPDLOCK, ROWLOCK)" not in statement:
            yield "no lock"
        if self._product == "oracle" and not statement.endswith(" FOR UPDATE"):
            yield "no FOR UPDATE at the end"
        if self._product == "oracle" and any(
            word in statement for word in ("FETCH FIRST", "DISTINCT", "GROUP BY", "ROWNUM")
        ):
            yield "FOR UPDATE of what isn't rows of a table"

    def _objections(self, statement: str) -> Iterator[str]:
        try:
            tree = sqlglot.parse_one(statement, dialect=PARSERS[self._product])
        except sqlglot.errors.ParseError as error:
            yield f"doesn't parse: {error.errors[0]['description']}"
            return
        if isinstance(tree, exp.Command):
            yield "isn't parsed"
            return
        if not isinstance(tree, exp.Create):
            yield from self._unknown(tree)
        yield from self._untrue(tree)
        yield from self._ungrouped(tree)
        if self._product == "oracle":
            yield from self._clobs(tree)
            yield from ("a list of more than 1,000" for one in tree.find_all(exp.In) if len(one.expressions) > 1000)
            yield from (f"no FROM in {one.sql()}" for one in tree.find_all(exp.Select) if not one.args.get("from_"))
        else:
            yield from ("pairs in IN" for one in tree.find_all(exp.In) if isinstance(one.this, exp.Tuple))
            yield from ("a parameter in GROUP BY" for one in tree.find_all(exp.Group) if one.find(exp.Placeholder))

    def _unknown(self, tree: exp.Expression) -> Iterator[str]:
        """Tables and columns that the product's schema doesn't have."""
        local = {one.alias.upper() for one in tree.find_all(exp.CTE)}
        known: set[str] = {one.alias.upper() for one in tree.find_all(exp.Alias)}
        for table in tree.find_all(exp.Table):
            name = table.name.upper()
            if name in self._tables:
                known |= self._tables[name].keys()
            elif name not in local and name != "DUAL":
                yield f"no table {table.name}"
        known |= {
            column.upper() for one in tree.find_all(exp.Table) for column in self._tables.get(one.name.upper(), ())
        }
        for column in tree.find_all(exp.Column):
            if column.name.upper() not in known and column.name != "*" and column.name.upper() not in _WORDS:
                yield f"no column {column.name}"
            if self._product == "oracle" and column.this.quoted and column.name != column.name.upper():
                yield f"{column.name} is another name than in upper case"

    def _untrue(self, tree: exp.Expression) -> Iterator[str]:
        """Conditions where the products want values."""
        for one in tree.find_all(exp.Select):
            for value in one.expressions:
                if isinstance(value.unalias(), _TRUTHS):
                    yield f"a condition as a value: {value.sql()}"
        for one in tree.find_all(exp.Literal, exp.Boolean):
            if isinstance(one.parent, exp.And | exp.Or | exp.Not | exp.Where | exp.Having):
                yield f"a value as a condition: {one.sql()}"

    @staticmethod
    def _ungrouped(tree: exp.Expression) -> Iterator[str]:
        """Columns that are selected beside GROUP BY, and aren't in it."""
        for one in tree.find_all(exp.Select):
            if (group := one.args.get("group")) is None:
                continue
            grouped = {each.sql() for each in group.expressions}
            for value in one.expressions:
                bare = value.unalias()
                if bare.sql() in grouped or (isinstance(bare, exp.Collate) and bare.this.sql() in grouped):
                    continue
                yield from (
                    f"{column.sql()} isn't grouped"
                    for column in bare.find_all(exp.Column)
                    if column.find_ancestor(exp.AggFunc) is None and column.sql() not in grouped
                )

    def _clobs(self, tree: exp.Expression) -> Iterator[str]:
        texts = {
            (table, column) for table, found in self._tables.items() for column, kind in found.items() if "clob" in kind
        }
        texts_here = {
            column for table, column in texts if any(one.name.upper() == table for one in tree.find_all(exp.Table))
        }
        for column in tree.find_all(exp.Column):
            if column.name.upper() in texts_here:
                above = column.parent
                while isinstance(above, exp.Lower | exp.Coalesce | exp.Paren):
                    above = above.parent
                sets = isinstance(above, exp.EQ) and isinstance(above.parent, exp.Update)
                if isinstance(above, (*_EQUALS, exp.Group, exp.Ordered)) and not sets:
                    yield f"CLOB {column.name} in {above.sql()}"
                holder = column.find_ancestor(exp.Select)
                if holder is not None and holder.args.get("distinct") and column.find_ancestor(exp.Where) is None:
                    yield f"CLOB {column.name} in DISTINCT"


def _is_ours() -> bool:
    """Whether it is the daemon that executes a statement, not a test."""
    frame = sys._getframe(2)
    while frame is not None and "/sqlalchemy/" in frame.f_code.co_filename:
        frame = frame.f_back
    return frame is not None and Path(frame.f_code.co_filename).is_relative_to(_DAEMON)


_WORDS = {"SYSTIMESTAMP", "SYSDATE", "USER", "ROWNUM", "MILLISECOND"}
"""Words of SQL that the parser takes for columns."""
