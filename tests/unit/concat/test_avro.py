"""Claims about Avro files that are joined block by block; fastavro is the other party."""

import io
from collections.abc import Sequence

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.concat import avro
from compactor.errors import CorruptFileError, RefusedError, VerificationError
from compactor.handles import MemoryReader
from tests.unit.orc.files import MemorySink

SCHEMA = {
    "type": "record",
    "name": "row",
    "fields": [{"name": "id", "type": "long"}, {"name": "v", "type": ["null", "string"]}],
}
ROWS = st.lists(
    st.fixed_dictionaries({"id": st.integers(-5, 1 << 40), "v": st.none() | st.text(max_size=8)}), max_size=9
)


def written(rows: Sequence[dict[str, object]], codec: str = "null", interval: int = 20, **metadata: str) -> bytes:
    buffer = io.BytesIO()
    fastavro.writer(buffer, SCHEMA, rows, codec=codec, sync_interval=interval, metadata=metadata)
    return buffer.getvalue()


def joined(files: Sequence[bytes]) -> tuple[bytes, list[MemoryReader], avro.Joined]:
    sink = MemorySink()
    readers = [MemoryReader(data, f"file {number}") for number, data in enumerate(files)]
    made = avro.join(readers, sink)
    return sink.getvalue(), readers, made


@given(st.lists(ROWS, min_size=1, max_size=4), st.sampled_from(["null", "deflate"]), st.integers(1, 60))
def test_a_joined_file_holds_the_records_of_its_files_in_their_order(
    some: list[list[dict[str, object]]], codec: str, interval: int
) -> None:
    """Whatever the codec and the size of blocks, also where a file has no record."""
    data, readers, made = joined([written(rows, codec, interval) for rows in some])
    assert list(fastavro.reader(io.BytesIO(data))) == [row for rows in some for row in rows]
    assert made.records == sum(map(len, some))
    avro.check(MemoryReader(data, "result"), readers, made)


def test_schema_codec_and_metadata_make_the_family() -> None:
    """Sync markers differ between files of one family; what the writer noted in the header doesn't."""
    rows = [{"id": 1, "v": "a"}]

    def family(data: bytes) -> str:
        return avro.read_header(MemoryReader(data)).family

    assert family(written(rows)) == family(written(rows * 3))
    others = [written(rows, "deflate"), written(rows, by="somebody")]
    assert len({family(written(rows)), *map(family, others)}) == 3
    with pytest.raises(RefusedError):
        joined([written(rows), others[0]])


@given(st.binary(max_size=60), st.data())
def test_damaged_files_are_refused(tail: bytes, data: st.DataObject) -> None:
    """Cut off anywhere but behind a block, or with anything behind the last block: a CorruptFileError, nothing else."""
    whole = written([{"id": number, "v": "some text"} for number in range(20)])
    header = avro.read_header(MemoryReader(whole))
    ends = [header.length, *(one.at + one.length + 16 for one in avro.blocks_of(MemoryReader(whole), header))]
    cut = data.draw(st.integers(0, len(whole) - 1).filter(lambda at: at not in ends))
    for wrong in (whole[:cut], whole + tail if tail else whole[:5], avro.MAGIC + tail):
        reader = MemoryReader(wrong, "file")
        with pytest.raises(CorruptFileError):
            for _ in avro.blocks_of(reader, avro.read_header(reader)):
                pass


@given(st.data())
def test_another_byte_in_the_result_is_found(data: st.DataObject) -> None:
    """Blocks of less than 8 KiB are compared whole."""
    some = [written([{"id": number, "v": "some text"} for number in range(20)]) for _ in range(2)]
    made, readers, expected = joined(some)
    at = data.draw(st.integers(0, len(made) - 1))
    changed = made[:at] + bytes([made[at] ^ 1]) + made[at + 1 :]
    with pytest.raises(VerificationError):
        avro.check(MemoryReader(changed, "result"), readers, expected)


def header(*metadata: tuple[str, bytes]) -> bytes:
    """A header with these, numbers of less than 64 bytes."""
    said = b"".join(
        bytes([2 * len(name)]) + name.encode() + bytes([2 * len(value)]) + value for name, value in metadata
    )
    return avro.MAGIC + bytes([2 * len(metadata)]) + said + b"\0" + b"s" * 16


def test_no_name_in_a_header_passes_for_several() -> None:
    """The codec of one file is in the name of another one's metadata; what comes twice counts by its order."""
    codec = b"deflate".hex()
    some = [
        header(("a", b""), ("avro.codec", b"deflate"), ("avro.schema", b"S")),
        header((f"a=;avro.codec={codec};b", b""), ("avro.schema", b"S")),
        header(("a=;avro.codec", b"deflate"), ("avro.schema", b"S")),
    ]
    assert len({avro.read_header(MemoryReader(data)).family for data in some}) == 3
    with pytest.raises(CorruptFileError):
        avro.read_header(MemoryReader(header(("avro.codec", b"null"), ("avro.codec", b"deflate"))))


def test_a_length_of_more_than_64_bits_is_refused() -> None:
    """No store could be asked for that byte."""
    whole = written([])
    reader = MemoryReader(whole + b"\2" + b"\xff" * 9 + b"\x7f")
    with pytest.raises(CorruptFileError):
        list(avro.blocks_of(reader, avro.read_header(reader)))


class Counting(MemoryReader):
    """Counts the reads, each of which is a request to an object store."""

    reads = 0

    def read_at(self, offset: int, length: int) -> bytes:
        self.reads += 1
        return super().read_at(offset, length)


def test_small_blocks_cost_no_request_each() -> None:
    """A thousand blocks are read in few pieces, when they are copied and when they are compared."""
    readers = [Counting(written([{"id": i, "v": "some text"} for i in range(1000)], interval=1)) for _ in range(2)]
    sink = MemorySink()
    made = avro.join(readers, sink)
    result = Counting(sink.getvalue())
    avro.check(result, readers, made)
    assert len(made.origins) > 1000
    assert result.reads + sum(one.reads for one in readers) < 50
