"""
`compactor doctor`: tries what the daemon needs, one thing after the other, and says how to mend what fails.

Nothing is changed but a hidden directory in each store, which is made, renamed and removed.
"""

import contextlib
import math
import os
import re
import secrets
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final

import click

from compactor.acid.columns import ColumnRule, column_rule
from compactor.acid.compaction import LayoutVersion
from compactor.cli import control_records, hive_site, units
from compactor.cli.commands.setup.unknown_names import unknown_names
from compactor.cli.hive_settings import deviations
from compactor.cli.output import OutputColumn, View
from compactor.cli.session import Code, Command, Session, pass_session
from compactor.control.configured import Configured
from compactor.control.judge import shortened
from compactor.coordination import Role, SeenMember
from compactor.errors import CompactorError, RefusedError, SettingsError, UnreachableError
from compactor.metastore.catalog import Catalog
from compactor.metastore.db.dialects import address
from compactor.metastore.db.rights import lacking_tables, missing_rights
from compactor.metastore.db.serving import shortcomings
from compactor.planning.thresholds import AUTO_COMPACTION_KEYS, NO_AUTO_COMPACTION_KEY, auto_compaction_off
from compactor.settings import Settings
from compactor.spark.conf import merged_conf
from compactor.spark.factory import submitter_for
from compactor.spark.java import require_java
from compactor.spark.probe import ExecutorReport, report_of_executor, seen_from_here
from compactor.spark.resources import ALLOWED, Resources, task_memory
from compactor.spark.submitter import JobName
from compactor.status.hive import DAYS, HiveSide
from compactor.storage.base import Promises, Storage
from compactor.storage.location import join, parent, split
from compactor.storage.registry import storage_for
from compactor.words import binary_units, instant, one_line, plural


