"""
`make demo`: has the real daemon compact a small warehouse, and proves that no row changed.

The demo builds tables with an embedded metastore, reads every row, starts `compactor run`, watches Initiator, Workers,
Spark and Cleaner until nothing is left to do, reads every row again and compares. All figures are measured; a
difference between rows is an error.
"""

import fcntl
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import IO
from urllib.parse import quote

import click
import yaml
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from compactor.cli import units
from compactor.cli.options import file_to_write
from compactor.cli.output import Format, OutputColumn, Record, View, draw
from compactor.cli.session import Command, Session, pass_session
from compactor.cli.views import drawing
from compactor.errors import CompactorError, UsageError
from compactor.metastore.db.database import Database
from compactor.metastore.model import Entity
from compactor.planning.picker import Pick
from compactor.roles.initiator.rules import thresholds_from
from compactor.settings import load_settings
from compactor.status.judging import candidates, judge, look
from compactor.storage.registry import storage_for
from compactor.words import binary_units, plural
from tests.demo.measure import Measured, MeasuredPlace, measure, places
from tests.demo.picture import save_picture
from tests.demo.process import DaemonProcess, run_command
from tests.demo.sample import DATABASE, build_sample
from tests.demo.watch import Watch, follow

MARKER = ".compactor-demo"
"""The file that a demo locks in its folder."""
DAEMON_LOCK = "metastore.db.lock"
"""The file that the daemon locks beside the embedded metastore."""
SHOWN = Entity(DATABASE, "orders")
SAID_LINES = 8
DRAIN_SECONDS = 60
COLUMNS = (
    OutputColumn("entity", "TABLE"),
    *(
        OutputColumn(f"{what}_{when}", "", people=False)
        for what in ("directories", "files", "bytes", "rows")
        for when in ("before", "after")
    ),
    OutputColumn("directories", "DIRECTORIES", right=True, programs=False),
    OutputColumn("files", "FILES", right=True, programs=False),
    OutputColumn("size", "SIZE", right=True, programs=False),
    OutputColumn("rows", "ROWS", right=True, programs=False),
    OutputColumn("hash", "HASH", show=lambda value: str(value)[:8]),
    OutputColumn("same", "SAME", show=lambda value: "yes" if value else "NO"),
)


@click.command(cls=Command)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    help="Where to build it; a temporary directory when not given.",
)
@click.option("--keep", is_flag=True, help="Leave warehouse, metastore and log behind.")
@click.option(
    "--svg",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=file_to_write(b"<svg"),
    help="Also write the picture of a partition before and after.",
)
@click.option(
    "--rows", type=click.IntRange(min=800), default=80_000, show_default=True, help="About how many rows to make."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=300,
    show_default=True,
    metavar="SECONDS",
    help="How long it may take.",
)
@pass_session
def demo(session: Session, *, directory: Path | None, keep: bool, svg: Path | None, rows: int, timeout: float) -> int:
    """Build a small warehouse and watch the daemon compact it; every row is compared before and after."""
    output = session.output
    with ExitStack() as stack:
        stack.enter_context(_terminable())
        root = stack.enter_context(_folder(directory, keep=keep))
        with output.busy(f"building a warehouse of about {rows:,} rows in {root}"):
            url = _build(root, rows)
        database = stack.enter_context(Database(url, read_only=True))
        everywhere = places(database, DATABASE)
        before = measure(database, everywhere)
        config = _write_config(root, url)
        due = _due(database, config, everywhere)
        if session.form is Format.TABLE:
            draw(_drawn(before[SHOWN], "before"))
        output.say(
            f"{plural(len(due), 'table or partition', 'tables and partitions')} due; starting the daemon: compactor --config {config} run"
        )
        daemon = stack.enter_context(DaemonProcess(run_command(config), root / "daemon.log"))
        watch = Watch(database, everywhere, frozenset(due))
        with _screen(watch) as show:
            follow(watch, daemon.news, lambda: daemon.exit_code, timeout, show)
        took = watch.elapsed
        if (code := daemon.drain(DRAIN_SECONDS)) != 0:
            raise CompactorError(f"the daemon ended with exit code {code} when asked to stop")
        after = measure(database, everywhere)
        as_before = measure(database, everywhere, {entity: measured.write_ids for entity, measured in before.items()})
        records = [_record(before[place.entity], after[place.entity], as_before[place.entity]) for place in everywhere]
        if session.form is Format.TABLE:
            draw(_drawn(after[SHOWN], "after"))
        output.show(
            View(
                COLUMNS,
                [_for_people(record) for record in records],
                document={"seconds": round(took, 1), "tables": records},
            )
        )
        if svg is not None:
            save_picture(svg, before[SHOWN], after[SHOWN])
            output.say(f"picture: {svg}")
        different = [str(place.entity) for place, record in zip(everywhere, records, strict=True) if not record["same"]]
        if different:
            raise CompactorError(f"rows differ after compaction: {', '.join(different)}")
        total = sum(measured.rows.rows for measured in after.values())
        output.say(
            f"the same {total:,} rows, with the same ROW__IDs, before and after; {units.seconds(took)} from start to cleaned"
        )
        if keep:
            output.say(f"kept: {root} (try: compactor --config {config} explain {SHOWN})")
        return 0


