"""
Reading what a plan needs to know of its inputs: their tails, in parallel, and what these say.
"""

import re
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

from compactor.acid.compaction import LayoutVersion
from compactor.acid.types import HiveType, Kind
from compactor.errors import CorruptFileError, RefusedError
from compactor.orc.consistency import check_key_statistics
from compactor.orc.evolve import conversion, widens_float
from compactor.orc.keys import stripe_bounds
from compactor.orc.rows import ROW_COLUMN
from compactor.orc.tail import Tail, read_tail
from compactor.orc.zones import stripe_zone
from compactor.planning.document import InputFile, Role
from compactor.planning.facts import FileFacts, StripeFacts
from compactor.reasons import Reason
from compactor.storage.base import ReadHandle, Storage
from compactor.storage.location import join

READERS: Final = 16
LONG: Final = struct.Struct(">q")
SIDE_FILE_LIMIT: Final = 64 << 20
_POSITIONAL: Final = re.compile(r"_col\d+")


@dataclass(frozen=True, slots=True)
class ReadFile:
    """
    An input with its tail; None when its logical length is zero, so that it has no rows.

    Args:
        zone: of its first stripe with rows; None where it wasn't asked for.
    """

    file: InputFile
    tail: Tail | None
    zone: str | None = None


def open_input(storage: Storage, location: str, path: str) -> ReadHandle:
    """
    Open an input; a context manager.

    Raises:
        RefusedError: INPUT_CHANGED, it is gone.
    """
    try:
        return storage.open_read(join(location, path))
    except FileNotFoundError:
        raise RefusedError(Reason.INPUT_CHANGED, f"{path} is gone from {location}") from None


def read_tails(storage: Storage, location: str, files: Sequence[InputFile], *, zones: bool = False) -> list[ReadFile]:
    """
    The tails of all files, in their order.

    Args:
        zones: with the time zones of rows that have timestamps; one more read for each file.

    Raises:
        CorruptFileError, RefusedError: of the first file that can't be used.
    """
    if not files:
        return []
    with ThreadPoolExecutor(min(READERS, len(files)), thread_name_prefix="tails") as pool:
        return list(pool.map(lambda file: _read_file(storage, location, file, zones=zones), files))


def _read_file(storage: Storage, location: str, file: InputFile, *, zones: bool) -> ReadFile:
    logical = _logical_length(storage, location, file)
    file = replace(file, logical_length=logical)
    if logical == 0:
        return ReadFile(file, None)
    with open_input(storage, location, file.path) as reader:
        if reader.size != file.length:
            raise RefusedError(Reason.INPUT_CHANGED, f"{file.path} has {reader.size} bytes now, {file.length} when it was listed")
        tail = read_tail(reader, logical)
        first = next((index for index, stripe in enumerate(tail.stripes) if stripe.number_of_rows), None)
        zone = stripe_zone(reader, tail, first) if zones and first is not None and file.role is not Role.DELETE_DELTA else None
    check_key_statistics(tail)
    return ReadFile(file, tail, zone)


def _logical_length(storage: Storage, location: str, file: InputFile) -> int | None:
    """
    How much of a streaming writer's file counts: the last whole number of its side file.

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
        raise RefusedError(Reason.OPEN_SIDE_FILE, f"{file.side_file} holds no length: its writer has not flushed, or broke off")
    length = int(LONG.unpack_from(data, whole - LONG.size)[0])
    if not 0 <= length <= file.length:
        raise CorruptFileError(Reason.CORRUPT_FILE, f"{file.side_file} says {length} bytes, {file.path} has {file.length}")
    return length


def file_facts(read: ReadFile, columns: HiveType, not_copyable: str | None = None, *, layout: LayoutVersion = LayoutVersion.HIVE_4) -> FileFacts:
    """
    What planning needs of a tail; whether delete events hit is filled in later.

    Args:
        layout: whose reader the rows must read the same for.
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
        unknown_columns=tuple(unknown_columns(tail.row_tree, columns)),
        schema_problem=None if not_copyable is None and tail.is_acid else _problem(tail, columns, layout),
        zone=read.zone,
    )


def _problem(tail: Tail, columns: HiveType, layout: LayoutVersion) -> str | None:
    """Why the rows can't be brought to the table's columns, if they can't."""
    if layout is LayoutVersion.HIVE_3 and widens_float(tail.row_tree, columns):
        why = "a float column has become a double, which Hive 3.1 reads by its decimal digits: it would read other values after a compaction"
        return f"{why}; INSERT OVERWRITE of the table or partition from itself mends it"
    try:
        conversion(tail.row_tree, columns, "its columns", ROW_COLUMN)
    except RefusedError as error:
        return error.message
    return None


def _stripe_facts(tail: Tail, index: int) -> StripeFacts:
    rows, size = tail.stripes[index].number_of_rows, tail.stripe_length(index)
    bounds = stripe_bounds(tail, index)
    if bounds is None:
        return StripeFacts(index, rows, size)
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
    )


def unknown_columns(found: HiveType, wanted: HiveType, prefix: str = "") -> Iterator[str]:
    """
    Fields of a file that the table doesn't have, also inside structs: compaction would drop them for good.

    Columns are found by their exact names, as Hive does; a file whose columns are all `_col<n>` is read by position.
    """
    if found.kind is not Kind.STRUCT or wanted.kind is not Kind.STRUCT:
        pairs = zip(found.children, wanted.children, strict=False) if found.kind is wanted.kind else ()
        for one, other in pairs:
            yield from unknown_columns(one, other, prefix)
        return
    if not prefix and found.names and all(_POSITIONAL.fullmatch(name) for name in found.names):
        yield from found.names[len(wanted.children) :]
        return
    known = dict(zip(wanted.names, wanted.children, strict=True))
    for name, child in zip(found.names, found.children, strict=True):
        target = known.get(name)
        if target is None:
            yield f"{prefix}{name}"
        else:
            yield from unknown_columns(child, target, f"{prefix}{name}.")
