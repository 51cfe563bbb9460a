"""
Every Hypothesis strategy of the tests. Each area has its section; append yours at the end.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Context, Decimal
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from compactor.acid.columns import ColumnRule
from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.acid.names import AcidDir, DirKind, base_name, delete_delta_name, delta_name
from compactor.acid.row_id import MAX_BUCKET, MAX_STATEMENT, Hit, RowKey, SyntheticIds, encode
from compactor.acid.types import HiveType, Kind
from compactor.acid.write_ids import CleanerWriteIdList, ValidTxnList, ValidWriteIdList
from compactor.cli.output import OutputColumn
from compactor.control.windows import DAY, Once, Recurring, Window
from compactor.errors import (
    CancelledError,
    CompactorError,
    CorruptFileError,
    OutcomeUnknownError,
    RefusedError,
    RetryableError,
    UnreachableError,
)
from compactor.metastore.compaction_queue.urgency import URGENCY
from compactor.metastore.model import Entity, QueueEntry, QueueState
from compactor.planning.document import (
    Action,
    BucketPlan,
    CompactionPlan,
    Cut,
    DeleteScope,
    FileCopy,
    FileJoin,
    FormatSpec,
    InputFile,
    OutputDir,
    PlanParts,
    Prediction,
    Segment,
)
from compactor.planning.document import FileRole as PlanRole
from compactor.planning.facts import FileFacts, StripeFacts
from compactor.planning.forgetting import AbortedComponent, Search
from compactor.planning.picker import Thresholds
from compactor.planning.rivals import Rival
from compactor.planning.segments import SegmentSource
from compactor.reasons import Reason
from tests import columns
from tests.history import History
from tests.model import steps as happens
from tests.model.histories import Life, Step
from tests.unit.roles.turns import LONGEST_ATTEMPT, Waiting

# ---- acid: names, ids, lists


def ids() -> SearchStrategy[int]:
    """Write or transaction ids, small so that they meet each other."""
    return st.integers(1, 20)


def buckets() -> SearchStrategy[int]:
    """Bucket numbers that fit the codec."""
    return st.integers(0, MAX_BUCKET)


def statements() -> SearchStrategy[int]:
    """Statement ids that fit the codec."""
    return st.integers(0, MAX_STATEMENT)


@st.composite
def acid_dirs(draw: Any) -> AcidDir:
    """Any directory that can be written; the name is left empty."""
    large = st.integers(0, 2**62)
    kind = draw(st.sampled_from(DirKind))
    low, high = sorted((draw(large), draw(large)))
    if kind is DirKind.BASE:
        return AcidDir(kind, 0, high, None, draw(large), "")
    return AcidDir(kind, low, high, draw(st.none() | st.integers(0, 10_000)), draw(large), "")


def file_names() -> SearchStrategy[str]:
    """Names that nearly are what they pretend to be."""
    pieces = st.sampled_from(
        [
            "base",
            "delta",
            "delete",
            "bucket",
            "copy",
            "flush_length",
            "v",
            "_",
            "_",
            "_",
            "-",
            ".",
            "0",
            "7",
            "00012",
            "9" * 20,
            "x",
            "é",
        ]
    )
    return st.lists(pieces, max_size=9).map("".join) | st.text(max_size=12)


@st.composite
def _states(draw: Any) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """A high watermark, and some of the ids below it open or aborted."""
    high = draw(st.integers(0, 18))
    fates = draw(st.lists(st.sampled_from("oaccc"), min_size=high, max_size=high))
    return high, _where(fates, "o"), _where(fates, "a")


def txn_lists() -> SearchStrategy[ValidTxnList]:
    """Transaction lists."""
    return _states().map(lambda s: ValidTxnList(*s))


def write_id_lists() -> SearchStrategy[ValidWriteIdList]:
    """Readers' write-id lists."""
    return _states().map(lambda s: ValidWriteIdList("db.t", *s))


def _where(fates: Sequence[str], wanted: str) -> tuple[int, ...]:
    return tuple(i for i, fate in enumerate(fates, 1) if fate == wanted)


# ---- acid: lives of a partition


