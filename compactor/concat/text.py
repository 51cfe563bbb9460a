"""
Joins text files line by line: plain ones by their bytes, those in gzip or bzip2 by their members.

A line that ends with its file gets a newline before the next file begins. Which files are text, and that no property
changes where a line ends, is the caller's knowledge.
Source: docs/compaction.md, "Insert-only tables"; Hadoop's LineRecordReader (a byte order mark counts only at a file's
start, also inside a compressed one; a line ends with LF, CR or CRLF), GzipCodec (reads members one after the other,
HADOOP-6835), BZip2Codec (likewise, HADOOP-4012), CompressionCodecFactory (`.GZ` names no codec), RFC 1952.
"""

import bz2
import gzip
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from isal import igzip_lib

from compactor.errors import CorruptFileError, VerificationError
from compactor.handles import RandomReader, Sink, require_copied

PLAIN: Final = "text"
GZIP: Final = "gzip"
BZIP2: Final = "bzip2"
_PLAIN_EXTENSIONS: Final = {"", ".txt", ".csv", ".tsv", ".json"}
_NEWLINE: Final = b"\n"
_MARK: Final = b"\xef\xbb\xbf"
_INVALID: Final[tuple[type[Exception], ...]] = (igzip_lib.error, OSError)  # type: ignore[assignment]  # a stub says an instance
_PIECE: Final = 1 << 20
_STEP: Final = 16 << 10
"""Bytes that the decompressor gets at once: behind a member it copies all that it hasn't used."""
_MOST: Final = 8 << 20
"""Bytes that are decompressed at once."""


class _Inflater(Protocol):
    """Decompresses one member, as `bz2.BZ2Decompressor` does."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, _most: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class _Codec:
    """
    A codec whose members may follow each other in a file.

    Args:
        begins: the first bytes of a member.
        line: a member that holds a newline.
    """

    begins: bytes
    line: bytes
    inflater: Callable[[], _Inflater]


_CODECS: Final[Mapping[str, _Codec]] = {
    GZIP: _Codec(
        b"\x1f\x8b",
        gzip.compress(_NEWLINE, mtime=0),
        partial(igzip_lib.IgzipDecompressor, flag=igzip_lib.DECOMP_GZIP),
    ),
    BZIP2: _Codec(b"BZh", bz2.compress(_NEWLINE), bz2.BZ2Decompressor),
}
_EXTENSIONS: Final = {".gz": GZIP, ".bz2": BZIP2}


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a file lies in the joined one, in bytes, without the newline that may follow it."""

    reader: RandomReader
    at: int
    length: int


def kind_of(extension: str) -> str | None:
    """How files with this extension are read, PLAIN, GZIP or BZIP2; None: perhaps by a codec that isn't known here."""
    if extension in _EXTENSIONS:
        return _EXTENSIONS[extension]
    return PLAIN if extension.lower() in _PLAIN_EXTENSIONS else None


def why_whole(reader: RandomReader, kind: str) -> str | None:
    """
    Why a file can't stand behind another one; None: it can.

    Raises:
        CorruptFileError: the beginning of a compressed file can't be decompressed.
    """
    start = reader.read_at(0, len(_MARK))
    if kind != PLAIN:
        if not reader.size:
            return "it is empty"
        if not start.startswith(_CODECS[kind].begins):
            return f"it isn't in {kind}, as its name says"
        start = b""
        for content in _content(reader, kind, _STEP):
            start += content[: len(_MARK)]
            if len(start) >= len(_MARK):
                break
    return "it begins with a byte order mark" if start.startswith(_MARK) else None


def join(readers: Sequence[RandomReader], kind: str, sink: Sink) -> tuple[Placed, ...]:
    """
    Write the lines of all files, in their order.

    Raises:
        CorruptFileError: a compressed file can't be decompressed.
    """
    placed = []
    for place, reader in enumerate(readers):
        placed.append(Placed(reader, sink.position, reader.size))
        sink.copy_from(reader, 0, reader.size)
        last = place == len(readers) - 1
        if kind != PLAIN:  # read to its end also where it is the last: what is cut off is noticed
            ended = _last_byte(reader, kind) in {b"", _NEWLINE}
            line = _CODECS[kind].line
        else:
            ended = last or not reader.size or reader.read_at(reader.size - 1, 1) == _NEWLINE
            line = _NEWLINE
        if not (ended or last):
            sink.write(line)
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
        if between not in {b"", _NEWLINE if kind == PLAIN else _CODECS[kind].line} or len(between) != one.at - end:
            raise VerificationError(f"{result.name} has other bytes than a newline between two files at byte {end}")
        require_copied(result, one.at, one.reader, 0, one.length)
        end = one.at + one.length
    if end != result.size:
        raise VerificationError(f"{result.name} has {result.size} bytes, its files end at byte {end}")


def _last_byte(reader: RandomReader, kind: str) -> bytes:
    """
    The last byte of a compressed file's content; empty without any.

    Raises:
        CorruptFileError: see `_content`.
    """
    last = b""
    for content in _content(reader, kind, _PIECE):
        last = content[-1:] or last
    return last


def _content(reader: RandomReader, kind: str, piece: int) -> Iterator[bytes]:
    """
    A compressed file's content, of which `piece` bytes are read at once.

    Raises:
        CorruptFileError: the file isn't a sequence of whole members, so nothing could be read behind it.
    """
    begun, inflater = False, _CODECS[kind].inflater()
    for data in _steps(reader, piece):
        rest = data
        while rest or not (inflater.eof or inflater.needs_input):
            try:
                content = inflater.decompress(rest, _MOST)
            except _INVALID as error:
                raise CorruptFileError(f"{reader.name} can't be decompressed ({error})") from error
            begun, rest = True, b""
            yield bytes(content)
            if inflater.eof:
                begun, rest, inflater = False, inflater.unused_data, _CODECS[kind].inflater()
    if begun:
        raise CorruptFileError(f"{reader.name} can't be decompressed (it is cut off)")


def _steps(reader: RandomReader, piece: int) -> Iterator[bytes]:
    for at in range(0, reader.size, piece):
        data = reader.read_at(at, piece)
        for start in range(0, len(data), _STEP):
            yield data[start : start + _STEP]
