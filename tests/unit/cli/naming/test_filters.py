"""Choosing entries: by place, pattern, kind, pool, worker and age; and watching them."""

import json
import re
import shlex
import time
from contextlib import closing
from dataclasses import replace

import pytest
import yaml
from sqlalchemy import delete, insert, select, update

from compactor.cli.naming import filters
from compactor.cli.output import View
from compactor.cli.session import Session
from compactor.errors import RefusedError, UnreachableError
from compactor.reasons import Reason

NOTHING = View((), ())
PARTITION = "shop.events/day=2024-01-01/path=a%2Fb"


@pytest.fixture
def queued(shop):
    """Three entries: one of a pool and less urgent, one that a worker has, one of a partition."""
    shop.run("enqueue", "shop.orders", "--pool", "night", "--type", "minor", "--property", "compactor.urgency=1")
    shop.run("enqueue", PARTITION)
    shop.run("enqueue", "shop.events/day=2024-01-02/path=x y")
    with shop.open() as database:
        queue = database.schema.compaction_queue
        taken = {"cq_state": "w", "cq_worker_id": "edge7-compactor-1", "cq_start": 1}
        database.write(lambda connection: connection.execute(update(queue).where(queue.c.cq_id == 3).values(taken)))
    return shop


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        ("", [1, 2, 3]),
        ("shop", [1, 2, 3]),
        ("sh*", [1, 2, 3]),
        ("shop.*", [1, 2, 3]),
        ("SHOP.ORD*", [1]),
        ("shop.events", [2, 3]),
        (PARTITION, [2]),
        ("shop.e?ents/day=2024-01-0?*", [2, 3]),
        ("*.*/day=2024-01-02*", [3]),
        ("shop.events/path=x*/day=2024*", [3]),
        ("shop.events/PATH=a/?", [2]),
        ("--pool night", [1]),
        ("--pool default", [2, 3]),
        ("--type minor", [1]),
        ("--worker edge7*", [3]),
        ("--since 1h", [1, 2]),
        ("--worker *", [3]),
        ("--pool NIGHT", [1]),
        ("--sort age", [3, 1, 2]),
        ("--sort table", [2, 3, 1]),
        ("--sort urgency", [2, 1, 3]),
        ("shop.events --state working", [3]),
        ("--limit 2", [1, 2]),
    ],
)
def test_what_is_chosen(queued, words, ids):
    """A database, a pattern, a table, a partition; options narrow it further."""
    assert [found["id"] for found in queued.json("queue", *words.split())] == ids


def test_what_the_limit_leaves_out_is_said(queued):
    """In one line on stderr."""
    assert queued.run("queue", "--limit", "1").stderr.endswith("2 more; --limit shows them\n")


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        ("", [3, 2, 1]),
        ("--sort id", [3, 2, 1]),
        ("--sort age", [2, 3, 1]),
        ("--sort table", [2, 3, 1]),
        ("--sort age --limit 1", [2]),
        ("--sort age --limit 1 shop.orders", [1]),
        ("--sort table --limit 2 --failed", [2, 3]),
    ],
)
def test_the_history_is_sorted_before_it_is_cut(queued, words, ids):
    """By default the newest come first; by age what ended longest ago; by table the names in order."""
    with queued.open() as database:
        queue, history = database.schema.compaction_queue, database.schema.completed_compactions
        names = {"cc_id": "cq_id", "cc_database": "cq_database", "cc_table": "cq_table", "cc_partition": "cq_partition"}
        ended = {1: 3000, 2: 1000, 3: 2000}

        def end(connection):
            for row in connection.execute(select(queue)).mappings().all():
                values = {theirs: row[ours] for theirs, ours in names.items()}
                values |= {"cc_type": "a", "cc_state": "f", "cc_end": ended[row["cq_id"]]}
                connection.execute(insert(history).values(values))
            connection.execute(delete(queue))

        database.write(end)
    assert [found["id"] for found in queued.json("history", *words.split())] == ids


def test_history_is_chosen_likewise(queued):
    """`--failed` are those that didn't succeed."""
    assert queued.run("cancel", "1").exit_code == 0
    for words, count in (
        ("", 1),
        ("--failed", 1),
        ("--state succeeded", 0),
        ("shop.e*", 0),
        ("--since 1min shop.o*", 1),
    ):
        assert len(queued.json("history", *words.split())) == count, words


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("queue shpo", "there is no database shpo (did you mean shop?); a table is written DATABASE.TABLE"),
        ("queue shop.order", "there is no table shop.order (did you mean shop.orders?)"),
        ("queue a.b.c*", "'a.b.c*' names no tables"),
        ("queue sh*/dt=1", "'sh*/dt=1' names no tables"),
        ("queue other.*", "there is no database other"),
        ("queue shop.events/dya=*", "no partition has dya (did you mean day?); keys of these tables: day, path"),
        ("why shop.orders/day=*", "no partition has day; these tables have no partitions"),
        ("history --since soon", "--since: 'soon' is no length of time"),
    ],
)
def test_what_makes_no_sense_is_refused(shop, words, said):
    """With the word that is wrong."""
    result = shop.run(*words.split())
    assert result.exit_code in {2, 4}
    assert said in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("queue --pool nope", "nothing that fits is queued"),
        ("queue --state working shop.orders", "nothing that fits is queued"),
        ("history", "no compaction has ended yet"),
        ("history --failed", "no compaction that fits has ended"),
        ("queue ''", "an empty name is no database's"),
    ],
)
def test_an_empty_answer_says_of_what(queued, words, said):
    """Nothing there is other than nothing that fits."""
    assert said in queued.run(*shlex.split(words)).stderr


