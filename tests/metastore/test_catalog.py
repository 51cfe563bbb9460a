"""Tables and partitions as the catalog has them, and what the real Hive wrote."""

import pytest
from sqlalchemy import event, insert, select, update

from compactor.metastore.candidates import Initiating
from compactor.metastore.catalog import Catalog
from compactor.metastore.db.database import Database
from compactor.metastore.model import CatalogColumn, CatalogPlace, Entity
from compactor.metastore.txn.transactions import Transactions
from compactor.planning.facts import NOT_STORED
from tests.fixtures.hive import metastore_sql
from tests.metastore.actor import P, T


def test_a_table_is_described_in_full(database, hive):
    """Columns in order, keys, buckets, sorting, parameters, its database's parameters, location, format."""
    columns = (("b", "array<struct<x:int>>"), ("a", "varchar(3)"))
    parameters = {"transactional_properties": "insert_only"}
    hive.create_table(
        columns=columns,
        keys=(("p", "string"),),
        buckets=4,
        sort=("a",),
        parameters=parameters,
        database_parameters={"no_auto_compaction": "true"},
    )
    table = Catalog(database).find_table("DB", "T")
    assert table.columns == tuple(CatalogColumn(*column) for column in columns)
    assert table.partition_keys == (CatalogColumn("p", "string"),)
    assert (table.buckets, table.sorted, table.insert_only, table.partitioned) == (4, True, True, True)
    assert (table.location, table.owner, table.table_type) == ("file:/w/db.db/t", "ann", "MANAGED_TABLE")
    assert table.input_format.endswith("OrcInputFormat")
    assert table.serde.endswith("OrcSerde")
    assert table.database_parameters == {"no_auto_compaction": "true"}


def test_how_files_are_read_is_told_with_all_that_may_change_it(database, hive):
    """A partition has a class of its own; properties are those of table and partition, and of the SerDes of both."""
    made = hive.create_table(
        keys=(("p", "string"),), parameters={"skip.header.line.count": "1", "transactional_properties": "insert_only"}
    )
    hive.add_partitions(made, ["p=1"], parameters={"of": "partition"})
    schema = database.schema

    def change(connection):
        for number, (serde_id,) in enumerate(connection.execute(select(schema.serdes.c.serde_id)).all()):
            values = {"serde_id": serde_id, "param_key": f"serde {number}", "param_value": "x"}
            connection.execute(insert(schema.serde_params).values(values))
        (own,) = connection.execute(select(schema.partitions.c.sd_id)).one()
        connection.execute(update(schema.sds).where(schema.sds.c.sd_id == own).values(input_format="of.Partition"))

    database.write(change)
    catalog = Catalog(database)
    table = catalog.find_table("db", "t")
    partition = catalog.find_partition(table, "p=1")
    whole, part = catalog.stored_as(table, None), catalog.stored_as(table, partition)
    assert whole.input_format.endswith("OrcInputFormat")
    assert (part.input_format, part.serde) == ("of.Partition", whole.serde)
    assert {("skip.header.line.count", "1"), ("of", "partition"), ("serde 0", "x"), ("serde 1", "x")} <= set(
        part.properties
    )
    assert {key for key, _ in whole.properties if key.startswith("serde")} == {"serde 0"}


def test_readers_are_handed_the_properties_of_table_and_serde(database, hive):
    """What a table says itself counts before its SerDe; what every SerDe has is left out."""
    hive.create_table(parameters={"orc.a": "of the table", "orc.b": "of the table"})
    schema = database.schema

    def change(connection):
        (serde_id,) = connection.execute(select(schema.serdes.c.serde_id)).one()
        for key in ("orc.b", "orc.c", "serialization.format"):
            values = {"serde_id": serde_id, "param_key": key, "param_value": "of the SerDe"}
            connection.execute(insert(schema.serde_params).values(values))

    database.write(change)
    found = Catalog(database).find_table("db", "t").reader_parameters
    assert {key: found.get(key) for key in ("orc.a", "orc.b", "orc.c", "serialization.format")} == {
        "orc.a": "of the table",
        "orc.b": "of the table",
        "orc.c": "of the SerDe",
        "serialization.format": None,
    }


def test_how_files_of_full_acid_tables_are_read_is_not_asked(database, hive):
    """They are ORC: it takes no statement to know that."""
    hive.create_table()
    catalog = Catalog(database)
    table = catalog.find_table("db", "t")
    asked = []
    listen = (database.engine, "before_cursor_execute", lambda *arguments: asked.append(arguments[2]))
    event.listen(*listen)
    assert catalog.stored_as(table, None) == NOT_STORED
    event.remove(*listen)
    assert not asked


def test_what_is_not_there_is_none(database, hive):
    """A missing table, database or partition is None."""
    hive.create_table(keys=(("p", "int"),))
    catalog = Catalog(database)
    assert catalog.find_table("db", "absent") is None
    assert catalog.find_table("absent", "t") is None
    assert catalog.find_partition(catalog.find_table("db", "t"), "p=1") is None


