"""
A host for following the guide: one shell in a folder that stands for its file system, with programs in place of those
that need a real machine.

What is replaced, and by what:

- paths of the guide (`/etc/compactor`, `/opt/compactor`, …) get the folder in front, and so do those in the unit;
- `useradd` does nothing; `install`, `chown` leave owners out; `runuser -u X` is X to HDFS, and whoever we are to
  PostgreSQL's trust;
- `pip` and `python3 -m venv` aren't run: the environment of the tests takes the place of `/opt/compactor`;
- `hdfs` is Hadoop's own shell from the jars of the test servers;
- `journalctl` is the daemon's output, as old as it may be; with `-p warning` the grave lines of it;
- `systemctl` reads the unit and its drop-ins and does what they say: credentials, environment, ExecStart until READY=1,
  TERM and the wait.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Self

from tests.cluster.hadoop.servers import built
from tests.deploy.service import PROJECT

OURS = (
    "/etc/compactor",
    "/opt/compactor",
    "/var/lib/compactor",
    "/usr/local/bin",
    "/usr/local/share/man",
    "/etc/systemd/system",
    "/tmp",
)
PATIENCE = 300
_END = "--- end of block"

_STUBS = {
    "useradd": "#!/bin/sh\n",
    "chown": "#!/bin/sh\n",
    "systemd-analyze": "#!/bin/sh\n",
    "install": """#!/usr/bin/env bash
words=()
while [ $# -gt 0 ]; do
  case $1 in -o|-g) shift 2 ;; *) words+=("$1"); shift ;; esac
done
exec /usr/bin/install "${words[@]}"
""",
    "runuser": """#!/usr/bin/env bash
user=$2; shift 3   # -u USER --
export HADOOP_USER_NAME=$user
[ "$user" = hdfs ] && export HADOOP_USER_NAME=@SUPERUSER@
exec "$@"
""",
    "hdfs": """#!/usr/bin/env bash
[ "$1" = dfs ] || exit 2
shift
exec java -Xmx128m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp '@HADOOP@' org.apache.hadoop.fs.FsShell "$@"
""",
    "python3": """#!/usr/bin/env bash
if [ "$1 $2" = "-m venv" ]; then
  mkdir -p "$3/bin"
  printf '#!/bin/sh\\nexec @PYTHON@ -m compactor.cli "$@"\\n' > "$3/bin/compactor"
  printf '#!/bin/sh\\nexec @PYTHON@ "$@"\\n' > "$3/bin/python"
  printf '#!/bin/sh\\necho "pip $*" >> @ROOT@/pip\\n' > "$3/bin/pip"
  chmod +x "$3"/bin/*
else
  exec @PYTHON@ "$@"
fi
""",
    "journalctl": """#!/usr/bin/env bash
level=.
while [ $# -gt 0 ]; do
  case $1 in -p) level='"level": "(warning|error|critical)"'; shift 2 ;; *) shift ;; esac
done
grep -E "$level" @ROOT@/journal || true
""",
    "systemctl": """#!/usr/bin/env bash
exec @PYTHON@ @PROJECT@/tests/deploy/systemctl.py @ROOT@ "$@"
""",
}


class Machine:
    """
    One host. Use as a context manager: what it started ends with it.

    Args:
        root: its folder.
        names: what the guide's names stand for here.
        settings: further lines of /etc/compactor/environment, for what a small machine needs.
        postgres: folder of its programs, and the port.
    """

    def __init__(self, root: Path, names: dict[str, str], settings: dict[str, str], postgres: tuple[Path, int]) -> None:
        self.root, self.settings = root, settings
        self._names = {**names, **{path: f"{root}{path}" for path in OURS}}
        stubs = root / "stubs"
        for folder in (stubs, *(root / path.lstrip("/") for path in (*OURS, "/var/lib/compactor/tmp"))):
            folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(root / "opt" / "compactor")
        home, jars = built()
        filled = {
            "@ROOT@": root,
            "@PYTHON@": sys.executable,
            "@PROJECT@": PROJECT,
            "@SUPERUSER@": _whoami(),
            "@HADOOP@": f"{home}:{names['/etc/hadoop/conf']}:{jars}",
        }
        for name, text in _STUBS.items():
            for mark, value in filled.items():
                text = text.replace(mark, str(value))  # noqa: PLW2901
            (stubs / name).write_text(text)
            (stubs / name).chmod(0o755)
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("COMPACTOR_", "HADOOP_"))
        }
        path = f"{stubs}:{root}/usr/local/bin:{postgres[0]}:{os.environ['PATH']}"
        own = {
            "PATH": path,
            "PGHOST": "127.0.0.1",
            "PGPORT": str(postgres[1]),
            "PGUSER": "hive",
            "TMPDIR": str(root / "tmp"),
            "NO_COLOR": "1",
        }
        self._said = (root / "said").open("w+", encoding="utf-8")
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            encoding="utf-8",
            env=inherited | own,
            cwd=PROJECT,
            start_new_session=True,  # no terminal: createuser asks it for the password
        )

    def here(self, text: str) -> str:
        """The guide's words with this host's names, longest first."""
        pattern = "|".join(
            rf"(?<![\w/.-]){re.escape(name)}(?![\w-])" for name in sorted(self._names, key=len, reverse=True)
        )
        return re.sub(pattern, lambda found: self._names[found[0]], text)

    def follow(self, block: str, typed: str = "") -> str:
        """
        Run a block of the guide as it stands, in the one shell; returns what it wrote to standard output.

        Raises:
            AssertionError: a command of it failed; with what all of them said.
        """
        script, keyboard = self.root / "block.sh", self.root / "keyboard"
        script.write_text(f"set -euo pipefail\n{self.here(block)}\n", encoding="utf-8")
        keyboard.write_text(typed, encoding="utf-8")
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        print(f"source {script} < {keyboard}; set +e; echo '{_END}'", file=self._shell.stdin, flush=True)
        lines: list[str] = []
        for line in self._shell.stdout:
            if line.rstrip() == _END:
                return "".join(lines)
            lines.append(line)
        raise AssertionError(
            f"a command failed of\n{self.here(block)}\nwhich said\n{''.join(lines)}{(self.root / 'said').read_text()[-4000:]}\n{self.log}"
        )

    @property
    def log(self) -> str:
        """What the daemon wrote last."""
        journal = self.root / "journal"
        return journal.read_text(encoding="utf-8", errors="replace")[-6000:] if journal.exists() else ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(
            [self.root / "stubs" / "systemctl", "kill", "--signal=KILL", "compactor"],
            check=False,
            capture_output=True,
            timeout=PATIENCE,
        )
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.close()
        self._shell.stdout.close()
        self._shell.wait(PATIENCE)
        self._said.close()


def _whoami() -> str:
    return subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
