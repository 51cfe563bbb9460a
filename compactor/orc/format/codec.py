"""
Compression of ORC sections: chunks of at most one block, each behind a three-byte header.

A header holds the chunk's length times two, plus one when the chunk is stored uncompressed. Kind NONE has no headers.
Source: the ORC specification, "Compression".
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import Final

import pyarrow as pa
from isal import isal_zlib

from compactor.errors import CorruptFileError, RefusedError
from compactor.reasons import Reason

HEADER: Final = 3
_MAX_CHUNK: Final = (1 << 23) - 1
_INVALID: Final[type[Exception]] = isal_zlib.IsalError  # type: ignore[assignment]  # its stub says an instance
_RAW_DEFLATE: Final = -15
"""Deflate without the headers of zlib, as `wbits` says it."""


class Compression(IntEnum):
    """Compression kinds with their numbers in the postscript."""

    NONE = 0
    ZLIB = 1
    SNAPPY = 2
    LZO = 3
    LZ4 = 4
    ZSTD = 5
    BROTLI = 6


_ARROW_NAMES: Final = {Compression.SNAPPY: "snappy", Compression.LZ4: "lz4_raw", Compression.ZSTD: "zstd"}


def check_supported(number: int, where: str) -> Compression:
    """
    The compression kind of a postscript, if this package can read and write it.

    Raises:
        RefusedError: UNSUPPORTED_COMPRESSION for LZO, BROTLI and kinds that ORC doesn't define.
    """
    known = number in Compression._value2member_map_
    if not known or number in (Compression.LZO, Compression.BROTLI):
        what = Compression(number).name if known else f"kind {number}"
        raise RefusedError(Reason.UNSUPPORTED_COMPRESSION, f"{where}: compression {what} can't be read here")
    return Compression(number)


def decompress_section(data: bytes, kind: Compression, block_size: int, where: str, most: int) -> bytes:
    """
    Decompress the chunks of a section (metadata, footer, stripe footer or one stream).

    Args:
        data: the whole section.
        block_size: the postscript's; no chunk may grow beyond it.
        where: file and section, for messages.
        most: bytes that the section may have without compression. A thousandth of them may be stored.

    Raises:
        CorruptFileError: a header or a chunk is invalid.
        RefusedError: UNSUPPORTED_FORMAT, the section is longer.
    """
    parts, size = list[bytes](), 0
    for part in [data] if kind is Compression.NONE else decompressed_chunks(data, kind, block_size, where):
        size += len(part)
        require_length(size, where, most)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def require_length(length: int, where: str, most: int) -> None:
    """
    Raises:
        RefusedError: UNSUPPORTED_FORMAT, a section is longer than what is read here.
    """
    if length > most:
        raise RefusedError(Reason.UNSUPPORTED_FORMAT, f"{where}: has more than {most >> 20} MiB, which isn't read here")


def decompressed_chunks(data: bytes, kind: Compression, block_size: int, where: str) -> Iterator[bytes]:
    """Like `decompress_section`, chunk by chunk; of any kind but NONE, which has no chunks."""
    at = 0
    for chunk in chunks(data, where):
        yield content(chunk, kind, block_size, f"{where}, chunk at byte {at}")
        at += len(chunk)


def chunks(data: bytes | memoryview, where: str) -> Iterator[bytes | memoryview]:
    """
    Each chunk of a section as it is stored, with its header; of any kind but NONE, which has no chunks.

    Raises:
        CorruptFileError: a header is invalid.
    """
    at = 0
    while at < len(data):
        if at + HEADER > len(data):
            raise CorruptFileError(f"{where}: compressed section ends inside a chunk header at byte {at}")
        end = at + HEADER + (int.from_bytes(data[at : at + HEADER], "little") >> 1)
        if end > len(data):
            message = f"{where}: chunk at byte {at} needs {end - at - HEADER} bytes, {len(data) - at - HEADER} are left"
            raise CorruptFileError(message)
        yield data[at:end]
        at = end


def content(chunk: bytes | memoryview, kind: Compression, block_size: int, where: str) -> bytes:
    """
    What a chunk with its header holds.

    Args:
        where: file, section and chunk, for messages.

    Raises:
        CorruptFileError: the chunk is invalid.
    """
    if chunk[0] & 1:
        return bytes(chunk[HEADER:])
    return _decompress_chunk(chunk[HEADER:], kind, block_size, where)


def compress_section(data: bytes, kind: Compression, block_size: int) -> bytes:
    """
    Cut a section at `block_size` and compress each piece; a piece that doesn't shrink is stored uncompressed.

    Raises:
        ValueError: the block size doesn't fit a chunk header (below 8 MiB).
    """
    return data if kind is Compression.NONE else b"".join(compressed_chunks(data, kind, block_size))


def compressed_chunks(data: bytes | memoryview, kind: Compression, block_size: int) -> Iterator[bytes]:
    """
    The chunks of a section with their headers; of any kind but NONE, which has no chunks.

    Raises:
        ValueError: the block size doesn't fit a chunk header (below 8 MiB).
    """
    if not 0 < block_size <= _MAX_CHUNK:
        raise ValueError(f"compression block size {block_size} isn't in 1..{_MAX_CHUNK}")
    for at in range(0, len(data), block_size):
        raw = data[at : at + block_size]
        packed = _compress_chunk(raw, kind)
        original = len(packed) >= len(raw)
        body = raw if original else packed
        yield b"".join(((len(body) << 1 | original).to_bytes(HEADER, "little"), body))


def _compress_chunk(raw: bytes | memoryview, kind: Compression) -> bytes:
    if kind is Compression.ZLIB:
        deflated: bytes = isal_zlib.compress(raw, wbits=_RAW_DEFLATE)
        return deflated
    packed: bytes = pa.Codec(_ARROW_NAMES[kind]).compress(raw, asbytes=True)
    return packed


def _decompress_chunk(chunk: bytes | memoryview, kind: Compression, block_size: int, where: str) -> bytes:
    try:
        if kind is Compression.ZLIB:
            unpacker = isal_zlib.decompressobj(wbits=_RAW_DEFLATE)
            raw = unpacker.decompress(chunk, block_size)
            whole = unpacker.eof
        elif kind is Compression.ZSTD:
            with pa.CompressedInputStream(pa.BufferReader(chunk), "zstd") as stream:
                raw, whole = stream.read(block_size), stream.read(1) == b""
        else:
            size = _snappy_size(chunk) if kind is Compression.SNAPPY else _lz4_size(chunk)
            whole = size <= block_size
            raw = pa.Codec(_ARROW_NAMES[kind]).decompress(chunk, size, asbytes=True) if whole else b""
    except (_INVALID, OSError, pa.ArrowException, IndexError) as error:
        raise CorruptFileError(f"{where}: not {kind.name} data ({str(error).splitlines()[0]})") from error
    if not whole:
        raise CorruptFileError(f"{where}: is incomplete or grows beyond the block size of {block_size} bytes")
    return raw


def _snappy_size(chunk: bytes | memoryview) -> int:
    """Uncompressed size of a raw Snappy block, which starts with that size as a varint."""
    size = shift = 0
    for byte in chunk[:5]:
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size
        shift += 7
    raise OSError("no uncompressed size at its start")


def _lz4_size(chunk: bytes | memoryview) -> int:
    """
    Uncompressed size of a raw LZ4 block, which doesn't state it: the sum over the block's sequences. IndexError when
    the block is cut off.
    """
    at = size = 0
    while at < len(chunk):
        token = chunk[at]
        at += 1
        literals = token >> 4
        if literals == 15:
            while (more := chunk[at]) == 255:
                literals += 255
                at += 1
            literals += more
            at += 1
        at += literals
        size += literals
        if at >= len(chunk):
            return size
        at += 2
        match = token & 15
        if match == 15:
            while (more := chunk[at]) == 255:
                match += 255
                at += 1
            match += more
            at += 1
        size += match + 4
    return size
