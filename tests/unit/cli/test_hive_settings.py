"""The list of Hive's settings: what it promises is there."""

from pathlib import Path

import pytest

from compactor.cli.hive_settings import Treatment, hive_settings
from compactor.cli.hive_site import Property, settings_of
from compactor.settings import Settings

ROOT = Path(__file__).parents[3]
SETTINGS = hive_settings().settings.values()


@pytest.mark.parametrize(
    "one", [one for one in SETTINGS if one.verdict is Treatment.FOLLOWED], ids=lambda one: one.name
)
def test_what_is_followed_has_a_setting(one):
    """A setting of ours follows it, and the list says which."""
    value = Settings(database={"url": "sqlite://"})
    for key in one.by.split("."):
        value = getattr(value, key)


@pytest.mark.parametrize(
    "one", [one for one in SETTINGS if one.verdict is Treatment.FOLLOWED], ids=lambda one: one.name
)
def test_what_is_followed_is_taken_over(one):
    """`compactor init` writes that setting of ours where a site has another value than Hive delivers."""
    delivered = one.default("4.0.1") or one.default("3.1.3")
    value = {"true": "false", "false": "true"}.get(delivered, "77s")
    assert value != delivered
    names = {"javax.jdo.option.ConnectionURL": "jdbc:postgresql://db/metastore", one.name: value}
    site = {name: Property(name, said, "hive-site.xml") for name, said in names.items()}
    assert one.by in {taken.key for taken in settings_of(site, None).taken}


def test_every_setting_says_why():
    """
    Also those that have no effect; only what is followed names a setting of ours. Defaults are texts: in quotes where
    YAML would read a number or a boolean.
    """
    assert [one.name for one in SETTINGS if not one.why] == []
    assert [one.name for one in SETTINGS if bool(one.by) is not (one.verdict is Treatment.FOLLOWED)] == []
    assert [one.name for one in SETTINGS if not all(isinstance(text, str) for text in one.defaults.values())] == []


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
    missing = [one.name for one in SETTINGS if one.verdict is not Treatment.NO_EFFECT and f"`{one.name}`" not in page]
    assert not missing, "name them in docs/operations.md, Settings of readers"
