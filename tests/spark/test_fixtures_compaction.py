"""
Every table and partition that the real Hive wrote, compacted through the real Spark session: no row changes, whoever
looks with whatever snapshot.

Judges: the reference reader for many snapshots, Hive's own row and vector readers for the newest, and the names that
Hive's own compactor gave its results.
"""

import re
from dataclasses import dataclass, field

import pytest

from compactor.acid.compaction import LayoutVersion
from compactor.errors import RefusedError
from tests.compacting import facts_of
from tests.fixtures import hive
from tests.model.compacting import Engine, settings
from tests.reference.compare import read_directory
from tests.reference.reader import WriteIds

pytestmark = pytest.mark.spark

FIRST_TXN = 1000
KINDS = ("major", "minor")
HIVE_ERRED = {
    # Hive's compactor can't read this table, and loses the rows of this partition
    ("types_tsltz", None): {"major": {"base_0000003"}, "minor": {"delta_0000001_0000003"}},
    ("odd_parts", "k=ü雪/n=4"): {
        "major": {"base_0000003"},
        "minor": {"delta_0000001_0000003", "delete_delta_0000001_0000003"},
    },
}
TABLES = sorted(hive.metastore("before").tables)


@dataclass(frozen=True)
class View:
    """A snapshot as text; `read_directory` asks no more."""

    write_ids: str
    txns: str


@dataclass
class Compacted:
    """What was done to a restored warehouse; rows by directory path and snapshot, from before."""

    kind: str
    warehouse: object
    before: dict = field(default_factory=dict)
    txns: dict = field(default_factory=dict)  # directory path: the compaction's transaction
    made: dict = field(default_factory=dict)  # directory path: names, or the refusal


@pytest.fixture(scope="module", params=KINDS)
def compacted(request, tmp_path_factory, submitter):
    """The fixture warehouse after one compaction of everything in it."""
    warehouse = hive.restore(tmp_path_factory.mktemp(request.param))
    done = Compacted(request.param, warehouse)
    engine = Engine(submitter, settings())
    metastore = hive.metastore("before")
    for table in metastore.tables.values():
        for name, path, _ in table.directories:
            for view in (*views_without(table), View(table.write_ids, metastore.txns), *views_with(table, FIRST_TXN)):
                done.before[path, view.write_ids] = read_directory(
                    warehouse / path, table.schema, view, insert_only=table.insert_only
                )
            txn = FIRST_TXN + len(done.txns)
            done.txns[path] = txn
            try:
                published = engine.compact(
                    facts_of(
                        table, database=hive.DATABASE, location=warehouse / table.path, text=table.name == "mm_text"
                    ),
                    name,
                    warehouse / path,
                    request.param,
                    layout=LayoutVersion.HIVE_4,
                    write_ids=table.write_ids,
                    txns=txns_seen(txn, committed=False),
                    txn=txn,
                )
                done.made[path] = set(published.directories)
            except RefusedError as error:
                done.made[path] = error
    return done


def txns_seen(txn, *, committed):
    """The fixture's transactions, a later compaction's, and nothing else."""
    high, lowest, opened, aborted = hive.metastore("before").txns.split(":")
    assert int(high) < txn
    assert int(lowest) < txn
    return f"{txn}:{lowest}:{opened}{'' if committed else f',{txn}'}:{aborted}"


def views_without(table):
    """Readers from before the compaction: one for every high watermark that there was."""
    ids = WriteIds.parse(table.write_ids)
    for high in range(max(0, ids.high - 9), ids.high):
        opened, aborted = (sorted(one for one in some if one <= high) for some in (ids.opened, ids.aborted))
        lowest = opened[0] if opened else hive.NEVER
        yield View(
            f"fx.{table.name}:{high}:{lowest}:{','.join(map(str, opened))}:{','.join(map(str, aborted))}",
            hive.metastore("before").txns,
        )


