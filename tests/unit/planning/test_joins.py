"""Which files of an insert-only table become one: the case book tests/cases/joins.txt, and what holds of every plan."""

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.acid.columns import ColumnRule
from compactor.errors import RefusedError
from compactor.planning.document import Action, FileJoin, FileRole, InputFile
from compactor.planning.facts import FileFormat, PartFacts, StoredAs, TableSpec, WholeFacts
from compactor.planning.format import kept_from, part_bytes
from compactor.planning.insert_only.formats import format_of
from compactor.planning.insert_only.joins import JoinSizes, joined
from compactor.planning.insert_only.names import LONGEST_NAME, bucket_of, new_names
from tests.casebook import Case, cases, check, size_of

BOOK = "joins.txt"
MIB = 1 << 20
LINES = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
TEXT = "org.apache.hadoop.mapred.TextInputFormat"


def part(word: str) -> PartFacts:
    rows, _, size = word.partition(":")
    stored, _, weight = size.partition("/w=")
    return PartFacts(int(rows), size_of(stored), size_of(weight or stored))


def file_of(line: str) -> tuple[InputFile, WholeFacts]:
    """A file from its line."""
    path, family, *words = shlex.split(line)
    said = dict(word.partition("=")[::2] for word in words if ":" not in word)
    parts = tuple(part(word) for word in words if ":" in word)
    size = 0 if "empty" in said else size_of(said["size"]) if "size" in said else sum(one.bytes for one in parts) or 500
    bucket = bucket_of(path.rpartition("/")[2])
    family = "" if "empty" in said else family
    facts = WholeFacts(
        family,
        None if "size" in said else parts,
        said.get("whole"),
        said.get("kept"),
        size_of(said.get("footer", "0")),
        None if said.get("needs") == "nothing" else said.get("needs", ""),
    )
    return InputFile(
        path, size, 0, FileRole.DELTA, path.partition("/")[0], -1 if bucket is None else bucket, 0, 0
    ), facts


def outcome(case: Case) -> list[str]:
    """One line a new file, more where it is made of several pieces."""
    options = case.options
    known = [file_of(line) for line in case.entries]
    name = case.look.split()[-1]
    sizes = JoinSizes(
        size_of(options["full"]),
        64 * MIB,
        size_of(options["small"]),
        size_of(options["room"]) if "room" in options else None,
    )
    kind = FileFormat("", "not known") if name == "-" else FileFormat(name)
    facts = {file.path: one for file, one in known}
    copies, joins = joined([file for file, _ in known], facts, kind, sizes, bucketed="buckets" in options)
    lines = [f"{copy.name:14} carry   {copy.path} ({copy.reason})" for copy in copies]
    for join in joins:
        for place, one in enumerate(join.segments):
            parts = f" {','.join(map(str, one.stripes))}" if one.stripes else ""
            lines.append(f"{'' if place else join.name:14} {one.action:7} {one.path}{parts} ({one.reason})")
    return lines


@cases(BOOK)
def test_case(case: Case, request: pytest.FixtureRequest) -> None:
    """Every directory of the book becomes what the book says."""
    check(BOOK, case, outcome, rewrite=request.config.getoption("--rewrite"))


def parts() -> st.SearchStrategy[PartFacts]:
    sizes = st.integers(1, 40 * MIB)
    return st.tuples(st.integers(0, 1000), sizes, sizes).map(lambda one: PartFacts(one[0], one[1], max(one[1:])))


@st.composite
def directories(draw: st.DrawFn) -> tuple[list[InputFile], dict[str, WholeFacts]]:
    """Files of some families and buckets with their facts."""
    files, facts = [], {}
    for number in range(draw(st.integers(1, 12))):
        bucket, family = draw(st.integers(0, 2)), draw(st.sampled_from("ab"))
        some = tuple(draw(st.lists(parts(), min_size=1, max_size=3)))
        needs = draw(st.sampled_from([None, "", "6"]))
        path = f"delta_{number}_{number}/{bucket:06d}_0"
        files.append(
            InputFile(path, sum(one.bytes for one in some), 0, FileRole.DELTA, path.partition("/")[0], bucket, 0, 0)
        )
        why, kept = draw(st.none() | st.just("why")), draw(st.none() | st.just("kept"))
        facts[path] = WholeFacts(family, some, why, kept, needs=needs)
    return files, facts


