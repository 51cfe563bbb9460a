"""
Plans a compaction of an insert-only table from its selected files, and runs the plan as a job.

Planning reads the footers or headers of small files on the driver.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from compactor.engine.inputs import READERS, open_input, require_length
from compactor.engine.insert_only.formats import FORMATS, JoinableFormat, JoinOptions, ReadAs, names_of
from compactor.engine.insert_only.tasks import WholeTask, apart, run_whole
from compactor.engine.results import Checked, OutputFile
from compactor.engine.staging.directory import at_once
from compactor.errors import RefusedError
from compactor.log import get_logger
from compactor.parsing import parsing
from compactor.planning.document import CompactionPlan, FileCopy, InputFile
from compactor.planning.facts import WholeFacts
from compactor.planning.insert_only.joins import JoinSizes
from compactor.planning.plan import plan_whole_files
from compactor.planning.select import Selection
from compactor.spark.submitter import JobName, Submitter
from compactor.storage.base import Storage

FILES_PER_TASK: Final = 200
BYTES_PER_TASK: Final = 1 << 30
_NAMED: Final = 5
"""Files that a warning names."""
_log = get_logger(__name__)


def plan_insert_only(storage: Storage, selection: Selection, location: str, sizes: JoinSizes) -> CompactionPlan:
    """
    Look into the small files, and plan. A file that can't be read as one of its format is carried over like any other:
    its readers know what they make of it.

    Raises:
        RefusedError: INPUT_CHANGED, a file is gone or has another length; others see `plan_whole_files`.
    """
    kind = FORMATS.get(selection.spec.file_format.name)
    small = [file for file in selection.files if 2 * file.length < sizes.file]
    read_as = ReadAs(selection.spec.columns, selection.spec.columns_by)
    facts = {} if kind is None or len(small) < 2 else _facts(storage, location, small, kind, read_as)
    return plan_whole_files(selection, location, facts, sizes)


def _facts(
    storage: Storage, location: str, files: Sequence[InputFile], kind: JoinableFormat, read_as: ReadAs
) -> dict[str, WholeFacts]:
    asked = [partial(_facts_of, storage, location, kind, read_as, file) for file in files]
    found = at_once(min(READERS, storage.side_by_side), asked)
    return {file.path: known for file, known in zip(files, found, strict=True)}


def _facts_of(storage: Storage, location: str, kind: JoinableFormat, read_as: ReadAs, file: InputFile) -> WholeFacts:
    with open_input(storage, location, file.path) as reader:
        require_length(file.path, reader.size, file.length)
        try:
            with parsing(file.path):
                return kind.facts(reader, read_as)
        except RefusedError as error:
            return WholeFacts("", whole=error.message)


def run_insert_only(
    plan: CompactionPlan,
    tasks: str,
    submitter: Submitter,
    job: JobName,
    *,
    verify_values: bool,
    progress: Callable[[float], None],
    cancelled: Callable[[], bool],
) -> tuple[list[OutputFile], list[Checked]]:
    """
    Run a plan's job; returns the finished files, and the checks of those that were joined.

    Args:
        tasks: location of the staging directory's `tasks`.
        verify_values: whether values that are encoded anew are compared with those of the inputs.
    """
    work = whole_tasks(plan, tasks, verify_values=verify_values)
    made = submitter.run(job.at("join"), run_whole, work, progress=progress, cancelled=cancelled)
    checked = [one for _, some in made for one in some]
    files = [file for some, _ in made for file in some]
    names = {(file.directory, file.name) for file in files}
    for task in work:
        if task.join is not None:
            copies = apart(task.join, task.inputs)
            carried = [copy.path for copy in copies if (task.directory, copy.name) in names]
            if carried:
                what = "all were carried over" if len(carried) == len(copies) else "these were carried over"
                why = f"{task.directory}/{task.join.name}: files to join are damaged; {what}: {', '.join(carried[:_NAMED])}"
                _log.warning("plan.warned", why=f"{why} …" if len(carried) > _NAMED else why)
    return files, checked


def whole_tasks(plan: CompactionPlan, tasks: str, *, verify_values: bool) -> list[WholeTask]:
    """Cut the plan's files into tasks, the largest first."""
    options = JoinOptions(plan.format.stripe_bytes, verify_values, names_of(plan.columns, plan.format.columns_by))
    inputs = {file.path: file for file in plan.inputs}
    made = []
    for output in plan.outputs:
        made += [
            WholeTask(plan.location, tasks, output.name, output.kind, tuple(part), None, (), options)
            for part in _parts(output.copies)
        ]
        for one in output.joins:
            used = tuple(inputs[path] for path in one.paths)
            made.append(WholeTask(plan.location, tasks, output.name, output.kind, (), one, used, options))
    return sorted(made, key=lambda task: (task.join is None, -task.bytes))


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
