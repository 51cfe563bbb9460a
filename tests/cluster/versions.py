"""
Two versions of our package installed side by side, each into a folder of its own, and their daemons and command lines
as processes.

The older is today's source; the newer is the same with a larger number, a field more in its members' records, and a
kind of pause that today's source doesn't know. As a program this file is a daemon of whichever version its PYTHONPATH
names: `python versions.py SETTINGS`.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
NEWER = "99.0.0"
CHANGES = {
    "coordination/model.py": [
        (
            '            "roles": list(self.roles),\n',
            '            "roles": list(self.roles),\n            "zone": {"name": "b"},\n',
        ),
    ],
    "control/scope.py": [
        ('    TABLE = "table"\n', '    TABLE = "table"\n    OWNER = "owner"\n'),
        (
            "            case ScopeKind.TABLE:\n                return fits",
            "            case ScopeKind.OWNER:\n                return False\n            case ScopeKind.TABLE:\n                return fits",
        ),
        ("ScopeKind.DATABASE, ScopeKind.TABLE}:", "ScopeKind.DATABASE, ScopeKind.TABLE, ScopeKind.OWNER}:"),
    ],
}
"""What the newer version has: for each file, what is replaced by what."""


class Program:
    """A process with what the tests ask of `multiprocessing`'s."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: Path, log: Path) -> None:
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command,
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.pid = self._process.pid

    @property
    def exitcode(self) -> int | None:
        return self._process.poll()

    def join(self, timeout: float | None = None) -> None:
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return

    def kill(self) -> None:
        self._process.kill()


class Installed:
    """
    One version.

    Args:
        folder: made; holds the package and its metadata, as an installer leaves them.
        number: its version.
        changes: as CHANGES.
    """

    def __init__(self, folder: Path, number: str, changes: dict[str, list[tuple[str, str]]] | None = None) -> None:
        self.folder, self.number = folder, number
        shutil.copytree(PROJECT / "compactor", folder / "compactor", ignore=shutil.ignore_patterns("__pycache__"))
        metadata = folder / f"compactor-{number}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: compactor\nVersion: {number}\n", encoding="utf-8"
        )
        for name, pairs in (changes or {}).items():
            path = folder / "compactor" / name
            source = path.read_text(encoding="utf-8")
            for old, new in pairs:
                assert source.count(old) == 1, f"{name} has changed: {old!r} isn't there once"
                source = source.replace(old, new)
            path.write_text(source, encoding="utf-8")

    def environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("COMPACTOR_", "PYTHON"))}
        return {**kept, "PYTHONPATH": str(self.folder), "PYTHONSAFEPATH": "1"}

    def daemon(self, config: Path, home: Path, log: Path) -> Program:
        return Program([sys.executable, __file__, str(config)], {**self.environment(), "TMPDIR": str(home)}, home, log)

    def run(self, code: str, *arguments: str) -> str:
        """What a piece of Python prints that is run with this version."""
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env=self.environment(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def command(self, config: Path, *arguments: str):
        """The answer of the command line."""
        return json.loads(
            self.run("from compactor.cli import main; main()", "--config", str(config), "--output", "json", *arguments)
        )


def _main(config: str) -> int:
    sys.path.append(str(PROJECT))  # for the tests' submitter; the package is found before it
    from compactor.daemon import Daemon
    from compactor.settings import load_settings
    from tests.compacting import InProcess

    return Daemon(load_settings(Path(config)), submitter=InProcess()).run()


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1]))
