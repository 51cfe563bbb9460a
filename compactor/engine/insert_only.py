"""
Compacts insert-only tables: carries over whole files of any format without opening them.

Files are linked where the store supports links, else copied. They are never moved: readers have them open, and the old
directories must stay complete until the Cleaner removes them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from compactor.acid.names import DirKind
from compactor.engine.results import OutputFile
from compactor.engine.tasks.directory import own_directory
from compactor.errors import RefusedError
from compactor.planning.document import CompactionPlan, FileCopy
from compactor.reasons import Reason
from compactor.spark.results import checksum
from compactor.storage.location import join
from compactor.storage.registry import storage_for

FILES_PER_TASK = 200
BYTES_PER_TASK = 1 << 30


@dataclass(frozen=True, slots=True)
class CarryTask:
    """Some whole files to carry over into one directory."""

    location: str
    tasks: str
    directory: str
    kind: DirKind
    copies: tuple[FileCopy, ...]


def carry_tasks(plan: CompactionPlan, tasks: str) -> list[CarryTask]:
    """Cut the plan's files into tasks."""
    made = []
    for output in plan.outputs:
        made += [
            CarryTask(plan.location, tasks, output.name, output.kind, tuple(part)) for part in _parts(output.copies)
        ]
    return made


def _parts(copies: Sequence[FileCopy]) -> list[list[FileCopy]]:
    parts: list[list[FileCopy]] = []
    size = 0
    for copy in copies:
        if not parts or len(parts[-1]) >= FILES_PER_TASK or size >= BYTES_PER_TASK:
            parts.append([])
            size = 0
        parts[-1].append(copy)
        size += copy.bytes
    return parts


def carry(task: CarryTask) -> list[OutputFile]:
    """
    Run one task on an executor.

    Raises:
        RefusedError: INPUT_CHANGED, a file is gone or has another length than planned.
    """
    storage = storage_for(task.location)
    own, relative = own_directory(storage, task.tasks)
    carried = []
    for copy in task.copies:
        target = join(own, copy.name)
        try:
            storage.link_or_copy(join(task.location, copy.path), target)
        except FileNotFoundError:
            raise RefusedError(Reason.INPUT_CHANGED, f"{copy.path} is gone") from None
        with storage.open_read(target) as reader:
            if reader.size != copy.bytes:
                raise RefusedError(
                    Reason.INPUT_CHANGED, f"{copy.path} has {reader.size} bytes now, {copy.bytes} when it was planned"
                )
            file = OutputFile(
                f"{relative}/{copy.name}",
                task.directory,
                task.kind,
                copy.name,
                -1,
                reader.size,
                checksum(reader),
                copied_bytes=reader.size,
            )
        carried.append(file)
    return carried
