"""Arguments and options that several commands take: the table or partition, the kind of compaction, how to wait."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from compactor.acid.compaction import SUPPORTED, CompactionKind
from compactor.cli import completing
from compactor.errors import UsageError
from compactor.metastore.compaction_queue.urgency import MOST, URGENCIES, URGENCY

Decorated = Callable[..., Any]
POLL_SECONDS = 0.5


def _properties(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{value!r} is not KEY=VALUE")
        if found.setdefault(key.strip(), text) != text:
            raise click.BadParameter(f"{key.strip()} is given twice, as {found[key.strip()]!r} and as {text!r}")
    if (urgency := found.get(URGENCY)) is not None and urgency not in URGENCIES:
        raise click.BadParameter(f"{URGENCY} is {urgency!r}, not 0 to {MOST}")
    return found


def file_to_write(begins: bytes) -> Callable[[click.Context, click.Parameter, Path | None], Path | None]:
    """
    A callback for the path of a file to write. Of a link its target is written. A file that is there is replaced only if
    an earlier run may have made it.

    Args:
        begins: what such a file begins with.

    Raises:
        BadParameter: by the callback: the path is empty, as from a variable of a script that isn't set, or something
            else is there.
    """

    def callback(_: click.Context, __: click.Parameter, value: Path | None) -> Path | None:
        if value is None:
            return None
        if not value.name:
            raise click.BadParameter("it is empty: name a file")
        path = value.resolve() if value.is_symlink() else value
        if path.exists() and not (path.is_file() and _is_begun(path, begins)):
            raise click.BadParameter(f"{value} is there already, and no earlier run made it: name another file")
        return path

    return callback


def _is_begun(path: Path, begins: bytes) -> bool:
    """Whether a file begins so, or is empty; one that can't be read tells nothing."""
    try:
        with path.open("rb") as file:
            return file.read(len(begins)) in {b"", begins}
    except OSError:
        return False


def together(*decorators: Callable[[Decorated], Decorated]) -> Callable[[Decorated], Decorated]:
    """One decorator that applies these as if they stood above the command in this order."""

    def decorate(command: Decorated) -> Decorated:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


target_options = together(
    click.argument("target", metavar="DB.TABLE[/PARTITION]", shell_complete=completing.tables),
    click.option(
        "--partition", metavar="K=V/…", help="The partition, as Hive names it; values escaped or as they are."
    ),
)
"""Adds `target` and `partition`, for `compactor.cli.naming.target.parse_target`."""

request_options = together(
    target_options,
    click.option(
        "--type",
        "kind",
        type=click.Choice([kind.value for kind in SUPPORTED], case_sensitive=False),
        default=CompactionKind.MAJOR.value,
        show_default=True,
        help="Rewrite into one base, or merge the deltas only.",
    ),
    click.option(
        "--property",
        "properties",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_properties,
        help="A table property for this compaction only; may be repeated.",
    ),
)
"""Adds the description of one compaction: `target`, `partition`, `kind`, `properties`."""


def _only_with_wait(ctx: click.Context, _: click.Parameter, value: float | None) -> float | None:
    if value is not None and not ctx.params.get("wait"):
        raise UsageError("--timeout makes sense with --wait only")
    if value is not None and not math.isfinite(value):
        raise UsageError(f"--timeout: {value} is no number of seconds")
    return value


def wait_options(until: str) -> Callable[[Decorated], Decorated]:
    """
    Adds `wait` and `timeout`. A waiting command looks at the entry every `POLL_SECONDS`.

    Args:
        until: the help text of --wait.
    """
    return together(
        # eager: click parses --wait before --timeout, in whichever order they are given
        click.option("--wait", is_flag=True, is_eager=True, help=until),
        click.option(
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            metavar="SECONDS",
            callback=_only_with_wait,
            help="How long --wait waits at most.",
        ),
    )
