"""Quarantine ends when its manifest says so by the database clock, and never without a manifest."""

import re
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from compactor.acid.names import TRASH_PREFIX
from compactor.errors import SettingsError
from compactor.roles.cleaner.quarantine.expiry import INTERVAL_SECONDS
from compactor.roles.cleaner.quarantine.manifest import MANIFEST, KeptDirectory, KeptFiles, QuarantineManifest, decode
from compactor.settings import load_settings
from tests.unit.roles.cleaner.quarantine.test_restore import replaced, undoing

HOUR_MS = 3_600_000


def quarantine(table):
    return [path.name for path in table.location.glob(f"{TRASH_PREFIX}*")]


def test_it_goes_after_its_hours_though_nothing_is_compacted_again(any_world, later):
    """Not before; a Cleaner that began later finds it by the history."""
    world = any_world
    table = replaced(world)
    later(HOUR_MS - 60_000)
    world.clean()
    assert len(quarantine(table)) == 1
    later(60_000 + HOUR_MS)
    world.clean()
    assert quarantine(table) == []
    world.assert_rows()


def test_the_history_is_looked_at_now_and_then(world, later):
    """Once in so many seconds by one Cleaner; what is left is looked at again."""
    table = replaced(world)
    cleaner = type(world.cleaner())(world.services, clock=world.clock)
    cleaner.run_once()
    later(2 * HOUR_MS)
    cleaner.run_once()
    assert len(quarantine(table)) == 1
    world.clock.forward(INTERVAL_SECONDS)
    cleaner.run_once()
    assert quarantine(table) == []


def test_the_table_says_for_how_long(world, later):
    """Its property replaces the setting, in both directions."""
    world.configure(cleaner={"quarantine_hours": 1})
    long = world.table("long", rows=2, parameters={"compactor.cleaner.quarantine_hours": "48"})
    never = world.table("never", rows=2, parameters={"compactor.cleaner.quarantine_hours": "0"})
    for table in (long, never):
        world.compact(table)
    world.clean()
    assert (len(quarantine(long)), quarantine(never)) == (1, [])
    later(47 * HOUR_MS)
    world.clean()
    assert len(quarantine(long)) == 1


def test_a_property_that_is_no_number_removes_nothing(world):
    """The sentence names it."""
    table = world.table(rows=2, parameters={"compactor.cleaner.quarantine_hours": "two"})
    world.compact(table)
    assert "property compactor.cleaner.quarantine_hours is 'two', which isn't a number" in world.clean()
    assert len(list(table.location.glob("delta_*"))) == 2


def test_without_a_manifest_it_stays_and_the_log_says_so_once(world, later):
    """Nothing proves its age."""
    table = replaced(world)
    (kept,) = quarantine(table)
    (table.location / kept / MANIFEST).write_text("nonsense")
    later(2 * HOUR_MS)
    with capture_logs() as lines:
        for _ in range(2):
            world.clean()
    assert quarantine(table) == [kept]
    assert [line["event"] for line in lines].count("quarantine.unproven") == 1


@pytest.mark.parametrize("content", [None, b"{}"])
def test_an_empty_one_goes_with_any_manifest(world, content):
    """As a restore leaves it that was killed before it had written, while another settled it; nothing can be lost."""
    table = replaced(world)
    empty = table.location / f"{TRASH_PREFIX}1-12345678-kept"
    empty.mkdir()
    if content is not None:
        (empty / MANIFEST).write_bytes(content)
    world.insert(table, [(77, "x")])
    world.compact(table)
    world.clean()
    assert not empty.exists()
    assert len(quarantine(table)) == 2


