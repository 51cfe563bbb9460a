"""Lock files: a requirement that changed without `make lock` is found, without a network."""

import importlib.util
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("locks", ROOT / "deploy" / "locks.py")
locks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(locks)


@pytest.fixture
def copy(tmp_path):
    for name in ("pyproject.toml", *locks.LOCKS):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def change(copy, old, new):
    file = copy / "pyproject.toml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_those_of_this_tree_fit():
    """What `make lint` asks."""
    assert locks.outdated(ROOT) == []


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ('  "click>=8.1,<9",\n', "", list(locks.LOCKS)),
        ('"rich>=13,<16"', '"rich>=14,<16"', list(locks.LOCKS)),
        ('requires-python = ">=3.11"', 'requires-python = ">=3.12"', list(locks.LOCKS)),
        (
            '"pytest-timeout>=2.3,<3"',
            '"pytest-timeout>=2.4,<3"',
            ["requirements-test.lock", "requirements-lint.lock", "requirements-deploy.lock"],
        ),
        ('"types-PyYAML"', '"types-PyYAML", "types-tabulate"', ["requirements-lint.lock"]),
        ('description = "', 'description = "x ', []),
    ],
)
def test_a_changed_requirement_is_found(copy, old, new, names):
    """In each lock file that it belongs to, and only there; what isn't a requirement doesn't count."""
    change(copy, old, new)
    assert locks.outdated(copy) == names


def test_a_lock_file_without_its_first_line_is_outdated(copy):
    """Resolved by hand, it isn't known from what."""
    lock = copy / "requirements.lock"
    lock.write_text(lock.read_text().split("\n", 1)[1])
    assert locks.outdated(copy) == ["requirements.lock"]
