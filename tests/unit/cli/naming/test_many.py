"""Asking for, and taking back, many compactions at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import update

from compactor.cli.naming.many import condition, values_of
from compactor.errors import UsageError
from compactor.metastore.compaction_queue.queue import Queue

PARTITIONS = ["shop.events/day=2024-01-01/path=a%2Fb", "shop.events/day=2024-01-02/path=x y"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["shop"], [*PARTITIONS, "shop.orders"]),
        (["shop.*"], [*PARTITIONS, "shop.orders"]),
        (["SHOP.Ev*"], PARTITIONS),
        (["shop.*/day=2024-01-01*"], PARTITIONS[:1]),
        (["shop.events", "--where", "day > '2024-01-01'"], PARTITIONS[1:]),
        (["shop.*", "--where", "day >= 2024-01-01 AND path != 'x y'"], PARTITIONS[:1]),
        (["shop.events/path=x*/day=2024*"], PARTITIONS[1:]),
        (["shop.events/path=a/b", "--where", "day >= 2024"], PARTITIONS[:1]),
        (["shop.*/day=*/path=a/*"], PARTITIONS[:1]),
        (["shop.*/day=*/path=A%2f*"], PARTITIONS[:1]),
    ],
)
def test_what_is_asked_for_is_shown_first_and_queued_with_yes(shop, words, expected):
    """Nothing is queued without --yes; a second time all stands there already, which is nothing to do."""
    shown = shop.run("enqueue", *words)
    assert shop.json("queue") == []
    count = f"{len(expected)} compaction{'s' * (len(expected) > 1)}"
    assert (shown.exit_code, shown.stderr) == (0, f"nothing is queued yet: --yes queues {count}\n")
    told = shop.json("enqueue", *words, "--yes", "--type", "minor", "--pool", "night")
    assert [(one["entity"], one["accepted"], one["kind"]) for one in told] == [(one, True, "minor") for one in expected]
    assert {(one["entity"], one["pool"]) for one in shop.json("queue")} == {(one, "night") for one in expected}
    again = shop.run("enqueue", *words, "--yes")
    assert (again.exit_code, again.stderr) == (3, f"0 of {count} queued\n")


def test_what_is_queued_already_is_not_counted_among_what_would_be(shop):
    """Without --yes, too, it is shown with the entry in the way."""
    shop.run("enqueue", "shop.orders", "--type", "minor")
    shown = shop.run("enqueue", "shop.*")
    assert (shown.exit_code, shown.stderr) == (0, "nothing is queued yet: --yes queues 2 compactions\n")
    orders = next(one for one in shop.json("enqueue", "shop.*") if one["entity"] == "shop.orders")
    assert (orders["id"], orders["kind"], orders["state"], orders["accepted"]) == (1, "minor", "initiated", False)
    assert "already scheduled" in orders["message"]
    assert shop.run("enqueue", "shop.orders*").exit_code == 3


def test_the_preview_answers_as_the_queue_will(shop):
    """
    An entry that is ready for cleaning, and covers all that a compaction would, is in the way; of what would be queued
    it is told what it would wait for.
    """
    shop.run("enqueue", "shop.orders")
    with shop.open() as database:
        queue = database.schema.compaction_queue
        ready = {"cq_state": "r", "cq_highest_write_id": 14, "cq_next_txn_id": 1}
        database.write(lambda connection: connection.execute(update(queue).values(ready)))
    assert shop.run("enqueue", "shop.*").stderr == "nothing is queued yet: --yes queues 2 compactions\n"
    shown = {one["entity"]: one for one in shop.json("enqueue", "shop.*")}
    assert (shown["shop.orders"]["accepted"], shown["shop.orders"]["waits"]) == (False, None)
    assert [shown[one]["waits"] for one in PARTITIONS] == ["no-worker"] * 2
    shop.run("pause", "--pool", "night", "--reason", "x")
    assert [one["waits"] for one in shop.json("enqueue", "shop.ev*", "--pool", "night")] == ["paused"] * 2
    told = shop.json("enqueue", "shop.*", "--yes")
    assert {one["entity"] for one in told if one["accepted"]} == set(PARTITIONS)


def test_the_worst_are_those_that_are_due_each_with_its_kind(shop):
    """The shop's orders have thirteen deltas; events' partitions aren't due."""
    told = shop.json("enqueue", "shop", "--worst", "10", "--yes")
    assert [(one["entity"], one["kind"], one["accepted"]) for one in told] == [("shop.orders", "major", True)]


