"""
The state of one metastore at a glance: daemons, queue, what holds it up, what fails, the last day, Hive's side; and what
of it is wrong.

`Overview.read` asks, and `troubles` decides, which is pure. Limits of age are those of Hive's own alerts.
Source: docs/cli.md, `compactor status`; docs/metrics.md.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from compactor.control import Subject
from compactor.control.judge import ON_PURPOSE
from compactor.control.waits import Wait
from compactor.coordination import SeenMember, not_led
from compactor.coordination.model import NOT_READY, SETTINGS
from compactor.durations import DAY_MS, HOUR_MS
from compactor.errors import UsageError
from compactor.metastore.candidates import Initiating
from compactor.metastore.catalog import Catalog
from compactor.metastore.clean.ready import Cleaning
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.compaction_queue.work import StoredWork, WorkTable
from compactor.metastore.db.database import Database
from compactor.metastore.model import Entity, HistoryEntry, OpenTransaction, QueueEntry, QueueState, duration
from compactor.metastore.txn.transactions import Transactions
from compactor.metastore.worker_ids import parse_worker_id
from compactor.metrics import version
from compactor.planning.thresholds import QUARANTINE_HOURS_KEY, quarantine_hours
from compactor.reasons import Reason
from compactor.settings import Settings
from compactor.status.causes import CLEANING, Hindrances, cause_records, causes_of, failed_cleaning, put_off
from compactor.status.daemons import Daemons
from compactor.status.hive import HiveSide, undone
from compactor.status.records import Record, drain_record, entered_ms, member_record, pause_record
from compactor.words import instant, plural

ENDED: Final = (
    QueueState.SUCCEEDED,
    QueueState.REFUSED,
    QueueState.FAILED,
    QueueState.ABORTED,
    QueueState.DID_NOT_INITIATE,
)
LIMITS_MS: Final = {
    "CompactorOldestInitiated": HOUR_MS,
    "CompactorCleanerBlocked": DAY_MS,
    "CompactorOldTransaction": DAY_MS,
    "CompactorForgottenPause": DAY_MS,
}
"""Ages that aren't well, by the first alert of `deploy/prometheus/rules.yaml` that tells of the same."""
_SILENT_MS: Final = 5 * 60_000
"""How long after its time-out a silent transaction may still be open: whoever keeps house comes by every minute or so."""
_AT_ONCE: Final = {Reason.NO_WORKER.value, Reason.NO_CLEANER.value}
"""Nothing goes on until an operator acts, however young the entries are."""
_INTENDED: Final = {
    *ON_PURPOSE,
    Reason.UNSUPPORTED_KIND.value,
    Reason.RETENTION.value,
    Reason.EARLIER_ENTRY.value,
    Reason.NO_CLEANUP.value,
    Reason.REPLICATION_SOURCE.value,
    Reason.CONTROL_UNKNOWN.value,
    Reason.NOT_READY.value,
}
"""What is meant, or is told otherwise."""
_TRIED_AGAIN: Final = "what it names; it is tried again"


class Trouble(NamedTuple):
    """
    One thing that isn't well.

    Args:
        what: a stable code, of a `Reason` where there is one.
        since_ms: for how long; None: that isn't known.
    """

    what: str
    sentence: str
    remedy: str
    since_ms: int | None = None


def last_day(
    history: Sequence[HistoryEntry], work: Mapping[int, StoredWork], quarantine_ms: Mapping[int, int], now_ms: int
) -> Record:
    """
    How many entries ended in the last 24 hours, by state, and the bytes that went.

    `freed_bytes` is what compactions had replaced and the Cleaner has deleted, `quarantined_bytes` what is still in
    quarantine, whenever it was compacted; both as far as the work on entries tells.

    Args:
        history: of the longest quarantine and a day.
        quarantine_ms: how long what an entry replaced stays, by the entry's id.
    """
    ended = Counter(entry.state for entry in history if (entry.end_ms or 0) > now_ms - DAY_MS)
    freed = quarantined = 0
    for entry in history:
        if entry.state is QueueState.SUCCEEDED and entry.id in work:
            gone_ms = (entry.end_ms or 0) + quarantine_ms[entry.id]
            size = work[entry.id].work.bytes_before or 0
            quarantined += size if gone_ms > now_ms else 0
            freed += size if now_ms - DAY_MS < gone_ms <= now_ms else 0
    counts = {state.value.replace(" ", "_"): ended[state] for state in ENDED}
    return {**counts, "freed_bytes": freed, "quarantined_bytes": quarantined}


