"""`make demo`: the demonstration as a command, with the global options, errors and exit codes of `compactor`."""

import sys

import click

from compactor.cli.root import LazyGroup
from compactor.cli.session import GLOBAL_OPTIONS
from tests.demo.show import demo


class Demo(LazyGroup):
    """The command line with the demo as its only command."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        return demo


command = Demo("make", params=list(GLOBAL_OPTIONS), context_settings={"help_option_names": ["-h", "--help"]})

if __name__ == "__main__":
    command.main(["demo", *sys.argv[1:]], prog_name="make")
