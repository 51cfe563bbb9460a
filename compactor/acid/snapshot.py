"""
Which directories of a partition a reader must look at.

Pure: takes a listing and the valid lists, returns an `AcidState`. Knows names and ids; knows nothing of file systems,
ORC or the metastore. It differs from Hive in one rule, on purpose: a base written by INSERT OVERWRITE counts exactly
when its own write id is committed.
Source: docs/layout.md; Hive's AcidUtils.getAcidState, AcidDirectory, ParsedDelta.compareTo, findBestWorkingDeltas.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from compactor.acid.children import (
    Children,
    ListedDir,
    children_of,
    data_files,
    shows_a_file,
    side_files,
    stray_files,
    uri_order,
)
from compactor.acid.compaction import LayoutVersion
from compactor.acid.listing import FileEntry, Listing
from compactor.acid.names import ONLY_ORIGINALS_WRITE_ID, DirKind
from compactor.acid.write_ids import RangeValidity, ValidTxnList, ValidWriteIdList
from compactor.errors import RefusedError
from compactor.reasons import Reason

__all__ = ["AcidState", "Excluded", "ListedDir", "ReadSnapshot", "data_files", "resolve", "side_files", "stray_files"]


@dataclass(frozen=True, slots=True)
class Excluded:
    """
    A directory that isn't read now and may be later; `reason` says why. A compaction must not cover its range, and the
    Cleaner must not remove it.
    """

    dir: ListedDir
    reason: str


@dataclass(frozen=True, slots=True)
class AcidState:
    """
    What a listing means to the holder of the valid lists.

    Args:
        base: the base to read, if any.
        deltas: insert and delete deltas to read, in Hive's walk order.
        originals: files without ACID columns to read, in the order that gives their rows their ids; empty when there is
            a base.
        obsolete: directories that are replaced by what is read.
        obsolete_originals: original files that stand, with exactly this content, in the list of a base that is read or
            obsolete: the base's compaction took them in.
        left_originals: original files beside a base that stand in no such list. Readers pass over them; their meaning
            is unknown, so they stay.
        aborted: wholly aborted directories, and results of aborted compactions.
        excluded: directories that are neither read nor replaced nor aborted.
        aborted_write_ids: ids whose directories are in `aborted` (results of aborted compactions carry none of their
            own).
        mixed_aborted_write_ids: aborted ids inside directories that hold other ids too and aren't replaced, including
            compacted directories: most compactions leave such rows out, Hive's merge compaction doesn't, and the name
            doesn't tell which.
        unknown: visible paths that no rule explains: original files whose name states no bucket, directories that hold
            no file.
        hidden: names that readers pass over.
    """

    base: ListedDir | None
    deltas: tuple[ListedDir, ...]
    originals: tuple[FileEntry, ...]
    obsolete: tuple[ListedDir, ...]
    obsolete_originals: tuple[FileEntry, ...]
    left_originals: tuple[FileEntry, ...]
    aborted: tuple[ListedDir, ...]
    excluded: tuple[Excluded, ...]
    aborted_write_ids: frozenset[int]
    mixed_aborted_write_ids: frozenset[int]
    unknown: tuple[str, ...]
    hidden: tuple[str, ...]

    @property
    def insert_deltas(self) -> tuple[ListedDir, ...]:
        return tuple(d for d in self.deltas if d.acid.kind is DirKind.DELTA)

    @property
    def delete_deltas(self) -> tuple[ListedDir, ...]:
        return tuple(d for d in self.deltas if d.acid.kind is DirKind.DELETE_DELTA)


@dataclass(frozen=True, slots=True)
class ReadSnapshot:
    """
    The writes that a reader sees as committed.

    Args:
        write_ids: of the table.
        txns: the transactions by which a `_v` suffix is judged.
        with_originals: whether it reads files that lie in no base and in no delta.
    """

    layout: LayoutVersion
    write_ids: ValidWriteIdList
    txns: ValidTxnList
    with_originals: bool = True

    def resolve(self, listing: Listing) -> AcidState:
        """What this reader makes of a listing; raises RefusedError as the function `resolve`."""
        return resolve(listing, self.write_ids, self.txns, self.layout, with_originals=self.with_originals)

    def up_to(self, write_id: int) -> "ReadSnapshot":
        """The snapshot of a reader that knows no write above a write id."""
        ids = self.write_ids
        limit = min(write_id, ids.high_watermark)
        still_open = tuple(one for one in ids.open if one <= limit)
        aborted = tuple(one for one in ids.aborted if one <= limit)
        return replace(self, write_ids=ValidWriteIdList(ids.table, limit, still_open, aborted))


def resolve(
    listing: Listing,
    write_ids: ValidWriteIdList,
    txns: ValidTxnList | None,
    layout: LayoutVersion,
    *,
    with_originals: bool = True,
) -> AcidState:
    """
    Sort the children of a partition into what is read, replaced, aborted and left out.

    Args:
        listing: everything below the partition; the order of its entries doesn't matter.
        write_ids: a reader's, compactor's or cleaner's list of the table.
        txns: the transactions by which a `_v` suffix is judged; not needed on Hive 3.1, which has no such suffix.
        layout: the generation whose rules for names and for compacted bases apply.
        with_originals: whether queries read original files where there is no base; if not, all of them are left, and
            none is replaced.

    Raises:
        MalformedNameError: a directory starts like an ACID one and can't be parsed.
        RefusedError: NESTED_DIRECTORY (an ACID directory inside another directory, or a directory named like a bucket
            file inside an ACID one), NOT_ENOUGH_HISTORY (the only bases hold newer rows than the lists may see),
            UNSUPPORTED_FORMAT (a `_metadata_acid` that Hive of this layout doesn't read), READERS_DISAGREE (some
            readers see a directory without visible files, others don't, and so they read different rows).
    """
    children = children_of(listing, layout)
    state = _resolved(children, listing, write_ids, txns, layout, with_originals=with_originals)
    # Hive 3.1 lists directories. Hive 4 takes a directory for there only if it lists a file in it.
    if layout is LayoutVersion.HIVE_4 and listing.files:
        found = tuple(listed for listed in children.acid if shows_a_file(listed))
        if len(found) < len(children.acid):
            by_files = replace(children, acid=found)
            other = _resolved(by_files, listing, write_ids, txns, layout, with_originals=with_originals)
            _require_agreement(state, other)
    return state


def _resolved(
    children: Children,
    listing: Listing,
    write_ids: ValidWriteIdList,
    txns: ValidTxnList | None,
    layout: LayoutVersion,
    *,
    with_originals: bool,
) -> AcidState:
    """What these children mean to a reader that sees all of them."""
    sorting = _Sorting(write_ids, txns, layout)
    for listed in sorted(children.acid, key=_base_order):
        if sorting.is_usable(listed):
            sorting.take(listed)
    base = sorting.base
    sorting.require_history()
    current = sorting.walk(ONLY_ORIGINALS_WRITE_ID if base is None else base.acid.max_write_id)
    kept = (*current, *(e.dir for e in sorting.excluded))
    replaced = frozenset[FileEntry]()
    originals_read = with_originals and base is None
    if with_originals and base is not None and children.originals:
        replaced = _replaced(listing, [d for d in (base, *sorting.obsolete) if d.acid.is_base])
    return AcidState(
        base=base,
        deltas=tuple(current),
        originals=children.originals if originals_read else (),
        obsolete=_by_name(sorting.obsolete),
        obsolete_originals=tuple(file for file in children.originals if file in replaced),
        left_originals=() if originals_read else tuple(file for file in children.originals if file not in replaced),
        aborted=_by_name(sorting.aborted),
        excluded=tuple(sorted(sorting.excluded, key=lambda e: e.dir.name)) if sorting.excluded else (),
        aborted_write_ids=frozenset(sorting.aborted_write_ids),
        mixed_aborted_write_ids=_aborted_inside(kept, write_ids),
        unknown=children.unknown,
        hidden=children.hidden,
    )


def _require_agreement(state: AcidState, by_files: AcidState) -> None:
    """
    Refuse where a directory without visible files decides which others are read.

    Impala's TRUNCATE writes a base that holds only `_empty` (HIVE-24021). Impala and Hive 3.1 read nothing below such a
    base; Hive 4 doesn't see the base, and reads what is below. A compaction, and a cleaning, would decide for one.
    """
    read, other = _rows_of(state), _rows_of(by_files)
    if read == other:
        return
    unseen = next((d.name for d in (state.base, *state.deltas) if d is not None and not shows_a_file(d)), "a directory")
    more = [name for name in other if name not in read] or list(other)
    names = f"{', '.join(more[:3])}{f' and {len(more) - 3} more' if len(more) > 3 else ''}"
    message = f"{unseen} holds only hidden files or none, and readers disagree: Hive 4 doesn't see it and reads {names}; Hive 3.1 and Impala see it, and don't read those; if they shall be gone, overwrite or truncate by Hive 4, else remove {unseen}"
    raise RefusedError(Reason.READERS_DISAGREE, message)


def _rows_of(state: AcidState) -> tuple[str, ...]:
    """What holds the rows that are read: directories with visible files, and original files."""
    directories = (d.name for d in (state.base, *state.deltas) if d is not None and shows_a_file(d))
    return (*directories, *(file.path for file in state.originals))


@dataclass(slots=True)
class _Sorting:
    """The state of one resolution while its directories are judged one by one."""

    write_ids: ValidWriteIdList
    txns: ValidTxnList | None
    layout: LayoutVersion
    base: ListedDir | None = None
    history: ListedDir | None = None
    candidates: list[ListedDir] = field(default_factory=list)
    obsolete: list[ListedDir] = field(default_factory=list)
    aborted: list[ListedDir] = field(default_factory=list)
    excluded: list[Excluded] = field(default_factory=list)
    aborted_write_ids: set[int] = field(default_factory=set)

    def is_usable(self, listed: ListedDir) -> bool:
        """
        Whether the compaction that wrote the directory is visible; if not, files the directory as aborted or excluded.
        """
        txn = listed.acid.visibility_txn
        if txn == 0:
            return True
        if self.txns is None:
            raise ValueError(f"{listed.name} can be judged only with a transaction list")
        if self.txns.is_valid(txn):
            return True
        if self.txns.is_aborted(txn):
            self.aborted.append(listed)
        else:
            self.excluded.append(Excluded(listed, f"compaction transaction {txn} isn't visible"))
        return False

    def take(self, listed: ListedDir) -> None:
        if listed.acid.is_base:
            self._take_base(listed)
        else:
            self._take_delta(listed)

    def _take_base(self, listed: ListedDir) -> None:
        """
        Bases arrive from the best to the worst, so the first valid base is read, and it replaces every later valid one.
        """
        write_id = listed.acid.max_write_id
        is_aborted = not listed.compacted and self.write_ids.is_aborted(write_id)
        if listed.compacted or (is_aborted and self.layout is LayoutVersion.HIVE_3):
            self.history = listed
        if is_aborted:
            self._abort(listed, (write_id,))
        elif not self._is_valid_base(listed):
            self.excluded.append(Excluded(listed, _why_base_is_invalid(listed, self.write_ids)))
        elif self.base is None:
            self.base = listed
        else:
            self.obsolete.append(listed)

    def _is_valid_base(self, listed: ListedDir) -> bool:
        write_id = listed.acid.max_write_id
        if write_id == ONLY_ORIGINALS_WRITE_ID:
            return True
        return self.write_ids.is_valid_base(write_id) if listed.compacted else self.write_ids.is_valid(write_id)

    def _take_delta(self, listed: ListedDir) -> None:
        low, high = listed.acid.span
        if self.write_ids.range_aborted(low, high) is RangeValidity.ALL:
            self._abort(listed, range(low, high + 1))
        elif self.write_ids.range_validity(low, high) is RangeValidity.NONE:
            self.excluded.append(Excluded(listed, _why_range_is_invalid(low, high, self.write_ids)))
        else:
            self.candidates.append(listed)

    def _abort(self, listed: ListedDir, write_ids: Iterable[int]) -> None:
        self.aborted.append(listed)
        self.aborted_write_ids.update(write_ids)

    def require_history(self) -> None:
        """
        Refuse when rows were compacted into bases that these lists mustn't see: the rest would be only part of the
        table.

        Hive 3.1 fails on the base of an aborted INSERT OVERWRITE too. It also fails while such a base is being written;
        this code doesn't copy that failure, because the next read succeeds.
        """
        if self.base is None and self.history is not None and self.write_ids.reads_rows:
            lists = f"high watermark {self.write_ids.high_watermark}, lowest open write id {self.write_ids.min_open or 'none'}"
            message = f"not enough history for this snapshot ({lists}): the oldest base is {self.history.name}"
            raise RefusedError(Reason.NOT_ENOUGH_HISTORY, message)

    def walk(self, base_write_id: int) -> list[ListedDir]:
        """
        Choose the deltas to read among overlapping ones: the widest first, then further statements of the same write
        id, and pairs of equal range.
        """
        reached = max(base_write_id, 0)
        taken: list[ListedDir] = []
        last_has_statement = False
        for listed in sorted(self.candidates, key=_walk_order):
            delta = listed.acid
            if delta.max_write_id > reached:
                if self.write_ids.range_validity(reached + 1, delta.max_write_id) is RangeValidity.NONE:
                    self.excluded.append(Excluded(listed, f"no write id above {reached} in it is valid"))
                    continue
                reached = delta.max_write_id
                last_has_statement = delta.statement_id is not None
            elif not (delta.max_write_id == reached and last_has_statement) and (
                not taken or (delta.span, delta.statement_id) != (taken[-1].acid.span, taken[-1].acid.statement_id)
            ):
                self.obsolete.append(listed)
                continue
            taken.append(listed)
        return taken


def _replaced(listing: Listing, bases: Iterable[ListedDir]) -> frozenset[FileEntry]:
    """The original files that the compactions of these bases have listed."""
    names = {listed.name for listed in bases}
    return frozenset(file for name, files in listing.replaced if name in names for file in files)


def _base_order(listed: ListedDir) -> tuple[int, bool, int]:
    """
    Sort key of bases, best first: higher write ids; of equal write ids a compacted base before an INSERT OVERWRITE
    (HIVE-25777), then the newest compaction.
    """
    return -listed.acid.max_write_id, not listed.compacted, -listed.acid.visibility_txn


def _walk_order(listed: ListedDir) -> tuple[int, int, int, bytes]:
    acid = listed.acid
    return (
        acid.min_write_id,
        -acid.max_write_id,
        -1 if acid.statement_id is None else acid.statement_id,
        uri_order(acid.name),
    )


def _by_name(directories: list[ListedDir]) -> tuple[ListedDir, ...]:
    return tuple(sorted(directories, key=lambda listed: listed.name)) if directories else ()


def _aborted_inside(directories: Iterable[ListedDir], write_ids: ValidWriteIdList) -> frozenset[int]:
    """The aborted ids that these deltas may hold."""
    if not write_ids.aborted:
        return frozenset()
    deltas = (listed.acid for listed in directories if not listed.acid.is_base)
    return frozenset(i for acid in deltas for i in write_ids.aborted_within(*acid.span))


def _why_base_is_invalid(listed: ListedDir, write_ids: ValidWriteIdList) -> str:
    write_id = listed.acid.max_write_id
    if write_id > write_ids.high_watermark:
        return f"{write_id} is above the high watermark {write_ids.high_watermark}"
    return f"{write_ids.min_open if listed.compacted else write_id} is open"


def _why_range_is_invalid(low: int, high: int, write_ids: ValidWriteIdList) -> str:
    if high > write_ids.high_watermark:
        return f"{high} is above the high watermark {write_ids.high_watermark}"
    return f"{low} is open" if low == high else f"nothing of {low} to {high} is committed"
