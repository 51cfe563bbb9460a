"""Fixtures that every package of tests may use."""

import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]
if str(PROJECT) not in sys.path:  # `from tests.reference import ...` however pytest was started
    sys.path.insert(0, str(PROJECT))

from compactor.acid.compaction import LayoutVersion  # noqa: E402
from compactor.demo.ledger import MemoryLedger  # noqa: E402
from compactor.demo.warehouse import Warehouse  # noqa: E402
from tests.hive.reader import HiveReader, UnavailableError  # noqa: E402
from tests.needs import missing  # noqa: E402


@pytest.fixture
def warehouse(tmp_path):
    """An empty Hive 4 warehouse without a metastore database."""
    return Warehouse(tmp_path / "warehouse", MemoryLedger())


@pytest.fixture
def warehouse_3(tmp_path):
    """An empty Hive 3.1 warehouse without a metastore database."""
    return Warehouse(tmp_path / "warehouse", MemoryLedger(LayoutVersion.HIVE_3))


@pytest.fixture(scope="session")
def hive_4():
    """Hive 4.1.0's own reader; one JVM for all tests of the process."""
    yield from _reader("4")


@pytest.fixture(scope="session")
def hive_3():
    """Hive 3.1.3's own reader."""
    yield from _reader("3")


def _reader(version):
    try:
        reader = HiveReader(version)
    except UnavailableError as error:
        missing(str(error))
    with reader:
        yield reader


def pytest_addoption(parser):
    """Let case books be written anew from what really comes out."""
    parser.addoption("--rewrite", action="store_true", default=False, help="replace the expected parts of case books by what came out")
