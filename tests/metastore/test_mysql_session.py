"""What our sessions of MySQL and MariaDB do in the driver's place has the same results."""

import struct

import pymysql
import pytest
from hypothesis import given
from pymysql.connections import MySQLResult
from pymysql.protocol import MysqlPacket
from sqlalchemy import select

from compactor.metastore.catalog import Catalog
from compactor.metastore.db.dialects.mysql_session import Result
from compactor.metastore.model import Entity
from tests import strategies
from tests.metastore.actor import Hive
from tests.metastore.databases import kinds, metastore

LENGTHS = (0, 1, 250, 251, 252, 255, 65_535, 65_536, 70_000)


@pytest.fixture(params=kinds(["mariadb-4", "mysql5-4"]))
def shared_database(request, tmp_path):
    """Both products."""
    with metastore(request.param, request, tmp_path) as found:
        yield found


@given(row=strategies.protocol_rows())
def test_a_row_of_the_protocol(row):
    """Also one with fewer columns than were announced, or that breaks off in the middle of a value."""
    data, converters = row
    ours, drivers = Result.__new__(Result), MySQLResult.__new__(MySQLResult)
    for result in (ours, drivers):
        vars(result).update(unbuffered_active=False, converters=converters)

    def taken(result):
        try:
            return result._read_row_from_packet(MysqlPacket(data, "utf8"))
        except (AssertionError, struct.error) as error:
            return type(error)

    assert taken(ours) == taken(drivers)


def test_rows_of_a_server(shared_database):
    """Lengths on both sides of where the protocol writes them otherwise; all kinds of values that we read."""
    short = "NULL, 7, -7, 1.50, 1e3, x'00ff', b'1', '', 'ä', DATE'2024-01-01', TIMESTAMP'2024-01-01 12:00:00'"
    long = [f"REPEAT('ä', {length}), REPEAT('a', {length})" for length in LENGTHS]
    url = shared_database.engine.url
    driver = pymysql.connect(host=url.host, port=url.port, user=url.username, database=url.database, charset="utf8mb4")
    with driver, driver.cursor() as cursor, shared_database.engine.connect() as connection:
        for columns in (short, *long, ", ".join([short, *long])):
            query = f"SELECT 1, {columns} UNION ALL SELECT 2, {columns}"
            cursor.execute(query)
            assert list(map(tuple, connection.exec_driver_sql(query).all())) == list(cursor.fetchall())


def test_a_list_of_names(shared_database):
    """Each name of a list finds itself and no other name; a name that the column can't hold finds nothing."""
    names = ["p=a", "p=A", "p=it's", 'p="', "p=\\", "p=100%s", "p=%(a)s", "p=a, b", "p=)", "p=ä", "p= "]
    hive = Hive(shared_database)
    many = [f"p={number}" for number in range(60)]
    hive.add_partitions(hive.create_table(keys=(("p", "string"),)), names + many)
    catalog, others = Catalog(shared_database), ["p=\N{CJK UNIFIED IDEOGRAPH-4E00}", "p=", "p=absent", "P=a"]
    for some in (names, names[::2], names[1::2], names + many):
        assert catalog.places_for([Entity("db", "t", name) for name in (*some, *others)]).keys() == {
            Entity("db", "t", name) for name in some
        }
    partitions = shared_database.schema.partitions.c
    query = select(partitions.part_name).where(shared_database.dialect.among(partitions.part_name, "names"))
    with shared_database.reading() as connection:
        for some in ([], ["p=a"], [], ["p=A", "p=it's"]):
            assert sorted(connection.scalars(query, {"names": some})) == some
