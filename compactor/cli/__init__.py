"""
The command line `compactor`: one module per command, and one `Output` for all answers of a run.

Data goes to stdout, messages go to stderr. A command imports heavy modules only when it runs: `compactor --help` loads
no database driver and no Spark.
"""

import sys


def main() -> None:
    """Entry point of the console script `compactor`."""
    try:
        from compactor.cli.root import cli
    except KeyboardInterrupt:  # `cli` handles it once it is loaded
        print("interrupted", file=sys.stderr)  # noqa: T201 - click isn't loaded
        sys.exit(130)
    cli.main(prog_name="compactor")
