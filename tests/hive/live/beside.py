"""Our daemon beside a real Hive, in a process of its own that ends with ours: eager to compact and to clean."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymysql
import yaml

from tests.hive.server.hive import HiveServer
from tests.hive.server.jars import PROJECT

PATIENCE = 120.0
SETTINGS = {
    "initiator": {
        "interval_seconds": 0.5,
        "full_scan_seconds": 5,
        "thresholds": {"delta_count": 1, "delta_ratio": 0.01, "aborted_count": 1},
    },
    "worker": {"threads": 2, "poll_seconds": 0.2},
    "cleaner": {"interval_seconds": 0.3, "retention_seconds": 0, "listing_wait_seconds": 0, "late_writer_hours": 0.002},
    "housekeeper": {"enabled": "always", "interval_seconds": 1},
    "windows": {"blackouts": [{"name": "twins", "tables": ["*.*_twin"], "start": "00:00", "end": "24:00"}]},
    "http": {"enabled": False},
    "log": {"format": "json", "level": "info"},
    "drain": {"timeout_seconds": 20},
    "host": "ours",
}


class Beside:
    """A daemon at work on a server's metastore."""

    def __init__(self, hive: HiveServer, folder: Path) -> None:
        self.hive, self.log, self.config = hive, folder / "daemon.log", folder / "compactor.yaml"
        self._told: list[dict[str, dict[str, object]]] = []
        self._away = False
        self._write()
        self._process = self._started()

    def _started(self) -> "subprocess.Popen[bytes]":
        environment = {name: value for name, value in os.environ.items() if not name.startswith("COMPACTOR_")} | {
            "PYTHONPATH": str(PROJECT)
        }
        tied = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        before = self._said("daemon.started") if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*tied, sys.executable, "-m", "tests.hive.live.daemon", str(self.config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.config.parent,
                env=environment,
            )
        self._await("daemon.started", before + 1)
        return self._process

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """There is no daemon for as long as the block runs."""
        self.stop()
        self._away = True
        try:
            yield
        finally:
            self._away = False
            self._process = self._started()

    def _write(self) -> None:
        settings = {name: dict(section) if isinstance(section, dict) else section for name, section in SETTINGS.items()}
        if self.hive.version == "3":  # it can't read where an INSERT OVERWRITE was undone until that was cleaned
            settings["initiator"]["thresholds"] = settings["initiator"]["thresholds"] | {"aborted_count": 0}
        for name, section in (pair for sections in self._told for pair in sections.items()):
            settings[name] = {**settings.get(name, {}), **section}
        roots = [str(self.hive.warehouse), str(self.config.parent)]  # some tables lie outside every database
        needed = {"database": {"url": self.hive.database}, "warehouse": {"roots": roots}}
        self.config.write_text(yaml.safe_dump(settings | needed), encoding="utf-8")

    @contextlib.contextmanager
    def told(self, **sections: dict[str, object]) -> Iterator[None]:
        """Other settings, for as long as the block runs; inside another such block besides those of that one."""
        self._told.append(sections)
        self._write()
        self._reload()
        try:
            yield
        finally:
            self._told.pop()
            self._write()
            self._reload()

    def _reload(self) -> None:
        before = self._said("settings.reloaded")
        self._process.send_signal(signal.SIGHUP)
        self._await("settings.reloaded", before + 1)

    def _said(self, event: str) -> int:
        return sum(one.get("event") == event for one in self.events())

    def _await(self, event: str, times: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while self._said(event) < times:
            assert self.alive(), f"the daemon ended: {self.log.read_text(encoding='utf-8')[-3000:]}"
            assert time.monotonic() < deadline, f"the daemon doesn't say {event!r}"
            time.sleep(0.1)

    def alive(self) -> bool:
        """Whether it is as it should be: at work, or away."""
        return self._away or self._process.poll() is None

    def events(self) -> list[dict]:
        """What it logged."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def told_of(self, table: str) -> str:
        """
        What it logged last of tables of this name, what is queued and finished for them, and who is there: to find out
        how a difference came about.
        """
        told = [
            " ".join(f"{key}={value}" for key, value in one.items())
            for one in self.events()
            if table in str(one.get("table", "")).split(".")
        ]
        rows = [
            f"{name}: {row}"
            for name in ("compaction_queue", "completed_compactions", "txns", "min_history_level", "hive_locks")
            if name != "min_history_level" or self.hive.version == "4"
            for row in self._ask(f"select * from {self._name(name)} order by 1 desc limit 12")
        ]
        return "\n".join(["the daemon:", *told[-30:], "the metastore:", *rows])

    def waiting(self) -> int:
        """Entries that no worker has finished, or no cleaner."""
        ((number,),) = self._ask(
            f"select count(*) from {self._name('compaction_queue')} where {self._name('cq_state')} in ('i', 'w', 'r')"
        )
        return int(number)

    def finished(self) -> Counter[str]:
        """
        Compactions of databases that are there and that ended, by who worked on them, and state: "s" succeeded, "c"
        refused; "f" failed, and "a" aborted, with the reason.
        """
        names = ", ".join(
            self._name(name)
            for name in ("cc_hadoop_job_id", "cc_worker_id", "cc_state", "cc_error_message")[
                : 4 if self.hive.version == "4" else 3
            ]
        )
        return Counter(_ended(*row) for row in self._ask(f"select {names} from {self._name('completed_compactions')}"))

    def refusals(self, databases: tuple[str, ...]) -> Counter[str]:
        """Attempts at compactions of tables there that ended otherwise than with a result, by outcome and reason."""
        ended = (one for one in self.events() if one.get("event") == "attempt.ended" and one["outcome"] != "committed")
        return Counter(
            f"attempts {one['outcome']}: {one.get('reason', one.get('error_type'))}"
            for one in ended
            if one.get("db") in databases
        )

    def location(self, database: str, table: str) -> Path | None:
        """Where the catalog has a table."""
        rows = self._ask(
            'select "LOCATION" from "SDS" s join "TBLS" t on t."SD_ID" = s."SD_ID" join "DBS" d on d."DB_ID" = t."DB_ID"'
            ' where d."NAME" = %s and t."TBL_NAME" = %s',
            database.lower(),
            table.lower(),
        )
        return _path(rows[0][0]) if rows else None

    def requests(self, databases: tuple[str, ...], *, ended: bool) -> list[Path]:
        """
        Directories of what was dropped there that Hive 4 has left to the Cleaner, and that it has removed, or not.
        """
        names = (
            ("COMPLETED_COMPACTIONS", "CC_TBLPROPERTIES", "CC_DATABASE")
            if ended
            else ("COMPACTION_QUEUE", "CQ_TBLPROPERTIES", "CQ_DATABASE")
        )
        listed = ", ".join(["%s"] * len(databases))
        rows = self._ask('select "{1}" from "{0}" where "{2}" in ({3})'.format(*names, listed), *databases)
        found = (re.search(r"8:location\d+:(.*)", row[0] or "") for row in rows)
        return [_path(one[1]) for one in found if one]

    def removed(self) -> set[Path]:
        """Directories of what was dropped that our daemon removed."""
        return {_path(str(one["location"])) for one in self.events() if one.get("event") == "directory.removed"}

    def catalogued(self, place: Path) -> bool:
        """Whether a table or partition is there."""
        used = 'select 1 from "SDS" where "LOCATION" = %s and ("SD_ID" in (select "SD_ID" from "TBLS") or "SD_ID" in (select "SD_ID" from "PARTITIONS"))'
        return bool(self._ask(used, f"file:{place}"))

    def locks(self, table: str) -> set[str]:
        """Types of the locks on a table, as HIVE_LOCKS has them: "e" exclusive, "x" exclusive write, "r" shared …"""
        names = [self._name(name) for name in ("hl_lock_type", "hive_locks", "hl_table")]
        return {kind for (kind,) in self._ask("select {} from {} where {} = %s".format(*names), table)}

    def open_transactions(self) -> list[int]:
        """Those of others."""
        txns = self._name("txns")
        rows = self._ask(
            f"select {self._name('txn_id')} from {txns} where {self._name('txn_state')} = 'o' and {self._name('txn_host')} <> 'ours'"
        )
        return [int(txn) for (txn,) in rows]

    def own_transactions(self) -> list[int]:
        """Open ones of this host."""
        txns, state, host = (self._name(name) for name in ("txns", "txn_state", "txn_host"))
        rows = self._ask(f"select {self._name('txn_id')} from {txns} where {state} = 'o' and {host} = 'ours'")
        return [int(txn) for (txn,) in rows]

    def age_transactions(self) -> None:
        """A minute goes by for all transactions: nothing that has ended is too young to be purged."""
        started = self._name("txn_started")
        self._ask(f"update {self._name('txns')} set {started} = {started} - 60000")

    def settle(self, seconds: float) -> bool:
        """Wait until nothing is queued, or so long."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if not self.waiting():
                return True
            time.sleep(0.2)
        return False

    def stop(self) -> None:
        """By TERM; by KILL where that takes too long."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, statement: str, *values: object) -> list[tuple]:
        """The rows of one statement, in a transaction of its own."""
        with contextlib.closing(_connected(self.hive.database)) as connection, connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall()) if cursor.description else []

    def _name(self, name: str) -> str:
        return name if self.hive.version == "3" else f'"{name.upper()}"'


def _connected(url: str) -> Any:
    """A connection that commits each statement, on which names stand in double quotes."""
    place = urlsplit(url)
    if place.scheme == "postgresql":
        return psycopg.connect(url, autocommit=True)
    return pymysql.connect(
        host=place.hostname,
        port=place.port or 3306,
        user=place.username,
        database=place.path[1:],
        autocommit=True,
        init_command="SET sql_mode = 'ANSI_QUOTES'",
    )


def _path(location: str) -> Path:
    return Path(re.sub("^file:/*", "/", location))


def _ended(job: str | None, worker: str | None, state: str, message: str | None = None) -> str:
    hives = (job or "").startswith("job_") or not (worker or "compactor-").startswith("compactor-")
    return f"compactions{' by Hive' if hives else ''} {state}" + (
        f" ({' '.join(message.split())[:100]})" if message and state in "fa" else ""
    )


@contextlib.contextmanager
def beside(hive: HiveServer, folder: Path) -> Iterator[Beside]:
    """A daemon for as long as the block runs."""
    daemon = Beside(hive, folder)
    try:
        yield daemon
    finally:
        daemon.stop()
