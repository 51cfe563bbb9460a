"""
Facts about tables, files and stripes that a plan depends on.

Pure values: `compactor.engine.inputs` reads them from tails and delete events, `select` and `plan` decide on them. This
module opens no file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from compactor.acid.row_id import RowKey

LOWEST = -(1 << 63)
HIGHEST = (1 << 63) - 1


class Hit(StrEnum):
    """Whether a delete event can hit a row of a stripe."""

    NONE = "none"
    POSSIBLE = "possible"
    CERTAIN = "certain"


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
    """

    name: str
    columns: tuple[tuple[str, str], ...]
    insert_only: bool = False
    transactional: bool = True
    sorted: bool = False
    buckets: int = 0
    parameters: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)


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
        unknown_columns: columns of the file that the table doesn't have (any more).
        schema_problem: a sentence when the file's types can't become the table's without loss.
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
    unknown_columns: tuple[str, ...] = ()
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
