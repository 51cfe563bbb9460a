"""
Hive's own ACID readers as judges: Java, driven without a metastore, sharing nothing with us.

Built once by Maven and javac below `.tools/`; one JVM per reader answers many requests.
"""

import contextlib
import json
import os
import subprocess
import threading
from pathlib import Path
from urllib.parse import quote

from tests.hive.java import built, java
from tests.reference.values import from_judge, parse_columns

SOURCE = Path(__file__).parent / "judge"
VERSIONS = {"3": "hive3", "4": "hive4"}
_EVERYTHING = 9223372036854775807


class JudgeError(Exception):
    """Hive's reader refused the directory; the message starts with its exception."""


class HiveReader:
    """
    Hive's reader of one version: "4" is Hive 4.1.0, "3" is Hive 3.1.3. Use as a context manager; safe to share between
    tests of one process.

    Args:
        zone: of its JVM.

    Raises:
        UnavailableError: it can't be built here.
    """

    def __init__(self, version="4", zone="UTC"):
        self.version = version
        self._zone = zone
        self._home, self._classpath = built(SOURCE, VERSIONS[version])
        self._process = None
        self._lock = threading.Lock()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def rows(self, directory, schema, write_ids=None, txns=None, *, mode="vector", buckets=0, query=None):
        """
        The rows Hive sees, sorted by ROW__ID, as (ROW__ID, canonical values).

        Args:
            schema: the table's data columns, `struct<...>`.
            write_ids: a reader's list as text; None means that everything is committed.
            txns: the same for transactions (Hive 4); None means that every transaction is committed.
            mode: "vector" (what Hive uses unless told otherwise) or "row"; they are different code.
            query: settings of Hive, and what of the table is needed (Judge.Query). Columns that aren't are None, and a
                ROW__ID that isn't may be zeros; a pushed predicate leaves out some of the rows that don't meet it.
        """
        fields = [
            mode,
            str(buckets or 0),
            write_ids or f"db.t:{_EVERYTHING}:{_EVERYTHING}::",
            (txns or f"{_EVERYTHING}:{_EVERYTHING}::") if self.version == "4" else "",
            schema.replace("`", ""),
            _hadoop_path(directory),
            "\n".join(f"{name}={value}" for name, value in (query or {}).items()),
        ]
        columns = parse_columns(schema)
        found = []
        with self._lock:
            process = self._started()
            process.stdin.write("\t".join(quote(field, safe="") for field in fields) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                if line[0] == "R":
                    write_id, bucket, row_id, values = json.loads(line[1:])
                    found.append(
                        (
                            (write_id, bucket, row_id),
                            tuple(from_judge(kind, value) for (_, kind), value in zip(columns, values, strict=True)),
                        )
                    )
                elif line[0] == "D":
                    return sorted(found, key=lambda row: row[0])
                else:
                    raise JudgeError(line[1:].rstrip().replace("|", "\n"))
        raise JudgeError(f"Hive's reader died with exit code {process.wait()}")

    def close(self):
        """End the JVM."""
        if self._process is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.wait()
            self._process.stdout.close()
            self._process = None

    def _started(self):
        if self._process is None:
            command = [*java(f"{self._home}:{self._classpath}", heap="768m", zone=self._zone), "Judge"]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                encoding="utf-8",
                cwd=self._home,
                env=os.environ | {"LC_ALL": "C.UTF-8"},  # names of partitions beyond ASCII
            )
        return self._process


def _hadoop_path(directory):
    return f"file:{directory}"