def histories(
    layout: LayoutVersion, *, steps: int = 14, watched: bool = True, insert_only: bool = False
) -> SearchStrategy[History]:
    """
    Partitions after some steps; watched ones have a reader start after each step, and check every reader that still
    reads. In those of insert-only tables nothing is deleted.
    """
    sizes = st.lists(lengths(), min_size=1, max_size=6)
    return st.builds(
        _lived,
        st.builds(History, st.just(layout), sizes, st.just(insert_only), st.integers(0, 3)),
        st.just(watched),
        st.lists(_steps(insert_only=insert_only), min_size=steps // 2, max_size=steps),
    )


def lengths() -> SearchStrategy[int]:
    """File lengths, from empty to large."""
    return st.sampled_from([0, 1, 1000, 1 << 20, 10 << 20, 1 << 30])


def thresholds() -> SearchStrategy[Thresholds]:
    """Any thresholds, absurd ones too."""
    return st.builds(
        Thresholds,
        delta_count=st.sampled_from([-1, 0, 1, 2, 3, 10]),
        delta_ratio=st.sampled_from([-1.0, 0.0, 1e-6, 0.1, 1.0, 1e9]),
        aborted_count=st.sampled_from([-1, 0, 1, 1000]),
        aborted_age_ms=st.sampled_from([-1, 0, 1000]),
    )


def _lived(history: History, watched: bool, steps: list[Callable[[History], object]]) -> History:
    for step in steps:
        step(history)
        if watched:
            history.look()
            history.check()
    return history


def _steps(*, insert_only: bool) -> SearchStrategy[Callable[[History], object]]:
    """One step of a partition's life; committing is the most frequent end."""
    fate = st.sampled_from("ccccccao")
    rows = st.integers(0, 3)
    picks = st.lists(st.integers(0, 50), max_size=3)
    kind = st.sampled_from([CompactionKind.MAJOR, CompactionKind.MINOR, CompactionKind.MINOR])
    of_full_acid = [
        st.builds(lambda p, f: lambda h: h.update(p, f), picks, fate),
        st.builds(lambda p, f: lambda h: h.delete(p, f), picks, fate),
        st.builds(lambda n, p, f: lambda h: h.several_statements(n, p, f), rows, picks, fate),
        st.builds(lambda f, n: lambda h: h.stream(f, n), st.lists(fate, min_size=1, max_size=4), rows),
        st.builds(lambda f: lambda h: h.merge(f), st.sampled_from("ccca")),
    ]
    return st.one_of(
        st.builds(lambda n, f: lambda h: h.insert(n, f), rows, fate),
        *(of_full_acid if not insert_only else ()),
        st.builds(lambda n, f: lambda h: h.overwrite(n, f), rows, fate),
        st.builds(lambda w, f: lambda h: h.settle(w, f), st.integers(0, 9), st.sampled_from("cca")),
        st.builds(lambda w, f: lambda h: h.settle(w, f), st.integers(0, 9), st.sampled_from("cca")),
        st.builds(lambda k, f: lambda h: h.compact(k, f), kind, fate),
        st.builds(lambda k, f: lambda h: h.compact(k, f), kind, fate),
        st.builds(lambda f: lambda h: h.settle_compaction(f), st.sampled_from("cca")),
        st.just(lambda h: h.clean()),
    )


# ---- plans and stripes


@st.composite
def stripe_sources(draw: Any) -> list[SegmentSource]:
    """
    Files of one bucket as a plan sees them: a base and deltas of ascending write ids, each with some stripes of any
    size, hit or not.
    """
    sources = []
    sizes = st.sampled_from([1 << 10, 1 << 20, 9 << 20, 64 << 20, 200 << 20])
    bucket = encode(0, 0)
    for write_id in range(5, 5 + draw(st.integers(1, 5))):
        path = f"base_{write_id}" if write_id == 5 else f"delta_{write_id}_{write_id}"
        stripes, row = [], 0
        for index in range(draw(st.integers(0, 5))):
            rows = draw(st.integers(1, 1000))
            keys = (RowKey(write_id, bucket, row), RowKey(write_id, bucket, row + rows - 1))
            hit = draw(st.sampled_from(list(Hit)))
            stripes.append(
                StripeFacts(
                    index,
                    rows,
                    draw(sizes),
                    *keys,
                    draw(st.booleans()),
                    (write_id,) * 2,
                    (bucket,) * 2,
                    (write_id,) * 2,
                    (0, 0),
                    hit,
                    draw(st.integers(0, 9)),
                    removable=draw(st.sampled_from([(0, 0), (1, 2), (2, 8)])),
                )
            )
            row += rows + draw(st.integers(0, 3))
        role = PlanRole.BASE if write_id == 5 else PlanRole.DELTA
        file = InputFile(path, 1, 0, role, path, 0, 0 if write_id == 5 else write_id, write_id)
        reason = draw(st.sampled_from([None, None, None, "another codec"]))
        sources.append(SegmentSource(file, FileFacts(path, row, True, tuple(stripes), not_copyable=reason)))
    return draw(st.permutations(sources))


def compaction_plans() -> SearchStrategy[CompactionPlan]:
    """Any plan, sensible or not: what its document must be able to say."""
    text, small = st.text(max_size=8), st.integers(0, 1 << 40)
    segment = st.builds(
        Segment,
        st.sampled_from(Action),
        text,
        st.lists(small, max_size=3).map(tuple),
        text,
        small,
        small,
        st.integers(-1, 9),
        small,
        st.sampled_from(Cut),
    )
    bucket = st.builds(
        BucketPlan, small, text, st.lists(segment, max_size=2).map(tuple), st.lists(text, max_size=2).map(tuple), small
    )
    copy = st.builds(FileCopy, text, text, small, text)
    join = st.builds(FileJoin, text, text, st.lists(segment, max_size=2).map(tuple))
    output = st.builds(
        OutputDir,
        st.sampled_from(DirKind),
        text,
        st.lists(bucket, max_size=2).map(tuple),
        st.lists(copy, max_size=2).map(tuple),
        st.lists(join, max_size=2).map(tuple),
    )
    synthetic = st.none() | st.builds(SyntheticIds, small, small, small)
    file = st.builds(
        InputFile,
        text,
        small,
        small,
        st.sampled_from(PlanRole),
        text,
        small,
        small,
        small,
        small,
        st.booleans(),
        st.booleans(),
        st.none() | text,
        st.none() | small,
        small,
        synthetic,
    )
    return st.builds(
        CompactionPlan,
        entity=text,
        location=text,
        requested=st.sampled_from(CompactionKind),
        kind=st.sampled_from(CompactionKind),
        layout=st.sampled_from(LayoutVersion),
        insert_only=st.booleans(),
        write_ids=text,
        name_write_id=small,
        min_write_id=small,
        max_write_id=small,
        highest_write_id=small,
        visibility_txn=st.none() | small,
        columns=st.lists(st.tuples(text, text), max_size=2).map(tuple),
        outputs=st.lists(output, max_size=2).map(tuple),
        inputs=st.lists(file, max_size=2).map(tuple),
        format=st.builds(
            FormatSpec,
            codec=text,
            bloom_columns=st.lists(text, max_size=2).map(tuple),
            bloom_fpp=st.floats(0, 1),
            columns_by=st.sampled_from(ColumnRule),
        ),
        delete_scope=st.sampled_from(DeleteScope),
        aborted=st.lists(small, max_size=3).map(tuple),
        prediction=st.builds(Prediction, *[small] * 5, st.floats(0, 1e9), *[small] * 6),
        warnings=st.lists(text, max_size=2).map(tuple),
        parts=st.none() | st.builds(PlanParts, small, text, st.booleans()),
        events_at_once=small,
        one_by_one=st.booleans(),
    )


# ---- orc: types, rows, keys, statistics

_PRIMITIVES = (
    *(
        HiveType(kind)
        for kind in (
            Kind.BOOLEAN,
            Kind.BYTE,
            Kind.SHORT,
            Kind.INT,
            Kind.LONG,
            Kind.FLOAT,
            Kind.DOUBLE,
            Kind.STRING,
            Kind.BINARY,
            Kind.DATE,
        )
    ),
    HiveType(Kind.TIMESTAMP),
    HiveType(Kind.TIMESTAMP_INSTANT),
    HiveType(Kind.CHAR, length=5),
    HiveType(Kind.VARCHAR, length=7),
    HiveType(Kind.DECIMAL, precision=12, scale=3),
    HiveType(Kind.DECIMAL, precision=38, scale=10),
)
_NAMES = ("a", "b", "Id", "x y", "ü", "c:d", "back`quote", "_col0", "struct")


def hive_types(*, unions: bool = False) -> SearchStrategy[HiveType]:
    """Column types, nested up to some depth; unions only where the caller can stand them."""

    def nest(inner: SearchStrategy[HiveType]) -> SearchStrategy[HiveType]:
        lists = inner.map(lambda child: HiveType(Kind.LIST, (child,)))
        maps = inner.map(lambda child: HiveType(Kind.MAP, (HiveType(Kind.STRING), child)))
        kinds = [lists, maps, st.lists(inner, min_size=1, max_size=3).map(_struct)]
        if unions:
            kinds.append(
                st.lists(inner, min_size=1, max_size=3).map(lambda children: HiveType(Kind.UNION, tuple(children)))
            )
        return st.one_of(kinds)

    return st.recursive(st.sampled_from(_PRIMITIVES), nest, max_leaves=4)


def row_structs(*, unions: bool = False) -> SearchStrategy[HiveType]:
    """The struct of a table's columns."""
    return st.lists(hive_types(unions=unions), min_size=1, max_size=4).map(_struct)


def flat_rows() -> SearchStrategy[HiveType]:
    """The same without columns inside columns."""
    return st.lists(st.sampled_from(_PRIMITIVES), min_size=1, max_size=4).map(_struct)


def _struct(children: Sequence[HiveType]) -> HiveType:
    return HiveType(
        Kind.STRUCT, tuple(children), tuple(f"{_NAMES[place % len(_NAMES)]}{place}" for place in range(len(children)))
    )


_INTEGERS = {Kind.BYTE: 8, Kind.SHORT: 16, Kind.INT: 32, Kind.LONG: 64}


def values(kind: HiveType) -> SearchStrategy[Any]:
    """Values of a type in the lossless form that pyorc gets from our converters; NULL anywhere."""
    return st.none() | filled(kind)


def filled(kind: HiveType) -> SearchStrategy[Any]:
    """The same without NULL at the top."""
    match kind.kind:
        case Kind.BOOLEAN:
            return st.booleans()
        case Kind.BYTE | Kind.SHORT | Kind.INT | Kind.LONG:
            half = 1 << (_INTEGERS[kind.kind] - 1)
            return st.integers(-half, half - 1)
        case Kind.FLOAT:
            return st.floats(width=32, allow_nan=False)
        case Kind.DOUBLE:
            return st.floats(allow_nan=False)
        case Kind.STRING | Kind.VARCHAR:
            return st.text("abcü雪 ", max_size=7)
        case Kind.CHAR:
            return st.text("abcü雪", max_size=5).map(lambda text: text.ljust(5))
        case Kind.BINARY:
            return st.binary(max_size=5)
        case Kind.DATE:
            return st.integers(-(1 << 31), (1 << 31) - 1)
        case Kind.TIMESTAMP | Kind.TIMESTAMP_INSTANT:
            return st.tuples(
                st.integers(-62_135_596_800, 253_402_300_799) | st.integers(0, 2_000_000_000),
                st.sampled_from((0, 0, 1, 500_000_000, 999_999_999)),
            ).filter(
                lambda moment: moment[0] != -1  # ORC can't tell the last second before 1970 from the first after it
            )
        case Kind.DECIMAL:
            whole = st.integers(-(10 ** (kind.precision or 1)) + 1, 10 ** (kind.precision or 1) - 1)
            return whole.map(lambda number: _decimal(number, kind.scale or 0))
        case Kind.LIST:
            return st.lists(values(kind.children[0]), max_size=3)
        case Kind.MAP:
            return st.dictionaries(st.text("abc", max_size=2), values(kind.children[1]), max_size=3)
        case _:
            return st.tuples(*(values(child) for child in kind.children))


def _decimal(number: int, scale: int) -> str:
    digits = str(abs(number)).rjust(scale + 1, "0")
    return f"{'-' if number < 0 else ''}{digits[: len(digits) - scale]}.{digits[len(digits) - scale :]}"


def row_keys() -> SearchStrategy[RowKey]:
    """ROW__IDs of one bucket, few enough to meet."""
    return st.builds(RowKey, st.integers(1, 4), st.sampled_from((encode(0, 0), encode(0, 1))), st.integers(0, 12))


def sorted_keys(*, min_size: int = 0) -> SearchStrategy[list[RowKey]]:
    """Keys as in a file: ascending, each once."""
    return st.sets(row_keys(), min_size=min_size, max_size=40).map(sorted)


# ---- storage: objects put together


@st.composite
def assembled(draw: Any) -> tuple[dict[str, bytes], list[bytes | tuple[str, int, int]]]:
    """
    Two objects, and what a new one is made of: bytes, and ranges of theirs as (name, offset, length), often in a row.
    """
    sources = {
        name: bytes([index + 65]) * 3 + bytes(number * (index + 3) % 251 for number in range(400))
        for index, name in enumerate("ab")
    }
    pieces: list[bytes | tuple[str, int, int]] = []
    for _ in range(draw(st.integers(0, 8))):
        if draw(st.booleans()):
            pieces.append(draw(st.sampled_from((b"", b"AAA", b"x" * 4, b"y" * 9, b"z" * 35, b"w" * 200))))
            continue
        last = pieces[-1] if pieces else b""
        if isinstance(last, tuple) and draw(st.booleans()):
            name, offset = last[0], last[1] + last[2]
        else:
            name, offset = draw(st.sampled_from("ab")), draw(st.sampled_from((0, 3, 17, 100)))
        pieces.append((name, offset, draw(st.integers(0, max(0, len(sources[name]) - offset)))))
    return sources, pieces


# ---- cli: partitions as users name them


def partition_values() -> SearchStrategy[dict[str, str]]:
    """Partition keys with values that no pattern gives a meaning to, in the table's order."""
    texts = st.text("ab01-/=%: ü", min_size=1, max_size=4)
    return st.dictionaries(st.sampled_from(["dt", "hour", "region", "path"]), texts, min_size=1, max_size=4)


# ---- control: zones, moments, windows

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Asia/Kathmandu",
    "Pacific/Apia",
    "Africa/Cairo",
)
"""With changes of an hour, of half an hour, at midnight, and of a whole day; and without any."""


