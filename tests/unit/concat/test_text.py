"""Claims about text files that are joined line by line; Python's own `gzip` and line splitting are the other party."""

import bz2
import gzip
import io
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.concat import text
from compactor.errors import CorruptFileError, VerificationError
from compactor.handles import MemoryReader
from tests.unit.orc.files import MemorySink

CONTENTS = st.lists(st.text("ab\r\n", min_size=1, max_size=12), min_size=1, max_size=5)


def lines(content: str) -> list[str]:
    """The lines as Hadoop's reader splits them: they end with LF, CR or CRLF, the last one perhaps with the file."""
    return [line.rstrip("\r\n") for line in io.StringIO(content, newline="")]


def joined(contents: Sequence[bytes], kind: str) -> tuple[bytes, tuple[text.Placed, ...]]:
    sink = MemorySink()
    placed = text.join([MemoryReader(one, f"file {number}") for number, one in enumerate(contents)], kind, sink)
    return sink.getvalue(), placed


@given(CONTENTS)
def test_plain_files_keep_their_lines(contents: list[str]) -> None:
    """No two lines run together, and no empty line comes up or goes, wherever CR and LF stand."""
    data, placed = joined([one.encode() for one in contents], text.PLAIN)
    assert lines(data.decode()) == [line for one in contents for line in lines(one)]
    text.check(MemoryReader(data, "result"), placed, text.PLAIN)


CODECS = {text.GZIP: gzip, text.BZIP2: bz2}


@given(CONTENTS, st.integers(1, 3), st.sampled_from([text.GZIP, text.BZIP2]))
def test_compressed_files_keep_their_lines(contents: list[str], members: int, kind: str) -> None:
    """So it is behind a codec, also where a file has several members, or no content."""
    codec = CODECS[kind]
    files = []
    for one in contents:
        data = one.encode()
        cuts = [data[len(data) * place // members : len(data) * (place + 1) // members] for place in range(members)]
        files.append(b"".join(codec.compress(cut) for cut in cuts))
    files.insert(1, codec.compress(b""))
    data, placed = joined(files, kind)
    assert lines(codec.decompress(data).decode()) == [line for one in contents for line in lines(one)]
    text.check(MemoryReader(data, "result"), placed, kind)


@pytest.mark.parametrize("kind", [text.GZIP, text.BZIP2])
def test_large_files_keep_their_lines(kind) -> None:
    """Also those that are decompressed in many steps, and whose members end within one."""
    words = [f"{number * 40503 % 99991}" for number in range(400_000)]
    files = [CODECS[kind].compress("\n".join(words[start::3]).encode()) for start in range(3)]
    assert len(files[0]) > 5 * text._STEP
    data, placed = joined([b"".join(files), files[0], files[1]], kind)
    found = CODECS[kind].decompress(data).decode().split("\n")
    first = [*words[0::3][:-1], words[0::3][-1] + words[1], *words[1::3][1:-1]]
    assert found[: len(first)] == first
    assert found[-len(words[1::3]) - len(words[0::3]) :] == words[0::3] + words[1::3]
    text.check(MemoryReader(data, "result"), placed, kind)


@pytest.mark.parametrize("kind", [text.GZIP, text.BZIP2])
@pytest.mark.parametrize("damage", [lambda data: data[:-3], lambda data: data + b"x", lambda data: data + b"\0" * 512])
def test_what_nothing_could_be_read_behind_is_refused(damage, kind) -> None:
    """A compressed file that is cut off, or goes on with something else, would hide the files behind it."""
    whole = CODECS[kind].compress(b"a\n" * 100)
    for files in ([damage(whole), whole], [whole, damage(whole)]):
        with pytest.raises(CorruptFileError):
            joined(files, kind)


def test_a_mark_that_counts_only_at_the_start_keeps_a_file_whole() -> None:
    """Readers drop a byte order mark at a file's start, and would take it for text behind another file."""
    mark = "\ufeffa\n".encode()
    assert text.why_whole(MemoryReader(mark), text.PLAIN)
    for members in ([mark], [b"", mark[:2], mark[2:]]):
        assert text.why_whole(MemoryReader(b"".join(map(gzip.compress, members))), text.GZIP)
    assert text.why_whole(MemoryReader(gzip.compress(b"a")), text.GZIP) is None
    assert text.why_whole(MemoryReader(b"a\n"), text.GZIP)
    assert text.why_whole(MemoryReader(bz2.compress(mark)), text.BZIP2)
    assert text.why_whole(MemoryReader(gzip.compress(b"a")), text.BZIP2)
    assert text.why_whole(MemoryReader(b"a\n"), text.PLAIN) is None


@pytest.mark.parametrize(
    ("extension", "kind"),
    [("", "text"), (".CSV", "text"), (".gz", "gzip"), (".GZ", None), (".bz2", "bzip2"), (".lzo", None)],
)
def test_the_extension_tells_the_codec(extension: str, kind: str | None) -> None:
    """An extension that isn't known may belong to a codec of the cluster's own."""
    assert text.kind_of(extension) == kind


@given(CONTENTS, st.data())
def test_another_byte_in_the_result_is_found(contents: list[str], data: st.DataObject) -> None:
    """Small files are compared whole."""
    made, placed = joined([one.encode() for one in contents], text.PLAIN)
    at = data.draw(st.integers(0, len(made) - 1))
    changed = made[:at] + bytes([made[at] ^ 1]) + made[at + 1 :]
    for wrong in (changed, made[:-1], made + b"\n"):
        with pytest.raises(VerificationError):
            text.check(MemoryReader(wrong, "result"), placed, text.PLAIN)
