"""Executors with other code than the daemon's: they refuse to work, whatever is installed there."""

import pickle
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from pyspark import cloudpickle

import compactor
from compactor.errors import CompactorError
from compactor.spark.code_identity import code, guarded, require_code
from compactor.spark.unfit import why_unfit

EXECUTOR = """
import sys
sys.path[:] = sys.argv[1].split(":")
from pyspark import cloudpickle
work = cloudpickle.loads(sys.stdin.buffer.read())
print(list(work(["a", "bc"])))
"""


LENGTHS = partial(map, len)


def said_on(*path, run=LENGTHS):
    """What a process with this path says of two tasks of this process."""
    line = [sys.executable, "-I", "-c", EXECUTOR, ":".join(map(str, [*path, *sys.path]))]
    ran = subprocess.run(
        line, input=cloudpickle.dumps(guarded(code(), pickle.dumps(run))), capture_output=True, check=False
    )
    return (ran.stdout + ran.stderr).decode()


@pytest.fixture
def node(tmp_path):
    """A folder with a copy of the package."""
    copy = tmp_path / "compactor"
    shutil.copytree(Path(compactor.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_the_same_sources_are_the_same_code(node):
    """Wherever they are, and whatever Python has compiled beside them."""
    (node / "compactor" / "__pycache__").mkdir()
    (node / "compactor" / "__pycache__" / "a.pyc").touch()
    assert said_on(node) == "[1, 2]\n"


def test_an_executor_with_a_changed_source_does_nothing(node):
    """The release's number is the same; the refusal names the node, both codes, and what to do."""
    with (node / "compactor" / "acid" / "layout.py").open("a", encoding="utf-8") as file:
        file.write("# mended\n")
    why = why_unfit(said_on(node))
    other = re.search(r" has (.*), but the daemon is (.*): have the daemon's version there", why)
    assert other[2] == code()
    assert other[1] != code()
    assert re.sub(r"\(\w+\)", "", other[1]) == re.sub(r"\(\w+\)", "", code())
    assert "compactor archive build" in why


def test_an_executor_with_an_earlier_release_says_so(node):
    """It lacks what compares; nothing of the task is opened there."""
    (node / "compactor" / "spark" / "code_identity.py").unlink()
    why = why_unfit(said_on(node, run=partial(sys.exit, "opened")))
    assert "lacks something (No module named 'compactor.spark.code_identity'), but the daemon is compactor " in why


def test_an_executor_without_a_package_that_tasks_need_says_so(node, monkeypatch):
    """What the task's function imports comes after the comparison."""
    (node / "pydantic.py").write_text("raise ModuleNotFoundError(\"No module named 'pydantic'\")\n", encoding="utf-8")
    from compactor.spark.results import run_elsewhere

    assert "lacks something (No module named 'pydantic')" in why_unfit(said_on(node, run=run_elsewhere))


def test_a_driver_with_other_code_than_its_daemon_does_not_begin():
    """It is started from what is installed now, or from an archive."""
    require_code(code())
    with pytest.raises(
        CompactorError, match=r"the driver on \S+ has compactor .*, but the daemon is compactor 7: have"
    ):
        require_code("compactor 7")