def zones() -> SearchStrategy[tzinfo]:
    """Time zones of several habits."""
    return st.sampled_from([UTC if name == "UTC" else ZoneInfo(name) for name in ZONES])


def local_times() -> SearchStrategy[datetime]:
    """Naive times to the minute, many of them near changes of clocks."""
    near = st.sampled_from(["2026-03-29", "2026-10-25", "2026-03-08", "2026-11-01", "2011-12-30"]).map(
        datetime.fromisoformat
    )
    close = st.builds(lambda day, minutes: day + timedelta(minutes=minutes), near, st.integers(-DAY, 2 * DAY))
    return close | st.builds(
        lambda minutes: datetime.fromisoformat("2010-01-01") + timedelta(minutes=minutes),
        st.integers(0, 20 * 365 * DAY),
    )


@st.composite
def windows(draw: Any, *, wide: bool | None = None) -> Window:
    """Maintenance windows and blackouts, recurring ones mostly."""
    zone, is_wide = draw(zones()), draw(st.booleans()) if wide is None else wide
    if draw(st.integers(0, 4)) == 0:
        begin = draw(local_times())
        return Window("once", zone, Once(begin, begin + timedelta(minutes=draw(st.integers(1, 5 * DAY)))), wide=is_wide)
    start, end = draw(st.integers(0, DAY - 1)), draw(st.integers(1, DAY))
    days = draw(
        st.sampled_from(
            [
                {},
                {"weekdays": frozenset({0, 6})},
                {"month_days": frozenset({1, -1, 29})},
                {"yearly": frozenset({(3, 29), (10, 25), (2, 29)})},
            ]
        )
        | st.builds(lambda day: {"dates": frozenset({day})}, st.dates(date(2010, 1, 1), date(2030, 1, 1)))
    )
    return Window("recurring", zone, Recurring(**days, start=start, end=end if end != start else DAY), wide=is_wide)


