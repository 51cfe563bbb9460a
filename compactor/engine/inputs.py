"""
Reads the facts that a plan needs about its inputs: their tails, in parallel where a store answers slowly, and what the
tails say.

`OpenInputs` keeps few files open for a task that joins thousands of deltas: it keeps all tails, and closes the file that
was used least recently.
"""

import struct
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Final, Self

from compactor.acid.columns import ColumnRule
from compactor.acid.compaction import LayoutVersion
from compactor.acid.types import HiveType
from compactor.engine.staging.directory import at_once
from compactor.errors import CorruptFileError, RefusedError
from compactor.handles import RandomReader
from compactor.orc.cutting.stripe import removable
from compactor.orc.events.keys import stripe_bounds
from compactor.orc.format.statistics import value_bytes
from compactor.orc.format.tail import Tail, read_tail
from compactor.orc.format.zones import stripe_zone
from compactor.orc.reading.consistency import check_key_statistics
from compactor.orc.rows import ROW_COLUMN, StripeSource
from compactor.orc.writing.schema_evolution import conversion, widens_float
from compactor.planning.document import FileRole, InputFile
from compactor.planning.facts import FileFacts, StripeFacts
from compactor.reasons import Reason
from compactor.storage.base import Storage
from compactor.storage.handles import ReadHandle
from compactor.storage.location import join

OPEN_FILES: Final = 64
_SMALL_FILE: Final = 16 << 10
_KEPT_BYTES: Final = 32 << 20
"""A task reads small files at once, and keeps the bytes of so many."""
READERS: Final = 16
_TURNS: Final = 4
"""How often each of many readers is given files, so that a slow one doesn't keep the others waiting."""
LONG: Final = struct.Struct(">q")
SIDE_FILE_LIMIT: Final = 64 << 20


class OpenInputs:
    """
    The inputs that one task reads. A context manager: closes the open files.

    Args:
        location: the partition's directory; the inputs are below it.
    """

    def __init__(self, storage: Storage, location: str) -> None:
        self._storage = storage
        self._location = location
        self._tails: dict[str, Tail] = {}
        self._open: OrderedDict[str, ReadHandle] = OrderedDict()
        self._whole: dict[str, bytes] = {}
        self._kept = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def reader(self, file: InputFile) -> RandomReader:
        """A reader that opens the file only when bytes are read."""
        return InputReader(self, file)

    def unchanged(self, file: InputFile) -> RandomReader:
        """
        The same for a file that still has its length.

        Raises:
            RefusedError: INPUT_CHANGED.
        """
        require_length(file.path, self.handle(file).size, file.length)
        return InputReader(self, file)

    def tail(self, file: InputFile) -> Tail:
        if file.path not in self._tails:
            self._tails[file.path] = read_tail(self.reader(file), file.logical_length)
        return self._tails[file.path]

    def source(self, file: InputFile, stripes: tuple[int, ...] | None = None) -> StripeSource:
        """Rows of a file, of some of its stripes; None: of all."""
        trusted = file.role is FileRole.BASE
        return StripeSource(self.reader(file), self.tail(file), stripes, file.synthetic, trusted=trusted)

    def read(self, file: InputFile, offset: int, length: int) -> bytes:
        """As `RandomReader.read_at`."""
        whole = self._whole.get(file.path)
        if whole is None:
            if file.length > _SMALL_FILE or self._kept + file.length > _KEPT_BYTES:
                return self.handle(file).read_at(offset, length)
            with open_input(self._storage, self._location, file.path) as opened:
                whole = self._whole[file.path] = opened.read_at(0, file.length)
            self._kept += len(whole)
        return whole[offset : offset + length]

    def handle(self, file: InputFile) -> ReadHandle:
        """The open file; valid until handles of other files are requested."""
        found = self._open.get(file.path)
        if found is None:
            found = self._open[file.path] = open_input(self._storage, self._location, file.path)
            if len(self._open) > OPEN_FILES:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(file.path)
        return found


class InputReader:
    """One input as a `RandomReader` for the packages of formats."""

    def __init__(self, inputs: OpenInputs, file: InputFile) -> None:
        self._inputs = inputs
        self._file = file
        self.name = file.path
        self.size = file.length

    @property
    def handle(self) -> ReadHandle:
        """The open file; valid until handles of other files are requested."""
        return self._inputs.handle(self._file)

    def read_at(self, offset: int, length: int) -> bytes:
        return self._inputs.read(self._file, offset, length)


@dataclass(frozen=True, slots=True)
class ReadFile:
    """
    An input and its tail.

    Args:
        tail: None when the logical length is zero, so that the file has no rows.
        zone: time zone of the first stripe with rows; None for delete deltas, without rows, or if not requested.
    """

    file: InputFile
    tail: Tail | None
    zone: str | None = None


def open_input(storage: Storage, location: str, path: str) -> ReadHandle:
    """
    Open an input; a context manager.

    Raises:
        RefusedError: INPUT_CHANGED, the file is gone.
    """
    try:
        return storage.open_read(join(location, path))
    except FileNotFoundError:
        raise RefusedError(Reason.INPUT_CHANGED, f"{path} is gone from {location}") from None


