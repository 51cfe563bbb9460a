"""Tails: read whole, or refused with one line that says what is wrong and where."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.acid.row_id import RowKey
from compactor.acid.types import row_type
from compactor.errors import CorruptFileError, RefusedError
from compactor.handles import MemoryReader
from compactor.orc.format.codec import Compression, compress_section
from compactor.orc.format.proto import orc_pb2 as pb
from compactor.orc.format.tail import read_stripe_footer, read_tail
from compactor.reasons import Reason
from tests.unit.orc.files import acid_file, insert, opened, plain_file, refusal

EVENTS = [insert(RowKey(1, 536870912, n), (n, f"v{n}")) for n in range(50)]
FILE = acid_file(EVENTS)


def edited(data: bytes, *, postscript=None, footer=None) -> bytes:
    """The file with changes made to its (uncompressed) tail."""
    _, tail = opened(data)
    assert tail.compression == 0
    at = tail.length - 1 - data[-1] - tail.postscript.footer_length
    new_footer = pb.Footer()
    new_footer.CopyFrom(tail.footer)
    if footer is not None:
        footer(new_footer)
    packed = new_footer.SerializeToString()
    new_postscript = pb.PostScript()
    new_postscript.CopyFrom(tail.postscript)
    new_postscript.footer_length = len(packed)
    if postscript is not None:
        postscript(new_postscript)
    last = new_postscript.SerializeToString()
    return data[:at] + packed + last + bytes([len(last)])


PLAIN = acid_file(EVENTS, compression=0)


def test_what_a_tail_tells():
    """Rows, columns, codec, writer and the ACID shape are where the specification has them."""
    _, tail = opened(FILE)
    assert (tail.rows, len(tail.stripes), tail.compression.name, tail.stride, tail.is_acid) == (
        50,
        1,
        "ZLIB",
        10_000,
        True,
    )
    assert (tail.writer, tail.writer_version, tail.splice_class) == (1, 6, "apache")
    assert str(tail.row_tree) == "struct<id:int,v:string>"
    assert tail.stripe_stats(0)[0].number_of_values == 50


@given(st.integers(0, len(FILE) - 1))
def test_a_cut_file_is_refused_wherever_it_was_cut(length):
    """No prefix of a file passes for the file."""
    with pytest.raises(CorruptFileError) as refused:
        read_tail(MemoryReader(FILE[:length], "delta/bucket_00000"))
    assert str(refused.value).startswith("delta/bucket_00000")
    assert "\n" not in str(refused.value)


@given(st.binary(max_size=300))
def test_noise_is_no_orc_file(data):
    """Any bytes are refused, and with our own error."""
    with pytest.raises(RefusedError):
        read_tail(MemoryReader(data, "noise"))


@given(st.integers(len(FILE) - 300, len(FILE) - 1), st.integers(1, 255))
def test_a_flipped_byte_in_the_tail_raises_nothing_foreign(place, change):
    """Damage is noticed or harmless; no other exception escapes."""
    data = bytearray(FILE)
    data[place] ^= change
    said = refusal(lambda: read_tail(MemoryReader(bytes(data), "flipped")))
    assert said is None or said.startswith("flipped")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b"PAR1" + bytes(100), "not an ORC file"),
        (b"x" * 40_000, "is not an ORC file|can't be read|cut off"),
    ],
)
def test_other_files_are_named_as_such(data, words):
    """Zero bytes, Parquet and text each get their line."""
    with pytest.raises(CorruptFileError, match=words):
        read_tail(MemoryReader(data, "bucket_00000"))


def test_a_logical_length_hides_what_a_streaming_writer_added_later():
    """Only the bytes up to the side file's length count."""
    reader = MemoryReader(FILE + b"half a stripe", "streamed")
    assert read_tail(reader, len(FILE)).rows == 50
    with pytest.raises(CorruptFileError, match="logical length"):
        read_tail(reader, len(FILE) + 100)


def test_a_tail_longer_than_the_first_read_is_read_whole():
    """Thousands of columns don't fit the last 16 KiB."""
    row = row_type([(f"c{n}", "int") for n in range(3000)])
    _, tail = opened(plain_file(row, [tuple(range(3000))], compression=0))
    assert len(tail.tree.children) == 3000
    assert tail.stripe_stats(0)[3000].integers.maximum == 2999


def test_encrypted_files_are_refused():
    """Encrypted columns can't be read or copied."""
    with pytest.raises(RefusedError) as refused:
        read_tail(
            MemoryReader(edited(PLAIN, footer=lambda footer: setattr(footer, "encryption", b"\x0a\x00")), "secret")
        )
    assert refused.value.reason is Reason.ENCRYPTED_FILE


def test_unknown_codecs_are_refused():
    """LZO by its number in the postscript."""
    with pytest.raises(RefusedError) as refused:
        read_tail(
            MemoryReader(edited(PLAIN, postscript=lambda postscript: setattr(postscript, "compression", 3)), "lzo")
        )
    assert refused.value.reason is Reason.UNSUPPORTED_COMPRESSION