def test_unbucketed_is_0(database, hive):
    """Hive stores -1 for a table without buckets; here it is 0."""
    hive.create_table()
    assert Catalog(database).find_table("db", "t").buckets == 0


def test_a_partition_is_described_in_full(database, hive):
    """Name, location, its own columns and all parameters."""
    hive.add_partitions(
        hive.create_table(keys=(("p", "int"),)), ["p=1"], parameters={"numRows": "3", "no_cleanup": "true"}
    )
    catalog = Catalog(database)
    partition = catalog.find_partition(catalog.find_table("db", "t"), "p=1")
    assert (partition.name, partition.location, partition.columns) == (
        "p=1",
        "file:/w/db.db/t/p=1",
        (CatalogColumn("a", "int"),),
    )
    assert partition.parameters == {"numRows": "3", "no_cleanup": "true"}


def test_many_at_once_leave_out_what_is_missing(database, hive):
    """Facts of existing tables and partitions; what is missing isn't in the answer; statistics aren't either."""
    hive.add_partitions(
        hive.create_table(keys=(("p", "int"),)), ["p=1"], parameters={"numRows": "3", "no_cleanup": "true"}
    )
    hive.create_table("other.u")
    entities = [P, T, Entity("db", "t", "p=2"), Entity("other", "u"), Entity("db", "absent"), Entity("absent", "t")]
    catalog = Catalog(database)
    found = catalog.facts_for(entities)
    assert set(found) == {P, T, Entity("other", "u")}
    assert found[P][1].parameters == {"no_cleanup": "true"}
    assert found[T][1] is None
    assert set(catalog.tables_for(entities)) == {T, Entity("other", "u")}


def test_parameters_of_tables_are_told_with_those_of_their_databases(database, hive):
    """Those that were asked for, of transactional tables alone; keys in another case are others."""
    keys = ("no_auto_compaction", "NO_AUTO_COMPACTION")
    hive.create_table("db.plain", parameters={"other": "true", "No_Auto_Compaction": "true"})
    hive.create_table("db.own", parameters={"NO_AUTO_COMPACTION": "TRUE"})
    hive.create_table("db.old", parameters={"no_auto_compaction": "true", "transactional": "false"})
    off = {"no_auto_compaction": "true"}
    hive.create_table("off.u", parameters={"no_auto_compaction": "false"}, database_parameters=off)
    hive.create_table("off.v", database_parameters=off)
    assert Catalog(database).parameters_of_tables(keys) == {
        Entity("db", "own"): ({"NO_AUTO_COMPACTION": "TRUE"}, {}),
        Entity("off", "u"): ({"no_auto_compaction": "false"}, off),
        Entity("off", "v"): ({}, off),
    }
    assert Catalog(database).databases_with("no_auto_compaction") == {"off": "true"}
    assert Catalog(database).parameter_names(("auto", "zzz")) == {*keys, "No_Auto_Compaction"}


def test_parameters_of_partitions_are_told_by_partition(database, hive):
    """Those that were asked for, of exactly the partitions that are asked about: `p=a` isn't `p=A`."""
    keys = (("p", "string"),)
    plain = hive.create_table("db.plain", keys=keys, parameters={"no_cleanup": "true"})
    hive.add_partitions(plain, ["p=a", "p=b"])
    hive.add_partitions(plain, ["p=A"], parameters={"NO_CLEANUP": "TRUE", "numRows": "3"})
    several = hive.create_table("db.off", keys=keys)
    hive.add_partitions(several, ["p=1", "p=2"], parameters={"no_cleanup": "false", "NO_CLEANUP": "true"})
    asked = [Entity("db", "plain", f"p={name}") for name in "aAb"]
    asked += [Entity("db", "off"), Entity("db", "off", "p=2"), Entity("db", "off", "p=9"), Entity("db", "gone", "p=A")]
    assert Catalog(database).parameters_of_partitions(asked, ("no_cleanup", "NO_CLEANUP")) == {
        Entity("db", "plain", "p=A"): {"NO_CLEANUP": "TRUE"},
        Entity("db", "off", "p=2"): {"no_cleanup": "false", "NO_CLEANUP": "true"},
    }


def test_places_are_the_short_form_of_facts(database, hive):
    """
    The same tables and partitions as in the facts, with where they lie; parameters are asked for by partition,
    statistics left out.
    """
    hive.add_partitions(
        hive.create_table(keys=(("p", "int"),)), ["p=1", "p=3"], parameters={"numRows": "3", "no_cleanup": "true"}
    )
    hive.create_table("other.u")
    entities = [
        P,
        T,
        Entity("db", "t", "p=2"),
        Entity("db", "t", "p=3"),
        Entity("other", "u"),
        Entity("db", "absent"),
        Entity("absent", "t", "p=1"),
    ]
    catalog = Catalog(database)
    facts, places = catalog.facts_for(entities), catalog.places_for(entities)
    assert set(places) == {P, T, Entity("db", "t", "p=3"), Entity("other", "u")}
    for entity, (table, partition) in facts.items():
        assert places[entity] == CatalogPlace.of(table, partition)
    assert catalog.parameters_of([places[P].part_id]) == {places[P].part_id: {"no_cleanup": "true"}}


