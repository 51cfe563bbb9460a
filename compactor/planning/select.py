"""
Chooses the inputs of a compaction and the name of its result.

Pure: takes the resolved state of a directory, returns which files are read and which names are written, or refuses.
Knows names and ids; `plan` deals with stripes.

The name never covers a directory that isn't included: a base is named after the highest included write id, not after
the high watermark. A reader skips every delta that lies below the name, so rows of a streaming delta that straddles the
watermark would be lost (docs/compaction.md).
Source: Hive's AcidUtils.getAcidState, Worker, CompactorMR.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.acid.listing import FileEntry
from compactor.acid.names import (
    SIDE_FILE_SUFFIX,
    DirKind,
    base_name,
    delete_delta_name,
    delta_name,
    parse_bucket_file,
    parse_original_file,
)
from compactor.acid.snapshot import AcidState, ListedDir, data_files, side_files, stray_files
from compactor.acid.write_ids import ValidWriteIdList
from compactor.errors import CorruptFileError, RefusedError
from compactor.planning.document import FileRole, InputFile, PlanParts
from compactor.planning.eligibility import why_no_table
from compactor.planning.facts import TableSpec
from compactor.planning.included import enough, included, overlap, same_range, stranded, why_not_enough
from compactor.planning.insert_only.names import bucket_of
from compactor.planning.parts import Excess, Part, PartLimits, next_part
from compactor.reasons import Reason
from compactor.words import plural

FIRST_SEEDED = 10_000_000
"""Write ids up to this one are reserved for the files that a table had before it became transactional (HIVE-19750)."""

UNION_DIRECTORY = re.compile(r"HIVE_UNION_SUBDIR_\d+")
LIST_BUCKETING_DEFAULT = "HIVE_DEFAULT_LIST_BUCKETING_DIR_NAME"


@dataclass(frozen=True, slots=True)
class Selection:
    """
    The inputs and names of one compaction, before any file is opened.

    Args:
        name_write_id: highest included write id: N of the new base, or the end of the minor's range.
        inserts: base or originals, then insert deltas, in the order readers walk them.
        files: insert-only tables: every data file.
        aborted: aborted write ids that can occur in the inputs.
        parts: None when this selection is all that was asked for.
    """

    spec: TableSpec
    requested: CompactionKind
    kind: CompactionKind
    layout: LayoutVersion
    name_write_id: int
    min_write_id: int
    highest_write_id: int
    visibility_txn: int | None
    write_ids: str
    inserts: tuple[InputFile, ...]
    deletes: tuple[InputFile, ...]
    files: tuple[InputFile, ...]
    aborted: tuple[int, ...]
    warnings: tuple[str, ...]
    parts: PlanParts | None = None

    @property
    def all_files(self) -> tuple[InputFile, ...]:
        return self.inserts + self.deletes + self.files

    @property
    def major(self) -> bool:
        return self.kind.makes_base

    def output_name(self, kind: DirKind) -> str:
        """The name of the result, with the visibility suffix where the layout has one."""
        txn = self.visibility_txn or 0
        match kind:
            case DirKind.BASE:
                return base_name(self.name_write_id, txn)
            case DirKind.DELTA:
                return delta_name(self.min_write_id, self.name_write_id, None, txn)
            case DirKind.DELETE_DELTA:
                return delete_delta_name(self.min_write_id, self.name_write_id, None, txn)


def select(  # noqa: PLR0917 - the facts a choice is made from
    state: AcidState,
    spec: TableSpec,
    kind: CompactionKind,
    layout: LayoutVersion,
    write_ids: ValidWriteIdList,
    visibility_txn: int | None,
    *,
    prefer_major: bool = False,
    limits: PartLimits | None = None,
) -> Selection:
    """
    Choose inputs and names.

    Args:
        state: resolved under the compactor's write-id list, with the compaction's own transaction invalid.
        write_ids: the compactor's list.
        visibility_txn: the compaction's transaction; None on Hive 3.1.
        prefer_major: turn a minor that would need two renames into a major.
        limits: limits of one compaction; None: no limits.

    Raises:
        RefusedError: with the reason; nothing was touched.
    """
    if (skip := why_no_table(spec.name, spec, kind, layout)) is not None:
        raise RefusedError(skip.reason, skip.explanation)
    _refuse_names(state, spec)
    base = _base_write_id(state)
    part, warnings = _part(state, spec, kind, layout, write_ids, prefer_major=prefer_major, limits=limits)
    if (there := same_range(state, part.kind, part.deltas)) is not None:
        what = f"{there.name} is already there; a second directory of that range would be read beside it"
        raise _refused(spec, Reason.DUPLICATE_RANGE, what)
    lowest, name, highest = _write_ids_of(state, part, layout, write_ids)
    if layout is LayoutVersion.HIVE_3 and highest == 0:
        raise _refused(spec, Reason.NOT_ENOUGH, _without_an_end(state))
    taken, major = replace(state, deltas=part.deltas), part.kind.makes_base
    return Selection(
        spec=spec,
        requested=kind,
        kind=part.kind,
        layout=layout,
        name_write_id=name,
        min_write_id=lowest,
        highest_write_id=highest,
        visibility_txn=visibility_txn if layout is LayoutVersion.HIVE_4 else None,
        write_ids=str(write_ids),
        inserts=() if spec.insert_only else _insert_files(taken, spec, major=major),
        deletes=() if spec.insert_only else _dir_files(taken.delete_deltas, spec),
        files=_whole_files(taken, spec, major=major) if spec.insert_only else (),
        aborted=write_ids.aborted_within(base + 1, name),
        warnings=tuple(warnings),
        parts=part.parts,
    )


def _base_write_id(state: AcidState) -> int:
    """N of the base that stays under the result (minor) or is replaced (major); 0 without one."""
    return max(state.base.acid.max_write_id, 0) if state.base else 0


def _part(
    state: AcidState,
    spec: TableSpec,
    kind: CompactionKind,
    layout: LayoutVersion,
    write_ids: ValidWriteIdList,
    *,
    prefer_major: bool,
    limits: PartLimits | None,
) -> tuple[Part, list[str]]:
    """The compaction that comes now, and sentences on why it isn't what was asked for."""
    current, base, warnings = replace(state, deltas=included(state)), _base_write_id(state), list[str]()
    no_minor = _why_no_minor(current, base, layout, prefer_major=prefer_major)
    if kind is CompactionKind.MINOR and no_minor:
        kind = CompactionKind.MAJOR
        warnings.append(f"a major instead of a minor: {no_minor}")
    if (left := stranded(state)) is not None:
        raise _refused(spec, Reason.STRANDED_STREAM, left.sentence)
    if not enough(current, kind, spec.insert_only):
        raise _refused(spec, Reason.NOT_ENOUGH, why_not_enough(current))
    if (sentence := overlap(state.base, current.deltas)) is not None:
        raise _refused(spec, Reason.DUPLICATE_RANGE, sentence)
    if limits is None:
        return Part(kind, current.deltas), warnings
    minors = not no_minor and not (spec.insert_only and layout is LayoutVersion.HIVE_3)
    aborted = [wid for wid in write_ids.aborted if wid > base]
    part = next_part(current, kind, limits, insert_only=spec.insert_only, minors=minors, aborted=aborted)
    if isinstance(part, Excess):
        raise _refused(spec, limits.reason, part.sentence)
    return part, warnings + ([part.parts.reason] if part.parts is not None else [])