SIZES = JoinSizes(64 * MIB, 64 * MIB, 8 * MIB)
ORC = FileFormat("orc")


def laid(files: Sequence[InputFile], facts: Mapping[str, WholeFacts], *, bucketed: bool) -> list[list[str]]:
    """The files that each new file is made of."""
    copies, joins = joined(files, facts, ORC, SIZES, bucketed=bucketed)
    made = [[copy.path] for copy in copies]
    return made + [list(dict.fromkeys(one.path for one in join.segments)) for join in joins]


@given(directories(), st.booleans())
def test_every_part_of_every_file_is_taken_once(
    directory: tuple[list[InputFile], dict[str, WholeFacts]], bucketed: bool
) -> None:
    """Parts of a file keep their order; names differ; buckets, families and needs don't mix; no joined file is above full size."""
    files, facts = directory
    copies, joins = joined(files, facts, ORC, SIZES, bucketed=bucketed)
    names = [one.name for one in (*copies, *joins)]
    assert len(set(names)) == len(names)
    taken: dict[str, list[int]] = {}
    for join in joins:
        for segment in join.segments:
            taken.setdefault(segment.path, []).extend(segment.stripes)
            assert segment.rows == sum(facts[segment.path].parts[number].rows for number in segment.stripes)
        paths = {segment.path for segment in join.segments}
        assert len({facts[path].family for path in paths}) == 1
        assert len({facts[path].needs for path in paths} - {None}) <= 1
        if bucketed:
            assert {bucket_of(path.rpartition("/")[2]) for path in paths} == {bucket_of(join.name)}
        assert join.bytes <= SIZES.file + max(file.length for file in files)
        assert all(segment.action is Action.COPY for segment in join.segments if facts[segment.path].kept)
    whole = {file.path: list(range(len(facts[file.path].parts))) for file in files}
    assert {**taken, **{copy.path: whole[copy.path] for copy in copies}} == whole
    assert not taken.keys() & {copy.path for copy in copies}


def result_of(join: FileJoin, facts: Mapping[str, WholeFacts]) -> tuple[InputFile, WholeFacts]:
    """The file that a join makes, if encoding anew changes no size."""
    path = f"base_99/{join.name}"
    found = facts[join.segments[0].path]
    size = join.bytes
    file = InputFile(path, size, 0, FileRole.BASE, "base_99", bucket_of(join.name) or 0, 0, 0)
    needs = {facts[segment.path].needs for segment in join.segments} - {None}
    return file, replace(found, parts=(PartFacts(1, size, size),), needs=needs.pop() if needs else None)


@given(directories(), st.booleans())
def test_a_second_compaction_of_the_same_files_joins_nothing(
    directory: tuple[list[InputFile], dict[str, WholeFacts]], bucketed: bool
) -> None:
    """What one compaction leaves is left alone by the next."""
    files, facts = directory
    copies, joins = joined(files, facts, ORC, SIZES, bucketed=bucketed)
    by_path = {file.path: file for file in files}
    after = [(by_path[copy.path], facts[copy.path]) for copy in copies] + [result_of(join, facts) for join in joins]
    again = laid([file for file, _ in after], {file.path: one for file, one in after}, bucketed=bucketed)
    assert all(len(made) == 1 for made in again)