def _build(root: Path, rows: int) -> str:
    """
    Build the sample and return the metastore's URL.

    It includes a write of a client that died: the transaction stays open until the Housekeeper times it out.
    """
    url = f"sqlite:///{quote(str(root))}/metastore.db"
    with Database(url, create=True) as database:
        warehouse = build_sample(root / "warehouse", database, rows=rows)
        table = warehouse.tables[str(SHOWN)]
        warehouse.begin().insert(table, [tuple(None for _ in table.columns)] * 100)
    return url


def _write_config(root: Path, url: str) -> Path:
    """Write a settings file with short intervals and with thresholds that suit small tables; returns its path."""
    settings = {
        "database": {"url": url},
        "initiator": {"interval_seconds": 2, "thresholds": {"delta_count": 3, "aborted_count": 0}},
        "worker": {"threads": 2, "poll_seconds": 0.5},
        "cleaner": {"interval_seconds": 1},
        "housekeeper": {"enabled": "always", "interval_seconds": 2},
        "txn": {"timeout_seconds": 20},
        "spark": {
            "master": "local[2]",
            "conf": {
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.driver.memory": "1g",
            },
        },
        "splice": {"min_stripe_bytes": 65536},
        "http": {"host": "127.0.0.1", "port": 0},
        "log": {"level": "debug", "format": "json"},
    }
    path = root / "compactor.yaml"
    path.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    return path


def _due(database: Database, config: Path, everywhere: Sequence[MeasuredPlace]) -> list[Entity]:
    """The tables and partitions that the picker says are due, with the daemon's settings."""
    settings = load_settings(config, {})
    defaults = thresholds_from(settings.initiator.thresholds)
    known = candidates(database)
    due = []
    for place in everywhere:
        moment = look(database, place.found.table, settings.readers)
        _, compactor = moment.resolve(storage_for(place.found.location).list_tree(place.found.location))
        if isinstance(judge(place.found, compactor, known.get(place.entity), moment, defaults), Pick):
            due.append(place.entity)
    if not due:
        raise CompactorError("nothing in the sample is due for compaction")
    return due


def _record(before: Measured, after: Measured, as_before: Measured) -> Record:
    entity = before.place.entity
    return {
        "entity": str(entity),
        "directories_before": before.on_disk.directories,
        "directories_after": after.on_disk.directories,
        "files_before": before.on_disk.files,
        "files_after": after.on_disk.files,
        "bytes_before": before.on_disk.bytes,
        "bytes_after": after.on_disk.bytes,
        "rows_before": before.rows.rows,
        "rows_after": after.rows.rows,
        "hash": str(after.rows),
        "same": before.rows == after.rows == as_before.rows,
    }