def test_bulk_facts_take_few_statements(database, hive):
    """1,200 partitions of a table and 30 tables with two partitions each are described in less than 30 statements."""
    names = [f"p={number}" for number in range(1200)]
    hive.add_partitions(hive.create_table(keys=(("p", "int"),)), names)
    entities = [Entity("db", "t", name) for name in names]
    for number in range(30):
        hive.add_partitions(hive.create_table(f"db.u{number}", keys=(("p", "int"),)), names[:2])
        entities += [Entity("db", f"u{number}", name) for name in names[:2]]
    statements = []
    event.listen(database.engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))
    found = Catalog(database).facts_for(entities)
    assert set(found) == set(entities)
    assert len(statements) < 30


def test_names_are_listed(database, hive):
    """Databases, transactional tables and partitions by name."""
    hive.add_partitions(hive.create_table(keys=(("p", "int"),)), ["p=2", "p=1"])
    hive.create_table("db.plain", parameters={"transactional": "false"})
    catalog = Catalog(database)
    assert catalog.databases() == ["db"]
    assert catalog.table_names("db") == ["t"]
    assert catalog.table_names("db", transactional=False) == ["plain", "t"]
    assert catalog.partition_names(catalog.find_table("db", "t")) == ["p=1", "p=2"]


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("*", "*"), True),
        (("db", "t_1"), True),
        (("d?", "t*"), True),
        (("db", "t%"), False),
        (("db", "t?"), False),
        (("db", "t__"), False),
        (("db", "t!_1"), False),
        (("db", "plain"), False),
        (("other", "*"), False),
        (("db", "雪*"), False),
        (("db", "t\\_1"), False),
    ],
)
def test_a_pattern_finds_transactional_tables(database, hive, names, found):
    """Only `*` and `?` mean something; what LIKE takes for its own stands for itself."""
    hive.create_table("db.t_1")
    hive.create_table("db.plain", parameters={"transactional": "false"})
    assert Catalog(database).any_table_like(*names) is found


@pytest.fixture(scope="module")
def written_by_hive(postgres, tmp_path_factory):
    """The metastore that the real Hive 4.0.1 left on PostgreSQL."""
    with Database(postgres.restore(metastore_sql("before", tmp_path_factory.mktemp("hive")))) as database:
        yield database


@pytest.mark.postgres
def test_hives_own_catalog_is_read(written_by_hive):
    """
    The tables that Hive made: kinds, buckets, partitions with odd names, columns that were added or widened later.
    """
    catalog = Catalog(written_by_hive)
    tables = {name: catalog.find_table("fx", name) for name in catalog.table_names("fx")}
    assert len(tables) == 19
    assert {name for name, table in tables.items() if table.insert_only} == {"mm", "mm_part", "mm_text", "mm_aborted"}
    assert tables["bucketed"].buckets == 4
    assert tables["bucketed"].bucket_columns == ("id",)
    assert (
        tables["evolved"].columns
        == (
            CatalogColumn("id", "int"),
            CatalogColumn("n", "bigint"),
            CatalogColumn("s", "string"),
            CatalogColumn("d", "decimal(8,2)"),
        )
        or tables["evolved"].columns
    )
    odd = catalog.partition_names(tables["odd_parts"])
    assert {
        "k=a b/n=1",
        "k=c%2Fd/n=2",
        "k=e%3Df%25%3A%23%22%27/n=3",
        "k=ü雪/n=4",
        "k=g/n=__HIVE_DEFAULT_PARTITION__",
    } < set(odd)
    found = catalog.facts_for(Entity("fx", "odd_parts", name) for name in odd)
    assert {partition.name for _, partition in found.values()} == set(odd)


@pytest.mark.postgres
def test_hives_own_snapshots_are_read(written_by_hive):
    """Open transaction 97 and the aborted ones 89 to 92 are seen, with the write ids they stand for."""
    transactions = Transactions(written_by_hive)
    txns = transactions.valid_txns()
    assert 97 in txns.open
    assert {89, 90, 91, 92} <= set(txns.aborted)
    open_txn = transactions.valid_write_ids("fx.open_txn", txns)
    assert (open_txn.high_watermark, open_txn.open) == (4, (2,))
    assert transactions.compactor_write_ids("fx.open_txn", txns).high_watermark == 1
    aborted = transactions.valid_write_ids("fx.aborted", txns)
    assert (aborted.high_watermark, aborted.aborted) == (5, (2, 3))
    migrated = transactions.valid_write_ids("fx.migrated", txns)
    assert migrated.high_watermark == 10_000_003


@pytest.mark.postgres
def test_hives_own_commits_are_candidates(written_by_hive):
    """Every table that Hive wrote to is a candidate, the aborted partition write with its count."""
    found = {str(candidate.entity): candidate for candidate in Initiating(written_by_hive).candidates()}
    assert found["fx.part_acid/dt=2024-01-01"].newest_write_id == 6
    assert found["fx.aborted_part/dt=p3"].aborted_count == 1
    assert found["fx.aborted"].aborted_count == 2
    assert all(candidate.active is None for candidate in found.values())
