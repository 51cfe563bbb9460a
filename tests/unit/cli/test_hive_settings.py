"""The list of Hive's settings: what it promises is there."""

from pathlib import Path

import pytest

from compactor.cli.hive_settings import Verdict, hive_settings
from compactor.settings import Settings

ROOT = Path(__file__).parents[3]
SETTINGS = hive_settings().settings.values()


@pytest.mark.parametrize("one", [one for one in SETTINGS if one.verdict is Verdict.FOLLOWED], ids=lambda one: one.name)
def test_what_is_followed_has_a_setting(one):
    """A setting of ours follows it, and the list says which."""
    value = Settings(database={"url": "sqlite://"})
    for key in one.by.split("."):
        value = getattr(value, key)


def test_every_setting_says_why():
    """Also those that have no effect; and only what is followed names a setting of ours."""
    assert all(one.why for one in SETTINGS)
    assert all(bool(one.by) is (one.verdict is Verdict.FOLLOWED) for one in SETTINGS)


def test_a_default_is_that_of_the_nearest_release():
    """The longest beginning of the version counts; a release that none fits doesn't know the key."""
    settings = hive_settings().settings
    assert [settings["metastore.compactor.cleaner.on"].default(one) for one in ("3.1.3", "4.0.1", "4.1.0")] == [
        None,
        "false",
        "true",
    ]
    assert settings["hive.mm.allow.originals"].default("3.1.3") == "false"


def test_what_matters_is_documented():
    """Keys that are followed or refused stand in docs/operations.md."""
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    missing = [one.name for one in SETTINGS if one.verdict is not Verdict.NO_EFFECT and f"`{one.name}`" not in page]
    assert not missing
