"""
Turns selected files and their facts into the plan of a compaction.

Pure, in three steps, between which the engine reads: `select` (names) → tails → `prepare` (contents against names,
ROW__IDs of rows that have none) → delete events → `plan` (action per stripe, outputs, prediction).
Source: docs/compaction.md; Hive's CompactorMR, MRCompactor, OrcRawRecordMerger.TransactionMetaData.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from compactor.acid.names import DirKind, bucket_name
from compactor.acid.row_id import RowKey, SyntheticIds, encode
from compactor.planning.checks import check_file, check_one_file_per_bucket, check_one_zone, decoded_bucket
from compactor.planning.document import (
    BucketPlan,
    CompactionPlan,
    DeleteScope,
    FileRole,
    FormatSpec,
    InputFile,
    OutputDir,
)
from compactor.planning.facts import DeleteFacts, FileFacts, WholeFacts
from compactor.planning.format import kept_from, part_bytes
from compactor.planning.insert_only.joins import JoinSizes, joined
from compactor.planning.limits import in_windows, within_memory
from compactor.planning.prediction import StripeSizes, predict
from compactor.planning.segments import SegmentSource, Sizes, segments
from compactor.planning.select import Selection


@dataclass(frozen=True, slots=True)
class PreparedPlan:
    """
    Checked inputs.

    Args:
        buckets: sources of rows by decoded bucket, in the order readers walk them.
        deletes: delete files with their facts.
    """

    selection: Selection
    buckets: Mapping[int, tuple[SegmentSource, ...]]
    deletes: tuple[SegmentSource, ...]

    @property
    def delete_scope(self) -> DeleteScope:
        """
        Which delete events are applied to rows. A minor of one write id applies that write id's own deletes, because
        they have no effect on its own rows once it is collapsed; other minors keep all events.
        """
        if self.selection.major:
            return DeleteScope.ALL
        return DeleteScope.OWN if self.selection.min_write_id == self.selection.name_write_id else DeleteScope.NONE


def prepare(selection: Selection, facts: Mapping[str, FileFacts]) -> PreparedPlan:
    """
    Check contents against names and assign ROW__IDs to rows that have none.

    Args:
        facts: by path, for every file of the selection that isn't empty.

    Raises:
        CorruptFileError, RefusedError: see `compactor.planning.checks`.
    """
    inserts: list[SegmentSource] = []
    counted: dict[tuple[str, int], int] = {}
    for file in selection.inserts:
        if file.empty:
            continue
        known = facts[file.path]
        check_file(selection.spec, file, known)
        file, known = _with_ids(file, known, counted)  # noqa: PLW2901 - the same file, known better
        aborted = (
            tuple(wid for wid in selection.aborted if file.min_write_id <= wid <= file.max_write_id)
            if file.may_hold_aborted
            else ()
        )
        inserts.append(SegmentSource(file, known, aborted))
    deletes = []
    for file in selection.deletes:
        known = facts[file.path]
        check_file(selection.spec, file, known)
        deletes.append(
            SegmentSource(replace(file, rows=known.rows, logical_length=known.logical_length), known, selection.aborted)
        )
    check_one_file_per_bucket(selection.spec, [*inserts, *deletes])
    buckets: dict[int, list[SegmentSource]] = {}
    for source in inserts:
        buckets.setdefault(decoded_bucket(source.file), []).append(source)
    return PreparedPlan(selection, {bucket: tuple(buckets[bucket]) for bucket in sorted(buckets)}, tuple(deletes))


def _with_ids(file: InputFile, facts: FileFacts, counted: dict[tuple[str, int], int]) -> tuple[InputFile, FileFacts]:
    """
    ROW__IDs of original and loaded files: rows are numbered through all files of one bucket in one directory, in path
    order.
    """
    file = replace(file, rows=facts.rows, logical_length=facts.logical_length)
    if not file.raw:
        return file, facts
    place = ("" if file.role is FileRole.ORIGINAL else file.directory, file.bucket)
    first = counted.get(place, 0)
    counted[place] = first + facts.rows
    write_id = 0 if file.role is FileRole.ORIGINAL else file.max_write_id
    ids = SyntheticIds(write_id, encode(file.bucket, file.statement_id if file.role is FileRole.DELTA else 0), first)
    stripes = []
    row = first
    for stripe in facts.stripes:
        bounds = (
            RowKey(write_id, ids.bucket_property, row),
            RowKey(write_id, ids.bucket_property, row + max(stripe.rows, 1) - 1),
        )
        property_range = (ids.bucket_property, ids.bucket_property)
        stripes.append(
            replace(
                stripe,
                first=bounds[0],
                last=bounds[1],
                last_exact=True,
                write_ids=(write_id, write_id),
                buckets=property_range,
            )
        )
        row += stripe.rows
    return replace(file, synthetic=ids), replace(facts, stripes=tuple(stripes))


def plan(
    prepared: PreparedPlan,
    deletes: Mapping[int, DeleteFacts],
    output_format: FormatSpec,
    location: str,
    sizes: Sizes,
) -> CompactionPlan:
    """
    The plan of a full ACID compaction.

    Args:
        prepared: `hit` is filled in from the delete events.
        deletes: by decoded bucket.

    Raises:
        RefusedError: LIMIT_EXCEEDED, a chunk that can't be divided has more delete events than a task may hold;
            UNSUPPORTED_FORMAT, a file would have two time zones.
    """
    selection = prepared.selection
    sizes = replace(sizes, min_stripe=kept_from(sizes.min_stripe, output_format.stripe_bytes))
    rows, notes = _row_files(prepared, deletes, output_format, sizes)
    sides = () if selection.major else _delete_files(prepared.delete_scope, deletes)
    notes += [note for side in sides for note in in_windows(side, sizes)]
    outputs = []
    if rows or not sides:
        kind = DirKind.BASE if selection.major else DirKind.DELTA
        outputs.append(OutputDir(kind, selection.output_name(kind), rows))
    if sides:
        outputs.append(OutputDir(DirKind.DELETE_DELTA, selection.output_name(DirKind.DELETE_DELTA), sides))
    sources = [source for group in prepared.buckets.values() for source in group]
    read = {source.file.path: source.file for source in (*sources, *prepared.deletes)}
    unread = (file for file in selection.all_files if file.path not in read)
    made = _document(
        selection,
        tuple(outputs),
        (*read.values(), *unread),
        output_format,
        prepared.delete_scope,
        location=location,
        delete_bytes=sum(source.facts.bytes for source in prepared.deletes),
        stripes={
            (source.file.path, stripe.index): stripe.weight for source in sources for stripe in source.facts.stripes
        },
    )
    return replace(made, events_at_once=sizes.events, warnings=(*made.warnings, *notes))


def _row_files(
    prepared: PreparedPlan, deletes: Mapping[int, DeleteFacts], output_format: FormatSpec, sizes: Sizes
) -> tuple[tuple[BucketPlan, ...], list[str]]:
    """The files of rows, and sentences on what keeps their delete events within a task's memory."""
    files: list[BucketPlan] = []
    notes: list[str] = []
    for bucket, sources in sorted(prepared.buckets.items()):
        laid = segments(sources, sizes, output_format)
        if not laid:
            continue
        if output_format.one_zone:
            check_one_zone(prepared.selection.spec, bucket, sources)
        known = deletes.get(bucket)
        if known is not None and prepared.delete_scope.applies(known.own):
            files.append(BucketPlan(bucket, bucket_name(bucket), laid, known.paths, known.events))
        else:
            files.append(BucketPlan(bucket, bucket_name(bucket), laid))
        notes += within_memory(files[-1], sources, sizes)
    return tuple(files), notes


