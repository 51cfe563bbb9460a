"""What one run of the command line holds: the chosen output, the settings, and (opened on first use, closed at the end) the metastore."""

import os
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click
from click.core import ParameterSource

from compactor.cli.output import Format, Output, output_for

if TYPE_CHECKING:
    from compactor.metastore.database import Database
    from compactor.metastore.places import Places
    from compactor.settings import Settings

_SENTENCE = 200  # characters of a command's first sentence, which click would cut off at 45
OWN_VARIABLES = ("COMPACTOR_CONFIG",)  # of the command line, not settings


class Session:
    """
    Passed to every command.

    Args:
        config_path: the settings file, or None for defaults and environment.
        form: how answers are written.
    """

    def __init__(self) -> None:
        self.config_path: Path | None = None
        self.form = Format.TABLE
        self._database: Database | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give the metastore's connection (and an embedded database's file) back."""
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def database(self, *, write: bool = False) -> "Database":
        """
        The metastore, reached on first use. Only for looking unless `write`: then an embedded database may stay in use by a running daemon.

        Raises:
            SettingsError, UnreachableError, RefusedError: as `Database.connect` says.
        """
        from compactor.metastore.database import Database

        if self._database is None:
            quiet_log()
            settings = self.settings.database
            self._database = Database(
                settings.url, password=settings.secret(), read_only=not write, connect_timeout_seconds=settings.connect_timeout_seconds
            ).connect()
        return self._database

    @cached_property
    def places(self) -> "Places":
        """Where may be written and deleted; what was read of the catalog serves half a minute."""
        from compactor.metastore.places import Places

        return Places(self.database(), lambda: self.settings.warehouse.roots)

    @cached_property
    def output(self) -> Output:
        return output_for(self.form)

    @cached_property
    def settings(self) -> "Settings":
        """Read once; raises SettingsError with the key, the place and what is allowed."""
        from compactor.storage.registry import configure

        settings = self.read_settings()
        configure(settings)
        return settings

    def read_settings(self) -> "Settings":
        """Read file and environment anew."""
        from compactor.settings import load_settings

        return load_settings(self.config_path, {name: value for name, value in os.environ.items() if name not in OWN_VARIABLES})


def quiet_log() -> None:
    """Commands say what there is to say themselves; of the log only errors come through, on stderr."""
    from compactor.log import configure

    configure(level="error", style="console")


pass_session = click.make_pass_decorator(Session)


def _session(ctx: click.Context) -> Session:
    """The one session of this run, made by whoever asks first and closed with the outermost command."""
    root = ctx.find_root()
    if root.obj is None:
        root.obj = root.with_resource(Session())
    session = root.obj
    assert isinstance(session, Session)
    return session


def _choose_config(ctx: click.Context, parameter: click.Parameter, value: Path | None) -> None:
    """`--config` wins against the environment wherever it stands: the group and the command both read the variable."""
    session = _session(ctx)
    given = parameter.name is not None and ctx.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    if value is not None and (given or session.config_path is None):
        session.config_path = value


def _choose_output(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    session = _session(ctx)
    if value is not None:
        session.form = Format(value)


def _ignore(_: click.Context, __: click.Parameter, ___: bool) -> None:
    """`--debug` is looked for where errors are reported: an error may come before options are parsed."""


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
        help="How answers are written to stdout; table when not given.",
    ),
    click.Option(["--debug"], is_flag=True, expose_value=False, callback=_ignore, help="Show tracebacks."),
)


class Command(click.Command):
    """A command that takes the global options too, so that they may stand before it or after it."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        *own, help_option = super().get_params(ctx)
        return [*own, *GLOBAL_OPTIONS, help_option]


class Group(click.Group):
    """A noun with verbs below it; takes the global options too."""

    command_class = Command

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        *own, help_option = super().get_params(ctx)
        return [*own, *GLOBAL_OPTIONS, help_option]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        verbs = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.get_short_help_str(_SENTENCE)) for name, verb in verbs if verb is not None])
