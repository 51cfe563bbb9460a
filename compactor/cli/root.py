"""
The command group `compactor`: global options, lazily loaded commands, and the only place where an error becomes a line
on stderr and an exit code.

Exit codes: `compactor.cli.session.Code`.
"""

import errno
import importlib
import io
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from compactor import __version__
from compactor.cli import completing  # noqa: F401 - makes its classes those of the shells
from compactor.cli.naming.target import did_you_mean
from compactor.cli.session import GLOBAL_OPTIONS, Code
from compactor.errors import CompactorError, NothingFitsError, UsageError
from compactor.words import one_line

COMMANDS: Mapping[str, tuple[str, str]] = {
    "run": ("run", "Run the daemon: Initiator, Workers, Cleaner and Housekeeper."),
    "enqueue": ("queueing.enqueue", "Ask for a table or partition to be compacted, or for many."),
    "queue": ("queueing.queue", "Show what is waiting, being worked on, or ready for cleaning."),
    "status": ("looking.status", "Show on one screen whether all is well, and what isn't."),
    "why": (
        "looking.why",
        "Show what keeps replaced files from being removed, and entries from being compacted, over all tables.",
    ),
    "history": ("queueing.queue", "Show finished, failed and refused compactions."),
    "cancel": ("queueing.cancel", "Take compactions out of the queue, or ask the workers on them to stop."),
    "retry": ("queueing.retry", "Ask again for a compaction that failed, was refused or aborted."),
    "pause": ("control.pause", "Keep compactions from beginning: all, a pool's, a database's, or of some tables."),
    "resume": ("control.pause", "Let what was paused go on."),
    "pauses": ("control.pause", "Show what is paused, and which hosts are drained."),
    "drain": ("control.drain", "Let a host's workers finish and claim nothing more."),
    "members": ("control.members", "Show the running daemons, the leader of each role, and what each daemon does."),
    "plan": ("looking.plan", "Show what a compaction would do, and its cost; changes nothing."),
    "verify": ("looking.verify", "Read a partition wholly, and prove by digests what compaction made of it."),
    "restore": ("leftovers.restore", "Show what the Cleaner keeps in quarantine, and undo a compaction from it."),
    "orphans": (
        "leftovers.orphans",
        "Show what attempts and statements that are over have left behind, and remove what is proven.",
    ),
    "explain": ("looking.explain", "Draw a partition, and say why it is or isn't due, and what blocks cleaning."),
    "report": (
        "looking.report",
        "Show what is late, what it costs readers, and what stands in the way, over all tables.",
    ),
    "simulate": ("looking.simulate", "Show what other thresholds would queue now."),
    "archive": ("setup.archive", "Build the Python environment archive for Spark executors."),
    "init": (
        "setup.init",
        "Write a settings file from Hive's own configuration, in which each value says where it is from.",
    ),
    "doctor": (
        "setup.doctor",
        "Try what the daemon needs: database, rights, stores, Spark; and say how to mend what fails.",
    ),
    "config": ("setup.config", "Check or show the settings."),
    "completion": ("setup.completion", "Print the shell's completion script."),
}
"""By name: the module below `compactor.cli.commands`, in which a function of that name is, and the sentence of `--help`."""
_MEANT: Mapping[str, str] = {
    "show": "queue, history or explain",
    "list": "queue, or status",
    "ls": "queue, or status",
    "top": "queue --watch",
    "ps": "members, or queue --state working",
    "compact": "enqueue",
    "submit": "enqueue",
    "stop": "cancel, pause or drain",
    "kill": "cancel",
    "undo": "restore",
    "check": "doctor, or config check",
    "start": "run",
    "log": "history",
}
"""What the commands are here that other programs have under these names."""


class LazyGroup(click.Group):
    """Imports a command's module only when that command is called; listing the commands imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            known = [*COMMANDS, *(name for option in self.get_params(ctx) for name in option.opts)]
            meant = f" (compactor {_MEANT[cmd_name]})" if cmd_name in _MEANT else did_you_mean(cmd_name, known)
            ctx.fail(f"there is no command {cmd_name!r}{meant}")
        command = getattr(importlib.import_module(f"compactor.cli.commands.{COMMANDS[cmd_name][0]}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        with formatter.section("Commands"):
            formatter.write_dl([(name, sentence) for name, (_, sentence) in COMMANDS.items()])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: ARG002 - click's signature; this method always ends the process
        **extra: Any,
    ) -> NoReturn:
        """Run a command and end the process. An error is one line on stderr; its traceback is shown under --debug."""
        arguments = list(sys.argv[1:] if args is None else args)
        _open_closed_streams()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # names of files may be in another encoding than the terminal's
                stream.reconfigure(errors="backslashreplace")
        try:
            _require_text(arguments)
            outcome = super().main(arguments, prog_name, complete_var, standalone_mode=False, **extra)
        except BaseException as error:  # the user sees a traceback only under --debug
            sys.exit(_report(error, debug="--debug" in arguments))
        sys.exit(outcome if isinstance(outcome, int) else 0)


def _open_closed_streams() -> None:
    """
    Lead the standard streams that were closed by the caller to nowhere: what is said there must not fail the work, nor may
    the next file that is opened get the number of one.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open("r+", encoding="utf-8")  # noqa: SIM115 - until the process ends
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def _require_text(arguments: Sequence[str]) -> None:
    """
    Refuse arguments that aren't text: names in the metastore are text, and no database accepts the lone surrogates that
    Python makes of undecodable bytes.

    Raises:
        UsageError: an argument isn't in the locale's encoding.
    """
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise UsageError(f"argument {argument!a} isn't text in this locale's encoding (UTF-8 as a rule)") from None


def _report(error: BaseException, *, debug: bool) -> int:
    """Write the error's line to stderr, below its traceback under --debug; returns the exit code."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python reports an error at exit
        return 1
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return error.exit_code
    if debug and not isinstance(error, click.ClickException):
        traceback.print_exception(error)
    line, code = _line(error)
    try:
        click.echo(line, err=True)
    except OSError:  # a full disk behind stderr: the code still tells
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    return code


def _line(error: BaseException) -> tuple[str, int]:
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return "interrupted", Code.INTERRUPTED
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx is not None else "compactor"
        said = error.format_message().replace("integer range", "whole number").replace("float range", "number")
        return f"error: {one_line(said)} (see `{command} --help`)", error.exit_code
    if isinstance(error, click.ClickException):
        return f"error: {one_line(error.format_message())}", error.exit_code
    if isinstance(error, NothingFitsError):
        return one_line(error), error.exit_code
    if isinstance(error, CompactorError):
        return f"error: {one_line(error)}", error.exit_code
    if isinstance(error, OSError) and error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        return f"error: the output can't be written: {error.strerror}", 1
    return (
        f"error: {type(error).__name__}: {one_line(error) or 'no message'} (unexpected; run again with --debug to see where)",
        1,
    )


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog="Exit codes: 0 done, 1 failed, 2 usage, 3 nothing to do, 4 refused, 5 unreachable.",
)
@click.version_option(__version__, prog_name="compactor")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Keep Hive ACID tables fast, from outside the metastore."""


cli.params[:0] = GLOBAL_OPTIONS
