"""The pools that there are, by which a slip in the name of one is found: an unknown pool is no error, it may be to come."""

from collections.abc import Collection, Iterable

from compactor.cli.naming.target import did_you_mean
from compactor.control.scope import DEFAULT_POOL
from compactor.metastore.catalog import Catalog
from compactor.roles.pauses import POOL_KEY
from compactor.settings import Settings
from compactor.status.daemons import Daemons


def known_pools(
    settings: Settings, catalog: Catalog, daemons: Daemons, others: Iterable[str] = ()
) -> Collection[str] | None:
    """
    The pools of the workers of all daemons and of the settings, and of tables; None: the daemons aren't known.

    Args:
        others: pools that are known otherwise.
    """
    if daemons.members is None:
        return None
    worker, of_tables = settings.worker, catalog.parameters_of_tables((POOL_KEY,)).values()
    tables = {value for both in of_tables for parameters in both for value in parameters.values()}
    ours = {*worker.pools, *([worker.pool] if worker.pool else [])}
    return {DEFAULT_POOL, *daemons.pools, *ours, *tables, *others}


def unknown_pool(pool: str, known: Collection[str] | None) -> str | None:
    """
    The pool, and that no worker and no table has one of this name, with near names; None: there is one, or that can't
    be told.
    """
    if known is None or pool.lower() in {name.lower() for name in known}:
        return None
    return f"{pool}, which no worker and no table has{did_you_mean(pool, sorted(known))}"
