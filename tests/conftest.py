"""Options that every test folder shares."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--rewrite` writes what case books really give into the books, for a reviewer to read as a difference."""
    parser.addoption("--rewrite", action="store_true", help="rewrite the expected part of case books (tests/cases/*.txt)")
