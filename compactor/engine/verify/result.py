"""
Checks the staged result before readers can see it, against the inputs and against the expectations of Hive's readers.

Recoded stripes are decoded again, and the digest of their values is compared with that of the values read from the
inputs. Copied stripes are compared with their source by statistics, key index and sampled bytes. The rows of all
buckets must add up. A difference is a `VerificationError`: the result isn't published.
Source: docs/compaction.md; Hive's ColumnizedDeleteEventRegistry, OrcRawRecordMerger, OrcAcidUtils.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from compactor.acid.listing import FileEntry
from compactor.acid.types import row_type
from compactor.engine.insert_only.tasks import apart
from compactor.engine.results import Checked, Manifest, OutputFile, RowCounts, Staged, markers_of
from compactor.engine.staging.directory import Staging
from compactor.engine.tasks.specs import Shared, inputs_of, work_of
from compactor.engine.verify.stripes import FileCheck, VerifyTask, verify_stripes
from compactor.errors import VerificationError
from compactor.orc.digests.digest import Digest, differences
from compactor.planning.document import BucketPlan, FileJoin, FileRole
from compactor.planning.insert_only.formats import END_TO_END
from compactor.spark.results import checksum
from compactor.spark.submitter import JobName, Submitter
from compactor.storage.base import Storage

STRIPES_PER_TASK: Final = 8


@dataclass(frozen=True, slots=True)
class Verified:
    """
    A staged result that agrees with its inputs. Only `verify` makes it, and only it can be published.

    Args:
        manifests: of the staged directories.
    """

    staged: Staged
    manifests: tuple[Manifest, ...]

    @property
    def directories(self) -> tuple[str, ...]:
        return tuple(manifest.directory for manifest in self.manifests)


def verify(  # noqa: PLR0917 - the result, and what reads it
    staged: Staged,
    staging: Staging,
    storage: Storage,
    submitter: Submitter,
    job: JobName,
    cancelled: Callable[[], bool],
) -> Verified:
    """
    Check a staged result against its inputs.

    Raises:
        VerificationError: the first difference.
    """
    manifests = tuple(_manifest(directory, staged, staging, storage) for directory in staged.directories)
    if staged.plan.insert_only:
        check_joins(staged)
    else:
        check_accounts(staged)
        checked: Sequence[Checked] | None = staged.checked
        if checked is None:
            shared, tasks = _verify_tasks(staged, staging)
            check = partial(verify_stripes, shared)
            checked = submitter.run(job.at("verify"), check, tasks, progress=lambda _: None, cancelled=cancelled)
        check_values(staged, checked)
    return Verified(staged, manifests)


def _manifest(directory: str, staged: Staged, staging: Staging, storage: Storage) -> Manifest:
    """
    The manifest of a staged directory that holds exactly the accepted files, as the tasks reported them, and the
    markers.

    Raises:
        VerificationError: a file is missing, superfluous, or of another length or checksum.
    """
    listed = sorted(staging.listed(directory))
    files = {file.name: file for file in staged.files if file.directory == directory}
    markers = markers_of(staged.plan, directory).keys()
    found = {entry.path: entry.length for entry in listed}
    if set(found) != files.keys() | markers:
        odd = sorted(set(found) ^ (files.keys() | markers))
        raise VerificationError(
            f"{directory} should hold {len(files)} files and {len(markers)} markers; {odd[0]} is {'too much' if odd[0] in found else 'missing'}"
        )
    for name, file in files.items():
        with storage.open_read(staging.place(directory, name)) as reader:
            if reader.size != file.length or checksum(reader) != file.checksum:
                raise VerificationError(f"{directory}/{name} isn't the file that its task reported")
    kind = staged.plan.output(directory).kind
    return Manifest(directory, kind, tuple(FileEntry(entry.path, entry.length) for entry in listed))


def check_values(staged: Staged, checked: Sequence[Checked]) -> None:
    """
    Raise unless the recoded stripes of each file, as read back, hold the values that were read from the inputs.

    Raises:
        VerificationError: names the first difference, or the columns that differ.
    """
    if (wrong := next((one.wrong for one in checked if one.wrong is not None), None)) is not None:
        raise VerificationError(wrong)
    digests: dict[tuple[str, str], Digest] = {}
    for one in checked:
        digests[one.directory, one.name] = digests.get((one.directory, one.name), Digest()) + one.digest
    for file in staged.files:
        found = digests.get((file.directory, file.name), Digest())
        if found != file.digest:
            apart = ", ".join(differences(row_type(staged.plan.columns), file.digest, found))
            raise VerificationError(
                f"{file.directory}/{file.name} was read back with other values than were read from the inputs, in {apart}"
            )


def check_joins(staged: Staged) -> None:
    """
    Raise unless every joined file was compared with its inputs, agrees with them, and has as many rows as they. Inputs
    that were carried over, whole, aren't among them; without the joined file all must have been.

    Raises:
        VerificationError: names the first difference.
    """
    checked = {(one.directory, one.name): one.wrong for one in staged.checked or ()}
    files = {(file.directory, file.name): file for file in staged.files}
    inputs = {file.path: file for file in staged.plan.inputs}
    for output in staged.plan.outputs:
        for join in output.joins:
            place, name = (output.name, join.name), f"{output.name}/{join.name}"
            sources = [inputs[path] for path in join.paths]
            carried = set[str]()
            for copy in apart(join, sources):
                alone = files.get((output.name, copy.name))
                if alone is not None and alone.length == copy.bytes:
                    carried.add(copy.path)
                elif alone is not None or place not in files:
                    raise VerificationError(f"{name} is missing, and {copy.path} wasn't carried over")
            if place not in files:
                continue
            if place not in checked:
                raise VerificationError(f"{name} wasn't compared with its inputs")
            if (wrong := checked[place]) is not None:
                raise VerificationError(wrong)
            _check_counts(name, files[place], join, carried)


def _check_counts(name: str, file: OutputFile, join: FileJoin, carried: set[str]) -> None:
    """
    Raises:
        VerificationError: the file has other numbers of rows, or bytes, than the inputs that weren't carried over.
    """
    joined = [segment for segment in join.segments if segment.path not in carried]
    if file.rows.written != (rows := sum(segment.rows for segment in joined)):
        raise VerificationError(f"{name}: {rows} rows go in, {file.rows.written} were written")
    if join.format in END_TO_END and file.copied_bytes != (size := sum(segment.bytes for segment in joined)):
        raise VerificationError(f"{name}: {size} bytes go in, {file.copied_bytes} were copied")


def check_accounts(staged: Staged) -> None:
    """
    Raise unless rows in - deleted - aborted = rows out in each bucket, and every row of the inputs was read.

    Of delete events, as many must be written as there are distinct ones in the inputs.

    Raises:
        VerificationError: the counts don't add up, or a bucket is missing or superfluous.
    """
    plan = staged.plan
    got = {(file.directory, file.bucket): file.rows for file in staged.files + staged.empty}
    planned = {(output.name, bucket.bucket): bucket for output in plan.outputs for bucket in output.buckets}
    if got.keys() != planned.keys():
        missing = min(planned.keys() ^ got.keys())
        raise VerificationError(
            f"bucket {missing[1]} of {missing[0]} is {'missing' if missing in planned else 'too much'}"
        )
    for place, bucket in planned.items():
        _check_rows(f"bucket {place[1]} of {place[0]}", bucket, got[place])
    inserts = [file for file in plan.inputs if file.role is not FileRole.DELETE_DELTA]
    total = sum((got[place] for place, bucket in planned.items() if bucket.segments), RowCounts())
    if total.read != sum(file.rows for file in inserts):
        raise VerificationError(f"the inputs hold {sum(file.rows for file in inserts)} rows, {total.read} were read")


def _check_rows(name: str, bucket: BucketPlan, rows: RowCounts) -> None:
    expected = sum(segment.rows for segment in bucket.segments) if bucket.segments else bucket.delete_events
    if rows.read != expected or not rows.balanced or (bucket.segments and rows.deleted > bucket.delete_events):
        said = f"{rows.read} read, {rows.written} written, {rows.deleted} deleted, {rows.aborted} aborted"
        raise VerificationError(f"{name}: {expected} rows go in, but {said}")
    if not bucket.segments and (rows.deleted or rows.aborted):
        raise VerificationError(f"{name}: delete events were dropped while they were written")


def _verify_tasks(staged: Staged, staging: Staging) -> tuple[Shared, list[VerifyTask]]:
    plan = staged.plan
    planned = {(output.name, bucket.bucket): (output, bucket) for output in plan.outputs for bucket in output.buckets}
    inputs = inputs_of(plan)
    several: list[FileCheck] = []
    tasks: list[VerifyTask] = []
    for file in staged.files:
        output, bucket = planned[file.directory, file.bucket]
        work = work_of(plan, output, bucket, staging.tasks, inputs=inputs, digests=bool(file.digest.columns))
        check = FileCheck.of(work, file, staging.place(file.directory, file.name))
        if check.count <= STRIPES_PER_TASK:
            tasks.append(VerifyTask.whole(check, file))
        else:
            tasks += VerifyTask.parts(len(several), file, STRIPES_PER_TASK)
            several.append(check)
    return Shared.of(plan, several), tasks