def _read_last_day(database: Database, settings: Settings, now_ms: int) -> Record:
    default, hours = settings.cleaner.quarantine_hours, dict[Entity, float]()
    for table, (parameters, _) in Catalog(database).parameters_of_tables([QUARANTINE_HOURS_KEY]).items():
        with suppress(UsageError):  # nothing of that table is cleaned until it is corrected
            hours[table] = quarantine_hours(default, parameters)
    longest = max([default, *hours.values()])
    history = Queue(database).history(within_ms=round(longest * HOUR_MS) + DAY_MS)
    kept = {entry.id: round(hours.get(entry.entity.whole_table(), default) * HOUR_MS) for entry in history}
    succeeded = [entry.id for entry in history if entry.state is QueueState.SUCCEEDED]
    return last_day(history, WorkTable(database).find(succeeded), kept, now_ms)


@dataclass(frozen=True, slots=True)
class Overview:
    """
    All that is shown, by one look.

    Args:
        entries: of the queue, by id.
        left_to_hive: rows of types and states of a later Hive.
        day: `last_day`.
        causes: what holds entries back, as `cause_records`.
        failing: tables and partitions whose latest compactions all failed: the Initiator queues them no more.
        open: transactions, oldest first.
        undone: of Hive's housekeeping, by duty, why it seems that no process does it.
        settings: with which this was asked.
    """

    now_ms: int
    daemons: Daemons
    entries: Sequence[QueueEntry]
    left_to_hive: int
    causes: Sequence[Record]
    failing: Sequence[Entity]
    open: Sequence[OpenTransaction]
    day: Record
    hive: HiveSide
    undone: Mapping[str, str]
    settings: Settings

    @classmethod
    def read(cls, database: Database, daemons: Daemons, settings: Settings) -> Self:
        """
        Ask the metastore.

        Raises:
            CompactorError: it can't be asked.
        """
        queue, initiator = Queue(database), settings.initiator
        entries, now = queue.entries(), database.read(database.now_ms)
        cleaning = Cleaning(database).ready_for_cleaning(*settings.cleaner.waits_ms)
        waiting = [entry for entry in entries if entry.state is QueueState.INITIATED]
        hindrances = Hindrances(Catalog(database), daemons, cleaning)
        failing = Initiating(database).failing(initiator.failed_threshold, initiator.failed_retry_days)
        return cls(
            now,
            daemons,
            entries,
            len(queue.foreign()),
            cause_records(causes_of(hindrances, [*cleaning, *put_off(entries)], waiting, daemons), {}, now),
            sorted((one for one in failing if _is_included(one, daemons)), key=str),
            Transactions(database).open_transactions(),
            _read_last_day(database, settings, now),
            HiveSide.read(database),
            undone(database),
            settings,
        )

    def states(self) -> list[Record]:
        """How many entries are in each state, and which is in it for longest, as far as Hive notes that."""
        found: list[Record] = []
        for state in (QueueState.INITIATED, QueueState.WORKING, QueueState.READY_FOR_CLEANING):
            those = [entry for entry in self.entries if entry.state is state]
            timed = [(entered, str(entry.entity)) for entry in those if (entered := entered_ms(entry)) is not None]
            since, oldest = min(timed, default=(None, None))
            age = None if since is None else max(0, self.now_ms - since)
            found.append({"state": state.value, "entries": len(those), "since_ms": age, "oldest": oldest})
        return found

    def broke_down(self) -> list[Record]:
        """The entries on which the work, or the cleaning, failed before, and that are tried again."""
        found: list[Record] = [
            {"id": entry.id, "entity": str(entry.entity), "failures": stored.times, "last_failure": stored.latest}
            for entry in self.entries
            if (stored := self.daemons.failure(entry)).times
        ]
        found += (
            {"id": entry.id, "entity": str(entry.entity), "failures": None, "last_failure": failed}
            for entry in self.entries
            if entry.state is QueueState.READY_FOR_CLEANING
            and (failed := failed_cleaning(entry))
            and _is_included(entry.entity, self.daemons)
        )
        return found

    def document(self) -> Record:
        """All of it for programs."""
        found, judge = list(troubles(self)), self.daemons.judge
        members = self.daemons.members
        return {
            "taken": instant(self.now_ms),
            "well": not found,
            "troubles": [one._asdict() for one in found],
            "daemons": None if members is None else [member_record(seen) for seen in members],
            "not_led": None if members is None else {role.value: why for role, why in not_led(members).items()},
            "queue": self.states(),
            "left_to_hive": self.left_to_hive,
            "causes": [{key: value for key, value in one.items() if key != "bytes"} for one in self.causes],
            "broke_down": self.broke_down(),
            "failing": [str(entity) for entity in self.failing],
            "last_day": self.day,
            "only": list(judge.only.tables),
            "pauses": [*map(pause_record, judge.pauses), *map(drain_record, judge.drains)],
            "open_transactions": len(self.open),
            "oldest_open_ms": max((txn.age_ms for txn in self.open if not txn.replication), default=None),
            "hive": {
                "schema": self.hive.schema,
                "compactions_by_hive": self.hive.by_hive,
                "of_latest": self.hive.recent,
                "initiators": None if self.hive.initiators is None else sorted(self.hive.initiators),
                "housekeeper": self.settings.housekeeper.enabled,
                "undone": dict(self.undone),
            },
        }


