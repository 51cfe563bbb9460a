"""
Writes a file of a small compaction and checks its stripes, in one task on an executor.

The check is the same as that of a task of its own, and reads the file that was written; that the file isn't changed
when it is moved to its place is seen by its length and checksum.
"""

from compactor.engine.results import Checked, OutputFile
from compactor.engine.tasks.buckets import run_task
from compactor.engine.tasks.specs import BucketTask, ChunkTask, Shared
from compactor.engine.verify.stripes import FileCheck, VerifyTask, verify_stripes
from compactor.errors import VerificationError
from compactor.storage.location import join, parent


def run_and_verify(shared: Shared, task: ChunkTask | BucketTask) -> tuple[OutputFile, Checked | None]:
    """
    Run one task that writes a whole file, and check it; None: the file has no rows, and isn't published. A difference is
    part of the result: the file is still needed, as evidence.
    """
    file = run_task(shared, task)
    if not isinstance(task, BucketTask) or not isinstance(file, OutputFile):
        raise TypeError(f"{task} writes no whole file")
    if not file.path:
        return file, None
    check = FileCheck.of(task.work, file, join(parent(task.work.tasks), file.path))
    try:
        return file, verify_stripes(shared, VerifyTask.whole(check, file))
    except VerificationError as error:
        return file, Checked(file.directory, file.name, wrong=error.message)
