"""
What is the case in one table or partition: its directory, the picker's verdict, its entries, what keeps a compaction
from beginning, and what blocks cleaning.

Calls the same functions as the Initiator and the Cleaner, for one table or partition.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from compactor.acid.compaction import CompactionKind
from compactor.control import Subject
from compactor.control.waits import Wait
from compactor.errors import RefusedError
from compactor.metastore.catalog import Catalog
from compactor.metastore.clean.aborts import Aborts
from compactor.metastore.clean.may_clean import ReadyEntry
from compactor.metastore.clean.ready import Cleaning
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.compaction_queue.work import StoredWork
from compactor.metastore.db.database import Database
from compactor.metastore.locations.places import Places
from compactor.metastore.model import (
    HistoryEntry,
    QueueEntry,
    TableFacts,
    duration,
)
from compactor.planning.forgetting import AbortedComponent, ForgettingVerdict
from compactor.planning.picker import Pick, Skip
from compactor.roles.cleaner.evidence import evidence_in
from compactor.roles.initiator.rules import thresholds_from
from compactor.roles.pauses import pool_of
from compactor.settings import Settings
from compactor.status.causes import Hindrances
from compactor.status.daemons import Daemons
from compactor.status.items import DirectoryStanding, Item, items_of, read_totals
from compactor.status.judging import CatalogMoment, Found, candidates, failing, judge, look, partitions, why_ineligible
from compactor.status.records import Record, history_record, queue_record, undone
from compactor.status.survey import Survey, Surveyed
from compactor.storage.registry import storage_for
from compactor.words import instant, plural

HISTORY = 5
_SHOWN = 5
"""Write ids that a sentence names."""
_EVIDENCE = "kept by a verification that refused; removed by the Cleaner after cleaner.keep_evidence_days"


@dataclass(frozen=True, slots=True)
class Inspection:
    """
    Everything that is known of one table or partition.

    Args:
        ineligible: why a compaction would be refused regardless of the directory's contents; None: it may be compacted.
        cleaning: entries that are ready for it, with all that holds it back.
        late: what is known of the table's aborted writes, and of compactions, whose tasks may still write.
        work: what was done for entries, by their ids.
    """

    found: Found
    moment: CatalogMoment
    items: tuple[Item, ...]
    ineligible: Skip | None
    verdict: Pick | Skip
    queue: Sequence[QueueEntry]
    history: Sequence[HistoryEntry]
    cleaning: Sequence[ReadyEntry]
    late: Sequence[tuple[AbortedComponent, ForgettingVerdict]] = ()
    daemons: Daemons = field(default_factory=Daemons)
    work: Mapping[int, StoredWork] = field(default_factory=dict)

    @property
    def kind(self) -> CompactionKind:
        """That which is due; otherwise the one that is possible at any time."""
        return self.verdict.kind if isinstance(self.verdict, Pick) else CompactionKind.MAJOR

    @property
    def wait(self) -> Wait | None:
        """Why a compaction that was queued now wouldn't be claimed."""
        table = self.found.table
        return self.daemons.surroundings.wait(Subject(table.database, table.name, pool_of(table)), self.kind)

    @property
    def queued(self) -> list[Record]:
        """The entries in the queue."""
        return [queue_record(entry, self.moment.now_ms, self.daemons) for entry in self.queue]

    @property
    def ended(self) -> list[Record]:
        """The entries of the history, newest first."""
        return [{**history_record(entry), **undone(entry, self.work.get(entry.id))} for entry in self.history]

    def record(self, compaction: Record) -> Record:
        """
        One document for programs; the keys are documented (docs/cli.md).

        Args:
            compaction: what a compaction would do now.
        """
        found, totals, wait = self.found, read_totals(self.items), self.wait
        return {
            "database": found.table.database,
            "table": found.table.name,
            "partition": found.partition.name if found.partition else None,
            "location": found.location,
            "layout": self.moment.snapshot.layout.value,
            "insert_only": found.table.insert_only,
            "write_ids": str(self.moment.snapshot.write_ids),
            "open_writers": self.moment.open_writers(),
            "read": {"directories": totals.directories, "files": totals.files, "bytes": totals.bytes},
            "items": [item.record() for item in self.items],
            "verdict": {**verdict_record(self.verdict), "findings": list(self.verdict.findings)},
            "compaction": compaction,
            "waits": None
            if wait is None
            else {"reason": wait.reason, "sentence": wait.sentence, "until": instant(wait.until_ms)},
            "queue": self.queued,
            "history": self.ended,
            "cleaning": [
                {
                    "id": ready.entry.id,
                    "blockers": [{"reason": one.reason.value, "sentence": one.sentence} for one in ready.blockers],
                }
                for ready in self.cleaning
            ],
            "late_writers": [
                {
                    "txn_id": row.txn_id,
                    "partition": row.partition,
                    "write_id": row.write_id,
                    "compaction": row.operation == "c",
                    "may_write_until": instant(verdict.until_ms),
                }
                for row, verdict in self.late
            ],
        }

    def why_known(self) -> str | None:
        """A sentence on why the metastore doesn't forget what was aborted in the table yet; None: nothing such is."""
        if not self.late:
            return None
        untils = [verdict.until_ms for _, verdict in self.late if verdict.until_ms is not None]
        left = f" for another {duration(max(untils) - self.moment.now_ms)}" if untils else ""
        numbers = sorted({row.mapped_id for row, _ in self.late if row.operation != "c" and row.mapped_id is not None})
        one = len(numbers) <= 1
        what = plural(len(numbers), "aborted write") if numbers else "an aborted compaction"
        shown = ", ".join(map(str, numbers[:_SHOWN])) + (", …" if len(numbers) > _SHOWN else "")
        ids = f" (write id{'' if one else 's'} {shown})" if numbers else ""
        return (
            f"{what} of the table{ids} {'stays' if one else 'stay'} known to the metastore{left}: "
            "a rollback stops no task, so more may be written (cleaner.late_writer_hours)"
        )