def _for_people(record: Record) -> Record:
    """A record with one column for each pair of figures, before and after."""
    same = record["rows_before"] == record["rows_after"]
    return {
        **record,
        "directories": f"{record['directories_before']} → {record['directories_after']}",
        "files": f"{record['files_before']} → {record['files_after']}",
        "size": f"{binary_units(record['bytes_before'])} → {binary_units(record['bytes_after'])}",
        "rows": units.number(record["rows_before"]) + ("" if same else f" ≠ {units.number(record['rows_after'])}"),
    }


def _drawn(measured: Measured, when: str) -> RenderableType:
    title = f"{measured.place.entity}, {when}: {measured.rows.rows:,} rows"
    return Group(drawing.picture(title, measured.items, fold=True), Text())


@contextmanager
def _folder(directory: Path | None, *, keep: bool) -> Iterator[Path]:
    """
    An empty directory for the demo, removed afterwards unless kept.

    Raises:
        UsageError: `directory` is neither empty nor left by an earlier demo, can't be made, or is in use.
    """
    if directory is None:
        root = Path(tempfile.mkdtemp(prefix="compactor-demo-"))
    else:
        root = directory.absolute()
        if root.exists() and (not root.is_dir() or (any(root.iterdir()) and not (root / MARKER).exists())):
            raise UsageError(f"--dir {directory} is not empty and not of an earlier demo: name another directory")
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--dir {directory} can't be made: {error.strerror or error}") from None
    with (root / MARKER).open("a") as marker:
        _lock(marker, root)
        if (lock := root / DAEMON_LOCK).exists():
            with lock.open("a") as file:
                _lock(file, root)
        for left in root.iterdir():
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
            elif left.name != MARKER:
                left.unlink(missing_ok=True)
        try:
            yield root
        finally:
            if not keep:
                shutil.rmtree(root, ignore_errors=True)


def _lock(file: IO[str], root: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise UsageError(
            f"--dir {root} is in use by another demo, or by the daemon of one that was killed, which ends by itself: "
            "try again later, or name another directory"
        ) from None


@contextmanager
def _terminable() -> Iterator[None]:
    """Let TERM end the demo as Ctrl-C does, so that the daemon doesn't go on running."""

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def _screen(watch: Watch) -> Iterator[Callable[[], None]]:
    """Show progress on stderr: a live table on a terminal, else each new line. Yields a function to call at a look."""
    console = Console(stderr=True, markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        yield _Lines(watch)
        return
    with Live(console=console, get_renderable=lambda: _live(watch), refresh_per_second=4, transient=True):
        yield lambda: None


class _Lines:
    """Writes new lines and new blockers of cleaning to stderr."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._told = 0
        self._blockers: set[str] = set()

    def __call__(self) -> None:
        for at, who, what in self._watch.said[self._told :]:
            click.echo(f"{at:6.1f} s  {who}: {what}", err=True)
        self._told = len(self._watch.said)
        for sentence in self._watch.blockers:
            who = sentence.partition(", open for")[0]  # the age in the sentence changes all the time
            if who not in self._blockers:
                self._blockers.add(who)
                click.echo(f"{self._watch.elapsed:6.1f} s  cleaning waits: {sentence}", err=True)


def _live(watch: Watch) -> RenderableType:
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for title, justify in (
        ("TABLE", "left"),
        ("DIRECTORIES", "right"),
        ("FILES", "right"),
        ("SIZE", "right"),
        ("STAGE", "left"),
    ):
        drawn.add_column(title, justify=justify)  # type: ignore[arg-type]
    for entity, track in watch.tracks.items():
        cells = (
            f"{track.before.directories} → {track.now.directories}",
            f"{track.before.files} → {track.now.files}",
            binary_units(track.now.bytes),
        )
        drawn.add_row(str(entity), *cells, Text(track.stage, style="green" if track.succeeded else "yellow"))
    said = [
        Text(f"{at:6.1f} s  {who}: {what}", style="dim", overflow="ellipsis", no_wrap=True)
        for at, who, what in watch.said[-SAID_LINES:]
    ]
    waits = [Text(f"cleaning waits: {sentence}", style="yellow") for sentence in watch.blockers[:2]]
    return Group(drawn, Text(), *said, *waits, Text(f"{watch.elapsed:6.1f} s", style="bold"))
