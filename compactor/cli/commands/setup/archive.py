"""`compactor archive build`: builds the Python environment archive for Spark executors."""

from pathlib import Path
from typing import Final

import click

from compactor.cli.options import file_to_write
from compactor.cli.output import OutputColumn, View
from compactor.cli.session import Command, Group, Session, pass_session

_GZIP: Final = b"\x1f\x8b"
"""How each archive begins."""
COLUMNS = (OutputColumn("package", "PACKAGE"), OutputColumn("version", "VERSION"))


@click.group(cls=Group)
def archive() -> None:
    """The Python environment archive for Spark executors."""


@archive.command(cls=Command)
@click.argument(
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=file_to_write(_GZIP),
    required=False,
)
@pass_session
def build(session: Session, path: Path | None) -> int:
    """
    Write this package and all it needs, but PySpark, into PATH (a .tar.gz).

    Without PATH its name says what it holds: compactor-env-RELEASE-DIGEST.tar.gz, with the digest of the package's
    sources. Executors whose package has another digest than the daemon's refuse to work.

    Put it where the cluster can read it and name it in spark.archive. The nodes need Python of the same version; where
    it isn't on the PATH there, COMPACTOR_PYTHON names it.
    """
    from compactor.spark.archive import build as build_archive
    from compactor.spark.archive import name_of_archive

    path = Path(name_of_archive()) if path is None else path
    with session.output.busy(f"writing {path}"):
        packages = [
            dict(zip(("package", "version"), found.rsplit(" ", 1), strict=True)) for found in build_archive(path)
        ]
    document = {"path": str(path), "bytes": path.stat().st_size, "packages": packages}
    session.output.show(View(COLUMNS, packages, document=document))
    session.output.say(f"{path}: {path.stat().st_size >> 20} MiB")
    return 0
