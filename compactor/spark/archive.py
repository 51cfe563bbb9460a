"""
Builds the Python environment archive for Spark executors: this package, its dependencies, and a `bin/python` that finds
them.

Spark unpacks the archive beside each executor (`spark.archive`). The archive holds no interpreter: the nodes need
Python of the same minor version, which PySpark demands anyway. It doesn't hold PySpark either: Spark ships PySpark to
executors, and it is several hundred megabytes.
"""

import gzip
import io
import os
import re
import sys
import tarfile
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

import compactor
from compactor.errors import CompactorError
from compactor.spark.code_identity import sources_digest

NOT_SHIPPED: Final = frozenset({"pyspark", "py4j"})
EXTRAS: Final = frozenset({"hdfs", "s3", "fsspec"})
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRA = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")
_PYTHON = f"""#!/bin/sh
# Python of the node, which finds what is in this archive.
here=$(cd "$(dirname "$0")/.." && pwd)
PYTHONPATH="$here/lib${{PYTHONPATH:+:$PYTHONPATH}}" exec "${{COMPACTOR_PYTHON:-python{sys.version_info.major}.{sys.version_info.minor}}}" "$@"
"""


def name_of_archive() -> str:
    """A file name that says what the archive holds: each state of the package has its own, also on the cluster."""
    return f"compactor-env-{compactor.__version__}-{sources_digest()}.tar.gz"


def build(path: Path) -> list[str]:
    """
    Write the archive; returns its packages, as `name version`. The same packages give the same bytes.

    Raises:
        CompactorError: this package isn't installed, or the file can't be written.
    """
    packages = sorted(_needed(), key=lambda found: _normal(found.name))
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with (
            part.open("wb") as out,
            gzip.GzipFile("", "wb", 6, out, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            _add(archive, "bin/python", _PYTHON.encode(), 0o755)
            for name, source in sorted(
                {**_own(), **{name: source for package in packages for name, source in _files(package)}}.items()
            ):
                _add(archive, f"lib/{name}", source.read_bytes(), 0o755 if os.access(source, os.X_OK) else 0o644)
        part.replace(path)
    except OSError as error:
        raise CompactorError(f"{path} can't be written: {error.strerror or error}") from None
    finally:
        part.unlink(missing_ok=True)
    return [f"{package.name} {package.version}" for package in packages]


def _own() -> dict[str, Path]:
    """This package's files, wherever the package is installed or checked out."""
    top = Path(compactor.__file__).parent
    return {
        f"compactor/{file.relative_to(top)}": file
        for file in top.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


def _needed() -> Iterable[metadata.Distribution]:
    """
    This package and its direct and indirect dependencies, as far as they are installed. Dependencies for other systems
    or versions aren't installed.
    """
    found: dict[str, metadata.Distribution] = {}
    waiting = [("compactor", True)]
    while waiting:
        name, required = waiting.pop()
        if _normal(name) in found or _normal(name) in NOT_SHIPPED:
            continue
        try:
            package = found[_normal(name)] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            if required:
                raise CompactorError(f"package {name} isn't installed, so it can't be shipped") from None
            continue
        for requirement in package.requires or []:
            extra = _EXTRA.search(requirement)
            if (extra is None or (name == "compactor" and extra[1] in EXTRAS)) and (wanted := _NAME.match(requirement)):
                waiting.append((wanted[0], False))
    return found.values()


def _files(package: metadata.Distribution) -> Iterator[tuple[str, Path]]:
    """Name in the archive and path of every file of a package. Commands and compiled byte code are left out."""
    for file in package.files or []:
        source = Path(str(file.locate()))
        if ".." not in file.parts and "__pycache__" not in file.parts and file.suffix != ".pth" and source.is_file():
            yield str(file), source


def _add(archive: tarfile.TarFile, name: str, data: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    archive.addfile(entry, io.BytesIO(data))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
