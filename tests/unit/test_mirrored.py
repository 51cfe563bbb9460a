"""The tests of a module are found by its name."""

from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
FOLDERS = (
    *("daemon", "roles/worker", "roles/cleaner", "roles/cleaner/quarantine", "roles/initiator", "roles/housekeeper"),
    *("cli/naming", "cli/views", "cli/commands/control", "cli/commands/leftovers", "cli/commands/looking"),
    *("cli/commands/queueing", "cli/commands/setup", "status"),
)
"""In which each file of tests is about one module of the folder of that name, and is named after it."""


@pytest.mark.parametrize("folder", FOLDERS)
def test_tests_are_named_after_their_module(folder):
    """`test_MODULE.py`, or `test_MODULE_` and what of it."""
    modules = {path.stem for path in (PROJECT / "compactor" / folder).glob("*.py")}
    about = [path.stem.removeprefix("test_") for path in (PROJECT / "tests" / "unit" / folder).glob("test_*.py")]
    assert about
    assert not [
        name for name in about if not any(name == module or name.startswith(f"{module}_") for module in modules)
    ]
