"""
Joins text files line by line: plain ones by their bytes, those in gzip by their members.

A line that ends with its file gets a newline before the next file begins. Which files are text, and that no property
changes where a line ends, is the caller's knowledge.
Source: docs/compaction.md, "Insert-only tables"; Hadoop's LineRecordReader (a byte order mark counts only at a file's
start, also inside a compressed one; a line ends with LF, CR or CRLF), GzipCodec (reads members one after the other,
HADOOP-6835), CompressionCodecFactory (`.GZ` names no codec), RFC 1952.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from isal import isal_zlib

from compactor.concat.samples import require_copied
from compactor.errors import CorruptFileError, VerificationError
from compactor.handles import RandomReader, Sink
from compactor.reasons import Reason

PLAIN: Final = "text"
GZIP: Final = "gzip"
_PLAIN_EXTENSIONS: Final = {"", ".txt", ".csv", ".tsv", ".json"}
_NEWLINE: Final = b"\n"
_MARK: Final = b"\xef\xbb\xbf"
_INVALID: Final[type[Exception]] = isal_zlib.IsalError  # type: ignore[assignment]  # its stub says an instance
_PIECE: Final = 1 << 20
_STEP: Final = 16 << 10
"""Bytes that the decompressor gets at once: behind a member it copies all that it hasn't used."""
_MOST: Final = 8 << 20
"""Bytes that are decompressed at once."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a file lies in the joined one, in bytes, without the newline that may follow it."""

    reader: RandomReader
    at: int
    length: int


def kind_of(extension: str) -> str | None:
    """How files with this extension are read, PLAIN or GZIP; None: perhaps by a codec that isn't known here."""
    if extension == ".gz":
        return GZIP
    return PLAIN if extension.lower() in _PLAIN_EXTENSIONS else None


def why_whole(reader: RandomReader, kind: str) -> str | None:
    """
    Why a file can't stand behind another one; None: it can.

    Raises:
        CorruptFileError: the beginning of a file in gzip can't be decompressed.
    """
    start = reader.read_at(0, len(_MARK))
    if kind == GZIP:
        if start[:2] != b"\x1f\x8b":
            return "it isn't in gzip, as its name says"
        start = b""
        for content in _content(reader, _STEP):
            start += content[: len(_MARK)]
            if len(start) >= len(_MARK):
                break
    return "it begins with a byte order mark" if start.startswith(_MARK) else None


def join(readers: Sequence[RandomReader], kind: str, sink: Sink) -> tuple[Placed, ...]:
    """
    Write the lines of all files, in their order.

    Raises:
        CorruptFileError: a file in gzip can't be decompressed.
    """
    placed = []
    for place, reader in enumerate(readers):
        placed.append(Placed(reader, sink.position, reader.size))
        sink.copy_from(reader, 0, reader.size)
        last = place == len(readers) - 1
        if kind == PLAIN and not last and reader.read_at(reader.size - 1, 1) != _NEWLINE:
            sink.write(_NEWLINE)
        elif kind == GZIP and _last_byte(reader) not in {b"", _NEWLINE} and not last:
            sink.write(isal_zlib.compress(_NEWLINE, wbits=31))
    return tuple(placed)


def check(result: RandomReader, placed: Sequence[Placed], kind: str) -> None:
    """
    Compare a file with those it was made of: lengths, the first and last bytes of each, and what lies between.

    Raises:
        VerificationError: the first difference.
    """
    end = 0
    for one in placed:
        between = result.read_at(end, one.at - end)
        if len(between) != one.at - end or (between and _plain(between, kind) != _NEWLINE):
            raise _different(f"{result.name} has other bytes than a newline between two files at byte {end}")
        require_copied(result, one.at, one.reader, 0, one.length)
        end = one.at + one.length
    if end != result.size:
        raise _different(f"{result.name} has {result.size} bytes, its files end at byte {end}")


def _plain(data: bytes, kind: str) -> bytes:
    if kind == PLAIN:
        return data
    try:
        return bytes(isal_zlib.decompress(data, wbits=31))
    except _INVALID:
        return b""


def _last_byte(reader: RandomReader) -> bytes:
    """
    The last byte of a gzip file's content; empty without any.

    Raises:
        CorruptFileError: see `_content`.
    """
    last = b""
    for content in _content(reader, _PIECE):
        last = content[-1:] or last
    return last


def _content(reader: RandomReader, piece: int) -> Iterator[bytes]:
    """
    A gzip file's content, of which `piece` bytes are read at once.

    Raises:
        CorruptFileError: the file isn't a sequence of whole members, so nothing could be read behind it.
    """
    begun, inflate = False, isal_zlib.decompressobj(wbits=31)
    try:
        for data in _steps(reader, piece):
            rest = data
            while rest:
                begun = True
                yield bytes(inflate.decompress(rest, _MOST))
                rest = inflate.unconsumed_tail
                if inflate.eof:
                    rest, inflate, begun = inflate.unused_data, isal_zlib.decompressobj(wbits=31), False
    except _INVALID as error:
        raise CorruptFileError(Reason.CORRUPT_FILE, f"{reader.name} can't be decompressed ({error})") from error
    if begun:
        raise CorruptFileError(Reason.CORRUPT_FILE, f"{reader.name} can't be decompressed (it is cut off)")


def _steps(reader: RandomReader, piece: int) -> Iterator[bytes]:
    for at in range(0, reader.size, piece):
        data = reader.read_at(at, piece)
        for start in range(0, len(data), _STEP):
            yield data[start : start + _STEP]


def _different(message: str) -> VerificationError:
    return VerificationError(Reason.VERIFICATION_FAILED, message)
