"""How an object is put together: parts as a store wants them, as little as possible through us."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given

from compactor.storage.s3_store.parts import MOST, Assembler, whole_parts
from tests.strategies import assembled

SMALLEST, OWN, COPY = 10, 30, 60


@dataclass
class Store:
    """Keeps the parts it is told to make; counts what goes through us."""

    sources: dict[str, bytes]
    parts: list[bytes] = field(default_factory=list)
    copied: list[tuple[str, int, int]] = field(default_factory=list)
    through: int = 0

    def read(self, source, offset, length):
        self.through += length
        found = self.sources[source][offset : offset + length]
        assert len(found) == length
        return found

    def put(self, data):
        self.parts.append(data)

    def copy(self, source, offset, length):
        self.parts.append(self.sources[source][offset : offset + length])
        self.copied.append((source, offset, length))


def assemble(store, pieces):
    """Give the pieces (bytes, or source with offset and length) to an assembler; returns the content."""
    assembler = Assembler(store, own_bytes=OWN, copy_bytes=COPY, smallest=SMALLEST)
    wanted = bytearray()
    for piece in pieces:
        if isinstance(piece, bytes):
            assembler.write(piece)
            wanted += piece
        else:
            source, offset, length = piece
            assembler.copy(source, offset, length)
            wanted += store.sources[source][offset : offset + length]
    whole = assembler.finish()
    assert (whole is None) == bool(store.parts)
    content = b"".join(store.parts) if whole is None else whole
    assert content == wanted
    assert all(len(part) >= SMALLEST for part in store.parts[:-1])
    assert all(0 < len(part) <= 2 * COPY for part in store.parts)
    return store


@given(assembled())
def test_the_content_is_right_and_every_part_is_allowed(case):
    """Whatever comes in whatever order; a boundary between own bytes and a range costs less than two smallest parts."""
    sources, pieces = case
    store = assemble(Store(sources), pieces)
    ranges = sum(not isinstance(piece, bytes) for piece in pieces)
    assert store.through <= ranges * (2 * SMALLEST + 16)


def source(size):
    return bytes(number % 251 for number in range(size))


def test_neighbouring_ranges_are_one():
    """Stripes that follow each other in their file are copied together."""
    store = assemble(Store({"a": source(100)}), [("a", 0, 7), ("a", 7, 8), ("a", 15, 30)])
    assert store.copied == [("a", 0, 45)]
    assert store.through == 0


def test_a_magic_that_the_source_has_too_is_copied_with_it():
    """An ORC file's first three bytes are every ORC file's."""
    data = b"ORC" + source(97)
    store = assemble(Store({"a": data}), [b"ORC", ("a", 3, 50), b"tail"])
    assert store.copied == [("a", 0, 53)]
    assert store.through == 3


def test_own_bytes_borrow_from_the_range_that_follows():
    """As much as makes them a part."""
    store = assemble(Store({"a": source(100)}), [b"header", ("a", 20, 50), b"t"])
    assert store.copied == [("a", 24, 46)]
    assert [len(part) for part in store.parts] == [10, 46, 1]
    assert store.through == 6 + 4  # the look whether the source has the header too, and what was borrowed


def test_a_range_that_would_be_left_too_small_is_read_whole():
    """Four bytes borrowed of eleven would leave a part of seven."""
    store = assemble(Store({"a": source(40)}), [b"header", ("a", 20, 11), b"y" * 30])
    assert store.copied == []


def test_large_ranges_are_copied_in_similar_pieces():
    """While they come, and what is left at the end; no piece is too small."""
    store = assemble(Store({"a": source(250)}), [("a", 0, 125), ("a", 125, 70)])
    assert [length for _, _, length in store.copied] == [60, 60, 38, 37]


def test_a_small_object_needs_no_parts():
    """It is sent in one request."""
    store = Store({"a": source(40)})
    assembler = Assembler(store, own_bytes=OWN, copy_bytes=COPY, smallest=SMALLEST)
    assembler.write(b"abc")
    assert assembler.finish() == b"abc"
    assert store.parts == []


@pytest.mark.parametrize(
    ("length", "parts"),
    [(0, [(0, 0)]), (60, [(0, 60)]), (61, [(0, 30), (30, 31)]), (180, [(0, 60), (60, 60), (120, 60)])],
)
def test_whole_objects(length, parts):
    """Copied in as few parts as may be, of similar size."""
    assert whole_parts(length, 60) == parts


def test_whole_objects_never_have_more_parts_than_a_store_allows():
    """They get larger instead."""
    assert len(whole_parts(60 * MOST * 3, 60)) <= MOST


def test_parts_grow_the_more_there_are():
    """How long a file will be isn't known while it is written, but the number of parts is limited."""
    store = Store({})
    assembler = Assembler(store, own_bytes=OWN, copy_bytes=COPY, smallest=SMALLEST)
    for _ in range(60):
        assembler.write(bytes(30 * 1_000))
    assembler.finish()
    assert len(store.parts) <= MOST
    assert len(store.parts[-2]) > OWN