def _is_included(entity: Entity, daemons: Daemons) -> bool:
    return daemons.judge.left_alone(Subject(entity.database, entity.table)) is None


def troubles(seen: Overview) -> Iterator[Trouble]:
    """What isn't well; pauses, windows and what else is meant so are well."""
    for sentence in seen.daemons.unknown:
        yield Trouble(Reason.CONTROL_UNKNOWN.value, sentence, "zookeeper.hosts, or the database")
    yield from _of_daemons(seen)
    for cause in seen.causes:
        if _is_trouble(cause):
            since, count = cause["since_ms"], plural(int(str(cause["entries"])), "entry", "entries")
            held = "waits to be cleaned" if cause["holds"] == CLEANING else "waits"
            held = held if cause["entries"] == 1 else held.replace("waits", "wait")
            why = f": {cause['cause']}" if cause["reason"] else ", and nothing holds it back"
            yield Trouble(
                str(cause["reason"]) or "late",
                f"{count} {held}, such as {cause['example']}{why}",
                str(cause["remedy"]),
                since if isinstance(since, int) else None,
            )
    if broken := seen.broke_down():
        latest = f"{broken[-1]['entity']}: {broken[-1]['last_failure']}"
        yield Trouble(
            "broke-down", f"work on {plural(len(broken), 'entry', 'entries')} broke down, {latest}", _TRIED_AGAIN
        )
    if seen.failing:
        names = f"{seen.failing[0]}{f' and {len(seen.failing) - 1:,} more' if seen.failing[1:] else ''}"
        sentence = f"the latest compactions of {names} all failed: they are queued no more"
        yield Trouble(Reason.FAILED_TOO_OFTEN.value, sentence, "compactor history --failed")
    yield from _of_transactions(seen)
    yield from _forgotten(seen)


def _of_daemons(seen: Overview) -> Iterator[Trouble]:
    members, alive = seen.daemons.members, seen.daemons.alive
    if members is None or alive is None:
        return
    if not alive:
        heard = min((one.heartbeat_age_ms for one in members), default=None)
        yield Trouble("no-daemon", "no daemon runs", "compactor run, or its systemd unit", heard)
    elif (expected := seen.settings.members.expected) is not None and len(alive) < expected:
        said = f"{plural(len(alive), 'daemon')} of the {expected} of members.expected"
        yield Trouble("daemon-missing", said, "start the others; compactor members shows those that run")
    hosts = {one.member.host for one in alive}
    for one in members:
        if not one.alive and one.member.host not in hosts and alive:
            said = f"the daemon of {one.member.host} (process {one.member.pid}) is gone"
            yield Trouble("daemon-missing", said, "its log, and its systemd unit", one.heartbeat_age_ms)
    for one in alive:
        match one.member.extra.get(NOT_READY):
            case [str(why), *_]:
                said = f"the daemon of {one.member.host} isn't ready: {why}"
                yield Trouble(Reason.NOT_READY.value, said, "its log, and /-/ready")
    yield from _settings_apart(alive, seen.settings.fingerprints())
    for role, why in not_led(members).items() if alive else ():
        if any(role.value in one.member.roles for one in alive):
            yield Trouble("not-led", f"no daemon leads the {role.value}: {why}", "compactor members")
    yield from _of_claims(seen, members, alive)


