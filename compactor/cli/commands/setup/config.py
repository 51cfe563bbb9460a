"""`compactor config`: checks the settings, and shows them as they apply."""

import click

from compactor.cli.output import OutputColumn, View
from compactor.cli.session import Group, Session, pass_session
from compactor.log import hide
from compactor.settings.load import sources
from compactor.settings.model import leaves


@click.group(cls=Group)
def config() -> None:
    """Check or show the settings."""


@config.command()
@pass_session
def check(session: Session) -> None:
    """
    Read the settings file and the COMPACTOR_… variables; say what is wrong, if anything.

    Nothing that they name is tried: `compactor doctor` does that.
    """
    settings = session.settings
    settings.database.secret()
    source = str(session.config_path) if session.config_path else "defaults and environment"
    record = {"settings": source, "valid": True, "database": settings.database.shown_url}
    columns = (
        OutputColumn("settings", "SETTINGS"),
        OutputColumn("valid", "VALID", show=lambda _: "yes"),
        OutputColumn("database", "DATABASE"),
    )
    session.output.show(View(columns, [record], document=record))


@config.command()
@pass_session
def show(session: Session) -> None:
    """
    Show every setting as it applies, and where each is set: file, variable or default; secrets hidden.

    JSON and YAML name under `sources` what sets each value, by its key.
    """
    shown, found = session.settings.shown(), sources(session.config_path)
    shown["spark"]["conf"] = hide(shown["spark"]["conf"])
    values = leaves(shown)
    set_by = {key: found.get(key, "default") for key in values}
    records = [{"key": key, "value": value, "source": set_by[key]} for key, value in values.items() if value != {}]
    columns = (
        OutputColumn("key", "KEY"),
        OutputColumn("value", "VALUE", show=_plain, folds=15),
        OutputColumn("source", "SET BY", folds=15),
    )
    session.output.show(View(columns, records, document=shown | {"sources": set_by}))


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