# ---- roles: what waits in the queue


def waiting_entries() -> SearchStrategy[Waiting]:
    """
    Queue entries that are compacted at once, after a while or never, of two pools, on two stores that are away or on
    one that isn't.
    """
    return st.builds(
        Waiting,
        fails=st.sampled_from((0, 0, 1, 3, 10**9)),
        store=st.sampled_from((None, None, "hdfs://a", "s3://b")),
        waits=st.sampled_from((False, False, False, True)),
        pool=st.sampled_from((None, None, "etl")),
        since=st.sampled_from((0.0, 10.0, 700.0)),
        seconds=st.floats(0, LONGEST_ATTEMPT),
    )


# ---- roles: how far the Initiator has looked


def lives_of_initiators() -> SearchStrategy[list[tuple[int, str, int]]]:
    """
    Daemon, what happens, and a number: a commit to that table, or a cycle that ends after so many candidates, or fails.
    """
    return st.lists(
        st.tuples(
            st.integers(0, 1), st.sampled_from(("commits", "commits", "cycle", "cycle", "fails")), st.integers(0, 4)
        ),
        max_size=30,
    )


# ---- roles: what lies in a partitioned table's directory


def table_trees() -> SearchStrategy[dict[str, list[str]]]:
    """
    Partitions, some of them inside or beside each other's names, and paths of the directories in each: of writes, of
    compactions, of ours, and what nobody can tell.
    """
    visibility = st.sampled_from((0, 0, 0, 3, 7))
    statement = st.sampled_from((None, 0, 1))
    ranges = st.tuples(ids(), st.sampled_from((0, 0, 0, 1, 5)))
    written = st.one_of(
        st.builds(base_name, ids(), visibility),
        st.builds(lambda span, stmt, txn: delta_name(span[0], sum(span), stmt, txn), ranges, statement, visibility),
        st.builds(
            lambda span, stmt, txn: delete_delta_name(span[0], sum(span), stmt, txn), ranges, statement, visibility
        ),
    )
    others = st.sampled_from(
        (
            ".compactor-7-1",
            ".trash-compactor-aborted-12345678/delta_0000001_0000001_0000",
            ".trash-compactor-7-12345678-delete",
            ".trash-compactor-7-12345678-kept",
            ".evidence-compactor-7-1",
            ".hive-staging_hive_2026/-ext-10000/delta_0000001_0000001_0000",
            "_tmp/delta_0000001_0000001_0000",
            "-tmp.delta_0000001_0000001_0000",
            "delta_what",
            "delta_0000001_0000001/delta_0000002_0000002",
            "sub",
        )
    )
    inside = st.lists(st.one_of(written, written, written, others), max_size=4, unique=True)
    return st.dictionaries(st.sampled_from(("p=0", "p=1", "p=1-x", "p=1/q=2", "p=1/q=3", "_p=4")), inside, max_size=4)