def test_rows_that_dont_add_up_are_noticed():
    """The footer's rows are the sum of its stripes' rows."""
    with pytest.raises(CorruptFileError, match="51 rows in its footer, 50"):
        read_tail(MemoryReader(edited(PLAIN, footer=lambda footer: setattr(footer, "number_of_rows", 51)), "file"))


def test_stripes_outside_the_file_are_noticed():
    """A stripe's bytes lie before the metadata."""
    with pytest.raises(CorruptFileError, match="stripe 1 at bytes 9999"):
        read_tail(MemoryReader(edited(PLAIN, footer=lambda footer: setattr(footer.stripes[0], "offset", 9999)), "file"))


def test_types_that_are_no_tree_are_noticed():
    """Column ids are those of a tree, parents first."""
    with pytest.raises(CorruptFileError, match="type"):
        read_tail(MemoryReader(edited(PLAIN, footer=lambda footer: footer.types[6].subtypes.append(3)), "file"))
    with pytest.raises(CorruptFileError, match="belong to no column"):
        read_tail(
            MemoryReader(
                edited(PLAIN, footer=lambda footer: (footer.types.add(kind=3), footer.statistics.add())), "file"
            )
        )


def test_fields_nobody_knows_yet_survive():
    """A footer is written back with what newer writers added."""
    _, tail = opened(PLAIN)
    unknown = tail.footer.SerializeToString() + b"\xf8\x07\x2a"
    again = pb.Footer.FromString(unknown)
    assert again.SerializeToString().endswith(b"\xf8\x07\x2a")


def test_statistics_without_indexes_arent_trusted():
    """Java writes empty statistics when it writes no indexes (HIVE-20604)."""
    _, tail = opened(acid_file(EVENTS, row_index_stride=0))
    assert tail.stripe_stats(0) is None


def test_a_stripe_footer_tells_streams_and_encodings():
    """Every column has an encoding; streams add up to the stripe."""
    reader, tail = opened(FILE)
    footer = read_stripe_footer(reader, tail, 0)
    assert len(footer.columns) == len(tail.footer.types)
    assert sum(stream.length for stream in footer.streams) == tail.stripes[0].index_length + tail.stripes[0].data_length


def test_a_broken_stripe_footer_names_its_stripe():
    """Bytes of the stripe's footer are checked when they are read."""
    _, tail = opened(FILE)
    stripe = tail.stripes[0]
    data = bytearray(FILE)
    at = stripe.offset + stripe.index_length + stripe.data_length
    data[at : at + 3] = b"\xff\xff\xff"
    reader, tail = opened(bytes(data))
    with pytest.raises(CorruptFileError, match="footer of stripe 1"):
        read_stripe_footer(reader, tail, 0)


def bomb(*, footer=b"", metadata=b""):
    """A file without stripes whose footer, or statistics of stripes, are these bytes, in ZLIB."""
    plain = pb.Footer(header_length=3, content_length=3, types=[pb.Type(kind=12)], row_index_stride=10_000)
    footer, metadata = (
        compress_section(part, Compression.ZLIB, 4 << 20) for part in (footer or plain.SerializeToString(), metadata)
    )
    postscript = pb.PostScript(
        footer_length=len(footer),
        compression=1,
        compression_block_size=4 << 20,
        version=(0, 12),
        metadata_length=len(metadata),
        writer_version=6,
        magic="ORC",
    ).SerializeToString()
    return b"ORC" + metadata + footer + postscript + bytes([len(postscript)])


def test_a_short_tail_that_grows_large_is_refused():
    """
    A thousandth of a footer's bytes may be stored, and each two of them may be an empty message, which takes many times
    as much in memory: the daemon would end of 64 KiB.
    """
    data = bomb(footer=b"\x0a\0" * (9 << 20))
    assert len(data) < 40 << 10
    with pytest.raises(RefusedError, match="footer at byte 3: has more than 16 MiB") as refused:
        opened(data)
    assert refused.value.reason is Reason.UNSUPPORTED_FORMAT
    with pytest.raises(CorruptFileError, match="statistics of more than 0 stripes of 1 columns"):
        opened(bomb(metadata=b"\x0a\0" * (1 << 20)))
    with pytest.raises(CorruptFileError, match="can't be read"):
        opened(bomb(metadata=b"\x80" * (2 << 20)))


def test_a_declared_length_is_not_read_before_it_is_judged():
    """A postscript may claim all of a large file for the footer."""

    class Large:
        name, size = "large", 1 << 40

        def read_at(self, offset, length):
            assert length <= 16 << 10
            end = pb.PostScript(footer_length=1 << 39, compression=0, magic="ORC").SerializeToString()
            return bytes(length - len(end) - 1) + end + bytes([len(end)])

    with pytest.raises(RefusedError, match="has more than 16 MiB"):
        read_tail(Large())


def test_long_statistics_of_many_columns_are_read():
    """Those of each stripe and column are counted before, and no more."""
    row = row_type([(f"c{n}", "string") for n in range(600)])
    data = plain_file(row, [tuple("x" * 2000 for _ in range(600))] * 2, compression=0)
    _, tail = opened(data)
    assert tail.postscript.metadata_length > 1 << 20
    assert len(tail.stripe_stats(0)) == 601