class Standing(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """
    One line of the answer.

    Args:
        remedy: what to do; empty where nothing is wrong.
    """

    check: str
    standing: Standing
    sentence: str
    remedy: str = ""


COLUMNS = (
    OutputColumn("check", "CHECK"),
    OutputColumn("standing", "IS"),
    OutputColumn("sentence", "FOUND", folds=24),
    OutputColumn("remedy", "REMEDY", folds=24),
)
_CLOCK_SECONDS: Final = 5.0
_JAVA: Final = 17
_JAVA_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_EXAMPLES: Final = 3
_LOOKS: Final = 16
"""Tasks that look at executors; those that run on the same one say the same."""
_SHOWN: Final = ("spark.dynamicAllocation.enabled", "spark.task.cpus", "spark.eventLog.enabled", "spark.eventLog.dir")
"""Spark properties that are shown besides those that a table may set."""
_MOST_PLACES: Final = 30
"""Places that are tried, those with the most tables first."""


@click.command(cls=Command)
@click.option("--no-spark", is_flag=True, help="Start no Spark session, which takes longest.")
@click.option(
    "--hive-site",
    "sites",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    metavar="FILE",
    help="Compare a hive-site.xml, and the files beside it that init reads, with the settings; repeatable.",
)
@pass_session
def doctor(session: Session, *, no_spark: bool, sites: tuple[Path, ...]) -> int:
    """
    Try what the daemon needs: database, rights, stores, Spark; and say how to mend what fails.

    Changes nothing but a hidden directory in each store, which is made, renamed and removed. The exit code is 1 when
    something fails, 0 also with warnings.
    """
    with session.output.busy("settings") as tell:
        findings = list(_examined(session, tell, sites, spark=not no_spark))
    records = [
        {"check": one.check, "standing": one.standing.value, "sentence": one.sentence, "remedy": one.remedy or None}
        for one in findings
    ]
    failed = sum(one.standing is Standing.FAILED for one in findings)
    session.output.show(View(COLUMNS, records, footer=f"{plural(failed, 'check')} failed" if failed else ""))
    return Code.FAILED if failed else Code.DONE


def _examined(
    session: Session, tell: Callable[[str], None], sites: Sequence[Path], *, spark: bool
) -> Iterator[Finding]:
    _ = session.settings
    yield Finding("settings", Standing.OK, f"{session.config_path or 'defaults and environment'} can be read")
    for site in sites:
        yield from _guarded(str(site), configured, session, site)
    tell("database")
    try:
        began = time.monotonic()
        # As the daemon connects: a server that takes no writes fails. An embedded database may be a daemon's now.
        database = session.database(write=not address.parse(session.settings.database.url)[1].embedded)
        found = f"{database}: schema of Hive {database.schema.schema_version}, answers within"
        yield Finding("database", Standing.OK, f"{found} {units.seconds(time.monotonic() - began)}")
    except CompactorError as error:
        said = isinstance(error, SettingsError | RefusedError)
        remedy = "as it says" if said else "database.url, its user and password"
        yield Finding("database", Standing.FAILED, one_line(error), f"{remedy}; see docs/metastore.md")
        yield Finding("rest", Standing.SKIPPED, "nothing else can be tried without the database")
        return
    for site in sites:
        yield from _guarded(str(site), readers, session, site)
    for check, look in (("rights", rights), ("server", server), ("clock", clock)):
        yield from _guarded(check, look, session)
    tell("daemons")
    for check, look in (("daemons", daemons), ("Hive", hive), ("tables", left_alone), ("names", names)):
        yield from _guarded(check, look, session)
    yield columns(session.settings.readers.orc_columns, database.schema.generation.layout)
    locations = _locations(session)
    for location in locations:
        tell(location)
        yield from _guarded(f"store {location}", store, location)
    yield from _guarded("port", port, session)
    tell("Java")
    found_java = java()
    yield found_java
    if spark and found_java.standing is not Standing.FAILED:
        tell("Spark starts")
        yield from _guarded("Spark", spark_session, session, locations)
    else:
        yield Finding("Spark", Standing.SKIPPED, "not started" if not spark else "without Java it can't start")


def _guarded(check: str, look: Callable[..., Sequence[Finding]], *about: object) -> Sequence[Finding]:
    try:
        return look(*about)
    except CompactorError as error:
        return [Finding(check, Standing.FAILED, one_line(error), "see docs/operations.md")]


def rights(session: Session) -> list[Finding]:
    """One finding for each right that the database's user lacks, and for each table of our own that isn't there."""
    database = session.database()
    script = database.dialect.grants_script
    lacking = missing_rights(database)
    found = [
        Finding("rights", Standing.FAILED, f"{right} is missing", f"run {script} again, as the tables' owner")
        for right in lacking
    ] or [Finding("rights", Standing.OK, "all that are needed")]
    remedy = f"run {script} again, as the tables' owner, or start a daemon that may create tables"
    return found + [
        Finding("rights", Standing.WARNING, f"table {name} isn't there", remedy) for name in lacking_tables(database)
    ]


def server(session: Session) -> list[Finding]:
    """Whether one server answers however it is asked, and is set up as the daemon needs it."""
    standings = {True: Standing.FAILED, False: Standing.WARNING}
    return [
        Finding("server", Standing.OK if one.harmless else standings[one.grave], one.sentence, one.remedy)
        for one in shortcomings(session.database())
    ] or [Finding("server", Standing.OK, "one server, however it is asked")]


def clock(session: Session) -> list[Finding]:
    """Whether this machine's clock agrees with the database's, which decides."""
    database = session.database()
    before = time.time()
    theirs = database.read(database.now_ms) / 1000
    apart = theirs - (before + time.time()) / 2
    if abs(apart) <= _CLOCK_SECONDS:
        return [Finding("clock", Standing.OK, f"within {_CLOCK_SECONDS:g} s of the database's")]
    said = f"the database's clock is {units.seconds(abs(apart))} {'ahead of' if apart > 0 else 'behind'} this machine's"
    remedy = "synchronise both (NTP): ages and windows go by the database's clock, logs by this machine's"
    return [Finding("clock", Standing.WARNING, said, remedy)]


def daemons(session: Session) -> list[Finding]:
    """Who coordinates, and which daemons are there."""
    hosts = session.settings.zookeeper.hosts
    where = f"ZooKeeper at {hosts}" if hosts is not None else "the database coordinates"
    try:
        with control_records.coordinator(session) as found:
            members = [seen for seen in found.members() if seen.alive]
    except CompactorError as error:
        remedy = "zookeeper.hosts, or the database's table COMPACTOR_STATE"
        return [Finding("daemons", Standing.FAILED, one_line(error), remedy)]
    return judged_members(where, members)


def judged_members(where: str, members: Sequence[SeenMember]) -> list[Finding]:
    """What the daemons that are alive lack together."""
    if not members:
        return [Finding("daemons", Standing.WARNING, f"{where}; no daemon runs", "compactor run, or its systemd unit")]
    versions = sorted({seen.member.version for seen in members})
    said = f"{where}; {plural(len(members), 'daemon')} of version {' and '.join(versions)}"
    found = [Finding("daemons", Standing.OK, said)]
    if len(versions) > 1:
        found = [Finding("daemons", Standing.WARNING, said, "upgrade the others, too")]
    roles = {role for seen in members for role in seen.member.roles}
    for role in [*(role.value for role in Role), "worker"]:
        if role not in roles:
            remedy = f"{'worker.threads' if role == 'worker' else f'{role}.enabled'} of one of them"
            found.append(Finding("daemons", Standing.WARNING, f"none of them is {_named(role)}", remedy))
    return found


def _named(role: str) -> str:
    return "a worker" if role == "worker" else f"the {role.capitalize()}"


def configured(session: Session, site: Path) -> list[Finding]:
    """Where a configuration of Hive's clashes with our settings."""
    found = hive_site.read(hive_site.with_those_beside(site))
    clashes = [Finding(str(site), Standing.WARNING, one.said, one.remedy) for one in hive_site.clashes(found)]
    (theirs, source), ours = hive_site.txn_timeout(found), session.settings.txn.timeout_seconds
    if not math.isclose(theirs, ours):
        said = f"{source} is {theirs:.12g} s, and txn.timeout_seconds is {ours:.12g}"
        remedy = f"txn.timeout_seconds: {theirs:.12g}, and the same time-out in every metastore"
        clashes.append(Finding(str(site), Standing.WARNING, said, remedy))
    fine = "no file turns Hive's Initiator, Cleaner or workers on, and its transaction time-out is ours"
    return clashes or [Finding(str(site), Standing.OK, fine)]


def readers(session: Session, site: Path) -> list[Finding]:
    """Where a configuration of Hive's lets readers see other rows or values than the settings say."""
    try:
        found = hive_site.read(hive_site.with_those_beside(site))
    except SettingsError:
        return []  # `configured` has said so
    schema, ours = session.database().schema, session.settings.readers
    clashes = [
        *_columns(found, ours.orc_columns, schema.generation.layout),
        *deviations(found, schema.generation.layout, schema.schema_version),
        *_originals(found, ours=ours.insert_only_originals),
    ]
    return [Finding(str(site), Standing.WARNING, one.said, one.remedy) for one in clashes]


def columns(ours: str, layout: LayoutVersion) -> Finding:
    """How a compaction finds the columns of ORC files, and that Trino, of which no file of Hive's tells, has its own way."""
    set_by = f"readers.orc_columns: {ours}"
    rule = column_rule(ours, layout, {})
    if rule is ColumnRule.BOTH:
        said = f"an ORC file is refused where its columns by position aren't those by name ({set_by})"
    else:
        by, trinos = (
            ("name", "files with ROW__IDs by position")
            if rule is ColumnRule.NAME
            else ("position", "original files by name")
        )
        said = (
            f"columns of ORC files are found by {by} ({set_by}); Trino finds those of {trinos}: set both where it reads"
        )
    return Finding("columns", Standing.OK, said)


def _columns(found: Mapping[str, hive_site.Property], ours: str, layout: LayoutVersion) -> list[hive_site.Clash]:
    """Whether the readers find the columns of ORC files as the settings say; `both` suits any reader."""
    said = hive_site.orc_columns(found)
    theirs = "auto" if said is None else said.value
    if column_rule(ours, layout, {}) in {column_rule(theirs, layout, {}), ColumnRule.BOTH}:
        return []
    where = said.source if said is not None else "no file has orc.force.positional.evolution"
    how = {ColumnRule.POSITION: "position", ColumnRule.NAME: "name", ColumnRule.BOTH: "position and by name"}
    sentence = (
        f"{where}: readers find the columns of ORC files by {how[column_rule(theirs, layout, {})]}, "
        f"and readers.orc_columns is {ours}"
    )
    return [hive_site.Clash(sentence, f"readers.orc_columns: {theirs}, unless a session sets it")]


def _originals(found: Mapping[str, hive_site.Property], *, ours: bool) -> list[hive_site.Clash]:
    """Whether the readers take original files of insert-only tables as the settings say."""
    said = found.get(hive_site.ORIGINALS)
    theirs = said is not None and hive_site.truth(said) is True
    if theirs is ours:
        return []
    source = said.source if said is not None else f"{hive_site.ORIGINALS}, which no file has,"
    sentence = f"{source} is {str(theirs).lower()}, and readers.insert_only_originals is {str(ours).lower()}"
    return [hive_site.Clash(sentence, f"readers.insert_only_originals: {str(theirs).lower()}")]


def hives_workers(theirs: HiveSide) -> Finding:
    """Whether Hive's own workers are in the queue, or among the latest of the history."""
    if not theirs.by_hive:
        return Finding("Hive", Standing.OK, "none of the latest compactions was done by Hive's own workers")
    said = f"{theirs.by_hive} of the latest {plural(theirs.recent, 'compaction')} were done by Hive's own workers"
    remedy = "hive.compactor.worker.threads=0 in every metastore and HiveServer2, unless both are wanted"
    return Finding("Hive", Standing.WARNING, said, remedy)


def hives_initiator(theirs: HiveSide) -> Finding:
    """Whether Hive's own Initiator queues, on which hosts, and when it did so last."""
    if theirs.initiators is None:
        return Finding("Hive", Standing.SKIPPED, "Hive 3.1 doesn't note what its Initiator queued; --hive-site tells")
    if not theirs.initiators:
        return Finding("Hive", Standing.OK, f"Hive's own Initiator queued nothing within {DAYS} days")
    latest = sorted(theirs.initiators.items(), key=lambda item: -item[1][1])
    told = [f"{host} ({count:,}, last {units.clock(instant(last))})" for host, (count, last) in latest]
    total = sum(count for count, _ in theirs.initiators.values())
    said = f"Hive's own Initiator queued {plural(total, 'compaction')} within {DAYS} days: on {_listed(told)}"
    remedy = "metastore.compactor.initiator.on (hive.compactor.initiator.on) = false there; then restart that metastore"
    return Finding("Hive", Standing.WARNING, said, remedy)


def hive(session: Session) -> list[Finding]:
    """What Hive does beside the daemons."""
    theirs = HiveSide.read(session.database())
    return [hives_workers(theirs), hives_initiator(theirs)]


def left_alone(session: Session) -> list[Finding]:
    """Which tables are left alone because operators or their owners want it so; nothing is wrong with that."""
    database = session.database()
    control = Configured.of(session.settings)
    found: list[Finding] = []
    if control.only.tables:
        tables = Catalog(database).table_locations()
        count = sum(control.includes(name, table) for name, table, _ in tables)
        said = f"control.only names {shortened(control.only.tables)}: {count:,} of {plural(len(tables), 'transactional table')}"
        found = [Finding("tables", Standing.OK, f"{said}; the others are left alone")]
    parameters = Catalog(database).parameters_of_tables(AUTO_COMPACTION_KEYS)
    version = database.schema.generation.layout
    off = sorted(str(entity) for entity, both in parameters.items() if auto_compaction_off(*both, version))
    if not off:
        return [*found, Finding("tables", Standing.OK, f"none has {NO_AUTO_COMPACTION_KEY}")]
    said = f"no Initiator queues {plural(len(off), 'table')} with {NO_AUTO_COMPACTION_KEY}: {_listed(off)}"
    return [*found, Finding("tables", Standing.OK, f"{said}; compactor enqueue does")]


def names(session: Session) -> list[Finding]:
    """Which names in the settings and in tables' properties name nothing."""
    clashes = unknown_names(session.settings, Catalog(session.database()), control_records.daemons(session))
    return [Finding("names", Standing.WARNING, one.said, one.remedy) for one in clashes] or [
        Finding("names", Standing.OK, "each pattern, pool and property names something")
    ]


def _listed(names: Sequence[str]) -> str:
    """The first few of them, and how many more there are."""
    more = len(names) - _EXAMPLES
    return ", ".join(names[:_EXAMPLES]) + (f" and {more:,} more" if more > 0 else "")


def _locations(session: Session) -> list[str]:
    """
    The roots that were set by hand; else, of databases and of directories around transactional tables, one of each
    directory that holds such: the warehouse of managed tables isn't in the catalog, and a mount may be read-only. With
    `control.only`, of the tables that it includes; where there are none yet, of databases.
    """
    catalog = Catalog(session.database())
    roots, control = session.settings.warehouse.roots, Configured.of(session.settings)
    around = Counter(
        parent(location) for database, table, location in catalog.table_locations() if control.includes(database, table)
    )
    databases = [] if control.only.tables and around else catalog.database_locations()
    held: dict[tuple[str, str, str], str] = {}
    for location in roots or (*(one for one, _ in around.most_common()), *databases):
        with contextlib.suppress(CompactorError):
            parts = split(location)
            held.setdefault((parts.scheme, parts.authority, parts.path if roots else parent(parts.path)), location)
    return list(held.values())[:_MOST_PLACES]


def store(location: str) -> list[Finding]:
    """List a location, and write, rename and remove a hidden directory in it."""
    check, storage = f"store {location}", storage_for(location)
    if not storage.exists(location):
        return [Finding(check, Standing.WARNING, "the directory isn't there", "its database, or warehouse.roots")]
    began = time.monotonic()
    storage.directories(location)
    listed = time.monotonic() - began
    if storage.uploads is not None and (promises := storage.uploads.promises(location)) != Promises():
        return [_broken(check, promises)]
    place = join(location, f".compactor-doctor-{secrets.token_hex(4)}")
    try:
        _tried(storage, place)
    finally:
        for made in (place, f"{place}-renamed"):
            with contextlib.suppress(CompactorError, OSError):
                storage.delete_tree(made)
    how = "written, renamed and removed" if storage.uploads is None else "each promise of the store was tried"
    return [Finding(check, Standing.OK, f"listed within {units.seconds(listed)}; {how}")]


def _broken(check: str, promises: Promises) -> Finding:
    """What a store that can't rename doesn't keep."""
    if promises.broken:
        remedy = "a release of the store that keeps it, or another store; nothing is compacted there until then"
        return Finding(check, Standing.FAILED, f"the store breaks {'; '.join(promises.broken)}", remedy)
    remedy = "docs/storage.md, Cleaning: which moment stays open where a dropped table's place is used again"
    return Finding(check, Standing.WARNING, f"the store has no {', '.join(promises.missed)}", remedy)


def _tried(storage: Storage, place: str) -> None:
    storage.mkdir(place)
    with storage.create(join(place, "file")) as sink:
        sink.write(b"compactor doctor")
    with storage.open_read(join(place, "file")) as reader:
        if reader.read_at(0, 100) != b"compactor doctor":
            raise CompactorError(f"{place}/file isn't read as it was written")
    if storage.uploads is None:
        storage.rename_noreplace(place, f"{place}-renamed")


def port(session: Session) -> list[Finding]:
    """Whether the port of the HTTP server is free, or one of ours has it."""
    http = session.settings.http
    if not http.enabled:
        return [Finding("port", Standing.SKIPPED, "http.enabled is false")]
    with socket.socket(socket.AF_INET6 if ":" in http.host else socket.AF_INET) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((http.host, http.port))
        except OSError as error:
            said = f"{http.host}:{http.port} can't be taken ({os.strerror(error.errno or 0)})"
            return [Finding("port", Standing.WARNING, said, "right where a daemon runs here already; else http.port")]
    return [Finding("port", Standing.OK, f"{http.host}:{http.port} is free")]


def java() -> Finding:
    """Which Java Spark would run on."""
    try:
        path = require_java()
        said = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    except (UnreachableError, OSError, subprocess.TimeoutExpired) as error:
        return Finding("Java", Standing.FAILED, one_line(error), "install Java 17 or newer, or set JAVA_HOME")
    found = _JAVA_VERSION.search(said)
    if found is None or int(found[1]) < _JAVA:
        remedy = f"Java {_JAVA} or newer, or JAVA_HOME"
        return Finding("Java", Standing.FAILED, f"{path} is {one_line(said)[:80] or 'of no known version'}", remedy)
    return Finding("Java", Standing.OK, f"{path}, version {found[1]}")


def spark_session(session: Session, locations: Sequence[str]) -> list[Finding]:
    """
    Start Spark as the daemon does, let tasks tell what executors are like, and let a task look at each store. In submit
    mode an application is started, which is talked to through a hidden directory in the first store.
    """
    settings = session.settings
    own = settings.spark.mode == "submit"
    if own and not locations:
        return [Finding("Spark", Standing.SKIPPED, "an application is talked to through a store, and there is none")]
    token = secrets.token_hex(4)
    place = join(locations[0], f".compactor-doctor-{token}") if own else None
    job = JobName(f"{settings.host_name}-compactor-doctor", f"doctor.{token}", place=place, step="look")
    submitter = submitter_for(settings)
    began = time.monotonic()
    try:
        if place is not None:
            storage_for(place).mkdir(place)
        while not submitter.warm_up(1.0):
            pass
        run = partial(submitter.run, job, progress=lambda _: None, cancelled=lambda: False)
        executors = run(report_of_executor, [None] * _LOOKS)
        started = units.seconds(time.monotonic() - began)
        answers = run(seen_from_here, list(locations))
    except CompactorError as error:
        return [Finding("Spark", Standing.FAILED, one_line(error), "spark.master, spark.conf; see docs/spark.md")]
    finally:
        submitter.stop()
        if place is not None:
            with contextlib.suppress(CompactorError, OSError):
                storage_for(place).delete_tree(place)
    what = "an application" if own else "a session"
    found = [Finding("Spark", Standing.OK, f"{what} on {settings.spark.master} worked within {started}")]
    found += [_executor(report) for report in {(one.host, one.python, one.code): one for one in executors}.values()]
    found.append(_properties(settings))
    for location, why in zip(locations, answers, strict=True):
        standing = Standing.OK if why is None else Standing.FAILED
        said = f"executors see {location}" if why is None else f"executors don't see {location}: {why}"
        remedy = "" if why is None else "configuration and rights of the store on the executors; docs/spark.md"
        found.append(Finding("Spark", standing, said, remedy))
    return found


def _executor(report: ExecutorReport) -> Finding:
    said = f"an executor on {report.host}: {report.code}, {report.python}; {binary_units(report.free_bytes)} free in {report.scratch}"
    return Finding("Spark", Standing.OK, said)


def _properties(settings: Settings) -> Finding:
    """What a task may use, and the properties that say how many run where."""
    conf, memory = merged_conf(settings.spark), task_memory(settings, Resources())
    said = ", ".join(f"{key} {conf[key]}" for key in (*ALLOWED, *_SHOWN) if key in conf)
    return Finding(
        "Spark",
        Standing.OK,
        f"a task may use {binary_units(memory.bytes)} ({memory.limited_by}); {said or 'no property is set'}",
    )
