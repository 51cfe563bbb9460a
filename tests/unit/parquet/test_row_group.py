"""How a row group's bytes are fetched."""

import pytest

from compactor.errors import CorruptFileError
from compactor.handles import MemoryReader
from compactor.parquet.row_group import Chunk, RowGroup, load, packed

DATA = bytes(number * 7 % 251 for number in range(400_000))


class Counting(MemoryReader):
    """Notes the ranges that are read."""

    def __init__(self, data):
        super().__init__(data)
        self.ranges = []

    def read_at(self, offset, length):
        self.ranges.append((offset, length))
        return super().read_at(offset, length)


def group(*places):
    """A row group of chunks that begin here and are so long."""
    chunks = [Chunk(begin, begin, 0, 1, length, length) for begin, length in places]
    stored = sum(length for _, length in places)
    return RowGroup(1, stored, stored, 0, packed(chunks), (), has_page_index=False)


@pytest.mark.parametrize(
    ("places", "ranges"),
    [
        ([(4, 10), (14, 20)], [(4, 30)]),
        ([(14, 20), (4, 10)], [(4, 30)]),
        ([(4, 100_000), (100_004, 200_000)], [(4, 300_000)]),
        ([(4, 10), (14 + (64 << 10), 20)], [(4, 30 + (64 << 10))]),
        ([(4, 10), (15 + (64 << 10), 20)], [(4, 10), (15 + (64 << 10), 20)]),
    ],
    ids=["neighbours", "in another order", "large", "a small gap", "a large gap"],
)
def test_neighbours_are_read_in_one_piece(places, ranges):
    """Each read is a request to a store; a large gap between chunks isn't read with them."""
    reader = Counting(DATA)
    loaded = load(reader, group(*places))
    assert [bytes(data) for data in loaded.stored] == [DATA[begin : begin + length] for begin, length in places]
    assert reader.ranges == ranges


@pytest.mark.parametrize("begin", [20, 100_000])
def test_a_file_that_became_shorter_is_told(begin):
    """In one piece or apart: fewer bytes are no row group."""
    whole = group((4, 10), (begin, 20))
    load(MemoryReader(DATA[: begin + 20]), whole)
    with pytest.raises(CorruptFileError, match="became shorter"):
        load(MemoryReader(DATA[: begin + 19]), whole)
