"""Compressed sections: chunks in, the same bytes out; damage gets one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.errors import CorruptFileError, RefusedError
from compactor.orc.format.codec import Compression, check_supported, compress_section, decompress_section
from compactor.reasons import Reason
from tests.unit.orc.files import refusal

SUPPORTED = (Compression.NONE, Compression.ZLIB, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD)
COMPRESSED = SUPPORTED[1:]


@given(
    st.binary(max_size=3000) | st.text("ab", max_size=3000).map(str.encode),
    st.sampled_from(SUPPORTED),
    st.integers(1, 4000),
)
def test_a_section_comes_back_as_it_was(data, kind, block_size):
    """Any bytes survive any codec at any block size."""
    assert decompress_section(compress_section(data, kind, block_size), kind, block_size, "file", 1 << 20) == data


@pytest.mark.parametrize("kind", COMPRESSED)
def test_long_matches_and_literals_are_counted_right(kind):
    """Lengths beyond one byte in LZ4 and Snappy blocks don't confuse the size."""
    data = bytes(range(256)) * 4 + b"x" * 5000 + bytes(reversed(range(256))) * 300
    assert decompress_section(compress_section(data, kind, 1 << 18), kind, 1 << 18, "file", 1 << 20) == data


@given(st.binary(min_size=1, max_size=60), st.sampled_from(COMPRESSED))
def test_noise_never_raises_anything_else(data, kind):
    """Bytes that are no section are refused as corrupt, or taken for stored chunks; nothing else escapes."""
    said = refusal(lambda: decompress_section(data, kind, 1000, "file", 1 << 20))
    assert said is None or (said.startswith("file") and "\n" not in said)


@pytest.mark.parametrize("kind", COMPRESSED)
def test_a_chunk_that_grows_beyond_the_block_is_refused(kind):
    """A reader allocates by the block size, so a larger chunk is damage."""
    packed = compress_section(b"a" * 5000, kind, 5000)
    with pytest.raises(CorruptFileError, match="block size of 4999"):
        decompress_section(packed, kind, 4999, "file", 1 << 20)


@pytest.mark.parametrize("kind", COMPRESSED)
def test_a_cut_section_is_refused(kind):
    """A section that ends inside a chunk or its header says where."""
    packed = compress_section(b"abc" * 500, kind, 4000)
    for length in (1, 2, len(packed) - 1):
        with pytest.raises(CorruptFileError, match="byte 0"):
            decompress_section(packed[:length], kind, 4000, "file", 1 << 20)


def test_an_impossible_block_size_is_a_mistake_of_the_caller():
    """Chunk headers have 23 bits for a length."""
    with pytest.raises(ValueError, match="8388608"):
        compress_section(b"abc", Compression.ZLIB, 1 << 23)


@pytest.mark.parametrize(("number", "word"), [(3, "LZO"), (6, "BROTLI"), (9, "kind 9")])
def test_codecs_that_cant_be_read_are_refused(number, word):
    """LZO, BROTLI and unknown kinds name themselves."""
    with pytest.raises(RefusedError, match=word) as refused:
        check_supported(number, "file")
    assert refused.value.reason is Reason.UNSUPPORTED_COMPRESSION


def test_supported_codecs_pass():
    """The five codecs that Hive 4 and we know."""
    assert tuple(check_supported(kind, "file") for kind in SUPPORTED) == SUPPORTED