def views_with(table, txn):
    """Readers who see the compaction: now, and after each open writer has committed or aborted."""
    seen = txns_seen(txn, committed=True)
    yield View(table.write_ids, seen)
    ids = WriteIds.parse(table.write_ids)
    for write_id in ids.opened:
        left, aborted = sorted(ids.opened - {write_id}), sorted(ids.aborted)
        for gone in (aborted, sorted([*aborted, write_id])):
            lowest = left[0] if left else hive.NEVER
            yield View(
                f"fx.{table.name}:{ids.high}:{lowest}:{','.join(map(str, left))}:{','.join(map(str, gone))}", seen
            )


@pytest.mark.parametrize("name", TABLES)
def test_rows_are_the_same_for_whoever_looks(compacted, name):
    """
    Readers who don't see the compaction, the compactor itself, readers who do, and those who come when open writers
    have ended.
    """
    metastore = hive.metastore("before")
    table = metastore.tables[name]
    for _, path, _ in table.directories:
        txn = compacted.txns[path]
        own = View(table.write_ids, txns_seen(txn, committed=False))
        for view in (*views_without(table), View(table.write_ids, metastore.txns), own, *views_with(table, txn)):
            seen = read_directory(compacted.warehouse / path, table.schema, view, insert_only=table.insert_only)
            assert seen == compacted.before[path, view.write_ids], (path, view)


@pytest.mark.parametrize("name", TABLES)
def test_directories_are_named_as_hive_named_its_own(compacted, name):
    """
    The same request on the same files: the same base or deltas (but for the transaction), or a refusal where Hive
    refused.
    """
    table = hive.metastore("before").tables[name]
    for partition, path, _ in table.directories:
        ours = compacted.made[path]
        expected = HIVE_ERRED.get((name, partition), {}).get(compacted.kind) or made_by_hive(
            f"after-{compacted.kind}", path
        )
        if expected:
            assert not isinstance(ours, RefusedError), f"{path}: {ours}"
            assert {one.split("_v")[0] for one in ours} == expected, path
            assert {int(one.split("_v")[1]) for one in ours} == {compacted.txns[path]}, path
        else:
            assert isinstance(ours, RefusedError), f"{path}: {ours}"


def made_by_hive(snapshot, path):
    listed = (hive.HERE / snapshot / "files.tsv").read_text(encoding="utf-8").split("\n")
    return set(re.findall(rf"^{re.escape(path)}/([a-z_]+_\d+(?:_\d+)?)_v\d+/", "\n".join(listed), re.MULTILINE))


@pytest.mark.hive
@pytest.mark.parametrize("mode", ["vector", "row"])
def test_hive_reads_the_same_rows(compacted, hive_4, mode):
    """Hive 4's own reader sees, in what we made, the rows it saw before, ROW__IDs and all."""
    for table in hive.metastore("before").tables.values():
        if table.insert_only or table.name == "types_tsltz":
            continue
        for _, path, _ in table.directories:
            view = next(views_with(table, compacted.txns[path]))
            rows = hive_4.rows(
                compacted.warehouse / path, table.schema, view.write_ids, view.txns, mode=mode, buckets=table.buckets
            )
            assert rows == compacted.before[path, view.write_ids], path


@pytest.mark.hive
@pytest.mark.parametrize("mode", ["vector", "row"])
def test_hive_reads_the_same_rows_when_the_old_files_are_gone(compacted, hive_4, mode, tmp_path):
    """
    The result stands alone: with nothing but our directories (and what a compaction never covers) the rows are there.
    """
    for table in hive.metastore("before").tables.values():
        if table.insert_only or table.name == "types_tsltz":
            continue
        for number, (_, path, _) in enumerate(table.directories):
            made = compacted.made[path]
            if isinstance(made, RefusedError) or compacted.kind == "minor":
                continue
            alone = tmp_path / f"{table.name}-{number}"
            alone.mkdir()
            for name in made:
                (alone / name).symlink_to(compacted.warehouse / path / name)
            view = next(views_with(table, compacted.txns[path]))
            rows = hive_4.rows(alone, table.schema, view.write_ids, view.txns, mode=mode, buckets=table.buckets)
            assert rows == compacted.before[path, view.write_ids], path
