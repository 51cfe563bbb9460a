"""
Hive's settings that may change which rows or values a reader sees, and what is made of each: `hive_settings.yaml`.

Reads that list, and compares a site's configuration with it; opens no database.
"""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import yaml

from compactor.acid.compaction import LayoutVersion
from compactor.cli.hive_site import Clash, Property, seconds

LIST: Final = Path(__file__).with_suffix(".yaml")
_OWN_ROLES: Final = ("metastore.compactor.", "hive.compactor.")
"""What runs beside this daemon; `hive_site.clashes` compares it."""
_SWITCHES: Final = ("metastore.compactor.initiator.on", "metastore.compactor.cleaner.on")


class Treatment(StrEnum):
    """What is made of a setting of Hive's; the head of the list explains each."""

    NO_EFFECT = "no-effect"
    FOLLOWED = "followed"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class HiveSetting:
    """
    One key.

    Args:
        by: the setting here that follows it; empty where none does.
        defaults: beginning of a release's version → default; an empty beginning stands for all releases.
    """

    name: str
    verdict: Treatment
    why: str
    by: str
    defaults: Mapping[str, str]

    def default(self, release: str) -> str | None:
        """The value that a release delivers; None: it doesn't know the key."""
        known = [start for start in self.defaults if release.startswith(start)]
        return self.defaults[max(known, key=len)] if known else None

    def found_in(self, found: Mapping[str, Property]) -> Property | None:
        """The property of a configuration, under its own name or the older one of the metastore's."""
        names = (self.name, f"hive.{self.name.removeprefix('metastore.')}")
        return next((found[name] for name in names if name in found and found[name].value), None)


@dataclass(frozen=True, slots=True)
class HiveSettings:
    """
    The list.

    Args:
        releases: of Hive, against which the tests hold it.
        keys: what a name begins with that must stand in the list; a name as a whole where it doesn't end in a dot.
    """

    releases: tuple[str, ...]
    keys: tuple[str, ...]
    settings: Mapping[str, HiveSetting]

    def covers(self, name: str) -> bool:
        """Whether the list must know a key."""
        return any(name.startswith(key) if key.endswith(".") else name == key for key in self.keys)


@functools.cache
def hive_settings() -> HiveSettings:
    """The list, read once."""
    document = yaml.safe_load(LIST.read_text(encoding="utf-8"))
    settings = {}
    for group in document["groups"]:
        for name, default in group["defaults"].items():
            defaults = default if isinstance(default, dict) else {"": default}
            if name in settings:
                raise ValueError(f"{LIST.name}: {name} stands there twice")
            settings[name] = HiveSetting(
                name, Treatment(group["verdict"]), group["why"].strip(), group.get("by", ""), defaults
            )
    return HiveSettings(tuple(document["releases"]), tuple(document["keys"]), settings)


def deviations(found: Mapping[str, Property], layout: LayoutVersion, schema_version: str) -> Iterator[Clash]:
    """
    Where a site has another value than the daemon counts on, for the settings whose verdict is `refused`; and what its
    release delivers otherwise than earlier ones, where the site is silent.

    Args:
        schema_version: of the metastore's database, such as 4.1.0.
    """
    known = hive_settings()
    ours = [release for release in known.releases if release.startswith("3") is (layout is LayoutVersion.HIVE_3)]
    for one in known.settings.values():
        if one.verdict is not Treatment.REFUSED or one.name.startswith(_OWN_ROLES):
            continue
        said = one.found_in(found)
        counted_on = {value for release in ours if (value := one.default(release)) is not None}
        if said is not None and counted_on and not any(_same(said.value, value) for value in counted_on):
            values = " or ".join(sorted(counted_on))
            yield Clash(f"{said.source} is {said.value}, and this daemon counts on {values}", f"{values}. {one.why}")
    for name in _SWITCHES:
        one = known.settings[name]
        if one.found_in(found) is None and one.default(schema_version) == "true":
            yield Clash(
                f"no file has {name}, which Hive {schema_version} delivers as true",
                f"set it to false, or Hive's {name.split('.')[2].capitalize()} works beside this daemon's",
            )


def _same(one: str, other: str) -> bool:
    if one.strip().lower() == other.lower():
        return True
    try:
        return seconds(one, "ms") == seconds(other, "ms")
    except ValueError:
        return False
