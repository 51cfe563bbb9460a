"""
Whether one table or partition is due: the rules that need no listing, then the picker.

Pure but for what it is handed; the Initiator asks it for thousands of partitions, `compactor explain` for one, so both say the same.
Source: docs/operations.md; Hive's Initiator, TableOptimizer, AcidTableOptimizer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from compactor.acid.compaction import LayoutVersion
from compactor.acid.snapshot import AcidState
from compactor.errors import CompactorError
from compactor.metastore.model import Candidate, TableFacts
from compactor.planning.picker import Pick, PickInput, Skip, Thresholds, auto_compaction_off, cleanup_off, pick, thresholds_for
from compactor.reasons import Reason
from compactor.settings import Thresholds as ThresholdSettings

REPLICATION_KEY = "hive.repl.first.inc.pending"
_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class TableRules:
    """
    What follows from a table's and its database's properties alone: worked out once, however many partitions the table has.

    Args:
        waits: nothing may touch the table yet.
        unfit: it isn't compacted by itself.
        sorted: no compaction keeps its order.
        thresholds: the table's own, or why they can't be read.
        fingerprint: a hash of what a listing is judged by; another one means that it has to be judged again.
    """

    waits: Skip | None
    unfit: Skip | None
    sorted: Skip | None
    thresholds: Thresholds | CompactorError
    fingerprint: int

    @classmethod
    def of(cls, table: TableFacts, defaults: Thresholds, layout: LayoutVersion) -> Self:
        name, waits, unfit = table.full_name, None, None
        for owner, parameters in (("database", table.database_parameters), ("table", table.parameters)):
            if waits is None and parameters.get(REPLICATION_KEY, "").lower() == "true":
                waits = Skip(Reason.REPLICATION_PENDING, f"the {owner} waits for its first incremental replication")
        if not table.transactional:
            unfit = Skip(Reason.NOT_TRANSACTIONAL, f"{name} isn't a transactional table")
        elif auto_compaction_off(table.parameters, table.database_parameters, layout):
            unfit = Skip(Reason.AUTO_COMPACTION_OFF, f"no_auto_compaction is set for {name}; `compactor enqueue` still works")
        thresholds: Thresholds | CompactorError
        try:
            thresholds = thresholds_for(defaults, table.parameters, table.database_parameters)
        except CompactorError as error:
            thresholds = error
        in_order = Skip(Reason.SORTED_TABLE, f"{name} is declared SORTED BY: no compaction keeps that order") if table.sorted else None
        return cls(waits, unfit, in_order, thresholds, hash((table.tbl_id, table.insert_only, cleanup_off(table.parameters, {}), thresholds)))

    def skip(self, candidate: Candidate, table: TableFacts) -> Skip | None:
        """Hive's rules that need no look at the directory, in Hive's order."""
        if self.waits is not None:
            return self.waits
        if candidate.active is not None:
            return Skip(Reason.ALREADY_QUEUED, f"{candidate.entity} is {candidate.active.value} already")
        if self.unfit is not None:
            return self.unfit
        if table.partitioned and candidate.entity.partition is None:
            return Skip(Reason.DYNAMIC_PARTITION_ENTRY, f"{table.full_name} is partitioned, and the write names no partition")
        return self.sorted


def decide(
    candidate: Candidate,
    table: TableFacts,
    partition_parameters: Mapping[str, str],
    state: AcidState,
    *,
    thresholds: Thresholds,
    layout: LayoutVersion,
    now_ms: int,
    oldest_open_ms: int | None,
) -> Pick | Skip:
    """
    Ask the picker.

    Args:
        partition_parameters: none for a whole table.
        state: the directory under the compactor's lists.
        now_ms: the database clock.
        oldest_open_ms: age of the oldest open transaction that may write.
    """
    return pick(
        PickInput(
            state=state,
            insert_only=table.insert_only,
            layout=layout,
            thresholds=thresholds,
            aborted_count=candidate.aborted_count,
            oldest_abort_age_ms=None if candidate.oldest_abort_ms is None else now_ms - candidate.oldest_abort_ms,
            ready_for_cleaning_hwm=candidate.ready_for_cleaning_hwm,
            oldest_open_age_ms=oldest_open_ms if state.excluded else None,
            cleanup_off=cleanup_off(table.parameters, partition_parameters),
        )
    )


def thresholds_from(settings: ThresholdSettings) -> Thresholds:
    """The picker's thresholds as the settings give them."""
    return Thresholds(
        delta_count=settings.delta_count,
        delta_ratio=settings.delta_ratio,
        aborted_count=settings.aborted_count,
        aborted_age_ms=round(settings.aborted_age_hours * _HOUR_MS),
        open_age_ms=round(settings.open_age_hours * _HOUR_MS),
    )
