"""Hive's type strings and the trees they stand for."""

import pickle

import pytest
from hypothesis import given

from compactor.acid.types import ACID_NAMES, HiveType, Kind, acid_type, parse_hive_type, row_type, to_hive_string
from compactor.errors import RefusedError
from compactor.reasons import Reason
from tests import strategies


@given(strategies.row_structs(unions=True))
def test_every_type_is_read_back_as_it_was_spelled(tree):
    """Spelling a type and parsing it gives the same type, whatever its field names."""
    assert parse_hive_type(to_hive_string(tree)) == tree


@pytest.mark.parametrize(
    ("spelled", "meant"),
    [
        ("int", HiveType(Kind.INT)),
        (" INTEGER ", HiveType(Kind.INT)),
        ("decimal", HiveType(Kind.DECIMAL, precision=10, scale=0)),
        ("decimal(7)", HiveType(Kind.DECIMAL, precision=7, scale=0)),
        ("numeric( 7 , 2 )", HiveType(Kind.DECIMAL, precision=7, scale=2)),
        ("varchar(20)", HiveType(Kind.VARCHAR, length=20)),
        ("double precision", HiveType(Kind.DOUBLE)),
        ("timestamp with  local time zone", HiveType(Kind.TIMESTAMP_INSTANT)),
        (
            "struct<a b:int,`c``d`:string>",
            HiveType(Kind.STRUCT, (HiveType(Kind.INT), HiveType(Kind.STRING)), ("a b", "c`d")),
        ),
        (
            "array< map<string,uniontype<int,date>> >",
            HiveType(
                Kind.LIST,
                (
                    HiveType(
                        Kind.MAP,
                        (HiveType(Kind.STRING), HiveType(Kind.UNION, (HiveType(Kind.INT), HiveType(Kind.DATE)))),
                    ),
                ),
            ),
        ),
    ],
)
def test_spellings_that_hive_accepts(spelled, meant):
    """Synonyms, defaults, blanks and quoted field names mean what Hive takes them for."""
    assert parse_hive_type(spelled) == meant


@pytest.mark.parametrize(
    "spelled",
    [
        "",
        "void",
        "interval_day_time",
        "decimal(39,1)",
        "decimal(3,4)",
        "decimal(1,1,1)",
        "char",
        "varchar()",
        "array<int",
        "array<int,int>",
        "map<int>",
        "struct<a int>",
        "map<array<int> string>",
        "struct<`a` int>",
        "struct<`a:int>",
        "uniontype<>",
        "int x,",
        "array",
        "char(x)",
        "int>",
    ],
)
def test_what_isnt_a_type_gets_one_line(spelled):
    """A string that no column can have is refused with the place where reading stopped."""
    with pytest.raises(RefusedError) as refused:
        parse_hive_type(spelled)
    assert refused.value.reason is Reason.SCHEMA_MISMATCH
    assert "\n" not in str(refused.value)


def test_the_acid_struct_has_six_fields_and_ids_from_seven_on():
    """A table's first column has column id 7 in its files."""
    tree = acid_type(row_type([("a", "int"), ("s", "struct<x:int>")]))
    assert tree.names == ACID_NAMES
    assert [str(node) for node in tree.walk()][7:] == ["int", "struct<x:int>", "int"]


def test_a_type_knows_what_is_inside_it():
    """Kinds are found at any depth."""
    assert parse_hive_type("array<map<string,timestamp>>").holds((Kind.TIMESTAMP,))
    assert not parse_hive_type("array<map<string,date>>").holds((Kind.TIMESTAMP, Kind.UNION))


@given(strategies.row_structs(unions=True))
def test_types_travel_to_other_processes(tree):
    """A type that was asked for its parts is pickled like one that wasn't, and comes back as it was."""
    before = pickle.dumps(tree)
    assert next(iter(tree.walk())) == tree
    assert pickle.dumps(tree) == before
    assert pickle.loads(before) == tree
