"""
Plain Java ORC of several releases as writers of files: other programs than Hive 3 and 4, in any time zone.

Built by Maven and javac below `.tools/`, a class path for each release. Apache ORC's own example files come with the tests of its library.
"""

import subprocess
import zipfile
from pathlib import Path

from tests.hive.java import PROJECT, UnavailableError, built, java

SOURCE = Path(__file__).parent / "writers"
RELEASES = ("1.2.3", "1.3.4", "1.4.4", "1.5.13", "1.6.14", "1.8.5", "2.2.2")
EXAMPLES = "2.2.2"


def write(release, *arguments):
    """
    Run `Files` of a release; what it prints.

    Raises:
        UnavailableError: it can't be built here.
    """
    home, classpath = built(SOURCE, release)
    command = [*java(f"{home}:{classpath}", heap="512m"), "Files", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def examples(directory):
    """Unpack Apache ORC's example files into a folder; their paths."""
    jar = PROJECT / ".tools" / f"orc-core-{EXAMPLES}-tests.jar"
    if not jar.exists():
        artifact = f"org.apache.orc:orc-core:{EXAMPLES}:jar:tests"
        command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={jar.parent}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT)
        if done.returncode:
            raise UnavailableError(f"can't get {artifact}: {done.stdout[-500:]}")
    with zipfile.ZipFile(jar) as packed:
        names = [name for name in packed.namelist() if name.endswith(".orc")]
        packed.extractall(directory, names)
    return [directory / name for name in sorted(names)]