def test_what_would_be_refused_is_shown_and_not_queued(shop):
    """A sorted table among others is named with the reason."""
    with shop.open() as database:
        schema = database.schema
        sd_id = database.read(
            lambda connection: connection.scalar(
                schema.tbls.select().with_only_columns(schema.tbls.c.sd_id).where(schema.tbls.c.tbl_name == "orders")
            )
        )
        row = {"sd_id": sd_id, "column_name": "id", "order": 1, "integer_idx": 0}
        database.write(lambda connection: connection.execute(schema.sort_cols.insert().values(row)))
    told = {one["entity"]: one for one in shop.json("enqueue", "shop.*", "--yes")}
    assert told["shop.orders"]["refused"] == "sorted-table"
    assert {one["entity"] for one in shop.json("queue")} == set(PARTITIONS)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("enqueue shop.* --wait", 2, "--wait is for a single compaction"),
        ("enqueue shop.orders --yes", 2, "--yes is for many"),
        ("enqueue shpo", 4, "there is no database shpo (did you mean shop?); a table is written DATABASE.TABLE"),
        ("enqueue shop.order --worst 3", 4, "there is no table shop.order (did you mean shop.orders?)"),
        ("enqueue shop.plain --where a=1", 4, "shop.plain"),
        ("enqueue shop.events --where day", 2, "--where: 'day' is no condition"),
        ("enqueue a.b.c*", 2, "'a.b.c*' names no tables"),
        ("cancel shop.*", 3, "nothing that fits is initiated or being worked on"),
        (
            "enqueue * --where day=3",
            3,
            "no partition that fits meets --where (of 2 partitions, such as shop.events/day=",
        ),
        ("enqueue shop.events --worst 3", 3, "none of 2 directories is due"),
        ("enqueue shop.events/day=3*", 3, "no partition fits day=3* (of 2 partitions, such as shop.events/day="),
        ("enqueue shop.events/dya=3*", 2, "no partition has dya (did you mean day?); keys of these tables: day, path"),
        ("enqueue shop.orders/day=*", 2, "no partition has day; these tables have no partitions"),
        ("enqueue shop.ordres*", 3, "no transactional table fits shop.ordres* (did you mean orders?)"),
        ("enqueue shop.x* --where day=3", 3, "no transactional table fits shop.x*"),
        ("report shop.plain*", 3, "no transactional table fits shop.plain*"),
        ("simulate o*.* --set delta_count=3", 3, "no transactional table fits o*.*"),
        ("orphans shop.x*", 3, "no transactional table fits shop.x*"),
        ("enqueue shop.* --where hour=3", 2, "no partition has hour; keys of these tables: day, path"),
        ("enqueue shop.orders --where hour=3", 2, "no partition has hour; these tables have no partitions"),
        ("cancel ٣", 4, "there is no database ٣"),
        ("cancel shop.order", 4, "there is no table shop.order (did you mean shop.orders?)"),
        ("retry 77", 2, "there is no compaction 77"),
    ],
)
def test_what_makes_no_sense_is_refused(shop, words, code, said):
    """In one line, and nothing is queued."""
    result = shop.run(*words.split())
    assert (result.exit_code, said in result.stderr) == (code, True), result.stderr
    assert shop.json("queue") == []


values = st.text("ab1-", min_size=1, max_size=4)


