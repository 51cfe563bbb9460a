"""
Original files, and what Hive's statements in flight keep beside their deltas: the Cleaner removes what a compaction
listed, and nothing else.
"""

from compactor.acid.names import ORIGINALS_FILE
from tests.unit.roles.tables import visible

MANIFEST = b"\x00\x00\x00\x01\x00\x2ffile:/warehouse/db.db/t/delta_0000003_0000003_0000/bucket_00000_0"


def migrated(world):
    """A table that held two files before it became transactional, and two inserts."""
    table = world.table(rows=0)
    world.warehouse.write_original(table, [(100, "old"), (101, "old")])
    world.warehouse.write_original(table, [(102, "old")])
    for number in range(2):
        world.insert(table, [(number, "new")])
    return table


def begin_insert(table):
    """
    What a running INSERT of Hive 4 has made between its tasks and its commit: the names of its files, in a directory
    that no filter of Hive's hides.
    """
    directory = table.location / "-tmp.delta_0000009_0000009_0000"
    directory.mkdir()
    (directory / "000000_0.manifest").write_bytes(MANIFEST)
    return directory / "000000_0.manifest"


def test_manifests_of_a_running_insert_are_neither_counted_nor_refused_for_nor_removed(any_world):
    """
    A table in which an INSERT of Hive 4 is at work is compacted and cleaned; the manifests, without which that INSERT
    would lose its rows, stay.
    """
    world = any_world
    table = world.table(rows=3)
    manifest = begin_insert(table)
    assert "published base_" in world.compact(table)
    later = table.location / "-tmp.delta_0000010_0000010_0000_1"
    later.mkdir()
    assert world.clean().startswith("cleaned 1 entry, 3 directories")
    assert manifest.read_bytes() == MANIFEST
    assert later.exists()
    assert [name[:5] for name in visible(table) if not name.startswith("-tmp.")] == ["base_"]
    world.assert_rows()


def test_original_files_that_the_compaction_listed_are_removed(any_world):
    """The base says which files it replaces; these go, in a Cleaner that knows no more than what lies there."""
    world = any_world
    table = migrated(world)
    assert "published base_" in world.compact(table)
    (base,) = table.location.glob("base_*")
    assert (base / ORIGINALS_FILE).exists()
    assert world.clean().startswith("cleaned 1 entry, 4 directories")
    assert visible(table) == [base.name]
    world.assert_rows()


def test_files_that_appeared_after_the_compaction_stay(any_world):
    """
    A file that was put there later, or another content under a listed name, is in no list: it stays, and stays through
    the next compaction too.
    """
    world = any_world
    table = migrated(world)
    world.compact(table)
    (table.location / "000007_0").write_bytes(b"put there later")
    (table.location / "part").mkdir()
    (table.location / "part" / "000000_0").write_bytes(b"put there later")
    (table.location / "000000_0").write_bytes(b"written anew")
    world.clean()
    world.insert(table, [(50, "new")])
    world.compact(table)
    world.clean()
    assert {"000007_0", "part", "000000_0"} < set(visible(table))
    assert not (table.location / "000000_0_copy_1").exists()


def test_original_files_under_a_base_without_a_list_stay(any_world):
    """
    Hive's own compactor lists nothing, so nothing proves what its base replaced: readers pass over the files, and they
    stay.
    """
    world = any_world
    table = migrated(world)
    world.compact(table)
    (base,) = table.location.glob("base_*")
    (base / ORIGINALS_FILE).unlink()
    world.clean()
    assert visible(table) == ["000000_0", "000000_0_copy_1", base.name]
    world.assert_rows()


def test_a_list_that_cannot_be_read_proves_nothing(world):
    """Garbage in the list leaves the files where they are, and stops neither readers nor the Cleaner."""
    table = migrated(world)
    world.compact(table)
    (base,) = table.location.glob("base_*")
    (base / ORIGINALS_FILE).write_bytes(b'{"originals": [["000000_0", "many"]]}')
    assert "cleaned 1 entry" in world.clean()
    assert visible(table) == ["000000_0", "000000_0_copy_1", base.name]
