"""
Small row groups, one after the other, become few large ones.

Decodes some of them at a time, and writes a row group when enough has come together. Takes no row group whose values
could need too much memory, whatever its footer says.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa

from compactor.errors import CorruptFileError
from compactor.handles import RandomReader, Sink
from compactor.parquet import fields, view
from compactor.parquet.assembly import Assembly
from compactor.parquet.encoding import Manner, write_row_group
from compactor.parquet.footer import Footer
from compactor.parquet.pages import decoded_bound
from compactor.parquet.row_group import Loaded, load
from compactor.parquet.thrift import MalformedError
from compactor.parquet.view import View

FULL_STORED: Final = 128 << 20
FULL_DECODED: Final = 192 << 20
"""A row group is full with so many stored bytes of its sources, or so many in Arrow's memory."""
MOST_DECODED: Final = 96 << 20
"""A row group that may need more memory is copied instead."""
_MOST_ROWS: Final = 32 << 20
_TOGETHER_STORED: Final = 8 << 20
_TOGETHER_DECODED: Final = 48 << 20
Source = tuple[RandomReader, Footer, int]


class Recoder:
    """
    Collects the row groups that are to be encoded anew; `recoded` are the stored bytes of those that were.

    Args:
        assembly: the file that is being made, on `sink`.
        full_stored: stored bytes of the sources that make a full row group.
        done: told the stored bytes of each source row group that is in the file.
    """

    def __init__(self, assembly: Assembly, sink: Sink, full_stored: int, done: Callable[[int], None]) -> None:
        self.recoded = 0
        self._assembly = assembly
        self._sink = sink
        self._full_stored = full_stored
        self._done = done
        self._begin_group()
        self._begin_batch()

    def take(self, source: Source) -> bool:
        """
        Take a row group, unless it would need too much memory.

        Raises:
            CorruptFileError: it can't be read.
        """
        group = source[1].row_groups[source[2]]
        loaded, bound = _loaded(source)
        if loaded is None:
            return False
        if self._batch and (
            self._batch_stored + group.bytes > _TOGETHER_STORED or self._batch_bound + bound > _TOGETHER_DECODED
        ):
            self._decode()
        if self._sources and (
            self._decoded + self._batch_bound + bound > FULL_DECODED
            or self._stored + group.bytes > self._full_stored
            or self._rows + group.rows > _MOST_ROWS
        ):
            self.flush()
        with _sound(source):
            self._manner.gather(loaded)
        self._sources.append(source)
        self._batch.append(loaded)
        self._batch_bound += bound
        self._batch_stored += group.bytes
        self._stored += group.bytes
        self._rows += group.rows
        return True

    def flush(self) -> None:
        """Write what was taken as a row group; a single one is copied."""
        if len(self._sources) == 1:
            self._assembly.copy(*self._sources[0])
            self._done(self._stored)
        elif self._sources:
            self._decode()
            write_row_group(
                self._assembly, self._sink, pa.concat_tables(self._tables), self._manner, self._sources[0][1]
            )
            self.recoded += self._stored
            self._done(self._stored)
        self._begin_group()
        self._begin_batch()

    def _decode(self) -> None:
        if not self._batch:
            return
        sources = self._sources[-len(self._batch) :]
        model = sources[0][1]
        names = [reader.name for reader, _, _ in sources]
        found = view.table(self._batch, model.value(fields.FILE_SCHEMA), model.created_by, View.TO_ENCODE, names)
        self._tables.append(found)
        self._decoded += found.nbytes
        self._begin_batch()

    def _begin_group(self) -> None:
        self._sources = list[Source]()
        self._tables = list[Any]()
        self._manner = Manner()
        self._decoded = self._stored = self._rows = 0

    def _begin_batch(self) -> None:
        self._batch = list[Loaded]()
        self._batch_bound = self._batch_stored = 0


def require_decoded(source: Source) -> None:
    """
    Decode a row group as `Recoder` does.

    Raises:
        CorruptFileError: it can't be decoded.
    """
    loaded, _ = _loaded(source)
    if loaded is not None:
        reader, footer, _ = source
        view.table([loaded], footer.value(fields.FILE_SCHEMA), footer.created_by, View.TO_ENCODE, [reader.name])


def _loaded(source: Source) -> tuple[Loaded | None, int]:
    """A row group in memory, and how many bytes its values need at most; None where these are too many."""
    reader, footer, index = source
    group = footer.row_groups[index]
    if max(group.bytes, group.raw_bytes) > MOST_DECODED or group.rows > _MOST_ROWS:
        return None, 0
    loaded = load(reader, group)
    with _sound(source):
        bound = sum(map(decoded_bound, loaded.stored, loaded.chunks, footer.schema.leaves))
    return (loaded, bound) if bound <= MOST_DECODED else (None, bound)


@contextmanager
def _sound(source: Source) -> Iterator[None]:
    reader, _, index = source
    try:
        yield
    except MalformedError as error:
        raise CorruptFileError(
            f"{reader.name} isn't a sound Parquet file: in row group {index + 1}, {error}"
        ) from error