@pytest.mark.parametrize("command", ["queue", "history", "why", "cancel"])
def test_a_pattern_that_fits_no_table_is_said(queued, command):
    """In one line with near names; nothing on stdout, and the exit code says that there was nothing to do."""
    for pattern, near in (
        ("shop.ordres*", " (did you mean orders?)"),
        ("*.plain", ""),
        ("shpo*", " (did you mean shop?)"),
    ):
        result = queued.run("-o", "json", command, pattern)
        expected = (3, "", f"no transactional table fits {pattern}{near}\n")
        assert (result.exit_code, result.stdout, result.stderr) == expected


def test_a_table_that_is_gone_is_found_in_queue_and_history(queued):
    """Patterns fit what queue and history tell of, too."""
    queued.run("cancel", "1")
    with queued.open() as database:
        tables = database.schema.tbls
        database.write(
            lambda connection: connection.execute(update(tables).values(tbl_name=tables.c.tbl_name + "_old"))
        )
    assert [found["id"] for found in queued.json("queue", "shop.events/path=x*")] == [3]
    assert [found["id"] for found in queued.json("history", "shop.orders*")] == [1]
    assert queued.run("queue", "shop.ordres*").exit_code == 3


def test_what_has_no_time_may_be_since_then(queued):
    """Hive 3.1 doesn't note when an entry was queued."""
    with queued.open() as database:
        queue = database.schema.compaction_queue
        database.write(lambda connection: connection.execute(update(queue).values(cq_enqueue_time=None)))
    assert [found["id"] for found in queued.json("queue", "--since", "1h")] == [1, 2]


@pytest.mark.parametrize("command", ["queue", "history"])
@pytest.mark.parametrize(
    ("pool", "said"),
    [
        ("nigth", ["--pool: nigth, which no worker and no table has (did you mean night?)"]),
        ("Night", []),
        ("default", []),
    ],
)
def test_a_slip_in_the_name_of_a_pool_is_said(queued, command, pool, said):
    """With the names that are near, of entries too; the listing is empty all the same."""
    if command == "history":
        queued.run("cancel", "1")
    result = queued.run(command, "--pool", pool, "-o", "json")
    assert result.exit_code == 0
    assert [line for line in result.stderr.splitlines() if line.startswith("--pool")] == said
    assert not (said and json.loads(result.stdout))


def test_watching_goes_on_when_the_metastore_is_back(queued, monkeypatch, capsys):
    """What can't be reached for a moment is said, and asked again."""
    looks = []

    def look():
        looks.append(1)
        if len(looks) == 1:
            raise UnreachableError("away")
        return NOTHING

    def sleep(_):
        if len(looks) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(filters.time, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt), closing(Session()) as session:
        filters.watched(session, 1, look)
    assert "error: away\n" in capsys.readouterr().err


MOMENT = r"2\d{3}-\d\d-\d\d \d\d:\d\d:\d\d \S+"


@pytest.mark.usefixtures("two_looks")
@pytest.mark.parametrize(
    ("form", "line"),
    [
        ("table", MOMENT),
        ("yaml", f"--- # {MOMENT}"),
        ("json", ""),
        ("tsv", ""),
    ],
)
def test_pictures_are_told_apart_without_a_terminal(queued, form, line):
    """The time begins each: on stdout for people and YAML, on stderr for JSON and TSV; no escape codes."""
    result = queued.run("-o", form, "queue", "--watch")
    assert "\x1b" not in result.output
    told = result.stdout if line else result.stderr
    assert len(re.findall(rf"^{line or MOMENT}$", told, re.MULTILINE)) == 2
    if form == "yaml":
        assert [len(document) for document in yaml.safe_load_all(result.stdout)] == [3, 3]


def test_a_picture_stays_on_a_terminal_until_the_next_is_known(monkeypatch, capsys):
    """Then the terminal is cleared, and no line with the time is in the way; what was said meanwhile isn't lost."""
    monkeypatch.setattr(filters.sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(filters.time, "sleep", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))

    def look():
        session.output.say("it can't be told what is paused")
        assert capsys.readouterr() == ("", "")
        return replace(NOTHING, picture=lambda: "picture")

    with pytest.raises(KeyboardInterrupt), closing(Session()) as session:
        filters.watched(session, 1, look)
    shown = capsys.readouterr()
    assert re.fullmatch(r"\x1b\[2J\x1b\[1;1Hpicture\n", shown.out)
    assert shown.err == "it can't be told what is paused\n"


@pytest.mark.parametrize("error", [RefusedError(Reason.TABLE_MISSING, "there is no table"), ValueError("odd")])
def test_what_was_said_before_a_look_failed_is_shown(capsys, error):
    """A look that fails otherwise than for want of an answer ends the watching, and its warnings come before the error."""

    def look():
        session.output.say("it can't be told what is paused")
        raise error

    with pytest.raises(type(error)), closing(Session()) as session:
        filters.watched(session, 1, look)
    assert capsys.readouterr() == ("", "it can't be told what is paused\n")


def test_a_listing_is_shown_again(queued, monkeypatch):
    """Until it is interrupted; between two looks the embedded metastore is free for the daemon."""
    looks = []

    def sleep(seconds):
        looks.append(seconds)
        with queued.open() as database:
            queue = database.schema.compaction_queue
            database.write(lambda connection: connection.execute(queue.delete().where(queue.c.cq_id == len(looks))))
        if len(looks) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(filters.time, "sleep", sleep)
    result = queued.run("-o", "json", "queue", "--watch", "0.5")
    shown = [len(json.loads(part + "]")) for part in result.stdout.split("]\n")[:2]]
    assert (shown, looks, result.exit_code) == ([3, 2], [0.5, 0.5], 130)
    assert time.sleep is sleep
