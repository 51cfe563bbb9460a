"""
Ending Spark applications: our own child, what a daemon that died had started on this machine, and what runs on YARN.

Nothing here guards data: whoever gives a compaction up removes its staging directory first. This is about room on the cluster.
"""

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

from compactor.engine.submit_command import JOB_VARIABLE, spark_home, tag
from compactor.log import get_logger

_log = get_logger(__name__)
YARN_ID: Final = re.compile(r"application_\d+_\d+")
_CLI: Final = "org.apache.hadoop.yarn.client.cli.ApplicationCLI"
_CLI_SECONDS: Final = 120.0


def end_group(process: "subprocess.Popen[bytes]", patience: float) -> None:
    """
    TERM, then KILL for all of a process's group.

    Args:
        patience: seconds of each step.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
            return


def end_processes(keys: Collection[str], variable: str = JOB_VARIABLE) -> list[int]:
    """KILL processes of this user and machine that were started for one of these keys; returns their ids. Where there is no /proc, none are found."""
    ended = []
    for pid in started_for(keys, variable):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            ended.append(pid)
    return ended


def started_for(keys: Collection[str], variable: str = JOB_VARIABLE) -> Iterator[int]:
    """Processes of this machine that were started with one of these values of an environment variable, as far as we may look into them."""
    wanted = {f"{variable}={key}".encode() for key in keys}
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if int(entry.parent.name) != os.getpid() and not wanted.isdisjoint(entry.read_bytes().split(b"\0")):
                yield int(entry.parent.name)


def end_on_yarn(keys: Collection[str], application: str | None, environment: Mapping[str, str]) -> list[str]:
    """
    Have the ResourceManager kill applications by tag, and one by its id; returns their ids. Takes some seconds; what can't be done is said in the log.
    """
    found = {application} if application and YARN_ID.fullmatch(application) else set()
    for key in keys:
        said = _yarn(["-list", "-appTags", tag(key), "-appStates", "NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING"], environment)
        found |= set(YARN_ID.findall(said))
    for one in sorted(found):
        _yarn(["-kill", one], environment)
    return sorted(found)


def _yarn(words: list[str], environment: Mapping[str, str]) -> str:
    """Hadoop's own command, from the jars of Spark."""
    line = [str(spark_home() / "bin" / "spark-class"), _CLI, "application", *words]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=_CLI_SECONDS, check=False, env=dict(environment), stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        _log.warning("YARN can't be asked", what=" ".join(words), error=str(error))
        return ""
    if done.returncode:
        lines = [text for text in done.stderr.splitlines() if text.strip()]
        _log.debug("YARN said no", what=" ".join(words), error=lines[-1] if lines else "")
    return done.stdout
