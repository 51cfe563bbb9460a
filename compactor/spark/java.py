"""Finds Java, without which Spark can't start, and the line in which a failed Java program says why."""

import os
import re
import shutil
from pathlib import Path
from typing import Final

from compactor.errors import UnreachableError

_TELLING: Final = re.compile(r"(Exception in thread|Caused by:|ERROR|[Ee]rror:|diagnostics:|Exception:)")
_LAST_REPORT: Final = re.compile(r"Application report for \S+ \(state: (?:FAILED|KILLED|FINISHED)\)")
_REASON: Final = re.compile(r"\(reason: (.+)")
_PYTHON: Final = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Za-z]\w*(?:Error|Exception): .+", re.MULTILINE)


def require_java() -> str:
    """
    The path of the Java that Spark will use.

    Raises:
        UnreachableError: no Java is there; the message is one line that says what to do.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        java = str(Path(home) / "bin" / "java")
        if not os.access(java, os.X_OK):
            raise UnreachableError(f"JAVA_HOME is {home}, but there is no bin/java in it; Spark needs Java 17 or newer")
        return java
    found = shutil.which("java")
    if found is None:
        raise UnreachableError(
            "Java isn't installed: Spark needs Java 17 or newer (Debian: apt-get install openjdk-17-jre-headless), or JAVA_HOME set"
        )
    return found


def telling_line(log: str) -> str | None:
    """
    The line of a Java program's log that says why the program ended; None when the log is empty.

    For an application whose driver ran on YARN, this is what the driver said: Spark's client reports the state again
    and again, and at the end YARN's reason, with the end of the driver's log.
    """
    ends = [found.start() for found in _LAST_REPORT.finditer(log)]
    if ends:
        log = log[ends[-1] :]
        if reason := _REASON.search(log):
            python = _PYTHON.findall(log) if "exited with status" in reason[1] else []
            return str(python[-1] if python else reason[1]).strip()[:500]
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    telling = [line for line in lines if _TELLING.search(line)]
    found = telling[:1] or lines[-1:]
    return found[0][:500] if found else None