def _write_ids_of(
    state: AcidState, part: Part, layout: LayoutVersion, write_ids: ValidWriteIdList
) -> tuple[int, int, int]:
    """The lowest and the highest write id in the result's name, and the highest that the entry deals with."""
    base = _base_write_id(state)
    name = max((d.acid.max_write_id for d in part.deltas), default=base)
    if not part.deltas and state.base is None:
        name = _name_for_originals(state, write_ids.high_watermark)
    lowest = 0 if part.kind.makes_base else min(d.acid.min_write_id for d in part.deltas)
    left_above = bool(state.excluded)
    if part.parts is not None:
        left_above |= any(d.acid.max_write_id > name for d in state.deltas)
    if layout is LayoutVersion.HIVE_3:  # its own Cleaner takes every directory up to the highest write id for committed
        left_above |= any(wid > name for wid in write_ids.aborted)
        lowest = lowest and _over_aborted(state, lowest, base)
    return lowest, name, name if left_above else max(name, write_ids.high_watermark)


def _why_no_minor(current: AcidState, base: int, layout: LayoutVersion, *, prefer_major: bool) -> str:
    """Why a minor compaction of these deltas has to be a major one; empty: it hasn't."""
    hive_3 = layout is LayoutVersion.HIVE_3
    if current.insert_deltas and current.delete_deltas and (hive_3 or prefer_major):
        why = "Hive 3.1 has no transaction that makes two renames one" if hive_3 else "worker.prefer_major is set"
        return f"it would publish two directories, and {why}"
    reach = max((d.acid.max_write_id for d in current.deltas), default=base)
    undone = (d.name for d in current.aborted if d.acid.is_base and base < d.acid.max_write_id < reach)
    if hive_3 and (name := next(undone, None)) is not None:
        return f"{name} was rolled back, which the Cleaner of Hive 3.1 doesn't see: after a minor it would be read"
    return ""


