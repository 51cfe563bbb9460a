"""
Every Hypothesis strategy of the tests. Each area has its section; append yours at the end.
"""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from compactor.acid.names import AcidDir, DirKind
from compactor.acid.row_id import MAX_BUCKET, MAX_STATEMENT
from compactor.acid.write_ids import ValidTxnList, ValidWriteIdList

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
    pieces = st.sampled_from(["base", "delta", "delete", "bucket", "copy", "flush_length", "v", "_", "_", "_", "-", ".", "0", "7", "00012", "9" * 20, "x", "é"])
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
