"""
Small Java programs of the tests over Hive's own jars: built once by Maven and javac below `.tools/`, and how their JVMs
are started.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
_OPENED = ("java.lang", "java.util", "java.net", "java.nio")
"""Packages of the JDK into which Hive 3.1 looks."""


class UnavailableError(Exception):
    """Java, Maven or the jars can't be had; the message says which."""


def built(source, profile, *, beside=()):
    """
    Folder of the class files, and the class path, of the sources and the `pom.xml` in a folder; built when these
    changed or jars are gone.

    Args:
        profile: the release of Hive, as `pom.xml` calls it.
        beside: sources of other folders that are built with them.

    Raises:
        UnavailableError: it can't be built here.
    """
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            raise UnavailableError(f"Hive's own classes need {tool}, which isn't installed")
    home = PROJECT / ".tools" / f"{source.name}-{profile}"
    home.mkdir(parents=True, exist_ok=True)
    files = [*sorted(file for file in source.iterdir() if file.is_file()), *beside]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    stamp, classpath = home / "stamp", home / "classpath"
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (
            stamp.exists()
            and stamp.read_text() == digest
            and all(map(os.path.exists, classpath.read_text().split(":")))
        ):
            stamp.unlink(missing_ok=True)  # of what is cut off half-way nothing is believed
            goal = ["dependency:build-classpath", f"-Dmdep.outputFile={classpath}"]
            _run(
                f"the jars of {source.name}, {profile}",
                ["mvn", "-q", "-B", f"-P{profile}", "-f", source / "pom.xml", *goal],
            )
            programs = [file for file in files if file.suffix == ".java"]
            _run(
                source.name,
                ["javac", "-nowarn", "-encoding", "UTF-8", "-cp", classpath.read_text(), "-d", home, *programs],
            )
            stamp.write_text(digest)
    return home, classpath.read_text()


def java(classpath, *, heap, zone="UTC"):
    """
    The start of the command line of a JVM that is small, quick to start and open to Hive 3.1; Hive's log goes nowhere.
    """
    opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    command = [
        "java",
        f"-Xmx{heap}",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        *opens,
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
    ]
    return [*command, f"-Duser.timezone={zone}", "-cp", classpath]


class Served:
    """
    A program that answers each line of its input with any lines, each behind a letter, then one that begins with D, or
    with E and an exception. Started when it is first asked; use as a context manager.

    Args:
        error: raised with the program's exception.
    """

    def __init__(self, command, error):
        self._command = command
        self._error = error
        self._process = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._process is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.wait()
            self._process.stdout.close()

    def ask(self, line):
        """The answer, without the letters before its lines."""
        if self._process is None:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                encoding="utf-8",
                errors="backslashreplace",
                env=os.environ | {"LC_ALL": "C.UTF-8"},
            )
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answers = []
        for answer in self._process.stdout:
            if answer[0] == "D":
                return answers
            if answer[0] == "E":
                raise self._error(answer[1:].rstrip())
            answers.append(answer[1:].rstrip("\n"))
        raise AssertionError(f"the JVM died with exit code {self._process.wait()}")


def _run(what, command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise UnavailableError(f"can't get {what}: {lines[0] if lines else done.returncode}")
