"""What our sessions of MySQL and MariaDB write into statements in the driver's place means the same to the server."""

import pytest
from sqlalchemy import select

from compactor.metastore.catalog import Catalog
from compactor.metastore.model import Entity
from tests.metastore.actor import Hive
from tests.metastore.databases import kinds, metastore


@pytest.fixture(params=kinds(["mariadb-4", "mysql5-4"]))
def shared_database(request, tmp_path):
    """Both products."""
    with metastore(request.param, request, tmp_path) as found:
        yield found


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
