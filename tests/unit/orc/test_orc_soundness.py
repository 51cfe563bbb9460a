"""Stripes whose descriptions contradict each other don't get among those of other files."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyorc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import orc

from compactor.acid.types import row_type
from compactor.errors import CorruptFileError
from compactor.orc.format import codec
from compactor.orc.format.codec import Compression
from compactor.orc.format.proto import orc_pb2 as pb
from compactor.orc.format.tail import MAGIC, read_stripe_footer
from compactor.orc.reading.soundness import require_opened, require_sound_stripes
from tests import strategies
from tests.foreign import ORC, compacted
from tests.unit.orc.files import named, opened, plain_file, rows_of

ROW = row_type([("id", "int"), ("s", "string"), ("x", "double"), ("l", "array<int>")])
ROWS = [(n, f"text {n % 3}", n / 3, [n, n]) for n in range(30)]


def file_of(**options: Any) -> bytes:
    return plain_file(ROW, ROWS, row_index_stride=10, **options)


def changed(
    data: bytes,
    change: Callable[[pb.StripeFooter], object] = lambda _: None,
    parts: Callable[[bytes], bytes] = lambda part: part,
) -> bytes:
    """The same file of one stripe with another stripe footer, or another row index of its first column."""
    reader, tail = opened(data)
    stripe, footer = tail.stripes[0], read_stripe_footer(reader, tail, 0)
    (first, *_) = [stream for stream in footer.streams if stream.kind == 6]
    content = data[stripe.offset : stripe.offset + stripe.index_length + stripe.data_length]
    index = parts(content[: first.length])
    content = index + content[first.length :]
    made = pb.Footer()
    made.CopyFrom(tail.footer)
    made.stripes[0].index_length += len(index) - first.length
    first.length = len(index)
    change(footer)
    packed = codec.compress_section(footer.SerializeToString(), tail.compression, tail.block_size)
    made.stripes[0].footer_length = len(packed)
    made.content_length = len(MAGIC) + len(content) + len(packed)
    metadata = codec.compress_section(tail.metadata.SerializeToString(), tail.compression, tail.block_size)
    ending = codec.compress_section(made.SerializeToString(), tail.compression, tail.block_size)
    postscript = pb.PostScript()
    postscript.CopyFrom(tail.postscript)
    postscript.footer_length, postscript.metadata_length = len(ending), len(metadata)
    last = postscript.SerializeToString()
    return MAGIC + content + packed + metadata + ending + last + bytes([len(last)])


def shorter(footer: pb.StripeFooter) -> None:
    footer.streams[-1].length -= 1


def no_values(footer: pb.StripeFooter) -> None:
    """The values of the doubles are said to be which of them there are."""
    (stream,) = (stream for stream in footer.streams if (stream.column, stream.kind) == (3, 1))
    stream.kind = 0


def twice(footer: pb.StripeFooter) -> None:
    footer.streams[-1].column, footer.streams[-1].kind = footer.streams[-2].column, footer.streams[-2].kind


def elsewhere(footer: pb.StripeFooter) -> None:
    footer.streams[-1].column = 100


def first_runs(footer: pb.StripeFooter) -> None:
    footer.columns[1].kind = 0


def as_dictionary(footer: pb.StripeFooter) -> None:
    footer.columns[1].kind = 3


def many_entries(footer: pb.StripeFooter) -> None:
    footer.columns[2].dictionary_size = 1000


def without_last_entry(index: bytes) -> bytes:
    found = pb.RowIndex.FromString(index)
    del found.entries[-1]
    return found.SerializeToString()


def judge(data: bytes) -> None:
    reader, tail = opened(data)
    require_opened(reader, tail)
    require_sound_stripes(reader, tail, range(len(tail.stripes)))


DAMAGES = {
    "a stream is too short": (shorter, "streams of"),
    "a column has no values": (no_values, "streams of the kinds"),
    "a stream stands twice": (twice, "two streams"),
    "a stream of no column": (elsewhere, "of no column"),
    "runs of two kinds": (first_runs, "in the encoding"),
    "numbers in a dictionary": (as_dictionary, "in the encoding 3"),
    "a dictionary larger than its values": (many_entries, "1000 entries for 30 values"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_stripe_footer_that_contradicts_itself_is_found(damage: str, tmp_path: Path) -> None:
    """The file is carried over alone, and those beside it are joined."""
    change, why = DAMAGES[damage]
    good = file_of(dict_key_size_threshold=1.0)
    judge(changed(good))
    bad = changed(good, change)
    with pytest.raises(CorruptFileError, match=why):
        judge(bad)
    for size in (1, 8 << 20):
        sizes = {"min_stripe_bytes": size}
        made, _ = compacted(tmp_path / str(size), [good, bad, good], ORC, splice=sizes)  # type: ignore[no-untyped-call]
        assert sorted(len(rows_of(data)) for data in made.values() if data != bad) == [2 * len(ROWS)]
        assert bad in made.values()


def test_timestamps_that_hive_fails_over_stay_apart(tmp_path: Path) -> None:
    """ORC's C++ writer gave fractions of seconds before 1970 as negative ones: Java's readers end there."""

    def written(*times: int) -> bytes:
        file = io.BytesIO()
        column = pa.array([[time] for time in times], pa.list_(pa.timestamp("ms")))
        orc.write_table(pa.table({"l": column}), file)
        return file.getvalue()

    good, bad = written(*range(30)), written(-1_500)
    for size in (1, 8 << 20):
        made, _ = compacted(  # type: ignore[no-untyped-call]
            tmp_path / str(size), [good, bad, good, bad], ORC, splice={"min_stripe_bytes": size}
        )
        assert sorted(len(rows_of(data)) for data in made.values() if data != bad) == [2 * 30]
        assert sum(data == bad for data in made.values()) == 2


def test_a_row_index_of_other_rows_is_found() -> None:
    """Only a reader that looks for some rows would fail over it."""
    good = file_of(compression=pyorc.CompressionKind.NONE)
    with pytest.raises(CorruptFileError, match="2 entries instead of 3"):
        judge(changed(good, parts=without_last_entry))
    with pytest.raises(CorruptFileError, match="can't be read"):
        judge(changed(good, parts=lambda index: b"\xff" * len(index)))


def test_a_chunk_that_is_longer_than_its_stream_is_found() -> None:
    """Each of a stream's chunks says how long it is."""
    good = bytearray(file_of())
    reader, tail = opened(bytes(good))
    stripe, streams = tail.stripes[0], read_stripe_footer(reader, tail, 0).streams
    good[stripe.offset + sum(stream.length for stream in streams[:-1]) + 2] ^= 1
    with pytest.raises(CorruptFileError, match="chunk at byte 0 needs"):
        judge(bytes(good))


@given(st.data())
def test_what_writers_write_is_sound(data: st.DataObject) -> None:
    """Columns of any types, without rows and with NULLs only too."""
    tree = named(data.draw(strategies.row_structs()))
    rows = data.draw(st.lists(strategies.filled(tree), max_size=12))
    codec_name = data.draw(st.sampled_from([kind.name for kind in Compression if kind not in {3, 6}]))
    threshold = data.draw(st.sampled_from([0.0, 1.0]))
    compression = pyorc.CompressionKind[codec_name]
    judge(plain_file(tree, rows, compression=compression, dict_key_size_threshold=threshold))