def require_length(path: str, size: int, listed: int) -> None:
    """
    Check that a file has the length that it was listed with.

    Raises:
        RefusedError: INPUT_CHANGED.
    """
    if size != listed:
        raise RefusedError(Reason.INPUT_CHANGED, f"{path} has {size} bytes now, {listed} when it was listed")


def read_tails(storage: Storage, location: str, files: Sequence[InputFile], *, zones: bool = False) -> list[ReadFile]:
    """
    The tails of all files, in their order.

    Args:
        zones: also read the time zones of rows that have timestamps; one more read for each file.

    Raises:
        CorruptFileError, RefusedError: a file that can't be used; no more are read then.
    """
    if not files:
        return []
    count = min(READERS, storage.side_by_side)
    several = -(-len(files) // (_TURNS * count))
    groups = [files[start : start + several] for start in range(0, len(files), several)]
    failed = threading.Event()

    def read(group: Sequence[InputFile]) -> list[ReadFile]:
        try:
            return [_read_file(storage, location, file, zones=zones) for file in group if not failed.is_set()]
        except BaseException:
            failed.set()
            raise

    return [one for found in at_once(count, [partial(read, group) for group in groups]) for one in found]


def _read_file(storage: Storage, location: str, file: InputFile, *, zones: bool) -> ReadFile:
    logical = _logical_length(storage, location, file)
    file = replace(file, logical_length=logical)
    if logical == 0:
        return ReadFile(file, None)
    with open_input(storage, location, file.path) as reader:
        require_length(file.path, reader.size, file.length)
        tail = read_tail(reader, logical)
        first = next((index for index, stripe in enumerate(tail.stripes) if stripe.number_of_rows), None)
        zone = (
            stripe_zone(reader, tail, first)
            if zones and first is not None and file.role is not FileRole.DELETE_DELTA
            else None
        )
    check_key_statistics(tail)
    return ReadFile(file, tail, zone)


def _logical_length(storage: Storage, location: str, file: InputFile) -> int | None:
    """
    The length of a streaming writer's file that counts: the last complete number in its side file; None: no side file.

    Source: Hive's OrcAcidUtils.getLastFlushLength, OrcRawRecordMerger.
    """
    if file.side_file is None:
        return None
    try:
        data = storage.read_small(join(location, file.side_file), SIDE_FILE_LIMIT)
    except FileNotFoundError:
        raise RefusedError(Reason.INPUT_CHANGED, f"{file.side_file} is gone") from None
    whole = len(data) // LONG.size * LONG.size
    if not whole:
        raise RefusedError(
            Reason.OPEN_SIDE_FILE, f"{file.side_file} holds no length: its writer has not flushed, or broke off"
        )
    length = int(LONG.unpack_from(data, whole - LONG.size)[0])
    if not 0 <= length <= file.length:
        raise CorruptFileError(f"{file.side_file} says {length} bytes, {file.path} has {file.length}")
    return length


def file_facts(
    read: ReadFile,
    columns: HiveType,
    rule: ColumnRule,
    not_copyable: str | None = None,
    *,
    layout: LayoutVersion = LayoutVersion.HIVE_4,
) -> FileFacts:
    """
    The facts of a file that planning needs; `Deletes.look` fills in later whether delete events hit its stripes.

    Args:
        rule: how the table's readers find its columns in the file.
        not_copyable: why stripes of the file can't be copied; None: they can.
        layout: the Hive release whose readers must read the same rows after the compaction.
    """
    file, tail = read.file, read.tail
    if tail is None:
        return FileFacts(file.path, 0, not file.raw, (), logical_length=file.logical_length)
    return FileFacts(
        path=file.path,
        rows=tail.rows,
        acid=tail.is_acid,
        stripes=tuple(_stripe_facts(tail, index) for index in range(len(tail.stripes))),
        codec=tail.compression.name.lower(),
        stride=tail.stride,
        block_size=tail.block_size,
        logical_length=file.logical_length,
        not_copyable=not_copyable,
        schema_problem=_problem(tail, columns, rule, layout),
        zone=read.zone,
    )


def _problem(tail: Tail, columns: HiveType, rule: ColumnRule, layout: LayoutVersion) -> str | None:
    """Why the rows can't be converted to the table's columns; None: they can."""
    if layout is LayoutVersion.HIVE_3 and widens_float(tail.row_tree, columns, rule):
        why = "a float column has become a double, which Hive 3.1 reads by its decimal digits: it would read other values after a compaction"
        return f"{why}; INSERT OVERWRITE of the table or partition from itself mends it"
    try:
        conversion(tail.row_tree, columns, "its columns", ROW_COLUMN, rule)
    except RefusedError as error:
        return error.message
    return None


def _stripe_facts(tail: Tail, index: int) -> StripeFacts:
    rows, size = tail.stripes[index].number_of_rows, tail.stripe_length(index)
    bounds = stripe_bounds(tail, index)
    values = value_bytes(tail, index)
    if bounds is None:
        return StripeFacts(index, rows, size, values=values)
    noted = tail.key_index
    return StripeFacts(
        index=index,
        rows=rows,
        bytes=size,
        first=bounds.first,
        last=bounds.last,
        last_exact=bounds.exact or (noted is not None and noted[index] == bounds.last),
        write_ids=bounds.write_id,
        buckets=bounds.bucket,
        current_ids=bounds.current,
        operations=bounds.operation,
        values=values,
        removable=removable(tail, index),
    )
