"""
How bucket files get broken: bytes changed, cut off or replaced, and tails that say something else than they should.
"""

from dataclasses import dataclass
from pathlib import Path

from compactor.handles import MemoryReader
from compactor.orc.format.codec import Compression, compress_section, decompress_section
from compactor.orc.format.proto import orc_pb2 as pb
from compactor.orc.format.tail import read_tail


@dataclass(frozen=True)
class Part:
    """Where a part of an ORC file lies, in bytes."""

    start: int
    stop: int


def parts(data):
    """The parts of a good ORC file by name; stripes from 0 (`index 0`, `data 0`, `stripe footer 0`)."""
    tail = read_tail(MemoryReader(bytes(data), "whole"))
    found = {}
    for number, stripe in enumerate(tail.stripes):
        at = stripe.offset
        for name, length in (
            ("index", stripe.index_length),
            ("data", stripe.data_length),
            ("stripe footer", stripe.footer_length),
        ):
            found[f"{name} {number}"] = Part(at, at + length)
            at += length
    postscript = len(data) - 1 - data[-1]
    footer = postscript - tail.postscript.footer_length
    found["metadata"] = Part(footer - tail.postscript.metadata_length, footer)
    found["footer"] = Part(footer, postscript)
    found["postscript"] = Part(postscript, len(data) - 1)
    return found


def flip(path, at, mask=0xFF):
    """Change one byte; the file keeps its length and its time."""
    data = bytearray(Path(path).read_bytes())
    data[at] ^= mask
    Path(path).write_bytes(data)


def truncate(path, keep):
    """Keep so many bytes, or that share of them."""
    data = Path(path).read_bytes()
    Path(path).write_bytes(data[: int(len(data) * keep) if isinstance(keep, float) else keep])


def copy_below(path, name):
    """Copy a file into a directory beside it."""
    path = Path(path)
    (path.parent / name).mkdir()
    (path.parent / name / path.name).write_bytes(path.read_bytes())


def rewrite_tail(path, *, footer=lambda _: None, metadata=lambda _: None, postscript=lambda _: None):
    """Write a file's tail anew after the given functions changed the messages; stripes stay as they are."""
    data = Path(path).read_bytes()
    where = parts(data)
    message = pb.PostScript.FromString(data[where["postscript"].start : where["postscript"].stop])
    kind, block = Compression(message.compression), message.compression_block_size
    changed = []
    for name, parse, change in (("metadata", pb.Metadata, metadata), ("footer", pb.Footer, footer)):
        section = parse.FromString(
            decompress_section(data[where[name].start : where[name].stop], kind, block, name, 1 << 20)
        )
        change(section)
        changed.append(compress_section(section.SerializeToString(), kind, block))
    message.metadata_length, message.footer_length = map(len, changed)
    postscript(message)
    last = message.SerializeToString()
    Path(path).write_bytes(data[: where["metadata"].start] + b"".join(changed) + last + bytes([len(last)]))
