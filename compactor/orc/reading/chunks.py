"""
Rows on their way from a source to an output, a chunk at a time beside their keys: as Arrow's record batches or as
pyorc's tuples.

Both forms have the same methods, so that merging and filtering code needn't know the form. Source: docs/orc.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.orc.format.key_columns import KeyColumns
from compactor.orc.format.zones import UTC
from compactor.orc.reading.arrow import settled

_MANY_SLICES: Final = 1024
_MANY_NESTED_SLICES: Final = 16


@dataclass(frozen=True, slots=True)
class ArrowRows:
    """Record batches of the output's six columns; zero-copy slices of the decoded batches."""

    parts: tuple[Any, ...]
    nested: bool

    def slice(self, start: int, stop: int) -> "ArrowRows":
        kept: list[Any] = []
        for part in self.parts:
            low, high = max(start, 0), min(stop, part.num_rows)
            if low < high:
                kept.append(part.slice(low, high - low))
            start, stop = start - part.num_rows, stop - part.num_rows
        return ArrowRows(tuple(kept), self.nested)

    def select(self, kept: npt.NDArray[np.bool_]) -> "ArrowRows":
        """The rows where `kept` is true: as slices between the gaps, or copied where there are too many slices."""
        edges = np.flatnonzero(np.diff(kept.astype(np.int8), prepend=0, append=0))
        if len(self.parts) == 1 and len(edges) // 2 <= (_MANY_NESTED_SLICES if self.nested else _MANY_SLICES):
            (whole,) = self.parts
            return ArrowRows(
                tuple(whole.slice(start, stop - start) for start, stop in edges.reshape(-1, 2).tolist()), self.nested
            )
        return ArrowRows((self._joined().filter(pa.array(kept)),), self.nested)

    def take(self, order: npt.NDArray[np.intp]) -> "ArrowRows":
        return ArrowRows((self._joined().take(pa.array(order)),), self.nested)

    def writable(self) -> list[Any]:
        """The batches in a form that Arrow's ORC writer writes correctly."""
        if not self.nested:
            return list(self.parts)
        return [
            pa.RecordBatch.from_arrays([*part.columns[:-1], settled(part.columns[-1])], schema=part.schema)
            for part in self.parts
        ]

    @staticmethod
    def join(several: Sequence["ArrowRows"]) -> "ArrowRows":
        return ArrowRows(tuple(part for rows in several for part in rows.parts), several[0].nested)

    def _joined(self) -> Any:
        return self.parts[0] if len(self.parts) == 1 else pa.concat_batches(self.parts)


@dataclass(frozen=True, slots=True)
class PythonRows:
    """Rows as tuples, the form that pyorc takes."""

    rows: list[tuple[Any, ...]]

    def slice(self, start: int, stop: int) -> "PythonRows":
        return PythonRows(self.rows[start:stop])

    def select(self, kept: npt.NDArray[np.bool_]) -> "PythonRows":
        return PythonRows([row for row, keep in zip(self.rows, kept.tolist(), strict=True) if keep])

    def take(self, order: npt.NDArray[np.intp]) -> "PythonRows":
        return PythonRows([self.rows[position] for position in order.tolist()])

    @staticmethod
    def join(several: Sequence["PythonRows"]) -> "PythonRows":
        return PythonRows([row for rows in several for row in rows.rows])


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows in key order, with their keys and the time zone of their stripe."""

    keys: KeyColumns
    rows: ArrowRows | PythonRows
    zone: str = UTC

    def __len__(self) -> int:
        return len(self.keys)

    def slice(self, start: int, stop: int) -> "Chunk":
        return Chunk(self.keys.select(slice(start, stop)), self.rows.slice(start, stop), self.zone)

    def select(self, kept: npt.NDArray[np.bool_]) -> "Chunk":
        return Chunk(self.keys.select(kept), self.rows.select(kept), self.zone)
