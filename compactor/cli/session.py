"""
Holds the state of one run of the command line: the chosen output, the settings, and the metastore, which is opened on
first use and closed at the end.

Also defines the exit codes of the command line, as docs/cli.md lists them; a `CompactorError` carries its own
(`CompactorError.exit_code`).
"""

import math
from contextlib import closing
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from compactor.cli.output import Format, Output

_SENTENCE = 200  # characters of a command's first sentence, which click would cut off at 45


class Code(IntEnum):
    """Exit codes of the command line; scripts may rely on them."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOTHING_TO_DO = 3
    REFUSED = 4
    UNREACHABLE = 5
    INTERRUPTED = 130


if TYPE_CHECKING:
    from compactor.metastore.db.database import Database
    from compactor.metastore.locations.places import Places
    from compactor.settings import Settings


class Session:
    """
    The state of one run, passed to every command.

    Args:
        config_path: the settings file; None: defaults and environment.
        form: the format of answers.
    """

    def __init__(self) -> None:
        self.config_path: Path | None = None
        self.form = Format.TABLE
        self._database: Database | None = None

    def close(self) -> None:
        """Close the metastore's connection, which frees an embedded database's file."""
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def database(self, *, write: bool = False, patience_seconds: float = math.inf) -> "Database":
        """
        The metastore, connected on first use.

        Without `write` the connection is read-only, and a running daemon may keep using an embedded database.

        Args:
            patience_seconds: how long to wait for it, if that is less than the settings say.

        Raises:
            SettingsError, UnreachableError, RefusedError: as `Database.connect` says.
        """
        from compactor.metastore.db.database import Database

        if self._database is None:
            quiet_log()
            settings = self.settings.database
            self._database = Database(
                settings.url,
                password=settings.secret,
                read_only=not write,
                connect_timeout_seconds=min(settings.connect_timeout_seconds, patience_seconds),
            ).connect()
        return self._database

    @cached_property
    def places(self) -> "Places":
        """The locations where compactor may write and delete; what it read of the catalog is used for half a minute."""
        from compactor.metastore.locations.places import Places

        return Places(self.database(), lambda: self.settings.warehouse.roots)

    @cached_property
    def output(self) -> Output:
        return Output(self.form)

    @cached_property
    def settings(self) -> "Settings":
        """
        The settings, read once; the stores are configured by them.

        Raises:
            SettingsError: a setting is wrong; the error names the key, the place and what is allowed.
        """
        from compactor.storage.registry import configure

        settings = self.read_settings()
        configure(settings)
        return settings

    def read_settings(self) -> "Settings":
        """Read the settings from file and environment again."""
        from compactor.metastore.db.dialects.address import wrong_setting
        from compactor.settings import load_settings

        return load_settings(self.config_path, wrong=wrong_setting)


def quiet_log() -> None:
    """Log only errors, on stderr: commands write their own messages."""
    from compactor.log import configure

    configure(level="error", style="console")


pass_session = click.make_pass_decorator(Session)


def session_of(ctx: click.Context) -> Session:
    """The session of this run, made by the first call and closed with the outermost command."""
    root = ctx.find_root()
    if root.obj is None:
        root.obj = root.with_resource(closing(Session()))
    session = root.obj
    assert isinstance(session, Session)
    return session


def _choose_config(ctx: click.Context, parameter: click.Parameter, value: Path | None) -> None:
    """
    Choose the settings file: `--config` wins over COMPACTOR_CONFIG wherever it stands, since the group and the command
    both read the variable.
    """
    session = session_of(ctx)
    given = parameter.name is not None and ctx.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    if value is not None and (given or session.config_path is None):
        session.config_path = value


def _choose_output(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    session = session_of(ctx)
    if value is not None:
        session.form = Format(value)


GLOBAL_OPTIONS = (
    click.Option(
        ["--config"],
        type=click.Path(path_type=Path),
        envvar="COMPACTOR_CONFIG",
        expose_value=False,
        callback=_choose_config,
        help="Settings file (YAML); COMPACTOR_… variables go over it.",
    ),
    click.Option(
        ["--output", "-o"],
        type=click.Choice([form.value for form in Format]),
        expose_value=False,
        callback=_choose_output,
        help="How answers are written to stdout; table when not given, with all columns: wide.",
    ),
    # `root` looks for --debug itself: an error may come before options are parsed
    click.Option(["--debug"], is_flag=True, expose_value=False, callback=lambda *_: None, help="Show tracebacks."),
)


class Command(click.Command):
    """A command that takes the global options too, so that they may stand before or after its name."""

    allow_extra_args = True  # `parse_args` refuses them with a hint

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        super().parse_args(ctx, args)
        if ctx.args and not ctx.resilient_parsing:
            names = {parameter.name for parameter in self.params}
            hint = (
                "; name one table, DATABASE.TABLE/PARTITION, or a pattern in quotes"
                if names & {"target", "what"}
                else "; name tables by --table"
                if "table" in names
                else ""
            )
            ctx.fail(f"{' '.join(ctx.args)!r} is too much{hint}")
        return ctx.args

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        *own, help_option = super().get_params(ctx)
        return [*own, *GLOBAL_OPTIONS, help_option]


class Group(click.Group):
    """A command with subcommands; takes the global options too."""

    command_class = Command

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        *own, help_option = super().get_params(ctx)
        return [*own, *GLOBAL_OPTIONS, help_option]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        verbs = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.get_short_help_str(_SENTENCE)) for name, verb in verbs if verb is not None])
