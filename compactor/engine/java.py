"""Where Java is, without which Spark can't start; and what a program of Java said when it failed."""

import os
import re
import shutil
from pathlib import Path
from typing import Final

from compactor.errors import UnreachableError

_TELLING: Final = re.compile(r"(Exception in thread|Caused by:|ERROR|[Ee]rror:|diagnostics:|Exception:)")


def require_java() -> str:
    """
    The Java that Spark will use.

    Raises:
        UnreachableError: there is none; one line that says what to do.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        java = str(Path(home) / "bin" / "java")
        if not os.access(java, os.X_OK):
            raise UnreachableError(f"JAVA_HOME is {home}, but there is no bin/java in it; Spark needs Java 17 or newer")
        return java
    found = shutil.which("java")
    if found is None:
        raise UnreachableError("Java isn't installed: Spark needs Java 17 or newer (Debian: apt-get install openjdk-17-jre-headless), or JAVA_HOME set")
    return found


def telling_line(log: str) -> str | None:
    """The line of a Java program's log that says why it ended; None when it said nothing."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    telling = [line for line in lines if _TELLING.search(line)]
    found = telling[:1] or lines[-1:]
    return found[0][:500] if found else None
