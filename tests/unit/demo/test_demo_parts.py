"""The demo's parts: what it reads, what it watches, what it starts and ends, what it draws."""

import fcntl
import hashlib
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner

from compactor.errors import CompactorError, UsageError
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.db.database import Database
from compactor.metastore.model import Entity
from compactor.roles import steps
from compactor.settings import ReaderSettings
from compactor.status.judging import look
from tests.demo import show
from tests.demo.__main__ import command
from tests.demo.measure import measure, places
from tests.demo.picture import save_picture
from tests.demo.process import DaemonProcess
from tests.demo.reading import Fingerprint
from tests.demo.rows import CatalogRows, MetastoreLedger
from tests.demo.sample import build_sample
from tests.demo.warehouse import Warehouse
from tests.demo.watch import Watch, follow


def small(root, database):
    warehouse = Warehouse(root / "warehouse", MetastoreLedger(database), CatalogRows(database))
    table = warehouse.create_table("shop", "t", [("id", "int"), ("name", "string")])
    with warehouse.begin() as txn:
        txn.insert(table, [(n, f"name {n}") for n in range(20)])
    with warehouse.begin() as txn:
        txn.delete(table, lambda row: row[0] < 3)
    return warehouse, table


@pytest.fixture
def database(tmp_path):
    with Database(f"sqlite:///{tmp_path}/metastore.db", create=True) as opened:
        yield opened


def test_what_is_read_is_what_was_written(tmp_path, database):
    """
    Of each table of the sample, as many rows are counted as the builder's books say: deletes, aborts, open writers,
    originals and all.
    """
    warehouse = build_sample(tmp_path / "warehouse", database, rows=1600)
    warehouse.begin().insert(warehouse.tables["shop.orders"], [(1, 1, "x", None, None)])
    measured = measure(database, places(database, "shop"))
    expected = {
        Entity("shop", table.name, name): len(rows)
        for table in warehouse.tables.values()
        for name, rows in warehouse.expected(table).items()
    }
    assert {entity: found.rows.rows for entity, found in measured.items()} == expected


def test_the_hash_sees_every_value_and_every_row_id(tmp_path, database):
    """One changed value, or the same value under another ROW__ID, gives another hash; the order of rows doesn't."""
    warehouse, table = small(tmp_path, database)
    where = places(database, "shop")
    entity = where[0].entity
    before = measure(database, where)[entity].rows
    assert measure(database, where)[entity].rows == before
    with warehouse.begin() as txn:
        txn.update(table, lambda row: row[0] == 5, lambda row: row)
    rewritten = measure(database, where)[entity].rows
    assert (rewritten.rows, rewritten.digest == before.digest) == (before.rows, False)
    assert Fingerprint(1, 2) + Fingerprint(3, 4) == Fingerprint(4, 6)


def _expected_fingerprint(warehouse, table):
    """What the builder's books say, hashed row by row."""
    (rows,) = warehouse.expected(table).values()
    digests = [
        int.from_bytes(hashlib.blake2b(repr((tuple(key), tuple(row))).encode(), digest_size=16).digest(), "big")
        for key, row in rows.items()
    ]
    return len(digests), sum(digests) % (1 << 128)


def test_a_column_added_later_is_null_in_older_files(tmp_path, database):
    """ADD COLUMNS gives old rows NULL, whether the file they are in has the column or not."""
    warehouse, table = small(tmp_path, database)
    warehouse.add_columns(table, [("grade", "string")])
    where = places(database, "shop")
    before = measure(database, where)[where[0].entity].rows
    assert (before.rows, before.digest) == _expected_fingerprint(warehouse, table)


def test_an_old_snapshot_reads_what_it_read(tmp_path, database):
    """Rows read under write ids taken earlier don't change when more is written."""
    warehouse, table = small(tmp_path, database)
    where = places(database, "shop")
    before = measure(database, where)
    with warehouse.begin() as txn:
        txn.insert(table, [(99, "later")])
    again = measure(database, where, {entity: found.write_ids for entity, found in before.items()})
    assert {entity: found.rows for entity, found in again.items()} == {
        entity: found.rows for entity, found in before.items()
    }


def line(step, **more):
    return {"event": "step.entered", "level": "debug", "step": step, "db": "shop", "table": "t", **more}


def test_watching_follows_an_entry_to_its_end(tmp_path, database):
    """
    Log lines and queue move a table from stage to stage; when its entry has succeeded and nothing is left over, it is
    done.
    """
    small(tmp_path, database)
    where = places(database, "shop")
    entity = where[0].entity
    watch = Watch(database, where, frozenset([entity]))
    queue = Queue(database)
    from compactor.acid.compaction import CompactionKind
    from compactor.metastore.clean.ready import Cleaning
    from compactor.metastore.txn.transactions import Transactions

    queue.enqueue(entity, CompactionKind.MAJOR)
    watch.look()
    assert (watch.tracks[entity].stage, watch.done) == ("queued", False)
    txn = Transactions(database).open_compaction("hive", "edge1")
    entry = queue.claim("w", "test")
    queue.set_compactor_state(entry, txn, 2, "hive")
    watch.take(
        [
            line(steps.WORKER_CLAIMED),
            line(steps.WORKER_RAN),
            {"event": "cycle.completed", "role": "cleaner", "sentence": "cleaned 1", "level": "info"},
        ]
    )
    assert watch.tracks[entity].stage == "verifying"
    queue.mark_compacted_and_commit(entry, "w", txn)
    watch.look()
    assert not watch.done
    (ready,) = queue.entries()
    Cleaning(database).mark_cleaned(ready)
    watch.look()
    assert watch.done
    assert [(who, what) for _, who, what in watch.said] == [
        ("shop.t", "Worker: claimed"),
        ("shop.t", "verifying"),
        ("cleaner", "cleaned 1"),
    ]


