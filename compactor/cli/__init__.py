"""
The command line `compactor`: one module per command, and one `Output` for all answers of a run.

Data goes to stdout, messages go to stderr. A command imports heavy modules only when it runs: `compactor --help` loads
no database driver and no Spark.
"""


def main() -> None:
    """Entry point of the console script `compactor`."""
    from compactor.cli.root import cli

    cli.main(prog_name="compactor")
