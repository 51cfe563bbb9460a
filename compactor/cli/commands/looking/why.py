"""
`compactor why`: over all tables, what keeps replaced files from being removed and entries from being compacted, each
cause once, with what it holds back and the command that ends it.
"""

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Final, Self

import click

from compactor.acid.children import ListedDir
from compactor.cli import completing, control_records, units
from compactor.cli.naming.filters import METAVAR, moment_of, places, watch_option, watched
from compactor.cli.naming.lookup import Found
from compactor.cli.output import OutputColumn, Record, View
from compactor.cli.session import Command, Session, pass_session
from compactor.cli.views.inspection import CatalogMoment, look
from compactor.control import Denial, Subject
from compactor.control.waits import TIME, Wait
from compactor.coordination import Role, SeenMember
from compactor.errors import RefusedError, UnreachableError
from compactor.metastore.catalog import Catalog
from compactor.metastore.clean.aborts import Aborts
from compactor.metastore.clean.may_clean import Blocker, ReadyEntry
from compactor.metastore.clean.ready import Cleaning
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.db.sql import batches, least
from compactor.metastore.model import Entity, HeldLock, OpenTransaction, QueueEntry, QueueState
from compactor.planning.eligibility import what_is_kept
from compactor.planning.thresholds import CLEANUP_KEYS
from compactor.reasons import Reason
from compactor.roles.pauses import subject_of
from compactor.storage.registry import storage_for
from compactor.words import plural

COLUMNS = (
    OutputColumn("holds", "HOLDS BACK"),
    OutputColumn("reason", "REASON", people=False),
    OutputColumn("cause", "BECAUSE", folds=24),
    OutputColumn("entries", "ENTRIES", right=True, show=units.number),
    OutputColumn("tables", "TABLES", right=True, show=units.number),
    OutputColumn("bytes", "BYTES", right=True, show=units.size),
    OutputColumn("since_ms", "LONGEST", right=True, show=units.milliseconds),
    OutputColumn("example", "SUCH AS"),
    OutputColumn("remedy", "WHAT ENDS IT", folds=24),
    OutputColumn("ids", "IDS", people=False),
)
_LISTED_AT_ONCE: Final = 16
_CLEANING, _COMPACTING = "cleaning", "compaction"
_RULES: Final[Mapping[Reason, tuple[str, str]]] = {
    Reason.RETENTION: ("files are kept for a while after the commit", "time: cleaner.retention_seconds"),
    Reason.EARLIER_ENTRY: (
        "an earlier compaction of the same table or partition is cleaned first",
        "what holds back the earlier one",
    ),
    Reason.NOT_YET_COMMITTED: ("its own transaction isn't committed yet", "the commit"),
    Reason.COMPACTION_ABORTED: ("its own transaction was rolled back", "the Cleaner's next cycle: it ends as failed"),
}
"""Reasons that are the same for every entry: the cause, and what ends it."""
_UNSET = "ALTER TABLE … UNSET TBLPROPERTIES ('no_cleanup')"
_NEXT_CYCLE = "nothing: the Cleaner's next cycle removes what was replaced"
_FREE_WORKER = "nothing: the next free worker takes it"


@dataclass(frozen=True, slots=True)
class Cause:
    """
    What holds entries back; equal for all entries that it holds back.

    Args:
        remedy: what ends it: a command, or what to wait for.
    """

    holds: str
    reason: str
    sentence: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Alike:
    """
    What a record needs to know of entries that the same causes hold back, told once for all of these causes.

    Args:
        ids: ascending.
        first: of the entry with the lowest id.
        since_ms: when the first of them entered its state.
        measured: those of their tables and partitions whose bytes are known.
    """

    ids: list[int]
    first: Entity
    tables: set[tuple[str, str]]
    since_ms: int | None
    measured: set[Entity]

    @classmethod
    def of(cls, entries: Sequence[QueueEntry], sizes: Mapping[Entity, int]) -> Self:
        """Of entries by id; at least one."""
        return cls(
            [entry.id for entry in entries],
            entries[0].entity,
            {(entry.entity.database, entry.entity.table) for entry in entries},
            least(*{moment_of(entry) for entry in entries}),
            {entry.entity for entry in entries}.intersection(sizes) if sizes else set(),
        )


def record(cause: Cause, held: Sequence[Alike], sizes: Mapping[Entity, int], now_ms: int) -> Record:
    """A cause as an output record; bytes are those that were measured, None where none were."""
    ids = sorted(chain.from_iterable(some.ids for some in held))
    measured = set[Entity]().union(*(some.measured for some in held))
    since = least(*(some.since_ms for some in held))
    return {
        "holds": cause.holds,
        "reason": cause.reason,
        "cause": cause.sentence,
        "entries": len(ids),
        "tables": len(set[tuple[str, str]]().union(*(some.tables for some in held))),
        "bytes": sum(sizes[entity] for entity in measured) if measured else None,
        "since_ms": None if since is None else max(0, now_ms - since),
        "example": str(min(held, key=lambda some: some.ids[0]).first),
        "remedy": cause.remedy,
        "ids": ids,
    }


