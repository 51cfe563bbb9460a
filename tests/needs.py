"""
What a test can't run without: skipped with the reason on a developer's machine, a failure in CI, where nothing may be
skipped.
"""

import os

import pytest


def missing(reason: str) -> None:
    """Skip the test, or fail it when the environment variable CI is set."""
    if os.environ.get("CI"):
        pytest.fail(f"in CI nothing is skipped, but {reason}")
    pytest.skip(reason)
