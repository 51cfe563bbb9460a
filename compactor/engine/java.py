"""Where Java is; Spark can't start without one."""

import os
import shutil
from pathlib import Path

from compactor.errors import UnreachableError


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
