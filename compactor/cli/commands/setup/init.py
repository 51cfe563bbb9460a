"""`compactor init`: writes a settings file from Hive's own configuration, or from the address of its database."""

import os
from pathlib import Path

import click

from compactor.cli import hive_site
from compactor.cli.output import OutputColumn, View
from compactor.cli.session import Command, Session, pass_session
from compactor.errors import SettingsError, UsageError
from compactor.metastore.db.dialects.address import mistake
from compactor.settings.database import hide_password

COLUMNS = (
    OutputColumn("key", "SETTING"),
    OutputColumn("value", "VALUE", folds=15),
    OutputColumn("source", "FROM", folds=15),
)


@click.command(cls=Command)
@click.option(
    "--hive-site",
    "site",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Hive's hive-site.xml; core-site.xml and metastore-site.xml beside it are read, too.",
)
@click.option("--metastore", metavar="URL", help="The address of the metastore's database, instead of Hive's files.")
@click.option(
    "--to", type=click.Path(path_type=Path), default="compactor.yaml", show_default=True, help="The file to write."
)
@click.option("--password-file", type=click.Path(path_type=Path), help="Write the password of hive-site.xml there.")
@pass_session
def init(session: Session, *, site: Path | None, metastore: str | None, to: Path, password_file: Path | None) -> None:
    """
    Write a settings file from Hive's own configuration, in which each value says where it is from.

    Nothing is overwritten. `compactor doctor` then tries what the file names.
    """
    password_file = password_file.absolute() if password_file is not None else None
    if password_file == to.absolute():
        raise UsageError("--to and --password-file name the same file")
    found = _found(site, metastore, password_file)
    if password_file is not None and found.password is None:
        raise UsageError("--password-file: no file of Hive's holds the password")
    written: list[Path] = []
    try:
        written.append(_write(to, hive_site.as_yaml(found.taken, found.notes)))
        if password_file is not None:
            written.append(_write(password_file, f"{found.password}\n", secret=True))
        session.config_path = to
        session.read_settings()
    except SettingsError:
        for path in written:  # nothing is left of what isn't right
            path.unlink()
        raise
    for note in found.notes:
        session.output.say(f"note: {note}")
    records = [{"key": one.key, "value": one.value, "source": one.source} for one in found.taken]
    session.output.show(View(COLUMNS, records, footer=f"written to {to}; next: compactor --config {to} doctor"))


def _found(site: Path | None, metastore: str | None, password_file: Path | None) -> hive_site.HiveConfiguration:
    if site is not None and metastore is not None:
        raise UsageError("--hive-site and --metastore both say where the metastore is: give one of them")
    if site is None and metastore is None:
        raise UsageError("say where the metastore is: --hive-site FILE or --metastore URL")
    if site is None:
        if hide_password(str(metastore)) != metastore:
            raise UsageError(
                "--metastore: a password doesn't belong there; name a file with it by database.password_file"
            )
        if (wrong := mistake(str(metastore))) is not None:
            raise UsageError(f"--metastore: {wrong}")
        taken = hive_site.Taken("database.url", str(metastore), "--metastore")
        return hive_site.HiveConfiguration((taken,), (), None)
    return hive_site.settings_of(hive_site.read(hive_site.with_those_beside(site)), password_file)


def _write(path: Path, text: str, *, secret: bool = False) -> Path:
    """
    Make a file; returns its path.

    Raises:
        SettingsError: it is there already, or can't be made.
    """
    try:
        with os.fdopen(
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644), "w", encoding="utf-8"
        ) as file:
            file.write(text)
            return path
    except FileExistsError:
        raise SettingsError(f"{path} is there already: remove it, or name another file") from None
    except OSError as error:
        raise SettingsError(f"{path} can't be written: {error.strerror}") from None