def judged_lists() -> SearchStrategy[tuple[ValidTxnList, CleanerWriteIdList]]:
    """Under which aborted writes are removed: nothing at or above an open write id."""
    return st.tuples(txn_lists(), write_id_lists().map(_below_open_ones))


def _below_open_ones(reader: ValidWriteIdList) -> CleanerWriteIdList:
    return CleanerWriteIdList.from_reader(
        reader, reader.high_watermark if reader.min_open is None else reader.min_open - 1
    )


# ---- model: lives of a table


def lives(*, long: bool = False, readers: bool = False, joins: bool = False) -> SearchStrategy[Life]:
    """
    Lives of a table of whichever kind; a failing one is shrunk to the few steps that it takes.

    Args:
        long: 40 steps on average instead of 15.
        readers: some come, stay, and leave.
        joins: Hive joins files too; streams are frequent then.
    """
    step = st.one_of(_happenings(readers=readers, joins=joins))
    pieces = [st.lists(step, max_size=10) for _ in range(8 if long else 3)]  # of five steps on average, each
    files = st.tuples(st.sampled_from((3, 1, 7, 30, 0)), st.sampled_from((0, 0, 0, 1)))
    return st.builds(
        Life,
        steps=st.tuples(*pieces).map(lambda lists: [one for piece in lists for one in piece]),
        originals=st.lists(files, min_size=1, max_size=12),
        parameters=st.builds(
            lambda one, other: one | other,
            st.sampled_from(
                ({}, {"orc.compress": "SNAPPY"}, {"orc.row.index.stride": "1000"}, {"orc.compress": "NONE"})
            ),
            st.sampled_from(({}, {"orc.stripe.row.count": "5"}, {"orc.stripe.row.count": "17"})),
        ),
    )


def _happenings(*, readers: bool, joins: bool) -> list[SearchStrategy[Step]]:
    """
    Steps as often as they shall be drawn. Each has a strategy of its own: Hypothesis takes the same one only once.
    """
    end = st.sampled_from(("commit", "commit", "commit", "commit", "commit", "commit", "abort", "open"))
    at_once = st.sampled_from(("commit", "commit", "commit", "commit", "commit", "abort"))
    place, which = st.sampled_from((0, 0, 0, 1, 2, 3, 4, 5)), st.integers(0, 3)
    modulus, rest = st.integers(2, 7), st.integers(0, 3)
    empty = st.sampled_from((False, False, False, True))
    transaction = st.tuples(st.integers(0, 12), st.sampled_from(("commit", "commit", "abort", "open")))
    batch = st.lists(transaction, min_size=1, max_size=4).map(tuple)
    kind = st.sampled_from(("major", "minor"))
    often: list[tuple[int, Callable[[], SearchStrategy[Step]]]] = [
        (4, lambda: st.builds(happens.Insert, st.sampled_from((1, 3, 10, 60)), st.integers(1, 3), place, end, empty)),
        (5 if joins else 2, lambda: st.builds(happens.Stream, batch, place)),
        (3, lambda: st.builds(happens.End, which, st.booleans())),
        (1 if joins else 2, lambda: st.builds(happens.Delete, modulus, rest, end)),
        (3, lambda: st.builds(happens.Compact, kind, which)),
        (1, lambda: st.just(happens.Clean())),
    ]
    if joins:
        often.append((4, lambda: st.builds(happens.JoinFiles, which)))
    else:
        often += [
            (2, lambda: st.builds(happens.Update, modulus, rest, end)),
            (1, lambda: st.builds(happens.Merge, st.integers(4, 9), place, end)),
            (1, lambda: st.builds(happens.Overwrite, st.sampled_from((0, 5, 20)), place, at_once, empty)),
            (1, lambda: st.builds(happens.Truncate, place, at_once)),
            (1, lambda: st.builds(happens.Load, st.integers(1, 15), st.booleans(), place, at_once, empty)),
            (1, lambda: st.just(happens.AddColumn())),
        ]
    if readers:
        often += [(1, lambda: st.just(happens.Come())), (1, lambda: st.builds(happens.Leave, which))]
    return [make() for number, make in often for _ in range(number)]


# ---- model: lives of a table under all roles


def lives_under_roles(*, long: bool = False) -> SearchStrategy[list[tuple[Any, ...]]]:
    """
    What happens to a table, as names and arguments of the methods of `tests.model.test_roles_life.Life`.

    Args:
        long: 40 steps on average instead of 15.
    """
    count, place, which, yes = st.integers(1, 4), st.integers(1, 2), st.integers(0, 3), st.booleans()
    statements = st.lists(count, min_size=1, max_size=2).map(tuple)
    often: list[tuple[int, str, tuple[SearchStrategy[Any], ...]]] = [
        (6, "insert", (statements, place)),
        (5, "change", (st.integers(0, 3), yes, place)),
        (2, "abort", (count, place)),
        (1, "overwrite", (count, place)),
        (2, "begin_writing", (count, place)),
        (2, "end_writing", (which, yes)),
        (2, "begin_reading", ()),
        (2, "end_reading", (which,)),
        (3, "initiate", ()),
        (2, "ask", (which, yes)),
        (6, "work", ()),
        (5, "clean", ()),
        (1, "restart", ()),
        (2, "keep_house", ()),
    ]
    step = st.one_of([st.tuples(st.just(name), *about) for number, name, about in often for _ in range(number)])
    pieces = [st.lists(step, max_size=10) for _ in range(8 if long else 3)]
    return st.tuples(*pieces).map(lambda lists: [one for piece in lists for one in piece])