def _without_an_end(state: AcidState) -> str:
    """
    A sentence on why an entry can't end at write id 0. Hive 3.1's Cleaner and CompactionTxnHandler.markCleaned read a
    highest write id of 0 as none: each base counts as the last, and each aborted write is forgotten.
    """
    there = f"{plural(len(state.originals), 'original file')}, and of the writes since then the first is still open or was rolled back, or there is none"
    return f"not enough to compact: {there}; the Cleaner of Hive 3.1 takes an entry that ends at write id 0 for one without an end"


def _over_aborted(state: AcidState, lowest: int, base: int) -> int:
    """
    Where a minor's range begins so that it also covers the aborted deltas right below it: the Cleaner of Hive 3.1
    removes aborted deltas only as parts of a range.
    """
    below = max([base, *(d.acid.max_write_id for d in state.deltas if d.acid.max_write_id < lowest)])
    return min(
        [lowest, *(d.acid.min_write_id for d in state.aborted if not d.acid.is_base and below < d.acid.min_write_id)]
    )


def everything(state: AcidState, spec: TableSpec, layout: LayoutVersion, write_ids: ValidWriteIdList) -> Selection:
    """
    Everything that a reader with these lists reads, in the form of a major compaction's selection. Whether it is enough
    for a compaction isn't checked, and its names aren't meant for a result.

    Raises:
        RefusedError: there are files that no rule explains.
    """
    _refuse_names(state, spec)
    base = _base_write_id(state)
    reach = max((d.acid.max_write_id for d in state.deltas), default=base)
    return Selection(
        spec=spec,
        requested=CompactionKind.MAJOR,
        kind=CompactionKind.MAJOR,
        layout=layout,
        name_write_id=reach,
        min_write_id=0,
        highest_write_id=reach,
        visibility_txn=None,
        write_ids=str(write_ids),
        inserts=_insert_files(state, spec, major=True),
        deletes=_dir_files(state.delete_deltas, spec),
        files=(),
        aborted=write_ids.aborted_within(base + 1, reach),
        warnings=(),
    )


def _refused(spec: TableSpec, reason: Reason, what: str) -> RefusedError:
    return RefusedError(reason, f"{spec.name}: {what}")


def _refuse_names(state: AcidState, spec: TableSpec) -> None:
    files = {entry.path for entry in state.originals + state.obsolete_originals + state.left_originals}
    unknown = [path for path in state.unknown if not (spec.insert_only and path in files)]
    if unknown and unknown[0] in files:
        what = "isn't named like a bucket file (000000_0, 000000_0_copy_1): its rows have no stable ROW__ID"
        raise _refused(spec, Reason.UNKNOWN_NAME, f"{unknown[0]} {what}{_more(unknown)}")
    if unknown:
        what = "is neither a base, a delta nor an original file"
        raise _refused(spec, Reason.UNKNOWN_NAME, f"{unknown[0]} {what}{_more(unknown)}")


def _name_for_originals(state: AcidState, high_watermark: int) -> int:
    """
    N of a base made only of original files: the highest write id up to the high watermark that is below everything left
    out (which includes all deltas), if that is at least `FIRST_SEEDED`; else 0.
    """
    waiting = [e.dir.acid.first_written for e in state.excluded]
    waiting += [d.acid.min_write_id for d in state.deltas]
    ceiling = min([high_watermark, *(wid - 1 for wid in waiting)])
    return ceiling if ceiling >= FIRST_SEEDED else 0


def _insert_files(state: AcidState, spec: TableSpec, *, major: bool) -> tuple[InputFile, ...]:
    """Base or originals (major only), then insert deltas."""
    under: tuple[InputFile, ...] = ()
    if major:
        under = _dir_files([state.base], spec) if state.base else _originals(state.originals, spec)
    return under + _dir_files(state.insert_deltas, spec)


def _originals(entries: Sequence[FileEntry], spec: TableSpec) -> tuple[InputFile, ...]:
    files = []
    for entry in entries:
        _refuse_list_bucketing(entry.path, spec)
        name = parse_original_file(entry.name)
        if name is None:
            raise _refused(spec, Reason.UNKNOWN_NAME, f"{entry.path} isn't named like a bucket file")
        files.append(InputFile.of(entry, FileRole.ORIGINAL, "", name.bucket, raw=True))
    return tuple(files)


