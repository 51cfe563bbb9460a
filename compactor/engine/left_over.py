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

from compactor.engine.java import telling_line
from compactor.engine.submit_command import JOB_VARIABLE, spark_home, tag
from compactor.log import get_logger
from compactor.settings.work import Spark

_log = get_logger(__name__)
YARN_ID: Final = re.compile(r"application_\d+_\d+")
_CLI: Final = "org.apache.hadoop.yarn.client.cli.ApplicationCLI"
_CLI_SECONDS: Final = 120.0
_OVER: Final = "has already finished"
_LOGIN: Final = re.compile(r"Kerberos|GSS|authenticat", re.IGNORECASE)
_LOG_IN: Final = "set spark.principal and spark.keytab, or keep a ticket in the default cache (kinit)"


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
    Have the ResourceManager kill applications by tag, and one by its id. Takes some seconds.

    Args:
        environment: where Hadoop's configuration is, and as whom we come (see `by_keytab`); our settings are left out of it.

    Returns:
        Ids of those that were running and of which it says that they are killed now. What it doesn't say is a warning in the log.
    """
    found = {application} if application and YARN_ID.fullmatch(application) else set()
    for key in keys:
        said = _yarn(["-list", "-appTags", tag(key), "-appStates", "NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING"], environment)
        found |= set(YARN_ID.findall(said or ""))
    return [one for one in sorted(found) if (said := _yarn(["-kill", one], environment)) is not None and _OVER not in said]


def by_keytab(spark: Spark) -> dict[str, str]:
    """
    By which variables Hadoop's commands log in with `spark.keytab`; none without one, for then the default ticket cache counts.

    Source: Hadoop's UserGroupInformation.LoginParams.
    """
    return {"KRB5PRINCIPAL": spark.principal, "KRB5KEYTAB": str(spark.keytab)} if spark.principal and spark.keytab else {}


def _yarn(words: list[str], environment: Mapping[str, str]) -> str | None:
    """What Hadoop's own command answers, from the jars of Spark; None when it couldn't do it, which is in the log then."""
    line = [str(spark_home() / "bin" / "spark-class"), _CLI, "application", *words]
    env = {key: value for key, value in environment.items() if not key.upper().startswith("COMPACTOR_")}  # there are passwords among our settings
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=_CLI_SECONDS, check=False, env=env, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:  # Hadoop takes a login that is refused for a ResourceManager that comes back
        why = f"no answer within {_CLI_SECONDS:g} s"
        help_ = "" if "KRB5KEYTAB" in env else f", which a YARN with Kerberos doesn't give without a login; {_LOG_IN}"
    except OSError as error:
        why, help_ = str(error), ""
    else:
        if done.returncode == 0:
            return done.stdout
        why = telling_line(done.stderr) or f"exit code {done.returncode}"
        help_ = f"; {_LOG_IN}" if _LOGIN.search(why) else ""
    _log.warning("YARN didn't do it", what=" ".join(words), error=f"{why}{help_}")
    return None