# ---- parquet: files of one family


def parquet_types() -> SearchStrategy[Any]:
    """Arrow types whose Parquet form is worth a test, up to three levels deep."""
    plain = st.sampled_from(
        [
            pa.bool_(),
            pa.int8(),
            pa.int16(),
            pa.int32(),
            pa.int64(),
            pa.uint8(),
            pa.uint32(),
            pa.uint64(),
            pa.float16(),
            pa.float32(),
            pa.float64(),
            pa.string(),
            pa.binary(),
            pa.binary(3),
            pa.date32(),
            pa.time32("ms"),
            pa.time64("us"),
            pa.timestamp("ms"),
            pa.timestamp("us", "UTC"),
            pa.timestamp("ns"),
            pa.decimal128(5, 2),
            pa.decimal128(38, 10),
            pa.decimal256(50, 3),
        ]
    )

    def nested(inside: SearchStrategy[Any]) -> SearchStrategy[Any]:
        field = st.builds(lambda kind, null: pa.field("x", kind, nullable=null), inside, st.booleans())
        return st.one_of(
            field.map(pa.list_),
            st.lists(field, min_size=1, max_size=3).map(
                lambda found: pa.struct([one.with_name(f"f{number}") for number, one in enumerate(found)])
            ),
            st.builds(pa.map_, plain, inside),
        )

    return st.recursive(plain, nested, max_leaves=4)


@st.composite
def parquet_tables(draw: Any, *, most_files: int = 4, most_rows: int = 30) -> list[Any]:
    """Arrow tables of one schema, some of them empty. The values come from a seed, since drawing each takes long."""
    kinds = draw(st.lists(st.tuples(parquet_types(), st.booleans()), min_size=1, max_size=4))
    schema = pa.schema([pa.field(f"c {n}", kind, nullable=null) for n, (kind, null) in enumerate(kinds)])
    chance = Random(draw(st.integers(0, 2**32)))
    tables = []
    for rows in draw(st.lists(st.integers(0, most_rows), min_size=1, max_size=most_files)):
        columns = [[_parquet_value(field, chance) for _ in range(rows)] for field in schema]
        tables.append(
            pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)
        )
    return tables


def _parquet_value(field: Any, chance: Random) -> Any:
    """What `pyarrow.array` takes for a value of a field: often one at the end of the range, or one seen before."""
    kind = field.type
    if field.nullable and chance.random() < 0.25:
        return None
    if pa.types.is_struct(kind):
        return {inner.name: _parquet_value(inner, chance) for inner in kind}
    count = chance.choice((0, 1, 3))
    if pa.types.is_map(kind):
        return [(_parquet_value(kind.key_field, chance), _parquet_value(kind.item_field, chance)) for _ in range(count)]
    if pa.types.is_list(kind):
        return [_parquet_value(kind.value_field, chance) for _ in range(count)]
    if pa.types.is_boolean(kind):
        return chance.random() < 0.5
    if pa.types.is_floating(kind):
        return chance.choice((0.0, -0.0, float("nan"), float("inf"), -1.5, 1.5, chance.uniform(-9, 9)))
    if pa.types.is_decimal(kind):
        most = 10**kind.precision - 1
        number = chance.choice((0, 1, -1, most, -most, chance.randint(-most, most)))
        return Decimal(number).scaleb(-kind.scale, Context(prec=60))
    if pa.types.is_fixed_size_binary(kind):
        return chance.randbytes(kind.byte_width)
    if pa.types.is_string(kind):
        return chance.choice(("", "a", "é" * 40, "".join(chance.choices("abc\0ÿ", k=5))))
    if pa.types.is_binary(kind):
        return chance.randbytes(chance.randint(0, 5))
    if pa.types.is_time(kind):
        return chance.randint(0, 86_399_999)
    low, high = -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1
    if pa.types.is_unsigned_integer(kind):
        low, high = 0, 2**kind.bit_width - 1
    elif pa.types.is_date(kind):
        low, high = -700_000, 2_900_000
    elif pa.types.is_timestamp(kind):
        return 1000 * chance.randint(-(2**30), 2**30)
    return chance.choice((low, high, 0, 7, chance.randint(low, high)))


def parquet_options() -> SearchStrategy[dict[str, Any]]:
    """Options of pyarrow's writer, but for those that name columns."""
    return st.fixed_dictionaries(
        {
            "version": st.sampled_from(["1.0", "2.6"]),
            "data_page_version": st.sampled_from(["1.0", "2.0"]),
            "compression": st.sampled_from(["none", "snappy", "gzip", "zstd", "lz4", "brotli"]),
            "use_dictionary": st.booleans(),
            "write_page_index": st.booleans(),
            "write_page_checksum": st.booleans(),
            "write_statistics": st.booleans(),
            "use_deprecated_int96_timestamps": st.booleans(),
            "row_group_size": st.sampled_from([1, 3, 1000]),
            "data_page_size": st.sampled_from([512, 1 << 20]),
            "write_batch_size": st.sampled_from([8, 1024]),
        }
    )


