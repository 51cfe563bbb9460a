"""
Resolves the lock files, and checks whether they still fit pyproject.toml.

A lock file begins with a sum over the requirements that it was resolved from. So `check` finds a requirement that
changed without `make lock`, and needs no network for it.

    python deploy/locks.py resolve | check
"""

import hashlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

LOCKS = {
    "requirements.lock": (
        "hdfs",
        "s3",
        "sasl",
    ),  # what a cluster needs: docs/edge-node.md and the image install this file
    "requirements-kerberos.lock": ("kerberos",),
    "requirements-test.lock": ("test",),
    "requirements-lint.lock": ("test", "lint"),
    "requirements-deploy.lock": ("test", "deploy"),
    "requirements-docs.lock": ("docs",),
}
"""Lock file → the extras that it holds besides the package's own requirements."""
BESIDE = "requirements-kerberos.lock"
"""
Holds its extra alone, to be installed after one of the other files where it is needed: there are no wheels of the
extra, so pip compiles it.
"""
HEADER = "# resolved from pyproject.toml: "
UV = (
    "pip",
    "compile",
    "--universal",
    "--python-version",
    "3.11",
    "--generate-hashes",
    "--no-header",
    "--no-emit-index-url",
    "--no-annotate",
)


def resolved_from(pyproject: Path, extras: tuple[str, ...]) -> str:
    """The sum over the requirements of a lock file; their order and layout don't matter."""
    project = _project(pyproject)
    wanted = {name: sorted(project["optional-dependencies"][name]) for name in extras}
    text = json.dumps([project["requires-python"], sorted(project["dependencies"]), wanted], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _project(pyproject: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    return found


def outdated(root: Path) -> list[str]:
    """Lock files that were resolved from other requirements than those in pyproject.toml now."""
    found = []
    for name, extras in LOCKS.items():
        with (root / name).open(encoding="utf-8") as file:
            first = file.readline()
        if first.strip() != HEADER + resolved_from(root / "pyproject.toml", extras):
            found.append(name)
    return found


def resolve(root: Path, uv: Path) -> None:
    """Write every lock file anew; needs the network."""
    for name, extras in LOCKS.items():
        chosen = ["pyproject.toml", *(word for extra in extras for word in ("--extra", extra))]
        alone = None
        if name == BESIDE:
            chosen, alone = ["-"], "\n".join(_project(root / "pyproject.toml")["optional-dependencies"][extras[0]])
        subprocess.run(
            [uv, *UV, *chosen, "--quiet", "--output-file", name], cwd=root, check=True, input=alone, text=True
        )
        lock = root / name
        lock.write_text(
            f"{HEADER}{resolved_from(root / 'pyproject.toml', extras)}\n{lock.read_text(encoding='utf-8')}",
            encoding="utf-8",
        )


def main(command: str) -> int:
    """Run the command; returns the exit code."""
    root = Path(__file__).resolve().parent.parent
    if command == "resolve":
        resolve(root, Path(sys.executable).parent / "uv")
        return 0
    if command != "check":
        print(__doc__, file=sys.stderr)  # noqa: T201 - a script
        return 2
    names = outdated(root)
    for name in names:
        print(f"{name}: pyproject.toml has other requirements by now; run `make lock`", file=sys.stderr)  # noqa: T201
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