def test_what_aborted_writes_left_goes_with_the_next_sweep(world, later):
    """The history doesn't tell of it: it stays longer than its hours, never shorter."""
    world.configure(cleaner={"quarantine_hours": 1}, initiator={"thresholds": {"aborted_count": 0}})
    table = world.table(rows=1)
    world.aborted_insert(table, [(9, "never")])
    world.clean()
    assert [name for name in quarantine(table) if "aborted" in name]
    later(HOUR_MS // 2)
    world.aborted_insert(table, [(9, "never")])
    world.clean()
    assert len(quarantine(table)) == 2
    later(3 * HOUR_MS)
    world.clean()
    assert len(quarantine(table)) == 2
    world.aborted_insert(table, [(9, "never")])
    world.clean()
    assert len(quarantine(table)) == 1
    world.assert_rows()


def test_what_a_restore_took_away_goes_too(world, later):
    """After the same hours, counted from the restore."""
    table = replaced(world)
    work, (kept,) = undoing(world, table)
    work.run(kept)
    assert len(quarantine(table)) == 1
    later(2 * HOUR_MS)
    world.clean()
    assert quarantine(table) == []
    world.assert_rows()


def test_the_old_setting_names_the_new_one(tmp_path):
    """One clear line."""
    file = tmp_path / "compactor.yaml"
    file.write_text("database:\n  url: sqlite:////x.db\ncleaner:\n  quarantine: true\n")
    with pytest.raises(SettingsError, match=r"cleaner\.quarantine: unknown key; did you mean quarantine_hours\?"):
        load_settings(file, {})


KEPT = st.tuples(st.tuples(st.text(max_size=5), st.integers(0, 9)))


@given(
    st.builds(
        QuarantineManifest,
        entry=st.none() | st.integers(1, 99),
        what=st.text(max_size=5),
        tbl_id=st.integers(0, 9),
        kept_ms=st.integers(0, 99),
        until_ms=st.integers(0, 99),
        directories=st.tuples(
            st.builds(
                KeptDirectory, st.text(max_size=5), KEPT, replaced=st.booleans(), aborted=st.tuples(st.integers(1, 9))
            )
        ),
        part_id=st.none() | st.integers(1, 99),
        highest_write_id=st.none() | st.integers(1, 99),
        result=st.tuples(st.builds(KeptFiles, st.text(max_size=5), KEPT)),
        read_before=st.tuples(st.text(max_size=5)),
        first_look=st.booleans(),
        taken_back=st.booleans(),
    ),
    st.integers(0, 400),
)
def test_a_manifest_is_read_as_it_was_written_or_not_at_all(manifest, cut):
    """Cut off anywhere it proves nothing."""
    content = manifest.encode()
    assert decode(content) == manifest
    assert decode(content[:cut]) in {None, manifest} if cut >= len(content) else decode(content[:cut]) is None


def sealed(content):
    """The content of a manifest that was edited, with the checksum that belongs to it."""
    found = re.sub(r'"crc32": \d+, ', "", content)
    rest = found.replace('"version": 1, ', "")
    return found.replace('"version": 1, ', f'"version": 1, "crc32": {zlib.crc32(rest.encode())}, ').encode()


@given(st.integers(0, 10_000), st.integers(0, 7))
def test_a_bit_that_was_flipped_proves_nothing(place, bit):
    """Also where what is left is a manifest: another digit in a write id, or in the time until when it is kept."""
    content = bytearray(WHOLE.encode())
    content[place % len(content)] ^= 1 << bit
    assert decode(bytes(content)) in {None, WHOLE}


WHOLE = QuarantineManifest(
    7, "db.t", 1, 5, 9, (KeptDirectory("base_1", (("base_1/f", 3),), replaced=True, aborted=(2,)),), highest_write_id=1
)


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ('"entry": 7', '"entry": "../../x"'),
        ('"entry": 7', '"entry": true'),
        ('"what": "db.t"', '"what": 1'),
        ('"highest_write_id": 1', '"highest_write_id": "x"'),
        ('"highest_write_id": 1', '"highest_write_id": [1]'),
        ('"f", 3', '"f", Infinity'),
        ('"f", 3', '"f", 1.5'),
        ('"aborted": [2]', '"aborted": ["2"]'),
        ('"replaced": true', '"replaced": "no"'),
        ('"first_look": false', '"first_look": "no"'),
        ('"taken_back": false', '"taken_back": 0'),
        ('"kept_ms": 5', '"kept_ms": ' + "[" * 60_000),
    ],
)
def test_values_of_other_types_prove_nothing(part, other):
    """Whoever edits a manifest by hand, or damages it, gets no error from the Cleaner."""
    content = WHOLE.encode().decode().replace("base_1/f", "f")
    assert part in content
    assert decode(sealed(content)) is not None
    assert decode(sealed(content.replace(part, other))) is None


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b"\xff", b'{"version": 2}', b'{"version": 1, "directories": []}']
)
def test_other_content_proves_nothing(content):
    """None, never an error."""
    assert decode(content) is None
