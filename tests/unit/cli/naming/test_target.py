"""Names that users type."""

import pytest

from compactor.cli.naming.target import did_you_mean, parse_target, partition_names
from compactor.errors import UsageError
from compactor.metastore.model import Entity
from compactor.metastore.partition_names import DEFAULT_PARTITION, escaped


@pytest.mark.parametrize(
    ("text", "option", "expected"),
    [
        ("sales.orders", None, Entity("sales", "orders")),
        ("Sales.ORDERS", None, Entity("sales", "orders")),
        ("`sales`.`orders`", None, Entity("sales", "orders")),
        ("sales.`t?5*`", None, Entity("sales", "t?5*")),
        ("sales.orders/dt=2024-01-01", None, Entity("sales", "orders", "dt=2024-01-01")),
        ("sales.orders/dt=a/hour=1/", None, Entity("sales", "orders", "dt=a/hour=1")),
        (" sales.orders ", None, Entity("sales", "orders", None)),
        ("sales.orders/path=a ", None, Entity("sales", "orders", "path=a ")),
        ("sales.orders", "dt=X", Entity("sales", "orders", "dt=X")),
        ("sales.orders/dt=X", "dt=X", Entity("sales", "orders", "dt=X")),
    ],
)
def test_target_is_taken_apart(text, option, expected):
    """
    A target is DB.TABLE with an optional partition after a slash or in the option; names are lower-cased, values are
    not.
    """
    assert parse_target(text, option) == expected


@pytest.mark.parametrize("text", ["orders", "", ".orders", "sales.", "a.b.c", "sales.orders/"])
def test_target_that_names_no_table_says_how_to_write_one(text):
    """What is not DATABASE.TABLE is a usage error with an example."""
    with pytest.raises(UsageError, match=r"sales\.orders|dt=2024"):
        parse_target(text)


def test_two_partitions_are_one_too_many():
    """A partition after the slash and another in the option is a usage error."""
    with pytest.raises(UsageError, match="two partitions"):
        parse_target("sales.orders/dt=a", "dt=b")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a b", "a b"),
        ("c/d", "c%2Fd"),
        ("e=f%:#\"'", "e%3Df%25%3A%23%22%27"),
        ("ü雪", "ü雪"),
        ("", DEFAULT_PARTITION),
        ("\x01\x7f", "%01%7F"),
    ],
)
def test_values_are_escaped_as_hive_escapes_them(value, expected):
    """The escapes are those that Hive 4.0.1 was seen to write for the same values."""
    assert escaped(value) == expected


def test_a_value_may_be_given_escaped_or_raw():
    """Hive's own name comes first, then the raw value escaped, then the escaped value normalised."""
    assert partition_names("k=c%2Fd", ["k"]) == ("k=c%2Fd", "k=c%252Fd")
    assert partition_names("k=c/d", ["k"]) == ("k=c/d", "k=c%2Fd")
    assert "k=c%3Ad" in partition_names("k=c%3ad", ["k"])


def test_a_raw_value_may_hold_slashes_and_equal_signs():
    """Only the table's own keys split a spec."""
    assert "dt=a%2Fb%3Dc/hour=1" in partition_names("dt=a/b=c/hour=1", ["dt", "hour"])


def test_keys_come_in_any_order_and_letter_case():
    """The name is made in the table's order of keys."""
    assert partition_names("HOUR=1/dt=x", ["dt", "hour"]) == ("dt=x/hour=1",)


def test_a_key_that_is_given_twice_is_refused():
    """Which of the two is meant can't be told."""
    with pytest.raises(UsageError, match=r"'k=a/k=b' gives k twice"):
        partition_names("k=a/k=b", ["k"])


@pytest.mark.parametrize("spec", ["hour=1", "dt=x/minute=1", "x", "xdt=1/hour=2", "junk/dt=1/hour=2"])
def test_wrong_keys_are_answered_with_the_right_ones(spec):
    """A spec whose keys aren't the table's is a usage error that shows the form to write."""
    with pytest.raises(UsageError, match=r"dt=…/hour=…"):
        partition_names(spec, ["dt", "hour"])


def test_near_names_are_suggested():
    """A typo is answered with what was meant; something else with nothing."""
    assert did_you_mean("order", ["orders", "customers"]) == " (did you mean orders?)"
    assert did_you_mean("zzz", ["orders"]) == ""
