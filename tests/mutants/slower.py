"""
Judges what the quick tests let live by whole suites, each below a minute: those with servers, JVMs and Spark.

They run in a copy of the project whose source is the mutant's, so that other processes see it, too.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.mutants.changes import ROOT, Mutant
from tests.mutants.session import KILLED, RUN, SURVIVED

_MARKS: Final = "not (long or cluster or deploy or live or trino or crash)"
_SHARED: Final = (".tools", ".venv")


class Slower:
    """A copy of the project, which `close` removes."""

    def __init__(self) -> None:
        self._place = RUN / "copy"
        self._passed: set[Path] = set()

        def left_out(folder: str, names: list[str]) -> list[str]:
            hidden = [name for name in names if name.startswith(".") or name == "build"] if Path(folder) == ROOT else []
            return [*hidden, *(name for name in names if name == "__pycache__")]

        shutil.copytree(ROOT, self._place, ignore=left_out)
        for name in _SHARED:
            (self._place / name).symlink_to(ROOT / name)

    def judged(self, one: Mutant, files: Sequence[Path]) -> str:
        """
        Run the suites on a mutant until a test fails.

        Raises:
            SystemExit: a suite fails without any change, and so judges nothing.
        """
        if unknown := [file for file in files if file not in self._passed]:
            if self._run(unknown) != SURVIVED:
                raise SystemExit((RUN / "slower.out").read_text())
            self._passed.update(unknown)
        source = self._place / one.path.relative_to(ROOT)
        before = source.read_text()
        source.write_text(one.after)
        try:
            return self._run(files)
        finally:
            source.write_text(before)

    def _run(self, files: Sequence[Path]) -> str:
        names = [str(file.relative_to(ROOT)) for file in files]
        options = ["-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider", "--durations=20", "-m", _MARKS]
        with (RUN / "slower.out").open("w") as out:
            code = subprocess.run(
                [sys.executable, "-m", "pytest", *options, *names],
                cwd=self._place,
                env=os.environ | {"PYTHONPATH": str(self._place)},
                stdout=out,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
        return SURVIVED if code == 0 else KILLED
