"""
Decides whether one table or partition is due: the rules that need no listing, then the picker.

Pure: it works on what it is given. The Initiator uses it for thousands of partitions, `compactor explain` for one, so
both say the same.
Source: docs/operations.md; `eligibility`; Hive's Initiator, TableOptimizer, AcidTableOptimizer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from compactor.acid.compaction import LayoutVersion
from compactor.acid.snapshot import AcidState
from compactor.durations import HOUR_MS
from compactor.errors import CompactorError
from compactor.metastore.model import Candidate, TableFacts
from compactor.planning.picker import (
    Pick,
    PickInput,
    Skip,
    Thresholds,
    auto_compaction_off,
    cleanup_off,
    pick,
    thresholds_for,
)
from compactor.reasons import Reason
from compactor.settings import ThresholdSettings


@dataclass(frozen=True, slots=True)
class TableRules:
    """
    What follows from the properties of a table and its database alone. Worked out once, however many partitions the
    table has.

    Args:
        by_hand: why the table is compacted only on request.
        thresholds: the table's own, or why they can't be read.
        fingerprint: a hash of what a listing is judged by; when it changes, the listing has to be judged again.
    """

    by_hand: Skip | None
    thresholds: Thresholds | CompactorError
    fingerprint: int

    @classmethod
    def of(cls, table: TableFacts, defaults: Thresholds, layout: LayoutVersion) -> Self:
        off = auto_compaction_off(table.parameters, table.database_parameters, layout)
        by_hand = (
            Skip(
                Reason.AUTO_COMPACTION_OFF,
                f"no_auto_compaction is set for {table.full_name}; `compactor enqueue` still works",
            )
            if off
            else None
        )
        thresholds: Thresholds | CompactorError
        try:
            thresholds = thresholds_for(defaults, table.parameters, table.database_parameters)
        except CompactorError as error:
            thresholds = error
        fingerprint = hash((table.tbl_id, table.insert_only, cleanup_off(table.parameters, {}), thresholds))
        return cls(by_hand, thresholds, fingerprint)

    def skip(self, candidate: Candidate, ineligible: Skip | None) -> Skip | None:
        """
        Why the directory needs no listing: it can't be compacted, or not automatically now; None if it must be listed.

        Args:
            ineligible: why it can't be compacted at all (`eligibility`).
        """
        if ineligible is not None:
            if ineligible.reason is Reason.PARTITION_UNSPECIFIED:
                return Skip(
                    Reason.DYNAMIC_PARTITION_ENTRY,
                    f"{candidate.entity.full_name} is partitioned, and the write names no partition",
                )
            return ineligible
        if candidate.active is not None:
            return Skip(Reason.ALREADY_QUEUED, f"{candidate.entity} is {candidate.active.value} already")
        return self.by_hand


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
        partition_parameters: empty for a whole table.
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
        aborted_age_ms=round(settings.aborted_age_hours * HOUR_MS),
        open_age_ms=round(settings.open_age_hours * HOUR_MS),
    )
