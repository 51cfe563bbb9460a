"""
The command line: one file per noun, one `Output` chosen once.

Data goes to stdout, talk to stderr. Nothing heavy is imported before the command that needs it: `compactor --help` reads no database driver and no Spark.
"""


def main() -> None:
    """The console script `compactor`."""
    from compactor.cli.root import cli

    cli.main(prog_name="compactor")
