"""`compactor completion`: prints the script by which a shell completes compactor's commands and options."""

import sys

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from compactor.cli.session import Command

SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "fish": FishComplete, "zsh": ZshComplete}
WHERE = {
    "bash": "~/.local/share/bash-completion/completions/compactor",
    "zsh": "a directory of $fpath, as _compactor",
    "fish": "~/.config/fish/completions/compactor.fish",
}


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(sorted(SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """
    Print the completion script for SHELL.

    Try it with `source <(compactor completion bash)`.
    """
    maker: type[ShellComplete] = SHELLS[shell]
    completer = maker(ctx.find_root().command, {}, "compactor", "_COMPACTOR_COMPLETE")
    click.echo(ShellComplete.source(completer))
    if sys.stdout.isatty():
        click.echo(f"to keep it, write it to {WHERE[shell]}", err=True)