def test_a_failed_compaction_ends_the_watch(tmp_path, database):
    """The first failed entry is the demo's error, with its message."""
    small(tmp_path, database)
    where = places(database, "shop")
    from compactor.acid.compaction import CompactionKind

    queue = Queue(database)
    queue.enqueue(where[0].entity, CompactionKind.MAJOR)
    queue.mark_failed(queue.claim("w", "test"), "disk full")
    watch = Watch(database, where, frozenset([where[0].entity]))
    with pytest.raises(CompactorError, match=r"shop\.t failed: disk full"):
        follow(watch, list, lambda: None, 60, lambda: None)


def test_what_the_daemon_waits_for_ends_the_watch(tmp_path, database):
    """Where Spark can't be started the daemon gives the entry back and waits; the demo says why instead."""
    small(tmp_path, database)
    where = places(database, "shop")
    watch = Watch(database, where, frozenset([where[0].entity]))
    news = [
        {
            "event": "attempt.ended",
            "level": "warning",
            "logger": "compactor.roles.worker.worker",
            "outcome": "given-back",
            "error_type": "UnreachableError",
            "why": "no Java",
        }
    ]
    with pytest.raises(CompactorError, match="no Java"):
        follow(watch, lambda: news, lambda: None, 60, lambda: None)


def test_a_daemon_that_ends_and_a_time_limit_are_errors(tmp_path, database):
    """An ended daemon and a passed limit are told with what is unfinished."""
    small(tmp_path, database)
    where = places(database, "shop")
    watch = Watch(database, where, frozenset([where[0].entity]))
    with pytest.raises(CompactorError, match="exit code 3"):
        follow(watch, list, lambda: 3, 60, lambda: None)
    with pytest.raises(CompactorError, match=r"not finished after 0 s: shop\.t"):
        follow(watch, list, lambda: None, 0, lambda: None)


def test_ages_alone_are_no_news(tmp_path, database):
    """The same sentence with another age isn't said again."""
    watch = Watch(database, [], frozenset())
    watch.take(
        [
            {
                "event": "cycle.completed",
                "role": "cleaner",
                "sentence": f"waits: transaction 5 of a@b, open for {age} s",
                "level": "warning",
            }
            for age in (1, 2, 3)
        ]
    )
    assert len(watch.said) == 1


FAKE = textwrap.dedent(
    """
    import subprocess, sys, time, os
    child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"], process_group=0)
    print('{"event": "daemon.started", "child": %d}' % child.pid, flush=True)
    print("not json", flush=True)
    time.sleep(600)
    """
)


def runs(pid):
    """Whether a process is there and no zombie."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_ending_the_daemon_ends_what_it_started(tmp_path):
    """A grandchild in a process group of its own that ignores TERM is gone too when the context is left."""
    news = []
    with DaemonProcess([sys.executable, "-c", FAKE], tmp_path / "log", patience=5) as daemon:
        deadline = time.monotonic() + 60
        while len(news) < 2 and time.monotonic() < deadline:
            news += daemon.news()
        assert daemon.exit_code is None
    assert news[1] == {"event": "not json", "level": "raw"}
    assert daemon.exit_code == -signal.SIGTERM
    assert not runs(news[0]["child"])


KILLED = textwrap.dedent(
    """
    import os, pathlib, signal, sys, time
    from tests.demo.process import DaemonProcess
    fake = "import json, os, time; print(json.dumps({'event': 'daemon.started', 'own': os.getpid()}), flush=True); time.sleep(600)"
    with DaemonProcess([sys.executable, "-c", fake], pathlib.Path(sys.argv[1])) as daemon:
        while not (news := daemon.news()):
            time.sleep(0.05)
        print(news[0]["own"], flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
)


def test_the_daemon_is_told_to_end_when_the_demo_is_killed(tmp_path):
    """By SIGKILL, when nobody is left to end it: it doesn't go on compacting a folder in /tmp for ever."""
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    daemon = int(killed.stdout)
    deadline = time.monotonic() + 30
    while (left := runs(daemon)) and time.monotonic() < deadline:
        time.sleep(0.05)
    if left:
        os.kill(daemon, signal.SIGKILL)
    assert not left


