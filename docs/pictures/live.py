"""
What happens beside the daemon in ten minutes: writers with a rush, a long reader, a pause, a damaged file; and the
commands whose output is kept.

The tables are those of `make demo`, written as Hive writes.
"""

import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.demo.sample import DATABASE
from tests.demo.tables import DemoTable
from tests.demo.warehouse import Warehouse
from tests.demo.writer import Transaction

SECONDS = 600
TICK = 0.2
DAYS = tuple(f"2024-03-{day:02}" for day in range(1, 17))
TRYING_SECONDS = 10
"""So long a command is repeated until it prints what the picture is for; what comes after must not be late."""
COMMANDS = {"explain": 128, "queue": 164, "history": 184}
"""What is kept, and the width of the terminal in columns."""
Act = Callable[[], object]


def writes_a_second(second: float) -> float:
    """A quiet base with a large rush and a small one."""
    rushes = ((210, 45, 7.0), (400, 30, 3.0))
    return 1.2 + sum(most * math.exp(-(((second - at) / width) ** 2)) for at, width, most in rushes)


class Life:
    """
    What happens beside the daemon.

    Args:
        texts: where the output of commands goes.
    """

    def __init__(self, warehouse: Warehouse, config: Path, texts: Path) -> None:
        self._warehouse = warehouse
        self._config = config
        self._texts = texts
        self._dice = random.Random(7)  # noqa: S311 - sample data, no secrets
        self._left_open: dict[str, Transaction] = {}
        self._owed = 0.0

    def live(self) -> None:
        """Write and act until the end."""
        began = time.monotonic()
        plan = list(self._plan())
        while (second := time.monotonic() - began) < SECONDS:
            while plan and plan[0][0] <= second:
                plan.pop(0)[1]()
            self._owed += writes_a_second(second) * TICK
            while self._owed >= 1:
                self._owed -= 1
                self._write()
            time.sleep(TICK)

    def _plan(self) -> Iterator[tuple[float, Act]]:
        """What happens in which second; docs/metrics.md tells it to the readers of the pictures."""
        yield 200, lambda: self._begin("reader")
        yield 215, lambda: self._begin("writer", "orders")
        yield 235, lambda: self._abort("orders")
        yield 245, lambda: self._keep("cleaning after", "explain", f"{DATABASE}.orders")
        yield 260, lambda: self._left_open.pop("writer").commit()
        yield 320, lambda: self._left_open.pop("reader").commit()
        yield 370, lambda: self._begin("reader")
        yield 375, lambda: self._run("pause", "--table", f"{DATABASE}.c*", "--reason", "nightly load")
        yield 380, lambda: self._run("enqueue", f"{DATABASE}.clicks")
        yield 383, lambda: self._run("enqueue", f"{DATABASE}.customers", "--type", "minor")
        yield 398, lambda: self._run("enqueue", f"{DATABASE}.events/day=2024-03-0*", "--yes")
        yield 400, lambda: self._keep("working", "queue")
        yield 430, lambda: self._left_open.pop("reader").commit()
        yield 460, lambda: self._run("resume", "--table", f"{DATABASE}.c*")
        yield 570, self._damage
        yield 590, lambda: self._keep("refused", "history", "--limit", "12")

    def _write(self) -> None:
        """A small statement, most often an insert of rows as the table has them; one in 25 is aborted."""
        table = self._table(
            self._dice.choices(("events", "orders", "customers", "clicks", "legacy"), (12, 2, 2, 2, 1))[0]
        )
        txn = self._warehouse.begin()
        self._statement(txn, table)
        (txn.abort if self._dice.random() < 0.04 else txn.commit)()

    def _statement(self, txn: Transaction, table: DemoTable) -> None:
        partition = [self._dice.choice(DAYS)] if table.partition_keys else None
        known = self._rows(table)
        if not table.insert_only and self._dice.random() < 0.3:
            row = self._dice.choice(known)
            txn.update(table, lambda other: other[0] == row[0], lambda other: other, partition)
        txn.insert(table, self._dice.choices(known, k=self._dice.randrange(20, 400)), partition)

    @staticmethod
    def _rows(table: DemoTable) -> list[tuple[object, ...]]:
        directory = next(iter(table.directories.values()))
        return list(directory.inserted.values())[:2000]

    def _table(self, name: str) -> DemoTable:
        return self._warehouse.tables[f"{DATABASE}.{name}"]

    def _begin(self, name: str, table: str | None = None) -> None:
        self._left_open[name] = txn = self._warehouse.begin()
        if table is not None:
            self._statement(txn, self._table(table))

    def _abort(self, table: str) -> None:
        txn = self._warehouse.begin()
        self._statement(txn, self._table(table))
        txn.abort()

    def _damage(self) -> None:
        """A file that ends too early, as a full disk leaves it."""
        table = self._warehouse.create_table(DATABASE, "imports", [("id", "int")])
        for number in range(3):
            with self._warehouse.begin() as txn:
                txn.insert(table, [(number,)])
        file = next(table.location.glob("delta_*/bucket_*"))
        file.write_bytes(file.read_bytes()[:-40])
        self._run("enqueue", table.full_name)

    def _run(self, *words: str) -> str:
        """Run a command; returns what it prints on a terminal."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("COMPACTOR_")}
        environment |= {"FORCE_COLOR": "1", "COLUMNS": str(COMMANDS.get(words[0], 80)), "TERM": "xterm-256color"}
        done = subprocess.run(
            [sys.executable, "-m", "compactor.cli", *words, "--config", str(self._config)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            env=environment,
        )
        sys.stderr.write(f"compactor {' '.join(words)}: exit code {done.returncode}\n")
        return done.stdout

    def _keep(self, word: str, *command: str) -> None:
        """Keep a command's output, if possible one with this word: compactions take a second or two."""
        until = time.monotonic() + TRYING_SECONDS
        while word not in (printed := self._run(*command)) and time.monotonic() < until:
            pass
        kept = {"command": f"compactor {' '.join(command)}", "printed": printed}
        (self._texts / f"{command[0]}.json").write_text(json.dumps(kept), encoding="utf-8")
