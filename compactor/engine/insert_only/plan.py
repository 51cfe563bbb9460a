"""Reads what the files of an insert-only table are made of, and plans with it."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from compactor.engine.inputs import READERS, open_input
from compactor.engine.insert_only.formats import FORMATS, JoinableFormat
from compactor.errors import RefusedError
from compactor.planning.document import CompactionPlan, InputFile
from compactor.planning.facts import WholeFacts
from compactor.planning.joins import JoinSizes
from compactor.planning.plan import plan_whole_files
from compactor.planning.select import Selection
from compactor.reasons import Reason
from compactor.storage.base import Storage


def plan_insert_only(storage: Storage, selection: Selection, location: str, sizes: JoinSizes) -> CompactionPlan:
    """
    Look into the small files, and plan. A file that can't be read as one of its format is carried over like any other:
    its readers know what they make of it.

    Raises:
        RefusedError: INPUT_CHANGED, a file is gone or has another length; others see `plan_whole_files`.
    """
    kind = FORMATS.get(selection.spec.file_format.name)
    small = [file for file in selection.files if file.length and 2 * file.length < sizes.file]
    facts = {} if kind is None or len(small) < 2 else _facts(storage, location, small, kind)
    return plan_whole_files(selection, location, facts, sizes)


def _facts(storage: Storage, location: str, files: Sequence[InputFile], kind: JoinableFormat) -> dict[str, WholeFacts]:
    with ThreadPoolExecutor(min(READERS, len(files)), thread_name_prefix="files") as pool:
        found = pool.map(partial(_facts_of, storage, location, kind), files)
        return {file.path: known for file, known in zip(files, found, strict=True)}


def _facts_of(storage: Storage, location: str, kind: JoinableFormat, file: InputFile) -> WholeFacts:
    with open_input(storage, location, file.path) as reader:
        if reader.size != file.length:
            raise RefusedError(
                Reason.INPUT_CHANGED, f"{file.path} has {reader.size} bytes now, {file.length} when it was listed"
            )
        try:
            return kind.facts(reader)
        except RefusedError as error:
            return WholeFacts("", whole=error.message)
