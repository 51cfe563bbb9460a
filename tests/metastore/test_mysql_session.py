"""What our sessions of MySQL and MariaDB do in the driver's place has the same results."""

import io
import itertools
import struct

import pymysql
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymysql.connections import MySQLResult
from sqlalchemy import select

from compactor.metastore.catalog import Catalog
from compactor.metastore.db.dialects.mysql_session import Result, Session
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


class Sending(io.RawIOBase):
    """What a server sent, a few bytes at a time."""

    def __init__(self, data, sizes):
        self._left, self._sizes = memoryview(data), itertools.cycle(sizes)

    def readable(self):
        return True

    def readinto(self, buffer):
        size = min(len(buffer), len(self._left), next(self._sizes))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


ENDS = {
    "the end": b"\xfe\x00\x00\x02\x00",
    "an error": b"\xff\x28\x05#70100Query execution was interrupted",
    "silence": None,
}


@given(sent=strategies.protocol_rows(), end=st.sampled_from(sorted(ENDS)), arriving=st.data())
def test_rows_of_the_protocol(sent, end, arriving):
    """
    However they arrive: whole, in pieces, many at once; also one with fewer columns than were announced or that breaks
    off in the middle of a value, and packets with a number that isn't the next.
    """
    first, skipped = arriving.draw(st.integers(0, 255)), arriving.draw(st.integers(0, 19))
    sizes = arriving.draw(st.lists(st.integers(1, 500), min_size=1, max_size=5))
    room = arriving.draw(st.integers(1, 700))
    packets, converters = sent
    number, data = first, b""
    for at, packet in enumerate([*packets, *([ENDS[end]] if ENDS[end] is not None else [])]):
        data += len(packet).to_bytes(3, "little") + bytes([(number + (at >= skipped > 9)) % 256]) + packet
        number = (number + 1) % 256

    def taken(kind):
        session, result = Session.__new__(Session), kind.__new__(kind)
        vars(session).update(
            _rfile=io.BufferedReader(Sending(data + b"more", sizes), room), _next_seq_id=first, _read_timeout=None
        )
        vars(session).update(_current_timeout=None, encoding="utf8", _result=None, _sock=None, _secure=False)
        vars(result).update(connection=session, converters=converters, unbuffered_active=False)
        try:
            result._read_rowdata_packet()
        except pymysql.Error as error:
            return type(error), error.args
        except ValueError:  # a number that is none, a text in another encoding
            return ValueError
        except (AssertionError, struct.error, LookupError) as error:
            return type(error)
        return result.rows, result.affected_rows, session._next_seq_id, session._rfile.read()

    assert taken(Result) == taken(MySQLResult)


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