def _delete_files(scope: DeleteScope, deletes: Mapping[int, DeleteFacts]) -> tuple[BucketPlan, ...]:
    """The files of delete events that a minor compaction keeps: those that it doesn't apply to rows."""
    left = [
        (known, known.events - (known.own if scope is DeleteScope.OWN else 0)) for _, known in sorted(deletes.items())
    ]
    return tuple(
        BucketPlan(known.bucket, bucket_name(known.bucket), (), known.paths, events)
        for known, events in left
        if events > 0
    )


def plan_whole_files(
    selection: Selection, location: str, facts: Mapping[str, WholeFacts], sizes: JoinSizes
) -> CompactionPlan:
    """
    The plan for an insert-only table: small files become full-sized ones, all others are copied unchanged, under a name
    that keeps their bucket.

    Args:
        facts: by path.

    Raises:
        RefusedError: see `part_bytes` and `joined`.
    """
    kind, spec = DirKind.BASE if selection.major else DirKind.DELTA, selection.spec
    part = part_bytes(spec, sizes.part)
    sizes = replace(sizes, part=part, min_part=kept_from(sizes.min_part, part))
    copies, joins = joined(selection.files, facts, spec.file_format, sizes, bucketed=bool(spec.buckets))
    output = OutputDir(kind, selection.output_name(kind), copies=copies, joins=joins)
    inputs = [
        replace(file, rows=sum(part.rows for part in known.parts or ()))
        if (known := facts.get(file.path)) is not None
        else file
        for file in selection.files
    ]
    stripes = {
        (path, number): part.weight for path, known in facts.items() for number, part in enumerate(known.parts or ())
    }
    return _document(
        selection,
        (output,),
        tuple(inputs),
        FormatSpec(stripe_bytes=sizes.part, columns_by=spec.columns_by),
        DeleteScope.NONE,
        location=location,
        delete_bytes=0,
        stripes=stripes,
    )


def _document(
    selection: Selection,
    outputs: tuple[OutputDir, ...],
    inputs: tuple[InputFile, ...],
    output_format: FormatSpec,
    scope: DeleteScope,
    *,
    location: str,
    delete_bytes: int,
    stripes: StripeSizes,
) -> CompactionPlan:
    return CompactionPlan(
        entity=selection.spec.name,
        location=location,
        requested=selection.requested,
        kind=selection.kind,
        layout=selection.layout,
        insert_only=selection.spec.insert_only,
        write_ids=selection.write_ids,
        name_write_id=selection.name_write_id,
        min_write_id=selection.min_write_id,
        max_write_id=selection.name_write_id,
        highest_write_id=selection.highest_write_id,
        visibility_txn=selection.visibility_txn,
        columns=selection.spec.columns,
        outputs=outputs,
        inputs=inputs,
        format=output_format,
        delete_scope=scope,
        aborted=selection.aborted,
        prediction=predict(outputs, output_format, len(inputs), stripes, delete_bytes),
        warnings=selection.warnings,
        parts=selection.parts,
    )
