"""Hive's columns as operators of MySQL alter them for names beyond `latin1`: what is compared stays exact."""

import pytest
from sqlalchemy import update

from compactor.acid.compaction import CompactionKind
from compactor.metastore.catalog import Catalog
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.db.database import Database
from compactor.metastore.db.serving import shortcomings
from compactor.metastore.housekeeping import Housekeeping
from compactor.metastore.locations.catalogued import Located
from compactor.metastore.locations.owners import Owners, loosely
from compactor.metastore.model import Entity
from tests.metastore.actor import Hive
from tests.metastore.databases import kinds, require_schema, server_for

GENERAL, UNICODE = "utf8 COLLATE utf8_general_ci", "utf8 COLLATE utf8_unicode_ci"
ALTERED = [
    pytest.param({}, id="as delivered"),
    pytest.param({"PART_NAME": GENERAL}, id="names"),
    pytest.param({"LOCATION": GENERAL}, id="locations"),
    pytest.param({"PART_NAME": UNICODE, "LOCATION": UNICODE}, id="both"),
    pytest.param({"PART_NAME": GENERAL, "LOCATION": UNICODE, "CTC_PARTITION": UNICODE}, id="two collations"),
    pytest.param({"PART_NAME": UNICODE, "LOCATION": "utf8mb4 COLLATE utf8mb4_general_ci"}, id="two character sets"),
]
COLUMNS = {
    "PART_NAME": ("PARTITIONS", 767),
    "LOCATION": ("SDS", 4000),
    "CTC_PARTITION": ("COMPLETED_TXN_COMPONENTS", 767),
}


@pytest.fixture(params=kinds(["mariadb-4", "mysql5-4"]))
def altering(request):
    """A new metastore with altered columns; other tests keep theirs."""
    server = server_for(request, request.param)
    url = server.create(require_schema(request.param))

    def alter(columns):
        name = url.rsplit("/", 1)[1]
        for column, kind in columns.items():
            table, length = COLUMNS[column]
            server.sql(
                name,
                f"SET foreign_key_checks=0; ALTER TABLE {table} MODIFY {column} varchar({length}) CHARACTER SET {kind}",
            )
        return Database(url)

    return alter


@pytest.mark.parametrize("columns", ALTERED)
def test_places_and_names_are_compared_by_every_byte(altering, columns):
    """
    Partitions in another table's directory that differs by case, or by a blank at the end, lie elsewhere; and those of
    one name are found under no other.
    """
    with altering(columns) as database:
        hive, schema = Hive(database), database.schema
        t_id = hive.create_table("db.t", keys=(("p", "string"),), location="hdfs://n/wh/d/t")
        u_id = hive.create_table("db.u", location="hdfs://n/wh/d/T")
        hive.add_partitions(t_id, ["p=a", "p=b", "p=c"])
        for there, moved in (("t/p=a", "T/p=a"), ("t/p=b", "t/p=b ")):
            at = schema.sds.c.location == f"hdfs://n/wh/d/{there}"
            hive.change(update(schema.sds).where(at).values(location=f"hdfs://n/wh/d/{moved}"))
        found = database.read(Located(schema).owners)
        assert sorted(owner.name for owner in found if owner.part_id) == ["db.t/p=a", "db.t/p=b"]
        way = Owners(found).in_the_way(loosely("hdfs://n/wh/d/T"), u_id, None)
        assert way is not None
        assert "db.t/p=a" in str(way)
        catalog = Catalog(database)
        table = catalog.find_table("db", "t")
        names = ["p=a", "p=A", "p=á", "p=城", "p=a "]
        assert [catalog.find_partition(table, name) is not None for name in names] == [True, False, False, False, False]
        entities = [Entity("db", "t", name) for name in names]
        assert set(catalog.facts_for(entities)) == set(catalog.places_for(entities)) == {entities[0]}
        assert catalog.find_table("db", "T") is None or catalog.find_table("db", "T").name == "t"
        for name in ("p=a", "p=A") * 2:
            hive.write("db.t", name)
        hive.write("db.other")
        Housekeeping(database).remove_duplicate_components()
        queue = Queue(database)
        altered = {f"{COLUMNS[column][0]}.{column}" for column in columns}
        assert all(name in " ".join(one.sentence for one in shortcomings(database)) for name in altered)
        assert all(queue.enqueue(entity, CompactionKind.MAJOR).accepted for entity in entities[:2])
        assert [entry.entity for entry in queue.entries(entity=entities[1])] == [entities[1]]
