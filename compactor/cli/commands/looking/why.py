"""
`compactor why`: over all tables, what keeps replaced files from being removed and entries from being compacted, each
cause once, with what it holds back and the command that ends it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

import click

from compactor.acid.children import ListedDir
from compactor.cli import completing, control_records, units
from compactor.cli.naming.filters import METAVAR, moment_of, places, watch_option, watched
from compactor.cli.naming.lookup import Found
from compactor.cli.output import OutputColumn, Record, View
from compactor.cli.session import Command, Session, pass_session
from compactor.cli.views.inspection import CatalogMoment, look
from compactor.control import Denial, Subject
from compactor.control.scope import DEFAULT_POOL
from compactor.coordination import Role, SeenMember
from compactor.errors import RefusedError, UnreachableError
from compactor.metastore.catalog import Catalog
from compactor.metastore.clean.readers import Blocker
from compactor.metastore.clean.ready import Cleaning
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.model import Entity, HeldLock, OpenTransaction, QueueEntry, QueueState
from compactor.reasons import Reason
from compactor.storage.registry import storage_for
from compactor.words import plural

COLUMNS = (
    OutputColumn("holds", "HOLDS BACK"),
    OutputColumn("reason", "REASON", people=False),
    OutputColumn("cause", "BECAUSE"),
    OutputColumn("entries", "ENTRIES", right=True, show=units.number),
    OutputColumn("tables", "TABLES", right=True, show=units.number),
    OutputColumn("bytes", "BYTES", right=True, show=units.size),
    OutputColumn("since_ms", "LONGEST", right=True, show=units.milliseconds),
    OutputColumn("example", "SUCH AS"),
    OutputColumn("remedy", "WHAT ENDS IT"),
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
    Reason.AT_WORK: ("a compaction is at work there", "its end"),
    Reason.COMPACTION_ABORTED: ("its own transaction was rolled back", "the Cleaner's next cycle: it ends as failed"),
}
"""Reasons that are the same for every entry: the cause, and what ends it."""
_REMEDIES: Final[Mapping[Reason, str]] = {
    Reason.PAUSED: "compactor resume (compactor pauses shows what)",
    Reason.DRAINED: "compactor drain HOST --undo",
    Reason.NO_CLEANUP: "ALTER TABLE … UNSET TBLPROPERTIES ('no_cleanup')",
    Reason.UNSUPPORTED_KIND: "Hive's own workers",
}
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


@dataclass(slots=True)
class Held:
    """The entries that a cause holds back."""

    entries: list[QueueEntry] = field(default_factory=list)

    def record(self, cause: Cause, sizes: Mapping[Entity, int], now_ms: int) -> Record:
        """As an output record; bytes are those that were measured, None where none were."""
        known = [sizes[entity] for entity in {entry.entity for entry in self.entries} if entity in sizes]
        since = [moment for entry in self.entries if (moment := moment_of(entry)) is not None]
        return {
            "holds": cause.holds,
            "reason": cause.reason,
            "cause": cause.sentence,
            "entries": len(self.entries),
            "tables": len({entry.entity.whole_table() for entry in self.entries}),
            "bytes": sum(known) if known else None,
            "since_ms": max(0, now_ms - min(since)) if since else None,
            "example": str(self.entries[0].entity),
            "remedy": cause.remedy,
            "ids": [entry.id for entry in self.entries],
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


def _view(session: Session, target: str | None, measure: int) -> View:
    database = session.database()
    fits = places(session, target)
    now = database.read(database.now_ms)
    daemons = control_records.daemons(session)
    held: dict[Cause, Held] = {}
    cleaning = [
        (ready.entry, ready.blockers)
        for ready in Cleaning(database).ready_for_cleaning(*session.settings.cleaner.waits_ms)
        if fits(ready.entry.entity)
    ]
    found = _found(session, [entry for entry, _ in cleaning])
    decide = control_records.judge(session) if cleaning else None
    denials: dict[Subject, Denial | None] = {}
    causes: dict[tuple[int, Denial | None, str | None], list[Held]] = {}  # transactions hold back many entries alike
    for entry, blockers in cleaning:
        subject = control_records.subject(entry)
        if decide is not None and subject not in denials:
            denials[subject] = decide.cleaning(subject)
        kept = found[entry.id].kept if entry.id in found else None
        key = (id(blockers), denials.get(subject), kept)
        if key not in causes:
            causes[key] = [held.setdefault(cause, Held()) for cause in cleaning_causes(blockers, *key[1:], daemons)]
        for some in causes[key]:
            some.entries.append(entry)
    waiting = [entry for entry in Queue(database).entries(QueueState.INITIATED) if fits(entry.entity)]
    denied = control_records.waiting(session, waiting)
    told = control_records.stored_failures(session, waiting, denied.values())
    for entry in waiting:
        because = (told[entry.id].reason, told[entry.id].because) if entry.id in told else ("", "")
        held.setdefault(waiting_cause(entry, denied.get(entry.id), because, daemons), Held()).entries.append(entry)
    sizes = _sizes(session, found.values(), measure)
    records = [some.record(cause, sizes, now) for cause, some in held.items()]
    records.sort(key=lambda record: (-int(str(record["bytes"] or 0)), -int(str(record["entries"]))))
    unmeasured = len({one.entity for one in found.values()} - sizes.keys())
    footer = f"of {plural(unmeasured, 'directory', 'directories')} it isn't known how many bytes" if unmeasured else ""
    return View(COLUMNS, records, empty="nothing waits", footer=footer)


def cleaning_causes(
    blockers: Sequence[Blocker], denial: Denial | None, kept: str | None, daemons: Sequence[SeenMember] | None
) -> list[Cause]:
    """
    What holds back the cleaning of an entry.

    Args:
        denial: a pause of cleaning.
        kept: that files stay because of `no_cleanup`.
        daemons: those that are alive; None: they aren't known.
    """
    txns = {blocker.holder.txn_id for blocker in blockers if isinstance(blocker.holder, OpenTransaction)}
    causes = list(
        dict.fromkeys(
            _blocked(blocker)
            for blocker in blockers
            if not (isinstance(blocker.holder, HeldLock) and blocker.holder.txn_id in txns)
        )
    )
    if denial is not None:
        causes.append(_denied(_CLEANING, denial))
    if kept is not None:
        causes.append(Cause(_CLEANING, Reason.NO_CLEANUP.value, kept, _REMEDIES[Reason.NO_CLEANUP]))
    if causes:
        return causes
    if daemons is not None and not any(Role.CLEANER.value in seen.member.roles for seen in daemons):
        return [
            Cause(_CLEANING, Reason.NO_CLEANER.value, "no daemon is the Cleaner", "compactor run, with cleaner.enabled")
        ]
    return [Cause(_CLEANING, "", _NEXT_CYCLE, "time")]


def waiting_cause(
    entry: QueueEntry, denial: Denial | None, failed: tuple[str, str], daemons: Sequence[SeenMember] | None
) -> Cause:
    """
    What keeps an entry from being claimed.

    Args:
        failed: code and sentence of a failure after which the entry is tried again later; empty without one.
        daemons: as for `cleaning_causes`.
    """
    if denial is not None:
        return _denied(_COMPACTING, denial)
    if failed[0]:
        return Cause(_COMPACTING, failed[0], failed[1], "its next attempt; see compactor queue")
    if daemons is not None and (denied := control_records.unserved(entry, daemons)) is not None:
        pool = entry.pool or DEFAULT_POOL
        remedy = (
            f"worker.pools: {{{pool}: 1}}; after twelve hours workers without a pool take it"
            if any("worker" in seen.member.roles for seen in daemons)
            else "compactor run, with worker.threads"
        )
        return Cause(_COMPACTING, denied.reason.value, denied.sentence, remedy)
    return Cause(_COMPACTING, "", _FREE_WORKER, "time")


def _blocked(blocker: Blocker) -> Cause:
    match blocker.holder:
        case OpenTransaction() as txn:
            remedy = (
                "its end at the source of the replication"
                if txn.replication
                else f"ABORT TRANSACTIONS {txn.txn_id} (in Hive), if its client is gone"
            )
            what = str(txn) + (", which only reads" if txn.read_only else "")
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


def _denied(holds: str, denial: Denial) -> Cause:
    until = units.instant(denial.until_ms)
    remedy = _REMEDIES.get(denial.reason) or (f"time: until {units.clock(until)} UTC" if until else "time")
    return Cause(holds, denial.reason.value, denial.sentence, remedy)


def _found(session: Session, entries: Iterable[QueueEntry]) -> dict[int, Found]:
    """The tables and partitions of entries, as far as the catalog has them; not of requests to remove a directory."""
    asked = [entry for entry in entries if entry.location is None]
    facts = Catalog(session.database()).facts_for(entry.entity for entry in asked)
    return {entry.id: Found(*facts[entry.entity]) for entry in asked if entry.entity in facts}


def _sizes(session: Session, places: Iterable[Found], most: int) -> dict[Entity, int]:
    """The bytes in each place that no query reads any more, where it can be listed; of the first `most` places only."""
    chosen = list({found.entity: found for found in places}.values())[:most]
    moments: dict[str, CatalogMoment] = {}
    for found in chosen:
        if found.table.full_name not in moments:
            moments[found.table.full_name] = look(session.database(), found.table)
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