@pytest.mark.parametrize(
    ("stored", "name"),
    [
        (StoredAs("org.apache.hadoop.hive.ql.io.orc.OrcInputFormat", None), "orc"),
        (StoredAs("org.apache.hadoop.hive.ql.io.orc.OrcInputFormat", None, (("skip.header.line.count", "1"),)), ""),
        (StoredAs("org.apache.hadoop.hive.ql.io.RCFileInputFormat", None), ""),
        (StoredAs(None, None), ""),
        (StoredAs(TEXT, LINES), "text"),
        (StoredAs(TEXT, "com.acme.OwnSerDe"), ""),
        (StoredAs(TEXT, LINES, (("skip.header.line.count", "0"), ("field.delim", ","))), "text"),
        (StoredAs(TEXT, LINES, (("skip.header.line.count", "0"), ("skip.header.line.count", "1"))), ""),
        (StoredAs(TEXT, LINES, (("skip.footer.line.count", "x"),)), ""),
        (StoredAs(TEXT, LINES, (("line.delim", "\n"),)), "text"),
        (StoredAs(TEXT, LINES, (("textinputformat.record.delimiter", "|"),)), ""),
        (StoredAs(TEXT, LINES, (("serialization.encoding", "UTF-16"),)), ""),
        (StoredAs(TEXT, LINES, (("serialization.encoding", "utf-8"),)), "text"),
    ],
)
def test_text_is_joined_where_each_line_stands_for_itself(stored: StoredAs, name: str) -> None:
    """A property that gives lines, their ends, or places in a file a meaning keeps files whole."""
    found = format_of(stored)
    assert found.name == name
    assert bool(found.why_not) == (not name)


@pytest.mark.parametrize(
    ("kind", "parameters", "part", "least"),
    [
        ("orc", {}, 64 * MIB, 8 * MIB),
        ("orc", {"orc.stripe.size": str(4 * MIB)}, 4 * MIB, 2 * MIB),
        ("orc", {"parquet.block.size": "1"}, 64 * MIB, 8 * MIB),
        ("parquet", {}, 128 * MIB, 8 * MIB),
        ("parquet", {"parquet.block.size": str(32 * MIB), "orc.stripe.size": "1"}, 32 * MIB, 8 * MIB),
        ("parquet", {"parquet.block.size": str(1 << 40)}, 128 * MIB, 8 * MIB),
    ],
)
def test_a_table_says_how_large_its_parts_are(kind: str, parameters: dict[str, str], part: int, least: int) -> None:
    """What is written anew gets the size that the table's writers make, and from half of that on it is kept."""
    spec = TableSpec(
        "db.t", (("a", "int"),), ColumnRule.NAME, insert_only=True, parameters=parameters, file_format=FileFormat(kind)
    )
    size = part_bytes(spec, 64 * MIB)
    assert (size, kept_from(8 * MIB, size)) == (part, least)


def test_a_hundred_thousand_tiny_parts_cost_a_step_each() -> None:
    """A streaming writer may flush each row by itself; the plan's size and time grow with the parts, no faster."""
    count = 100_000
    file, other = (InputFile(f"delta_{one}/000000_0", MIB, 0, FileRole.DELTA, f"delta_{one}", 0, 0, 0) for one in "12")
    facts = {
        one.path: WholeFacts("x", (PartFacts(1, 10, 20),) * count, kept=kept)
        for one, kept in ((file, None), (other, "why"))
    }
    begun = time.process_time()
    _, (made,) = joined((file, other), facts, FileFormat("orc"), JoinSizes(256 * MIB, 64 * MIB, MIB), bucketed=False)
    assert time.process_time() - begun < 10
    assert [(one.action, len(one.stripes), one.rows) for one in made.segments] == [
        (Action.RECODE, count, count),
        (Action.COPY, count, count),
    ]


def test_an_extension_that_is_too_long_is_refused() -> None:
    """All of it may name a codec, so none of it is cut off."""
    files = [InputFile(f"d/000001_0.{'x' * size}", 1, 0, FileRole.DELTA, "d", 1, 0, 0) for size in (246, 247)]
    assert len(new_names(files[:1])[0]) == LONGEST_NAME
    with pytest.raises(RefusedError, match="too long to be kept"):
        new_names(files[1:])