def inspect(
    database: Database, settings: Settings, places: Places, found: Found, daemons: Daemons | None = None
) -> Inspection:
    """
    Inspect one table or partition; what was done for entries is left out.

    Args:
        daemons: None: they aren't asked.

    Raises:
        RefusedError: the directory is missing, or no reader can resolve it. When the table or partition is ineligible
            for compaction as well, the error gives that reason instead.
        UnreachableError: metastore or store can't be asked.
    """
    moment = look(database, found.table, settings.readers)
    (ineligible,) = why_ineligible(places, [found], moment.snapshot.layout)
    storage = storage_for(found.location)
    try:
        listing = storage.list_tree(found.location)
        reader, compactor = moment.resolve(listing)
    except RefusedError as refusal:
        raise refusal if ineligible is None else RefusedError(ineligible.reason, ineligible.explanation) from None
    evidence = tuple(
        Item(DirectoryStanding.EVIDENCE, one.name, files=one.files, bytes=one.bytes, note=_EVIDENCE)
        for one in evidence_in(storage, found.location, listing)
    )
    entity, daemons = found.entity, daemons or Daemons()
    queue = Queue(database)
    verdict = judge(
        found,
        compactor,
        candidates(database).get(entity),
        moment,
        thresholds_from(settings.initiator.thresholds),
        ineligible=ineligible,
        failing=entity in failing(database, settings),
    )
    ready = Cleaning(database).ready_for_cleaning(*settings.cleaner.waits_ms)
    cleaning = [one for one in ready if one.entry.entity == entity]
    hindrances = Hindrances(Catalog(database), daemons, cleaning)
    return Inspection(
        found=found,
        moment=moment,
        items=(*items_of(reader, compactor, insert_only=found.table.insert_only, explain=moment.why_unread), *evidence),
        ineligible=ineligible,
        verdict=verdict,
        queue=queue.entries(entity=entity),
        history=queue.history(entity=entity, limit=HISTORY),
        cleaning=[replace(one, blockers=hindrances.of(one).all()) for one in cleaning],
        late=Aborts(database).may_write(entity.whole_table(), settings.cleaner.late_ms),
        daemons=daemons,
    )


def verdict_record(verdict: Pick | Skip) -> Record:
    """Whether and why a compaction is due."""
    due = verdict if isinstance(verdict, Pick) else None
    return {
        "due": due is not None,
        "kind": due.kind.value if due else None,
        "score": due.score if due else None,
        "reason": verdict.reason.value,
        "explanation": verdict.explanation,
    }


def partition_records(
    database: Database, settings: Settings, places: Places, table: TableFacts, limit: int
) -> list[Record]:
    """
    The first `limit` partitions of a table, those most in need first: what a query opens of each, and the verdict.

    Raises:
        UnreachableError: metastore or store can't be asked.
    """
    among = partitions(Catalog(database), table, limit)
    return sorted(
        map(_partition_record, Survey(database, settings, places, among).judged()),
        key=lambda row: (
            row["due"] is None,
            -float(str(row["score"] or 0)),
            -int(str(row["directories"] or 0)),
            str(row["partition"]),
        ),
    )


def _partition_record(surveyed: Surveyed) -> Record:
    if surveyed.error is not None and not isinstance(surveyed.error, RefusedError):
        raise surveyed.error
    assert surveyed.verdict is not None
    found, judged = surveyed.found, verdict_record(surveyed.verdict)
    read = surveyed.read if surveyed.error is None else None
    return {
        "partition": found.partition.name if found.partition else None,
        "directories": read.directories if read else None,
        "files": read.files if read else None,
        "bytes": read.bytes if read else None,
        "due": judged["kind"],
        **{key: judged[key] for key in ("score", "reason", "explanation")},
    }
