"""`compactor config`: checks the settings, and shows them as they apply."""

from collections.abc import Iterator, Mapping

import click

from compactor.cli.output import OutputColumn, View
from compactor.cli.session import Group, Session, pass_session


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
    """Show every setting as it applies: defaults, file and environment together; secrets hidden."""
    shown = session.settings.shown()
    records = [{"key": key, "value": value} for key, value in _leaves(shown)]
    columns = (OutputColumn("key", "KEY"), OutputColumn("value", "VALUE", show=_plain))
    session.output.show(View(columns, records, document=shown))


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _leaves(values: Mapping[str, object], above: str = "") -> Iterator[tuple[str, object]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value
