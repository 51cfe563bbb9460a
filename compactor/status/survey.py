"""
Surveys many tables and partitions: lists each directory once, and keeps what readers pay there and what the Initiator
decides, by any thresholds.

Changes nothing. Calls the functions that the Initiator decides by.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from compactor.acid.compaction import CompactionKind
from compactor.acid.listing import FileEntry
from compactor.acid.snapshot import AcidState, data_files
from compactor.errors import CompactorError, RefusedError
from compactor.metastore.db.database import Database
from compactor.metastore.locations.places import Places
from compactor.planning.picker import Pick, Skip, Thresholds
from compactor.roles.initiator.rules import thresholds_from
from compactor.settings import Settings
from compactor.status.items import Totals, items_of, read_totals
from compactor.status.judging import Found, candidates, failing, judge, look, why_ineligible
from compactor.storage.registry import storage_for

LISTED_AT_ONCE: Final = 16
SMALL_FILE: Final = 16 << 20
"""Bytes below which a file that a query opens counts as small."""


@dataclass(frozen=True, slots=True)
class Surveyed:
    """
    One table or partition.

    Args:
        verdict: the Initiator's, or the refusal of its directory; None where the store can't be asked.
        read: what a query that starts now opens; nothing where there is an `error`.
        small_files: of these files, those below `SMALL_FILE`.
        obsolete_bytes: that no query reads any more.
        input_bytes: that the compaction reads which is due; 0 where none is.
        error: why the directory can't be read; None where it can.
        left: files directly in it that no query reads, and that stay.
    """

    found: Found
    verdict: Pick | Skip | None
    read: Totals
    small_files: int = 0
    obsolete_bytes: int = 0
    input_bytes: int = 0
    error: CompactorError | None = None
    left: tuple[str, ...] = ()


class Survey:
    """
    Lists tables and partitions, and judges them.

    Args:
        among: each is listed once, `LISTED_AT_ONCE` at a time.
        told: called with the number of directories that were listed.
    """

    def __init__(
        self,
        database: Database,
        settings: Settings,
        places: Places,
        among: Sequence[Found],
        told: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._among = among
        tables = {one.table.full_name: one.table for one in among}
        self._moments = {name: look(database, table, settings.readers) for name, table in tables.items()}
        self._candidates = candidates(database)
        self._failing = failing(database, settings)
        self._skips = why_ineligible(places, among, database.schema.generation.layout)
        self._defaults = thresholds_from(settings.initiator.thresholds)
        done = 0
        self._listed: list[tuple[AcidState, AcidState] | CompactorError] = []
        with ThreadPoolExecutor(LISTED_AT_ONCE, thread_name_prefix="listing") as pool:
            for states in pool.map(self._list, among):
                self._listed.append(states)
                done += 1
                told(done)

    def _list(self, found: Found) -> tuple[AcidState, AcidState] | CompactorError:
        try:
            moment = self._moments[found.table.full_name]
            return moment.resolve(storage_for(found.location).list_tree(found.location))
        except CompactorError as error:
            return error

    def judged(self, thresholds: Thresholds | None = None) -> list[Surveyed]:
        """
        Each of them, in their order.

        Args:
            thresholds: in place of those of the settings; a table's own still count.
        """
        return [
            self._judged(found, states, skip, thresholds or self._defaults)
            for found, states, skip in zip(self._among, self._listed, self._skips, strict=True)
        ]

    def _judged(
        self,
        found: Found,
        states: tuple[AcidState, AcidState] | CompactorError,
        skip: Skip | None,
        defaults: Thresholds,
    ) -> Surveyed:
        if isinstance(states, CompactorError):
            refused = Skip(states.reason, states.message) if isinstance(states, RefusedError) else None
            return Surveyed(found, skip or refused, Totals(0, 0, 0), error=states)
        reader, compactor = states
        verdict = judge(
            found,
            compactor,
            self._candidates.get(found.entity),
            self._moments[found.table.full_name],
            defaults,
            ineligible=skip,
            failing=found.entity in self._failing,
        )
        items = items_of(reader, compactor, insert_only=found.table.insert_only)
        gone = [file.length for listed in (*reader.obsolete, *reader.aborted) for file in listed.files]
        opened = [reader.base] if reader.base is not None else []
        insert_only = found.table.insert_only
        files = [file for listed in (*opened, *reader.deltas) for file in data_files(listed, insert_only)]
        return Surveyed(
            found,
            verdict,
            read_totals(items),
            sum(file.length < SMALL_FILE for file in (*files, *reader.originals)),
            sum(gone) + sum(file.length for file in reader.obsolete_originals),
            _input_bytes(compactor, verdict.kind, insert_only) if isinstance(verdict, Pick) else 0,
            left=tuple(file.path for file in reader.left_originals),
        )


def _input_bytes(state: AcidState, kind: CompactionKind, insert_only: bool) -> int:
    """Bytes of the files that a compaction of this kind takes in: a minor one leaves base and original files."""
    listed = [*state.deltas]
    originals: Sequence[FileEntry] = ()
    if kind.makes_base:
        listed += [state.base] if state.base is not None else []
        originals = state.originals
    files = [file for one in listed for file in data_files(one, insert_only)]
    return sum(file.length for file in (*files, *originals))


def worst(surveyed: Sequence[Surveyed], most: int) -> list[tuple[Surveyed, Pick]]:
    """Those that are due, most in need first, each with its verdict."""
    due = [(one, one.verdict) for one in surveyed if isinstance(one.verdict, Pick)]
    return sorted(due, key=lambda item: (-item[1].score, str(item[0].found.entity)))[:most]


def listed(tell: Callable[[str], None], of: int) -> Callable[[int], None]:
    """Tells how many directories were listed: about twenty times, for where there is no terminal each is a line."""
    step = max(1, of // 20)
    return lambda done: tell(f"{done:,} of {of:,} listed") if done % step == 0 else None