def _dir_files(dirs: Iterable[ListedDir], spec: TableSpec) -> tuple[InputFile, ...]:
    return tuple(file for listed in dirs for file in _files_of(listed, spec))


def _files_of(listed: ListedDir, spec: TableSpec) -> list[InputFile]:
    acid = listed.acid
    role = FileRole(acid.kind.value)
    if stray := stray_files(listed, insert_only=False):
        raise _refused(spec, Reason.UNKNOWN_NAME, f"{stray[0].path} isn't named like a bucket file{_more(stray)}")
    sides = {entry.path for entry in side_files(listed)}
    one_write = acid.min_write_id == acid.max_write_id
    heeds_sides = role is FileRole.DELTA and not one_write and acid.visibility_txn == 0
    may_be_raw = one_write if role is FileRole.DELTA else role is FileRole.BASE and not listed.compacted
    files: list[InputFile] = []
    for entry in data_files(listed, insert_only=False):
        if entry.path.count("/") > 1:
            raise _refused(spec, Reason.NESTED_DIRECTORY, f"{entry.path} lies in a directory below {acid.name}")
        bucket_file = parse_bucket_file(entry.name)
        name = bucket_file or (parse_original_file(entry.name) if may_be_raw else None)
        if name is None:
            raise _refused(spec, Reason.UNKNOWN_NAME, f"{entry.path} isn't named like a bucket file")
        side = entry.path + SIDE_FILE_SUFFIX
        file = InputFile.of(
            entry,
            role,
            acid.name,
            name.bucket,
            min_write_id=acid.min_write_id,
            # a base of only original files has a negative write id in its name, and rows of write id 0
            max_write_id=max(acid.max_write_id, 0),
            statement_id=acid.statement_id or 0,
            raw=bucket_file is None,
            may_hold_aborted=role is not FileRole.BASE and not one_write,
            side_file=side if side in sides and heeds_sides else None,
        )
        if file.empty and role is FileRole.DELETE_DELTA:  # read row by row it is one without events
            what = "Hive's vectorised reader fails over delete deltas like that"
            raise CorruptFileError(f"{spec.name}: {entry.path} is empty (0 bytes): {what}")
        if file.empty and heeds_sides:
            what = "in the delta of a stream: its writer has not flushed, or broke off"
            raise CorruptFileError(f"{spec.name}: {entry.path} is empty (0 bytes), {what}")
        files.append(file)
    if len({file.raw for file in files}) > 1:
        raise _refused(spec, Reason.UNKNOWN_NAME, f"{acid.name} holds both bucket files and loaded files")
    return files


def _whole_files(state: AcidState, spec: TableSpec, *, major: bool) -> tuple[InputFile, ...]:
    """
    Every visible file of an insert-only table's inputs, in any format; files of UNION ALL lie one directory deeper.
    """
    under = (state.base,) if major and state.base else ()
    places = [("", FileRole.ORIGINAL, state.originals)] if major and not state.base else []
    places += [
        (listed.acid.name, FileRole(listed.acid.kind.value), data_files(listed, insert_only=True))
        for listed in (*under, *state.insert_deltas)
    ]
    files = []
    for directory, role, entries in places:
        for entry in entries:
            _refuse_list_bucketing(entry.path, spec)
            inner = entry.path.removeprefix(f"{directory}/").split("/")[:-1] if directory else []
            if any(not UNION_DIRECTORY.fullmatch(part) for part in inner):
                raise _refused(spec, Reason.NESTED_DIRECTORY, f"{entry.path} lies in a directory below {directory}")
            bucket = bucket_of(entry.name)
            if bucket is None and spec.buckets:
                what = f"{spec.name} is bucketed, and {entry.path} doesn't say which bucket it is"
                raise RefusedError(Reason.UNKNOWN_NAME, what)
            files.append(InputFile.of(entry, role, directory, -1 if bucket is None else bucket))
    return tuple(files)


def _refuse_list_bucketing(path: str, spec: TableSpec) -> None:
    for part in path.split("/")[:-1]:
        if "=" in part or part == LIST_BUCKETING_DEFAULT:
            what = f"{path} lies in a list-bucketing directory, which isn't supported"
            raise _refused(spec, Reason.LIST_BUCKETING, what)


def _more(items: Sequence[object]) -> str:
    return f" (and {len(items) - 1} more)" if len(items) > 1 else ""
