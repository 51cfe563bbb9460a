"""The results of one cycle of the Cleaner: what it removed, what it waits for, and the sentence that says so."""

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from compactor.errors import RefusedError, RetryableError, UnreachableError
from compactor.metastore.clean.may_clean import Blocker
from compactor.metastore.model import Entity, QueueEntry
from compactor.metrics import Metrics
from compactor.reasons import Reason
from compactor.roles.cleaner.evidence import Evidence, described
from compactor.roles.cleaner.trash import Removal
from compactor.roles.cycle import Cycle, Phrase
from compactor.roles.unreachable import news
from compactor.words import one_line, plural


@dataclass(slots=True)
class CleanerTally:
    """
    The results of one cycle, filled by several threads.

    Args:
        cleaned: entries marked cleaned.
        ended: entries that ended without cleaning: refused or failed.
        later: entries, and tables with aborted writes, that the cycle didn't reach.
        away: how many of them weren't tried because their store was found unreachable, by store.
        forgotten: rows about aborted writes whose directories are gone.
        outcomes: how many attempts ended with each outcome.
        evidence: what refused verifications left in the partitions that were looked at.
        waiting: a sentence for each entry that is held back, and for aborted writes that are left alone for now.
        errors: a sentence for each entry, or place with aborted writes, that failed.
    """

    cleaned: int = 0
    ended: int = 0
    forgotten: int = 0
    later: int = 0
    directories: int = 0
    bytes: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    away: Counter[str] = field(default_factory=Counter)
    reasons: Counter[Reason] = field(default_factory=Counter)
    evidence: list[Evidence] = field(default_factory=list)
    waiting: list[Phrase] = field(default_factory=list)
    errors: list[Phrase] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, removals: Iterable[Removal], evidence: Iterable[Evidence] = ()) -> None:
        with self._lock:
            self.evidence.extend(evidence)
            for removal in removals:
                self.directories += 1
                self.bytes += removal.bytes
                self.kinds[_kind(removal.name)] += 1

    def put_off(self) -> None:
        """Count one entry, or the aborted writes of one table, as left for the next cycle."""
        with self._lock:
            self.later += 1

    def pass_over(self, store: str | None) -> None:
        """
        Count one entry, or the aborted writes of one table, as not tried, since another call has just found its store
        unreachable.
        """
        with self._lock:
            self.away[store or "its store"] += 1

    def wait(self, entry: QueueEntry, blocker: Blocker) -> None:
        self._hold(f"{entry.entity} (compaction {entry.id})", blocker)

    def hold(self, entity: Entity, blocker: Blocker) -> None:
        """Note aborted writes that are left alone for now."""
        self._hold(f"{entity} (aborted writes)", blocker)

    def _hold(self, name: str, blocker: Blocker) -> None:
        with self._lock:
            self.waiting.append(Phrase(f"{name}: {blocker.sentence}", (name, blocker.what)))
            self.reasons[blocker.reason] += 1

    def clean(self) -> None:
        """Count one entry as marked cleaned."""
        self.outcome("cleaned")
        with self._lock:
            self.cleaned += 1

    def end(self, outcome: str) -> None:
        """Count one entry as ended without cleaning."""
        self.outcome(outcome)
        with self._lock:
            self.ended += 1

    def outcome(self, name: str) -> None:
        """Count how one attempt ended, by `compactor.metrics.CLEANING_OUTCOMES`."""
        with self._lock:
            self.outcomes[name] += 1

    def error(self, entity: Entity, error: Exception) -> None:
        self.outcome(_outcome_of(error))
        with self._lock:
            self.errors.append(Phrase(f"{entity}: {one_line(error) or type(error).__name__}", (entity, news(error))))

    def count(self, metrics: Metrics) -> None:
        """Add to the daemon's counters, and show what holds entries up."""
        metrics.show(metrics.cleaner_blocked, {(reason.value,): count for reason, count in self.reasons.items()})
        for outcome, count in self.outcomes.items():
            metrics.cleanings.labels(outcome).inc(count)
        metrics.cleaned_bytes.inc(self.bytes)
        for kind, count in self.kinds.items():
            metrics.cleaned_directories.labels(kind).inc(count)

    def cycle(self) -> Cycle:
        """What the cycle did; one line, which names the first that waits and the first that failed."""
        said = self._phrases()
        return Cycle.worked(Phrase.joined(said, "; ")) if said else Cycle.idle("nothing to clean")

    def _phrases(self) -> list[Phrase]:
        said = []
        if self.cleaned or self.directories:
            entries = plural(self.cleaned, "entry", "entries")
            directories = plural(self.directories, "directory", "directories")
            said.append(Phrase(f"cleaned {entries}, {directories}, {plural(self.bytes, 'byte')}"))
        if self.forgotten:
            said.append(Phrase(f"forgot {plural(self.forgotten, 'aborted write')}"))
        if self.ended:
            said.append(Phrase(f"ended {self.ended} without cleaning"))
        if self.later:
            said.append(Phrase(f"{self.later} left for the next cycle"))
        said += [Phrase(f"{count} not tried: {store} is away") for store, count in sorted(self.away.items())]
        if self.waiting:
            said.append(self.waiting[0].after(f"{len(self.waiting)} wait: "))
        if self.evidence:
            said.append(Phrase(f"{described(self.evidence)} kept"))
        if self.errors:
            said.append(self.errors[0].after(f"{len(self.errors)} failed: "))
        return said


def _outcome_of(error: Exception) -> str:
    match error:
        case RefusedError(reason=Reason.NO_CLEANUP):
            return "refused"
        case UnreachableError() | RetryableError():
            return "unreachable"
        case _:
            return "failed"


def _kind(name: str) -> str:
    for prefix in ("delete_delta", "delta", "base"):
        if name.startswith(f"{prefix}_"):
            return prefix.replace("_", "-")
    return "original"
