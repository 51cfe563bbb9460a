"""
Facts about tables, files and stripes that a plan depends on.

Pure values: `compactor.engine.inputs` reads them from tails and delete events, `select` and `plan` decide on them. This
module opens no file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from compactor.acid.columns import ColumnRule
from compactor.acid.row_id import Hit, RowKey
from compactor.planning.document import EVERY_FILE

LOWEST = -(1 << 63)
HIGHEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class FileFormat:
    """
    A format whose files may be joined.

    Args:
        name: `orc`, `parquet`, `text`, `avro`; empty: files of this table can't be joined.
        why_not: the reason, in words, where `name` is empty.
    """

    name: str
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class StoredAs:
    """
    How Hive reads the files of a table or partition.

    Args:
        input_format, serde: names of Hive's classes; None: the catalog names none.
        properties: all that may change how files are read: of the table, the partition, and their SerDes. A name may
            occur several times.
    """

    input_format: str | None
    serde: str | None
    properties: tuple[tuple[str, str], ...] = ()


NOT_STORED: Final = StoredAs(None, None)
"""Where it doesn't matter how files are read."""


@dataclass(frozen=True, slots=True)
class TableSpec:
    """
    The catalog's facts about a table that a plan depends on.

    Args:
        name: `db.table` or `db.table/partition`, for sentences.
        columns: (name, Hive type) of the table's **current** columns: HIVE-27811, HIVE-23023.
        buckets: declared number of buckets, 0 when not bucketed.
        sorted: declared SORTED BY.
        parameters: table parameters, keys as the catalog has them.
        properties: properties of the request (WITH OVERWRITE TBLPROPERTIES), which override `parameters`.
        file_format: of an insert-only table or partition, as `planning.insert_only.formats.format_of` says.
        columns_by: how the table's readers find its columns in an ORC file.
    """

    name: str
    columns: tuple[tuple[str, str], ...]
    columns_by: ColumnRule
    insert_only: bool = False
    transactional: bool = True
    sorted: bool = False
    buckets: int = 0
    parameters: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    file_format: FileFormat = FileFormat("")


@dataclass(frozen=True, slots=True)
class PartFacts:
    """
    A stripe or row group of an insert-only table's file.

    Args:
        bytes: as stored.
        weight: what a reader of it handles, in bytes.
    """

    rows: int
    bytes: int
    weight: int


@dataclass(frozen=True, slots=True)
class WholeFacts:
    """
    A file of an insert-only table, as far as joining it with others depends on it.

    Args:
        family: files may share a file only if this is the same; empty where `whole` is set, and for a file of no bytes
            in a format to whose readers that is a file without rows: it is of every family.
        parts: what the file consists of; None: its content can only be taken as one.
        whole: why the file can't be joined with others; None: it can.
        kept: why none of its parts can be encoded anew; None: they can.
        footer: bytes of a joined file's footer that describe this file's parts, where they are copied.
        needs: what its readers must know that not all know, such as a codec: within a family, files may share a file
            only if this is the same; None: nothing, for it has no values.
    """

    family: str
    parts: tuple[PartFacts, ...] | None = None
    whole: str | None = None
    kept: str | None = None
    footer: int = 0
    needs: str | None = ""


@dataclass(frozen=True, slots=True)
class StripeFacts:
    """
    One stripe as its tail describes it; None: the tail doesn't say, or can't be trusted.

    Args:
        bytes: index, data and footer of the stripe, as stored.
        values: about the bytes of its values in a reader's memory, without ROW__IDs; 0: not known.
        first: no row has a smaller key.
        last: no row has a greater key.
        last_exact: `last` is the key of the last row (a copied stripe needs it for `hive.acid.key.index`).
        write_ids, buckets, current_ids, operations: (min, max) of those columns; buckets are ROW__ID's bucket property.
        hit: whether a delete event can hit the stripe.
        events: delete events between the stripe's keys; all events of the bucket where the keys are unknown.
        hit_by: the bucket's delete files that have such events, a bit each, in the order of `DeleteFacts.paths`.
        removable: how many rows may go for the stripe to be cut: wherever they stand, and at most; (0, 0): it is encoded
            anew.
    """

    index: int
    rows: int
    bytes: int
    first: RowKey | None = None
    last: RowKey | None = None
    last_exact: bool = False
    write_ids: tuple[int, int] | None = None
    buckets: tuple[int, int] | None = None
    current_ids: tuple[int, int] | None = None
    operations: tuple[int, int] | None = None
    hit: Hit = Hit.NONE
    events: int = 0
    values: int = 0
    removable: tuple[int, int] = (0, 0)
    hit_by: int = EVERY_FILE

    @property
    def weight(self) -> int:
        """What a reader of the stripe handles, in bytes: opening another stripe costs little beside much of that."""
        return max(self.bytes, self.values)


@dataclass(frozen=True, slots=True)
class FileFacts:
    """
    One data file as its tail describes it.

    Args:
        path: relative to the partition directory.
        acid: has the six ACID columns; otherwise its rows get synthetic ROW__IDs.
        not_copyable: why the file's stripes can't be copied as bytes (types, codec, stride, writer …); None: they can.
        schema_problem: why the file's columns can't become the table's without loss; None: they can.
        codec: `zlib`, `none` …; for the choice of the output's format.
        stride: rows per index entry, 0: no index; for the choice of the output's format.
        zone: time zone of the first stripe's timestamps; with all known writers, also of all other stripes. None where
            it doesn't matter.
    """

    path: str
    rows: int
    acid: bool
    stripes: tuple[StripeFacts, ...]
    codec: str = "zlib"
    stride: int = 10_000
    block_size: int = 262_144
    logical_length: int | None = None
    not_copyable: str | None = None
    schema_problem: str | None = None
    zone: str | None = None

    @property
    def bytes(self) -> int:
        return sum(stripe.bytes for stripe in self.stripes)


@dataclass(frozen=True, slots=True)
class DeleteFacts:
    """
    The delete events that concern one bucket.

    Args:
        bucket: decoded from the events' bucket property; not from the file's name (HIVE-22318).
        paths: delete files that may hold events of this bucket.
        events: distinct keys whose write id is valid.
        own: how many of these events target rows written by the same write id.
    """

    bucket: int
    paths: tuple[str, ...]
    events: int
    own: int = 0
    bytes: int = 0