@given(values, values, st.sampled_from(["<", "<=", ">", ">=", "=", "!=", "<>"]))
def test_conditions_compare_text_as_text(one, other, sign):
    """Whatever is quoted or not; the opposite sign is true exactly when the sign isn't."""
    opposite = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "!=", "!=": "=", "<>": "="}[sign]
    met = condition(f"K {sign} '{other}'")({"k": one})
    assert condition(f"k{opposite}{other}")({"k": one}) is not met
    assert not condition(f"k {sign} '{other}'")({"j": one})


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("hour < 9", {"hour": "10"}, False),
        ("hour < 9", {"hour": "08"}, True),
        ("dt >= '2024-01-01' and dt < '2024-02-01'", {"dt": "2024-01-31"}, True),
        ("a = 'x and y' and b = 1", {"a": "x and y", "b": "1.0"}, True),
        ('a = "it\'s"', {"a": "it's"}, True),
        ("a = 9007199254740993", {"a": "9007199254740992"}, False),
        ("a = 20240101123456789.0", {"a": "20240101123456789"}, True),
    ],
)
def test_conditions(text, values, expected):
    """Numbers are compared as numbers; `and` inside quotes is text."""
    assert condition(text)(values) is expected


@pytest.mark.parametrize("text", ["", "dt", "dt <", "dt < 'x", "dt < 1 or dt > 2", "dt < 1 and", "< 3", "a = b c"])
def test_what_is_no_condition(text):
    """Refused instead of chosen by half of it."""
    with pytest.raises(UsageError, match="is no condition"):
        condition(text)


def test_values_are_as_they_were_before_hive_escaped_them():
    """And none where Hive had none."""
    assert values_of("Day=a%2Fb/p=__HIVE_DEFAULT_PARTITION__/q=x=y") == {"day": "a/b", "q": "x=y"}


def test_many_are_cancelled_with_yes(shop):
    """They are shown first; those of other tables stay."""
    shop.run("enqueue", "shop", "--yes")
    shown = shop.run("cancel", "shop.ev*")
    assert (shown.exit_code, shown.stderr) == (0, "nothing is cancelled yet: --yes cancels 2 compactions\n")
    assert len(shop.json("queue")) == 3
    told = shop.json("cancel", "shop.ev*", "--yes")
    expected = [(one, "aborted", "taken out of the queue") for one in PARTITIONS]
    assert [(one["entity"], one["state"], one["message"]) for one in told] == expected
    assert [one["entity"] for one in shop.json("queue")] == ["shop.orders"]


def test_what_cant_be_compacted_is_not_asked_for_again(shop):
    """By the same judgement as when it is asked for by name: its partition may have gone since."""
    shop.run("enqueue", PARTITIONS[0])
    shop.run("cancel", "1")
    with shop.open() as database:
        rows = database.schema.partitions
        gone = rows.delete().where(rows.c.part_name.like("day=2024-01-01%"))
        database.write(lambda connection: connection.execute(gone))
    result = shop.run("retry", "1")
    assert (result.exit_code, "has no partition" in result.stderr) == (4, True), result.stderr
    assert shop.json("queue") == []


def test_what_was_cancelled_is_told_when_interrupted(shop, monkeypatch):
    """Each is cancelled by itself."""
    shop.run("enqueue", "shop", "--yes")
    cancel, left = Queue.cancel, [2]

    def interrupted(*args):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return cancel(*args)

    monkeypatch.setattr(Queue, "cancel", interrupted)
    result = shop.run("cancel", "shop", "--yes")
    assert (result.exit_code, "2 of 3 compactions cancelled\n" in result.stderr) == (130, True)
    assert len(shop.json("queue")) == 1


def test_what_ended_badly_is_asked_for_again(shop):
    """With its kind, pool and properties, but not its urgency; what succeeded, or is queued, isn't."""
    asked = ("--property", "orc.compress=ZSTD", "--property", "compactor.urgency=0")
    shop.run("enqueue", "shop.orders", "--type", "minor", "--pool", "night", *asked)
    assert shop.json("queue")[0]["urgency"] == 0
    waits = shop.run("retry", "1")
    assert (waits.exit_code, waits.stderr) == (
        3,
        "compaction 1 hasn't ended: it is initiated\nit waits (no-worker): no daemon has workers\n",
    )
    shop.run("cancel", "1")
    told = shop.json("retry", "1")
    assert told["accepted"] is True
    (entry,) = shop.json("queue")
    assert (entry["id"], entry["kind"], entry["pool"], entry["properties"], entry["urgency"]) == (
        told["id"],
        "minor",
        "night",
        {"orc.compress": "ZSTD"},
        4,
    )
