"""How much a column chunk may need when it is decoded."""

import gzip
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.parquet.encoding import _Written
from compactor.parquet.pages import inflated, longest_entry
from compactor.parquet.thrift import MalformedError
from tests.unit.orc.files import MemorySink

ENTRIES = st.lists(
    st.binary(max_size=8)
    | st.lists(st.sampled_from([b"\0", b"\0\0\0", b"\1", b"\2\0\0\0ab", b"x"]), max_size=6).map(b"".join)
    | st.sampled_from([b"", b"y" * 255, b"z" * 256, b"\0" * 1000]),
    max_size=12,
)


@given(ENTRIES)
def test_the_longest_entry_is_found_whatever_the_entries_hold(entries):
    """Also where they look like lengths, are empty, or begin and end with zero bytes."""
    data = b"".join(struct.pack("<I", len(entry)) + entry for entry in entries)
    assert longest_entry(data, len(entries)) == max(map(len, entries), default=0)
    with pytest.raises(MalformedError, match="too early"):
        longest_entry(data, len(entries) + 1)


def test_a_page_that_grows_large_is_not_decompressed():
    """A thousandth of its bytes may be stored: two megabytes would take two gigabytes."""
    content = gzip.compress(bytes(97 << 20), 1)
    assert inflated(gzip.compress(b"ab"), 2, 2) == b"ab"
    with pytest.raises(MalformedError, match="a page of 97 MiB is larger"):
        inflated(content, 2, 97 << 20)


def test_what_is_held_back_is_read_as_from_a_file():
    """Zeros stand for what went on to the sink; not a byte more than asked for."""
    sink = MemorySink()
    written = _Written(sink)
    written.write(b"PAR1pages")
    written.hold_back()
    written.write(b"footer")
    assert (sink.getvalue(), written.size) == (b"pages", 15)
    whole = bytes(9) + b"footer"
    for begin in range(16):
        for length in range(16 - begin):
            assert written.read_at(begin, length) == whole[begin : begin + length]
