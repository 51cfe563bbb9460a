"""
Names that name nothing, for `compactor doctor`: patterns of tables and pools in the settings, and tables' properties that
are nearly one of those that a compaction goes by. A slip there is silent: the blackout covers nothing, the threshold
stays as it is.
"""

import difflib
from collections.abc import Iterator

from compactor.cli.hive_site import Clash
from compactor.cli.naming.patterns import require_tables
from compactor.cli.naming.pools import known_pools, unknown_pool
from compactor.errors import NothingFitsError, RefusedError, UsageError
from compactor.metastore.catalog import Catalog
from compactor.planning.thresholds import (
    DELTA_COUNT_KEY,
    DELTA_RATIO_KEY,
    NO_AUTO_COMPACTION_KEY,
    NO_CLEANUP_KEY,
    QUARANTINE_HOURS_KEY,
)
from compactor.roles.pauses import POOL_KEY
from compactor.settings import Settings
from compactor.settings.control import Selected
from compactor.status.daemons import Daemons
from compactor.words import plural

PROPERTIES = (DELTA_COUNT_KEY, DELTA_RATIO_KEY, NO_AUTO_COMPACTION_KEY, NO_CLEANUP_KEY, QUARANTINE_HOURS_KEY, POOL_KEY)
_PARTS = ("comp", "clean")
"""What a slip in the name of any of them leaves, mostly."""
_OR_NOT_YET = "correct it, unless what it names is still to come: this name covers nothing"
_NEAR = 0.85
"""How near a property's name is that is meant to be one of them; Hive has others, such as `compactor.mapreduce…`."""


def unknown_names(settings: Settings, catalog: Catalog, daemons: Daemons) -> list[Clash]:
    """What each such name was meant to be, if one is near."""
    return [*_selected(settings, catalog, daemons), *_properties(catalog)]


def _selected(settings: Settings, catalog: Catalog, daemons: Daemons) -> Iterator[Clash]:
    rules: list[tuple[str, Selected]] = [
        *(("windows.maintenance", item) for item in settings.windows.maintenance),
        *(("windows.blackouts", item) for item in settings.windows.blackouts),
        *(("control.budgets", item) for item in settings.control.budgets),
    ]
    patterns = [
        *(("control.only", pattern) for pattern in settings.control.only),
        *((f"{key}: {rule.name}", pattern) for key, rule in rules for pattern in rule.tables),
    ]
    for where, pattern in patterns:
        try:
            require_tables(catalog, pattern)
        except (NothingFitsError, RefusedError, UsageError) as error:
            yield Clash(f"{where}: {error}", _OR_NOT_YET)
    known = known_pools(settings, catalog, daemons) if any(rule.pools for _, rule in rules) else None
    for key, rule in rules:
        for pool in rule.pools:
            if (unknown := unknown_pool(pool, known)) is not None:
                yield Clash(f"{key}: {rule.name} names pool {unknown}", _OR_NOT_YET)


def _properties(catalog: Catalog) -> Iterator[Clash]:
    read = {spelling for name in PROPERTIES for spelling in (name, name.upper())}
    meant = {
        key: near[0]
        for key in sorted(catalog.parameter_names(_PARTS) - read)
        if (near := difflib.get_close_matches(key.lower(), PROPERTIES, n=1, cutoff=_NEAR))
    }
    tables = catalog.parameters_of_tables(meant) if meant else {}
    for key, name in meant.items():
        owners = {
            "table": {str(entity) for entity, (own, _) in tables.items() if key in own},
            "database": {entity.database for entity, (_, of_database) in tables.items() if key in of_database},
        }
        for kind, having in owners.items():
            if having:
                yield Clash(
                    f"property {key} of {plural(len(having), kind)}, such as {min(having)}, is none that Hive or compactor reads",
                    f"{name}, in lower or in upper case, is meant: set it, and unset the other",
                )