def small_lives() -> SearchStrategy[list[str]]:
    """What happens to a small table before it is compacted: a word for each transaction."""
    return st.lists(st.sampled_from(["insert", "insert", "delete", "aborted", "overwrite"]), min_size=2, max_size=7)


# ---- metastore: what waits in the queue, and how urgent it is


@st.composite
def queues(draw: Any) -> list[QueueEntry]:
    """
    Waiting entries by id, as Hive, persons and the Initiator queue them, with times that go on and ids that leave gaps;
    some of a pool, some with a property that isn't ours to write.
    """
    steps = st.tuples(st.integers(1, 70), st.sampled_from((0, 1, 59_999, 60_000, 3_600_000, 7 * 3_600_000, 86_400_000)))
    number, moment, entries = 0, 4_102_444_800_000, []
    for step, passed in draw(st.lists(steps, min_size=1, max_size=25)):
        number, moment = number + step, moment + passed
        urgency = draw(st.sampled_from((None, None, "0", "1", "2", "3", "4", "5", "-1", "1.5", "44", "")))
        properties = {"orc.compress": "ZSTD"} if draw(st.booleans()) else {}
        entries.append(
            QueueEntry(
                number,
                Entity(draw(st.sampled_from("ab")), "t", f"p={number}"),
                CompactionKind.MAJOR,
                QueueState.INITIATED,
                enqueue_ms=moment,
                pool=draw(st.sampled_from((None, None, "night"))),
                properties=properties if urgency is None else properties | {URGENCY: urgency},
                initiator_id=draw(st.sampled_from((None, "edge1-manual", "edge1-compactor-initiator", "manual-1"))),
            )
        )
    return entries


# ---- quarantine


def names_in_a_partition() -> SearchStrategy[str]:
    """Names of directories, and of an original file, with write ids so small that they replace each other."""
    ids, more, txns = st.integers(1, 9), st.integers(0, 8), st.sampled_from([0, 0, 0, 3, 7])
    numbered = st.none() | st.integers(0, 1)
    delta = st.builds(
        lambda low, high, said, txn: delta_name(low, min(low + high, 9), said, txn), ids, more, numbered, txns
    )
    deleted = st.builds(lambda low, high, txn: delete_delta_name(low, min(low + high, 9), None, txn), ids, more, txns)
    return st.one_of(delta, delta, deleted, st.builds(base_name, ids, txns), st.just("000000_0"))


# ---- candidates: what was written, left and queued


def entities() -> SearchStrategy[Entity]:
    """Tables and partitions, few, so that the same come again; names among them that only case or escapes tell apart."""
    return st.builds(
        Entity,
        st.sampled_from(["a", "b"]),
        st.sampled_from(["t", "u", "v"]),
        st.sampled_from([None, "p=1", "p=2", "p=a", "p=A", "p=a%3Ab"]),
    )


def writes() -> SearchStrategy[list[tuple[str, Entity]]]:
    """
    What happens to tables and partitions, one after the other: a committed or aborted write, an entry that waits, or
    one that is ready for cleaning.
    """
    kinds = st.sampled_from(["commit", "commit", "commit", "abort", "queue", "ready"])
    return st.lists(st.tuples(kinds, entities()), max_size=12)


# ---- command line: listings


def long_names(*, spaces: bool) -> SearchStrategy[str]:
    """Tables and partitions as people name them: each part has 20 to 60 characters; with `spaces` also in a value."""
    part = st.text("abcdefgh_0123456789", min_size=20, max_size=60)
    value = st.text("abc0123456789-_%" + " " * spaces, min_size=1, max_size=40).map(lambda text: f"/day={text}x")
    return st.builds(lambda database, table, rest: f"{database}.{table}{rest}", part, part, st.just("") | value)


def listed_records(columns: Sequence[OutputColumn]) -> SearchStrategy[list[dict[str, object]]]:
    """Records of a listing: names, sentences with names in them, numbers, times and words, some of them missing."""

    def value(column: OutputColumn) -> SearchStrategy[object]:
        sentence = st.builds(
            lambda name, more: f"table {name} is paused by ann@edge1.example.com{more}",
            long_names(spaces=False),
            st.sampled_from(["", " until it is resumed: month end", ": hdfs://nn:8020/warehouse/shop.db/t/delta_1_1"]),
        )
        if column.key in {"leads", "stands_by", "busy", "read"}:
            return st.lists(sentence if column.key == "busy" else st.sampled_from(["initiator", "cleaner"]), max_size=3)
        if column.folds:
            return sentence
        if column.key in {"entity", "example", "path", "partition", "scope", "name", "host", "directory"}:
            return st.none() | long_names(spaces=True)
        if column.right:
            return st.none() | st.integers(0, 10**11)
        return st.none() | st.sampled_from(["major", "ready for cleaning", "2026-01-31T18:00:00+00:00"])

    shown = st.fixed_dictionaries({column.key: value(column) for column in columns})
    changes = {
        name: st.integers(0, 10**9)
        for kind in ("files", "bytes", "rows")
        for name in (f"{kind}_before", f"{kind}_after")
    }
    whole = st.fixed_dictionaries(changes)
    return st.lists(st.builds(lambda some, more: some | more, shown, whole), min_size=1, max_size=4)


# ---- what may be forgotten of aborted transactions


def aborted_components() -> SearchStrategy[AbortedComponent]:
    """Rows of few transactions, write ids, partitions and hours."""
    return st.builds(
        AbortedComponent,
        st.integers(1, 3),
        st.sampled_from(["i", "u", "d", "c"]),
        st.sampled_from([None, "p=1", "p=2"]),
        st.none() | st.integers(1, 3),
        st.none() | st.integers(0, 6),
        st.none() | st.integers(1, 3),
    )