def _of_claims(seen: Overview, members: Sequence[SeenMember], alive: Sequence[SeenMember]) -> Iterator[Trouble]:
    claims = [
        (entry, owner)
        for entry in seen.entries
        if entry.state is QueueState.WORKING and (owner := parse_worker_id(entry.worker_id)) is not None
    ]
    present, silent = ({one.member.instance: one.heartbeat_age_ms for one in some} for some in (alive, members))
    dead = [(entry, owner) for entry, owner in claims if owner.instance not in present]
    if dead:
        age = max((silent[owner.instance] for _, owner in dead if owner.instance in silent), default=None)
        said = (
            f"{plural(len(dead), 'claim')} of daemons that are gone, such as {dead[0][0].entity} of {dead[0][1].host}"
        )
        give = "daemons give back what the dead had claimed"
        yield Trouble("dead-claim", said, f"time: the {give}" if alive else f"compactor run: {give}", age)


def _settings_apart(alive: Sequence[SeenMember], ours: Mapping[str, str]) -> Iterator[Trouble]:
    """Sections of the settings in which daemons differ from each other, or else from this command."""
    told: dict[str, list[Mapping[str, object]]] = {}  # another version may know other keys, so it isn't compared
    for one in alive:
        if isinstance(settings := one.member.extra.get(SETTINGS), Mapping):
            told.setdefault(one.member.version, []).append(settings)
    if apart := sorted({name for those in told.values() for name in _differing(those)}):
        said = f"the daemons differ in their settings: {', '.join(apart)}"
        yield Trouble("settings-differ", said, "one file for all, and HUP or a restart")
    elif apart := sorted(_differing([*told.get(version(), ())[:1], ours])):
        said = f"this command's settings aren't those of the daemons: {', '.join(apart)}; so its answers may be wrong"
        yield Trouble("settings-differ", said, "--config with their file; HUP if they shall read it anew")


def _differing(told: Sequence[Mapping[str, object]]) -> set[str]:
    """The sections whose fingerprints aren't all the same."""
    return {name for those in told for name in told[0] if name in those and those[name] != told[0][name]}


def _is_trouble(cause: Record) -> bool:
    if cause["reason"] in _AT_ONCE:
        return True
    age, alert = (
        cause["since_ms"],
        "CompactorCleanerBlocked" if cause["holds"] == CLEANING else "CompactorOldestInitiated",
    )
    return cause["reason"] not in _INTENDED and isinstance(age, int) and age > LIMITS_MS[alert]


def _of_transactions(seen: Overview) -> Iterator[Trouble]:
    ordinary = [txn for txn in seen.open if not txn.replication]
    end = "ABORT TRANSACTIONS {0} (in Hive), if its client is gone"
    timeout_ms = round(seen.settings.txn.timeout_seconds * 1000)
    silent = [txn for txn in ordinary if seen.now_ms - txn.heartbeat_ms > timeout_ms + _SILENT_MS]
    for txn in silent[:1]:
        age = seen.now_ms - txn.heartbeat_ms
        said = f"{txn}, silent for {duration(age)}, and no process ends it"
        remedy = f"a metastore that keeps house, or housekeeper.enabled: always; {end.format(txn.txn_id)}"
        yield Trouble("silent-transaction", said, remedy, age - timeout_ms)
    for txn in [txn for txn in ordinary if txn.age_ms > LIMITS_MS["CompactorOldTransaction"] and txn not in silent][:1]:
        yield Trouble("old-transaction", str(txn), end.format(txn.txn_id), txn.age_ms)
    if seen.settings.housekeeper.enabled == "never":
        for duty, sentence in seen.undone.items():
            said = f"no process does Hive's {duty}: {sentence}"
            yield Trouble("housekeeping", said, "housekeeper.enabled: auto, or what of Hive's does it")


def _forgotten(seen: Overview) -> Iterator[Trouble]:
    """Pauses without an end, and drains, that are old."""
    judge = seen.daemons.judge
    held = [(judge.told(pause), pause.since_ms) for pause in judge.pauses if pause.until_ms is None]
    held += [(denial, one.since_ms) for one in judge.drains if (denial := judge.drained(one.host)) is not None]
    for denial, since_ms in held:
        if (age := seen.now_ms - since_ms) > LIMITS_MS["CompactorForgottenPause"]:
            wait = Wait.of(denial)
            yield Trouble("forgotten-pause", wait.sentence, wait.remedy, age)