@click.command(cls=Command)
@click.argument("target", required=False, metavar=METAVAR, shell_complete=completing.tables)
@click.option(
    "--measure",
    type=click.IntRange(0, 1_000_000),
    default=1000,
    show_default=True,
    help="List at most so many directories to tell the bytes that are held back.",
)
@watch_option
@pass_session
def why(session: Session, *, target: str | None, measure: int, watch: float | None) -> None:
    """
    Show what keeps replaced files from being removed, and entries from being compacted, over all tables.

    Each cause is shown once (a transaction with its user and host, a lock, a pause, a pool without workers), with what
    it holds back and what ends it; what holds back most bytes comes first. An entry with several causes counts for each.
    """
    watched(session, watch, lambda: session.output.show(_view(session, target, measure)))


@contextmanager
def _without_collector() -> Iterator[None]:
    """Without Python's collector of cycles: it would walk through all entries again and again, and they have none."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _view(session: Session, target: str | None, measure: int) -> View:
    with _without_collector():
        return _told(session, target, measure)


def _told(session: Session, target: str | None, measure: int) -> View:
    database = session.database()
    fits = places(session, target)
    now = database.read(database.now_ms)
    daemons = control_records.daemons(session)
    held: dict[Cause, list[list[QueueEntry]]] = {}
    cleaner = Cleaning(database)
    cleaning = [
        ready
        for ready in cleaner.ready_for_cleaning(*session.settings.cleaner.waits_ms, CLEANUP_KEYS)
        if fits(ready.entry.entity)
    ]
    ties = {} if target is None or database.schema.hive_4 else _ties(cleaner, cleaning)
    decide = control_records.judge(session) if cleaning else None
    denials: dict[Subject, Denial | None] = {}
    alike: dict[tuple[object, ...], list[QueueEntry]] = {}  # transactions hold back many entries alike
    for ready in cleaning:
        entry, blockers = ready.entry, ready.blockers
        subject = subject_of(entry)
        if decide is not None and subject not in denials:
            denials[subject] = decide.cleaning(subject)
        denial, stays = denials.get(subject), _kept(ready)
        key = (id(blockers), denial, stays)
        if key not in alike:
            alike[key] = []
            for cause in cleaning_causes(blockers, denial, stays, daemons, ties):
                held.setdefault(cause, []).append(alike[key])
        alike[key].append(entry)
    waiting = [entry for entry in Queue(database).entries(QueueState.INITIATED) if fits(entry.entity)]
    waits, _ = control_records.waiting(session, waiting)
    for entry in waiting:
        wait = waits.get(entry.id)
        if (wait,) not in alike:
            alike[wait,] = []
            held.setdefault(_compacting(wait), []).append(alike[wait,])
        alike[wait,].append(entry)
    removable = dict.fromkeys(ready.entry.entity for ready in cleaning if ready.entry.location is None)
    sizes = _sizes(session, _found(session, removable, measure))
    counted = {id(entries): Alike.of(entries, sizes) for entries in alike.values()}
    records = [record(cause, [counted[id(entries)] for entries in some], sizes, now) for cause, some in held.items()]
    records.sort(key=lambda record: (-int(str(record["bytes"] or 0)), -int(str(record["entries"]))))
    unmeasured = len(removable.keys() - sizes.keys())
    notes = [f"of {plural(unmeasured, 'directory', 'directories')} it isn't known how many bytes"] if unmeasured else []
    late, late_tables = Aborts(database).count_may_write(session.settings.cleaner.late_ms)
    if late and target is None:
        notes.append(
            f"{plural(late, 'aborted write')} in {plural(late_tables, 'table')} can't be forgotten yet: tasks may still"
            " write there (cleaner.late_writer_hours)"
        )
    return View(COLUMNS, records, empty="nothing waits", footer="; ".join(notes))


def cleaning_causes(
    blockers: Sequence[Blocker],
    denial: Denial | None,
    kept: str | None,
    daemons: Sequence[SeenMember] | None,
    ties: Mapping[int, str] = MappingProxyType({}),
) -> list[Cause]:
    """
    What holds back the cleaning of an entry.

    Args:
        denial: a pause of cleaning.
        kept: that files stay because of `no_cleanup`.
        daemons: those that are alive; None: they aren't known.
        ties: of transactions, by what they may see the entry's table, where that is told.
    """
    txns = {blocker.holder.txn_id for blocker in blockers if isinstance(blocker.holder, OpenTransaction)}
    causes = list(
        dict.fromkeys(
            _blocked(blocker, ties)
            for blocker in blockers
            if not (isinstance(blocker.holder, HeldLock) and blocker.holder.txn_id in txns)
        )
    )
    if denial is not None:
        causes.append(_cause(_CLEANING, Wait.of(denial)))
    if kept is not None:
        causes.append(Cause(_CLEANING, Reason.NO_CLEANUP.value, kept, _UNSET))
    if causes:
        return causes
    if daemons is not None and not any(Role.CLEANER.value in seen.member.roles for seen in daemons):
        return [
            Cause(_CLEANING, Reason.NO_CLEANER.value, "no daemon is the Cleaner", "compactor run, with cleaner.enabled")
        ]
    return [Cause(_CLEANING, "", _NEXT_CYCLE, "time")]


def _ties(cleaner: Cleaning, cleaning: Sequence[ReadyEntry]) -> Mapping[int, str]:
    """By what the transactions that hold cleaning back see the table, where all entries are of one table."""
    entities = {ready.entry.entity for ready in cleaning}
    tables = {entity.whole_table() for entity in entities}
    if len(tables) != 1:
        return {}
    holders = (blocker.holder for ready in cleaning for blocker in ready.blockers)
    txns = {holder.txn_id for holder in holders if isinstance(holder, OpenTransaction)}
    return cleaner.ties((entities if len(entities) == 1 else tables).pop(), sorted(txns))


def _blocked(blocker: Blocker, ties: Mapping[int, str]) -> Cause:
    match blocker.holder:
        case OpenTransaction() as txn:
            remedy = (
                "its end at the source of the replication"
                if txn.replication
                else f"ABORT TRANSACTIONS {txn.txn_id} (in Hive), if its client is gone"
            )
            what = str(txn) + (", which only reads" if txn.read_only else "")
            what += f"; {ties[txn.txn_id]}" if txn.txn_id in ties else ""
            return Cause(_CLEANING, blocker.reason.value, what, remedy)
        case HeldLock() as lock:
            remedy = (
                f"ABORT TRANSACTIONS {lock.txn_id} (in Hive), if its client is gone"
                if lock.txn_id
                else f"the end of the query of {lock.user}@{lock.host}, or hive.txn.timeout without a heartbeat"
            )
            return Cause(_CLEANING, blocker.reason.value, str(lock), remedy)
        case _:
            sentence, remedy = _RULES.get(blocker.reason, (blocker.sentence, "time"))
            return Cause(_CLEANING, blocker.reason.value, sentence, remedy)


def _cause(holds: str, wait: Wait) -> Cause:
    until = units.instant(wait.until_ms)
    remedy = f"time: until {units.clock(until)} UTC" if until and wait.remedy == TIME else wait.remedy
    return Cause(holds, wait.reason, wait.sentence, remedy)


def _compacting(wait: Wait | None) -> Cause:
    return Cause(_COMPACTING, "", _FREE_WORKER, TIME) if wait is None else _cause(_COMPACTING, wait)


def _kept(ready: ReadyEntry) -> str | None:
    """Why the replaced files of an entry stay (`no_cleanup`); None of a request to remove a directory."""
    if ready.entry.location is not None or not any(ready.parameters):
        return None
    return what_is_kept(str(ready.entry.entity), *ready.parameters)


def _found(session: Session, entities: Iterable[Entity], most: int) -> list[Found]:
    """The first `most` of these tables and partitions that the catalog has."""
    catalog = Catalog(session.database())
    found: list[Found] = []
    for batch in batches(entities, most):
        facts = catalog.facts_for(batch)
        found += [Found(*facts[entity]) for entity in batch if entity in facts]
        if len(found) >= most:
            break
    return found[:most]


def _sizes(session: Session, chosen: Sequence[Found]) -> dict[Entity, int]:
    """The bytes in each place that no query reads any more, where it can be listed."""
    moments: dict[str, CatalogMoment] = {}
    for found in chosen:
        if found.table.full_name not in moments:
            moments[found.table.full_name] = look(session.database(), found.table, session.settings.readers)
    with ThreadPoolExecutor(_LISTED_AT_ONCE, thread_name_prefix="listing") as pool:
        sizes = pool.map(lambda found: _size(found, moments[found.table.full_name]), chosen)
        return {found.entity: size for found, size in zip(chosen, sizes, strict=True) if size is not None}


def _size(found: Found, moment: CatalogMoment) -> int | None:
    try:
        state, _ = moment.resolve(storage_for(found.location).list_tree(found.location))
    except (RefusedError, UnreachableError):
        return None
    return sum(_bytes(state.obsolete)) + sum(_bytes(state.aborted)) + sum(f.length for f in state.obsolete_originals)


def _bytes(directories: Iterable[ListedDir]) -> Iterator[int]:
    return (file.length for listed in directories for file in listed.files)
