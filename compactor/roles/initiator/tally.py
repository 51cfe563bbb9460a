"""What one cycle of the Initiator carries along: what it looks at, under which lists, and the results."""

import logging
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from compactor.acid.write_ids import CompactorWriteIdList, ValidTxnList
from compactor.errors import RetryableError, UnreachableError
from compactor.log import get_logger
from compactor.metastore.candidates import Left
from compactor.metastore.model import Candidate, CatalogPlace, Entity
from compactor.metrics import Metrics
from compactor.planning.picker import Pick, Skip
from compactor.reasons import Reason
from compactor.roles.cycle import Cycle, Phrase
from compactor.roles.initiator.rules import TableRules
from compactor.roles.unreachable import news
from compactor.words import one_line, plural

_log = get_logger(__name__)
PASSING = frozenset({Reason.ALREADY_QUEUED, Reason.OPEN_WRITER})
"""Reasons that pass without another write: looked at again in the next cycle."""
_QUEUED = Skip(Reason.ALREADY_QUEUED, "it is initiated or working already")


@dataclass(frozen=True, slots=True)
class DueSubject:
    """A table or partition whose directory is to be listed, and what was known of it before."""

    candidate: Candidate
    place: CatalogPlace
    rules: TableRules
    fingerprint: int


@dataclass(frozen=True, slots=True)
class ScanMoment:
    """The times, lists and partition properties under which the directories of one batch are judged."""

    now_ms: int
    oldest_open_ms: int | None
    txns: ValidTxnList
    write_ids: Mapping[str, CompactorWriteIdList]
    parameters: Mapping[int, Mapping[str, str]]


Verdict = Pick | Skip | Exception


@dataclass(slots=True)
class InitiatorTally:
    """
    The results of one cycle.

    Args:
        away: the first error of an unreachable store; no fault of the table's, and so no row in the history.
        left: candidates that the cycle didn't reach, in the order in which they would have come.
        unread: the daemon is stopping, and so what else the look would have found wasn't read.
        unnamed: candidates with a write that no commit names, and that no listing settled yet.
        told: the findings that the log already has, by partition, from this cycle and those before: they aren't logged
            again.
    """

    candidates: int = 0
    listed: int = 0
    skips: dict[Reason, int] = field(default_factory=dict)
    errors: int = 0
    away: UnreachableError | RetryableError | None = None
    told: dict[Entity, tuple[str, ...]] = field(default_factory=dict)
    again: set[Entity] = field(default_factory=set)
    left: Left = field(default_factory=Left)
    unread: bool = False
    unnamed: set[Entity] = field(default_factory=set)
    picks: list[tuple[DueSubject, Pick]] = field(default_factory=list)
    tells_all: bool = field(default_factory=lambda: logging.getLogger(__name__).isEnabledFor(logging.DEBUG))
    """Asked once: even a log line that isn't written costs more than the rest of a skip."""

    def skip(self, entity: Entity, skip: Skip) -> None:
        self.skips[skip.reason] = self.skips.get(skip.reason, 0) + 1
        if skip.reason in PASSING:
            self.again.add(entity)
        if self.tells_all:
            _log.debug("candidate.skipped", entity=str(entity), reason=skip.reason.value, why=skip.explanation)

    def wait(self, entities: AbstractSet[Entity]) -> None:
        """Skip what is still in the queue."""
        self.candidates += len(entities)
        for entity in entities:
            self.skip(entity, _QUEUED)

    def tell(self, entity: Entity, findings: tuple[str, ...]) -> None:
        """
        Have the log warn of what an operator should look at in a partition that was judged; once while it stays the
        same.
        """
        if not findings:
            self.told.pop(entity, None)
        elif self.told.get(entity) != findings:
            self.told[entity] = findings
            for finding in findings:
                _log.warning(
                    "candidate.flagged", why=finding, db=entity.database, table=entity.table, partition=entity.partition
                )

    def count(self, metrics: Metrics) -> None:
        """Add to the daemon's counters."""
        metrics.candidates.inc(self.candidates)
        metrics.partitions_scanned.inc(self.listed)
        metrics.scan_errors.inc(self.errors)
        for reason, count in self.skips.items():
            metrics.skips.labels(reason.value).inc(count)
        for _, picked in self.picks:
            metrics.picks.labels(picked.kind.value, picked.reason.value).inc()

    def cycle(self, *, full: bool, freed: int) -> Cycle:
        """What the cycle did; one line."""
        scan = "full scan: " if full else ""
        said = [Phrase(f"{scan}queued {len(self.picks)} of {self.candidates} candidates, {self.listed} listed")]
        if self.errors:
            said.append(self._unjudged())
        if self.left:
            said.append(Phrase(f"{len(self.left)} left for the next cycle"))
        if freed:
            said.append(Phrase(f"{plural(freed, 'timed-out claim')} given back"))
        return Cycle.worked(Phrase.joined(said, ", "))

    def _unjudged(self) -> Phrase:
        sentence = f"{self.errors} could not be judged"
        if self.away is None:
            return Phrase(sentence)
        return Phrase(f"{sentence} ({one_line(self.away)})", (sentence, news(self.away)))
