"""
Insert-only tables of files by any writer: how they are compacted, how readers read what came out, and what must hold.
"""

import hashlib
import io
from dataclasses import dataclass, field

import pyarrow as pa
from pyarrow import parquet

from compactor.handles import MemoryReader
from compactor.parquet.footer import read_footer
from compactor.parquet.pages import pages
from compactor.parquet.row_group import load
from compactor.planning.facts import StoredAs
from compactor.planning.insert_only.names import names_apart
from tests.compacting import ORC_INPUT, deltas_of, go_through, insert_only_compaction
from tests.unit.parquet.files import bits

PARQUET = StoredAs("org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat", None)
ORC = StoredAs(ORC_INPUT, None)
SMALL = {"copied": 1, "encoded anew": 8 << 20}
"""`splice.min_stripe_bytes` by what becomes of row groups and stripes."""


def compacted(location, files, stored, **sections):
    """Compact files of one table; the new files as bytes by name, and the plan's one output."""
    deltas_of(location, files)
    compaction = insert_only_compaction(location, stored, **sections)
    try:
        published = go_through(compaction)
    finally:
        compaction.discard()
    (output,) = published.staged.plan.outputs
    made = {path.name: path.read_bytes() for path in (location / output.name).iterdir() if path.name[0] != "_"}
    return made, output


def rows(data):
    """Rows of a Parquet file, as bits, or None where Arrow can't read it."""
    try:
        found = parquet.ParquetFile(io.BytesIO(data)).read(use_threads=False)
    except (pa.ArrowException, OSError, ValueError):
        return None
    return [repr(row) for row in zip(*(bits(column) for column in found.columns), strict=True)]


def places(data):
    """The bytes of a Parquet file that aren't values: page headers, and all from the last page on."""
    reader = MemoryReader(data)
    found, last = list[int](), 0
    for group in read_footer(reader).row_groups:
        for chunk, stored in zip(group.chunks, load(reader, group).stored, strict=True):
            at = 0
            for page in pages(stored):
                found += range(chunk.begin + at, chunk.begin + page.begin)
                at = page.end
            last = max(last, chunk.begin + at)
    return [*found, *range(last, len(data))]


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    What became of files.

    Args:
        joined: numbers of the files whose rows one new file has, for each of those.
        carried: number of each file that was carried over, and why.
    """

    joined: list[list[int]] = field(default_factory=list)
    carried: dict[int, str] = field(default_factory=dict)


class Readers:
    """
    Readers by name, each a function of a file's bytes that returns its rows, or None where it can't read them. What a
    file says to a reader is asked once.
    """

    def __init__(self, readers):
        self._readers = readers
        self._known = {}

    def rows(self, name, data):
        """What a reader says of a file; Hive doesn't ask one about a file of no bytes."""
        if not data:
            return []
        key = name, hashlib.blake2b(data).digest()
        if key not in self._known:
            self._known[key] = self._readers[name](data)
        return self._known[key]

    def require_unchanged(self, location, files, stored, **sections):
        """
        Compact files. Each must be carried over byte for byte, or its rows stand in one new file: in their order, for
        each reader that could read it; and none could read only some of those that became one. There is an empty delta
        beside them, for a single file.
        """
        (location / "delta_0000900_0000900_0000").mkdir(parents=True)
        made, output = compacted(location, files, stored, **sections)
        outcome, left = Outcome(), dict(made)
        for copy in output.copies:
            number = _number(copy.path)
            assert left.pop(copy.name) == files[number], (copy.name, number)
            outcome.carried[number] = copy.reason
        for join in output.joins:
            sources = list(dict.fromkeys(_number(segment.path) for segment in join.segments))
            for number, name in list(zip(sources, names_apart(join.name, len(sources)), strict=True)):
                if name in left:
                    assert left.pop(name) == files[number], (name, number)
                    outcome.carried[number] = "it can't be read to its end"
                    sources.remove(number)
            if not sources:
                continue
            outcome.joined.append(sources)
            data = left.pop(join.name)
            for name in self._readers:
                before = [found for number in sources if (found := self.rows(name, files[number])) != []]
                if not before or any(found is not None for found in before):
                    assert None not in before, (name, "reads only some of", sources)
                    after = self.rows(name, data)
                    assert after == [row for found in before for row in found], (name, sources)
        assert left == {}
        used = sorted([*outcome.carried, *(number for sources in outcome.joined for number in sources)])
        assert used == list(range(len(files)))
        return outcome


def _number(path):
    """Of a file that `deltas_of` laid out."""
    return int(path.split("_")[1]) - 1