def test_interrupted_while_the_daemon_ends(tmp_path, monkeypatch):
    """Ctrl-C is Ctrl-C then, too: it isn't swallowed, and nothing is left running."""
    news = []

    def interrupted(self, timeout=None):
        monkeypatch.undo()
        raise KeyboardInterrupt

    with (  # noqa: PT012 - it is raised while the daemon is stopped
        pytest.raises(KeyboardInterrupt),
        DaemonProcess([sys.executable, "-c", FAKE], tmp_path / "log", patience=5) as daemon,
    ):
        deadline = time.monotonic() + 60
        while len(news) < 2 and time.monotonic() < deadline:
            news += daemon.news()
        monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    assert not runs(news[0]["child"])
    assert daemon.exit_code is not None


def test_the_folder_is_ours_or_left_alone(tmp_path):
    """
    A directory with other things in it is refused; an earlier demo's is cleared; without --keep it is gone afterwards.
    """
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("x", encoding="utf-8")
    with pytest.raises(UsageError, match="not empty"), show._folder(tmp_path / "other", keep=False):
        pass
    assert (tmp_path / "other" / "thesis.txt").exists()
    with show._folder(tmp_path / "mine", keep=True) as root:
        (root / "left").touch()
    with show._folder(tmp_path / "mine", keep=False) as root:
        assert not (root / "left").exists()
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--dir", "/proc/nowhere"), "--dir /proc/nowhere can't be made"),
        (("--svg", ""), "it is empty: name a file"),
        (("-o", "xml"), "'xml' is not one of"),
    ],
)
def test_wrong_input_is_one_line(args, said):
    """As the commands of `compactor` say it, whose options it takes, and before anything is built."""
    result = CliRunner().invoke(command, ["demo", *args])
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)
    assert said in result.stderr


@pytest.mark.parametrize("name", [show.MARKER, show.DAEMON_LOCK])
def test_a_folder_in_use_is_left_alone(tmp_path, name):
    """By another demo, or by the daemon of one that was killed and that still ends."""
    with show._folder(tmp_path / "mine", keep=True) as root:
        (root / "left").touch()
    with (root / name).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="in use"), show._folder(root, keep=False):
            pass
    assert (root / "left").exists()
    with show._folder(root, keep=True):
        assert [one.name for one in root.iterdir()] == [show.MARKER]


def test_all_that_is_built_lies_in_the_folder(tmp_path):
    """Characters that mean something in an address are the folder's own."""
    root = tmp_path / "a %20b?c#d"
    root.mkdir()
    show._build(root, 800)
    assert [one.name for one in tmp_path.iterdir()] == [root.name]
    assert (root / "metastore.db").exists()


def test_the_daemon_locks_the_file_that_the_demo_looks_at(tmp_path):
    """While a process has the embedded metastore open for writing, the folder counts as in use."""
    (tmp_path / show.MARKER).touch()
    with (
        Database(f"sqlite:///{tmp_path}/metastore.db", create=True),
        pytest.raises(UsageError, match="in use"),
        show._folder(tmp_path, keep=True),
    ):
        pass


def test_the_picture_is_svg_with_both_sides(tmp_path, database):
    """The SVG is well-formed, loads nothing from elsewhere, and says whether the rows are the same."""
    small(tmp_path, database)
    (measured,) = measure(database, places(database, "shop")).values()
    save_picture(tmp_path / "images" / "p.svg", measured, measured)
    text = (tmp_path / "images" / "p.svg").read_text(encoding="utf-8")
    root = ET.fromstring(text)
    said = "".join(root.itertext()).replace("\xa0", " ")
    assert "url(http" not in text
    for part in ("before: 2 directories", "after: 2 directories", "the same 17 rows"):
        assert part in said


def test_the_settings_of_the_demo_are_valid(tmp_path):
    """`compactor config check` accepts what the demo writes."""
    config = show._write_config(tmp_path, f"sqlite:///{tmp_path}/metastore.db")
    done = subprocess.run(
        [sys.executable, "-m", "compactor.cli", "--config", str(config), "config", "check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_everything_in_the_sample_is_due(tmp_path):
    """
    With the demo's thresholds each table and partition of the sample is picked: nothing is shown that isn't worked on.
    """
    url = show._build(tmp_path, 1600)
    with Database(url, read_only=True) as opened:
        where = places(opened, "shop")
        assert set(show._due(opened, show._write_config(tmp_path, url), where)) == {place.entity for place in where}
        assert look(opened, where[-1].found.table, ReaderSettings()).open


def test_the_demo_needs_nothing_of_the_tests():
    """`make demo` installs what the daemon needs, and no package or helper of the tests."""
    files = Path(show.__file__).parent.glob("*.py")
    imported = set(re.findall(r"^(?:from|import) ([\w.]+)", "\n".join(map(Path.read_text, files)), re.MULTILINE))
    ours = {name for name in imported if name.partition(".")[0] in {"compactor", "tests"}}
    assert {name for name in ours if not name.startswith(("compactor.", "tests.demo"))} == set()
    others = {name.partition(".")[0] for name in imported - ours} - sys.stdlib_module_names
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    installed = {re.split(r"[^\w-]", wanted)[0] for wanted in project["dependencies"]}
    assert others - installed <= {"yaml"}  # of pyyaml