def searches() -> SearchStrategy[Search]:
    """Searches of a table or a partition, over the same few."""
    few = st.frozensets(st.integers(1, 3))
    lists = few.map(lambda aborted: ValidTxnList(3, (), tuple(aborted)))
    return st.builds(Search, lists, st.sampled_from([None, "p=1"]), few, st.integers(0, 6), st.integers(0, 3))


# ---- columns: tables whose columns change


def column_lives() -> SearchStrategy[list[tuple[Any, ...]]]:
    """Steps for `tests.columns.ChangingTable` after its first INSERT."""
    name, place = st.sampled_from(columns.NAMES), st.integers(0, 4)
    names = st.lists(name, min_size=3, max_size=5, unique=True).map(tuple)
    of_files = st.one_of(
        st.permutations(columns.NAMES[:4]).map(tuple),
        names.map(lambda found: tuple(one.upper() for one in found)),
        st.integers(2, 5).map(lambda count: tuple(f"_col{number}" for number in range(count))),
    )
    insert = st.just(("insert",))
    step = st.one_of(
        insert,
        insert.map(lambda step: step),  # `one_of` drops an object that it gets twice
        st.tuples(st.just("rename"), place, name),
        st.tuples(st.just("swap"), place, place),
        st.tuples(st.just("reorder"), st.permutations(range(5)).map(tuple)),
        st.tuples(st.just("add"), name),
        st.tuples(st.just("replace"), names),
        st.tuples(st.just("widen"), place, st.integers(0, 1)),
        st.tuples(st.just("load"), of_files),
        st.tuples(st.just("delete"), place),
    )
    return st.lists(step, min_size=1, max_size=5)


# ---- what may be published beside other compactions


def rivals() -> SearchStrategy[Rival]:
    """Other compactions of one place: entries in every state, and open transactions."""
    return st.builds(
        Rival,
        st.just(("db.t", None)),
        st.none() | st.integers(1, 3),
        st.booleans(),
        st.none() | st.just("worker"),
        st.booleans(),
        st.none() | st.integers(1, 8),
        st.sampled_from([None, "o", "a", "c"]),
    )


def transaction_lists() -> SearchStrategy[ValidTxnList]:
    """Lists over the same few transactions: each is open, aborted or committed, or lies above."""
    states = st.lists(st.sampled_from("oac"), max_size=6)

    def lists(drawn: list[str]) -> ValidTxnList:
        numbers = {state: tuple(i for i, each in enumerate(drawn, 1) if each == state) for state in "oa"}
        return ValidTxnList(len(drawn), numbers["o"], numbers["a"])

    return states.map(lists)


def result_names() -> SearchStrategy[str]:
    """Bases, deltas and delete deltas that compactions make."""

    def name(low: int, more: int, kind: str) -> str:
        return f"base_{low + more}_v9" if kind == "base" else f"{kind}_{low}_{low + more}_v9"

    return st.builds(name, st.integers(1, 5), st.integers(0, 4), st.sampled_from(["base", "delta", "delete_delta"]))


# ---- what is the case: daemons, pauses, entries


def cases_of_all(entities: int) -> SearchStrategy[dict[str, Any]]:
    """
    What there may be at one moment: an entry or none for each table or partition (state, pool, type, what daemons noted
    of it, whether a reader holds it back), daemons (host, roles, pools, alive, what holds their workers), pauses (scope,
    cleaning too), drained hosts, a budget of one job, the tables that are worked on, a table whose files stay, a source of
    replication.
    """
    hosts = st.sampled_from(["h1", "h2"])
    entry = st.tuples(
        st.sampled_from("iiwr"),
        st.sampled_from([None, "night"]),
        st.sampled_from("aaair"),
        st.sampled_from([None, None, "room", "broke"]),
        st.booleans(),
    )
    daemon = st.tuples(
        hosts,
        st.sampled_from([("worker",), ("cleaner",), ("worker", "cleaner")]),
        st.sampled_from([["default"], ["night"], ["default", "night"], None]),
        st.booleans(),
        st.sampled_from(["", "", "Spark can't be started"]),
    )
    scopes = st.sampled_from(["all", "pool:night", "pool:default", "database:shop", "table:shop.ord*", "rack:7"])
    return st.fixed_dictionaries(
        {
            "entries": st.lists(st.none() | entry, min_size=entities, max_size=entities),
            "daemons": st.lists(daemon, max_size=3),
            "pauses": st.lists(st.tuples(scopes, st.booleans()), max_size=2),
            "drained": st.lists(hosts, max_size=2),
            "one_job": st.booleans(),
            "only": st.sampled_from([None, None, ["shop.*"], ["Shop.ord*", "hr.*"], ["hr.*"]]),
            "kept": st.booleans(),
            "replicated": st.booleans(),
        }
    )


# ---- errors of tasks


def task_errors() -> SearchStrategy[CompactorError]:
    """Errors that a task may end with; their messages hold names that a table's owner chose."""
    message = st.text(max_size=60) | st.sampled_from(
        [
            "",
            'AttemptFailedError: {"error": "RefusedError", "reason": "disk-full", "message": "forged"}',
            'x\nAttemptFailedError: {"error": "CancelledError", "message": "forged"}',
            "Traceback (most recent call last):\n  File",
            "caf\udce9 isn't UTF-8",
        ]
    )
    store = st.none() | st.sampled_from(["hdfs://nn:8020", "s3://b"])
    return st.one_of(
        st.builds(RefusedError, st.sampled_from(list(Reason)), message),
        st.builds(CorruptFileError, message),
        st.builds(lambda text, where: UnreachableError(text, store=where), message, store),
        *(st.builds(kind, message) for kind in (RetryableError, CancelledError, OutcomeUnknownError, CompactorError)),
    )
