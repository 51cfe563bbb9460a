"""The list of the original files that a base has replaced: written, read, found in a listing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.acid.listing import FileEntry
from compactor.acid.originals import decode_originals, encode_originals, lists_in

ENTRIES = st.builds(FileEntry, st.text(min_size=1), st.integers(0, 1 << 50), st.integers(0, 1 << 50), st.text())


@given(st.lists(ENTRIES))
def test_what_is_written_is_read_back(files):
    """Every file comes back with its length, time and mark, ascending, whatever the order before."""
    assert decode_originals(encode_originals(files)) == tuple(sorted(files))


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b'{"originals": 1}', b'{"originals": [["a", 1, 2]]}', b'{"originals": [["a", "x", 2, ""]]}'],
)
def test_an_unreadable_list_proves_nothing(content):
    """Anything but such a list is read as one without files."""
    assert decode_originals(content) == ()


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        (("000000_0", "base_0000001/_compactor_originals"), ("base_0000001/_compactor_originals",)),
        (("a/000000_0", "base_0000001/_compactor_originals"), ("base_0000001/_compactor_originals",)),
        (("base_0000001/bucket_00000", "base_0000001/_compactor_originals"), ()),
        ((".hidden/000000_0", "base_0000001/_compactor_originals"), ()),
        (("000000_0", "delta_0000001_0000001/_compactor_originals"), ()),
        (("000000_0", "base_0000001/_metadata_acid"), ()),
    ],
)
def test_lists_are_found_in_bases_where_originals_may_lie(paths, found):
    """Only a base's list is read, and only where some file could be an original one."""
    assert lists_in(FileEntry(path, 1) for path in paths) == found
