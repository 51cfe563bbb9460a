"""
Which files of an insert-only table's directory each release of Hive reads: a compaction reads the same ones, or says
that readers disagree.
"""

import itertools
from contextlib import ExitStack

import pytest

from compactor.acid.compaction import LayoutVersion
from compactor.acid.snapshot import data_files, resolve
from compactor.acid.write_ids import ValidTxnList, ValidWriteIdList
from compactor.cli.hive_settings import hive_settings
from compactor.errors import RefusedError
from compactor.reasons import Reason
from compactor.storage.registry import storage_for
from tests.hive.java import UnavailableError
from tests.hive.releases import RELEASES, Release
from tests.needs import missing

pytestmark = pytest.mark.hive
EVERYTHING = 2**62
CONTENTS = ("", "_empty", "_orc_acid_version", "_metadata_acid", ".hidden", "_SUCCESS", "_tmp/000000_0", "000000_0")
"""What a directory holds that no row lies in; the last is a file without bytes."""


@pytest.fixture(scope="module")
def releases():
    """Every release, a JVM each."""
    with ExitStack() as stack:
        try:
            yield {version: stack.enter_context(Release(version)) for version in RELEASES}
        except UnavailableError as error:
            missing(str(error))


def put(place, *names):
    for name in names:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("1,a\n")


def ours(place, layout, *, with_originals):
    """The files that a compaction takes for those that are read."""
    txns = ValidTxnList(EVERYTHING) if layout is LayoutVersion.HIVE_4 else None
    listing = storage_for(str(place)).list_tree(str(place))
    state = resolve(listing, ValidWriteIdList("d.t", EVERYTHING), txns, layout, with_originals=with_originals)
    directories = [listed for listed in (state.base, *state.deltas) if listed is not None]
    inside = [file.path for listed in directories for file in data_files(listed, insert_only=True)]
    return sorted([*inside, *(file.path for file in state.originals)])


@pytest.mark.parametrize("version", RELEASES)
def test_every_setting_that_may_matter_to_readers_has_a_verdict(releases, version):
    """
    `hive_settings.yaml` names each key of HiveConf, MetastoreConf and OrcConf that may change which rows or values a
    reader sees, with the default of each release.
    """
    known = hive_settings()
    defaults = {}
    for setting in sorted(releases[version].settings(), key=lambda one: one.known_by):  # HiveConf's default counts
        if known.covers(setting.name):
            defaults.setdefault(setting.name, setting.default)
    what = "in hive_settings.yaml: look up in Hive's sources what it does to readers, and write a verdict and why"
    for name, value in defaults.items():
        assert name in known.settings, f"Hive {version} has the setting {name}, which has no verdict {what}"
        expected = known.settings[name].default(version)
        assert expected is not None, f"Hive {version} has {name} too, which has no default for it {what}"
        assert " ".join(value.split()) == " ".join(expected.split()), (
            f"Hive {version} delivers {name} as {value!r}, not {expected!r} as {what}"
        )
    gone = {name for name, one in known.settings.items() if one.default(version) is not None} - set(defaults)
    assert not gone, f"Hive {version} doesn't know {sorted(gone)}: take its default out of hive_settings.yaml"


def layout_of(version):
    return LayoutVersion.HIVE_3 if version.startswith("3") else LayoutVersion.HIVE_4


@pytest.mark.parametrize("base", [(), ("base_0000001/000000_0",)])
@pytest.mark.parametrize("delta", [(), ("delta_0000002_0000002_0000/000000_0",)])
def test_files_in_no_base_and_no_delta(releases, tmp_path, base, delta):
    """
    Hive passes over them in an insert-only table, plain subdirectories included, unless `hive.mm.allow.originals` says
    otherwise; under a base it always does.
    """
    put(tmp_path, *base, *delta, "000000_0", "stray.txt", "sub/000000_0", "sub/deep/x", "_hidden", ".hidden/000000_0")
    for version, hive in releases.items():
        for value, allowed in (("", False), ("false", False), ("true", True)):
            expected = hive.reads(tmp_path, value)
            assert ours(tmp_path, layout_of(version), with_originals=allowed) == expected, (version, value)
            assert (not allowed and expected == sorted([*base, *delta])) or allowed


def test_directories_without_visible_files(releases, tmp_path):
    """
    Releases of Hive 4 pass over a directory in which they list no file, Hive 3.1 doesn't: where that changes which rows
    are read a compaction is refused, and everywhere else it reads what Hive reads.
    """
    refused = set()
    for number, (name, content) in enumerate(
        itertools.product(
            ("base_0000003", "base_3", "delta_0000002_0000003", "delta_0000003_0000003_0000", "base_0000005"), CONTENTS
        )
    ):
        place = tmp_path / str(number)
        put(place, "base_0000001/000000_0", "delta_0000002_0000002_0000/000000_0", "delta_0000004_0000004/000000_0")
        (place / name).mkdir()
        if content:
            (place / name / content).parent.mkdir(exist_ok=True)
            (place / name / content).write_text(
                '{"thisFileVersion":"0","dataFormat":"compacted"}' if content == "_metadata_acid" else ""
            )
        answers = {version: hive.reads(place) for version, hive in releases.items()}
        assert answers["4.0.1"] == answers["4.1.0"] == answers["4.2.0"], (name, content)
        assert ours(place, LayoutVersion.HIVE_3, with_originals=False) == answers["3.1.3"], (name, content)
        if answers["4.0.1"] == answers["3.1.3"]:
            assert ours(place, LayoutVersion.HIVE_4, with_originals=False) == answers["4.0.1"], (name, content)
            continue
        with pytest.raises(RefusedError, match=f"{name} holds only hidden files or none") as error:
            ours(place, LayoutVersion.HIVE_4, with_originals=False)
        assert error.value.reason is Reason.READERS_DISAGREE
        refused.add((name, content))
    assert ("base_3", "_empty") in refused
    assert ("base_0000003", "_orc_acid_version") not in refused
