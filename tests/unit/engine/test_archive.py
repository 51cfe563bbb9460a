"""What is shipped to a cluster's nodes."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from compactor.cli.root import cli
from compactor.errors import CompactorError
from compactor.spark import archive as archive_module
from compactor.spark.archive import build, name_of_archive
from compactor.spark.code_identity import sources_digest


@pytest.fixture
def small(monkeypatch):
    """Only this package itself: what it needs takes ten seconds to pack."""
    monkeypatch.setattr(archive_module, "_needed", list)


def test_a_python_that_knows_nothing_finds_all_in_it(tmp_path, small):
    """The interpreter is the node's; packages are those of the archive, wherever it is unpacked."""
    build(tmp_path / "a.tar.gz")
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        archive.extractall(tmp_path / "environment", filter="data")
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    environment = {"PATH": os.environ["PATH"], "COMPACTOR_PYTHON": str(base)}
    asked = [
        str(tmp_path / "environment" / "bin" / "python"),
        "-c",
        "import compactor.errors; print(compactor.__file__)",
    ]
    said = subprocess.run(asked, capture_output=True, text=True, check=True, env=environment, cwd="/").stdout
    assert said.strip() == str(tmp_path / "environment" / "lib" / "compactor" / "__init__.py")


def test_everything_but_spark_is_in_it():
    """Of what this package needs, and what the stores need; PySpark ships itself."""
    names = {found.name.lower() for found in archive_module._needed()}
    assert {"compactor", "pyarrow", "numpy", "pyorc", "hdfs-native", "botocore", "pydantic", "pydantic_core"} <= names
    assert not names & {"pyspark", "py4j", "pytest", "moto", "ruff"}


def test_the_same_packages_give_the_same_bytes(tmp_path, small):
    """So that it needs to be shipped only when something changed."""
    build(tmp_path / "a.tar.gz")
    build(tmp_path / "b.tar.gz")
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()


def test_its_name_says_what_it_holds(tmp_path, small, monkeypatch):
    """Another state of the package is another file, where nodes may still have the last one's."""
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(cli, ["archive", "build"]).exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == [name_of_archive()]
    assert name_of_archive().endswith(f"-{sources_digest()}.tar.gz")


def test_what_cannot_be_written_is_one_line(tmp_path, small):
    """And nothing is left behind."""
    (tmp_path / "d").mkdir()
    with pytest.raises(CompactorError, match="can't be written"):
        build(tmp_path / "nowhere" / "a.tar.gz")
    assert [path.name for path in tmp_path.iterdir()] == ["d"]
