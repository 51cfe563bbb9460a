"""
Checks the inputs' contents before a compaction is planned: one sentence per refusal.

Pure: compares names with tails. An unexplained file is refused, never skipped: a skipped file is a lost row.
Source: docs/compaction.md; Hive's AcidUtils, ColumnizedDeleteEventRegistry.checkBucketId.
"""

import itertools
from collections.abc import Iterable, Sequence

from compactor.acid.names import parse_bucket_file
from compactor.acid.row_id import MAX_BUCKET, BucketRangeError, decode_bucket
from compactor.errors import CorruptFileError, RefusedError
from compactor.planning.document import FileRole, InputFile
from compactor.planning.facts import FileFacts, StripeFacts, TableSpec
from compactor.planning.segments import SegmentSource, keeps_rows
from compactor.reasons import Reason

INSERT, DELETE = 0, 2


def check_file(spec: TableSpec, file: InputFile, facts: FileFacts) -> None:
    """
    Check one input against its name, its directory and the table's columns.

    Raises:
        CorruptFileError: the file's contents contradict its name or directory.
        RefusedError: the file can't be compacted; with the reason and the file.
    """
    place = f"{spec.name}: {file.path}"
    if file.raw and facts.acid:
        raise RefusedError(Reason.UNKNOWN_NAME, f"{place} holds ROW__IDs under the name of a file without")
    if not file.raw and not facts.acid:
        raise CorruptFileError(f"{place} doesn't have the ACID columns that its name promises")
    if file.role is not FileRole.DELETE_DELTA and facts.schema_problem:
        raise RefusedError(Reason.SCHEMA_MISMATCH, f"{place}: {facts.schema_problem}")
    if facts.acid:
        _check_stripes(place, file, facts)
    if file.raw and file.bucket > MAX_BUCKET:
        raise RefusedError(Reason.WRONG_BUCKET, f"{place}: bucket {file.bucket} is above {MAX_BUCKET}")


def _check_stripes(place: str, file: InputFile, facts: FileFacts) -> None:
    deletes = file.role is FileRole.DELETE_DELTA
    wanted = DELETE if deletes else INSERT
    for stripe in facts.stripes:
        if stripe.rows == 0:
            continue
        if stripe.operations is not None and stripe.operations != (wanted, wanted):
            raise RefusedError(
                Reason.UNSUPPORTED_FORMAT,
                f"{place} mixes inserts, updates and deletes (a table from before split update): not supported",
            )
        ids = stripe.current_ids if deletes else stripe.write_ids
        if ids is not None and not (_lowest(file) <= ids[0] and ids[1] <= file.max_write_id):
            raise CorruptFileError(f"{place} holds write ids {ids[0]} to {ids[1]}, outside its directory's range")
        _check_current_ids(place, file, stripe)
        if stripe.buckets is None or deletes:
            continue
        try:
            found = {decode_bucket(value) for value in stripe.buckets}
        except BucketRangeError as error:
            raise CorruptFileError(f"{place}: {error}") from None
        if others := found - {decoded_bucket(file)}:
            raise CorruptFileError(f"{place} holds rows of bucket {min(others)}", Reason.WRONG_BUCKET)


def _check_current_ids(place: str, file: InputFile, stripe: StripeFacts) -> None:
    """
    Refuse events whose write (`currentTransaction`) came before the write of their row, or after the directory's range.
    Verification finds the cases that statistics don't show.
    """
    written, current = stripe.write_ids, stripe.current_ids
    if written is None or current is None:
        return
    if current[0] < written[0] or current[1] < written[1]:
        raise CorruptFileError(
            f"{place} holds rows that were changed before they were written: write ids {written[0]} to {written[1]}, changed by {current[0]} to {current[1]}"
        )
    if current[1] > file.max_write_id:
        raise CorruptFileError(f"{place} holds rows changed by write id {current[1]}, outside its directory's range")


def _lowest(file: InputFile) -> int:
    return 0 if file.role is FileRole.BASE else file.min_write_id


def decoded_bucket(file: InputFile) -> int:
    """The bucket that the file's rows decode to: Hive 4 packs bucket numbers above 4095 modulo 4096."""
    return file.bucket % (MAX_BUCKET + 1)


def check_one_file_per_bucket(spec: TableSpec, sources: Iterable[SegmentSource]) -> None:
    """
    Refuse a directory with several files for one bucket. Attempt variants (`bucket_00000_0`, `bucket_00000_1`) are
    allowed where their keys are proven disjoint.

    Raises:
        RefusedError: SEVERAL_FILES_PER_BUCKET.
    """
    seen: dict[tuple[str, int], list[SegmentSource]] = {}
    for source in sources:
        if not source.file.raw:
            seen.setdefault((source.file.directory, source.file.bucket), []).append(source)
    for (directory, bucket), found in seen.items():
        if len(found) > 1 and not _attempts_with_disjoint_keys(found):
            names = ", ".join(sorted(source.file.path.rsplit("/", 1)[-1] for source in found))
            raise RefusedError(
                Reason.SEVERAL_FILES_PER_BUCKET,
                f"{spec.name}: {directory} has several files for bucket {bucket}: {names}",
            )


def check_one_zone(spec: TableSpec, bucket: int, sources: Iterable[SegmentSource]) -> None:
    """
    Refuse a bucket whose surely kept rows have timestamps of several time zones: readers of Hive 3.1 need one zone in a
    file, and the compaction converts no values from one zone to another.

    Raises:
        RefusedError: UNSUPPORTED_FORMAT; names a file of each of two zones.
    """
    found: dict[str, str] = {}
    for source in sources:
        if source.facts.zone is not None and any(keeps_rows(source, stripe) for stripe in source.facts.stripes):
            found.setdefault(source.facts.zone, source.file.path)
    if len(found) > 1:
        (one, first), (other, second) = sorted((path, name or "that isn't said") for name, path in found.items())[:2]
        message = f"timestamps in time zone {first} ({one}) and in {second} ({other}) would stand in one file, which readers take for the same"
        raise RefusedError(
            Reason.UNSUPPORTED_FORMAT,
            f"{spec.name}: bucket {bucket} has {message}; a major compaction by Hive itself rewrites them in one zone",
        )


def _attempts_with_disjoint_keys(sources: Sequence[SegmentSource]) -> bool:
    names = [parse_bucket_file(source.file.path.rsplit("/", 1)[-1]) for source in sources]
    if any(name is None or name.attempt is None for name in names) or any(
        source.file.role is FileRole.DELETE_DELTA for source in sources
    ):
        return False
    spans = []
    for source in sources:
        stripes = [stripe for stripe in source.facts.stripes if stripe.rows]
        if not stripes:
            continue
        first, last = stripes[0].first, stripes[-1].last
        if first is None or last is None:
            return False
        spans.append((first, last))
    spans.sort()
    return all(before[1] < after[0] for before, after in itertools.pairwise(spans))
