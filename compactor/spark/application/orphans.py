"""
Ends Spark applications: a child process, orphaned processes of a dead daemon on this machine, and applications on YARN.

Nothing here guards data: a process that gives a compaction up removes its staging directory first. Ending an
application frees room on the cluster.
"""

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

from compactor.log import get_logger
from compactor.settings.work import Spark
from compactor.spark.application.command import JOB_VARIABLE, tag
from compactor.spark.java import telling_line
from compactor.spark.site import spark_home

_log = get_logger(__name__)
YARN_ID: Final = re.compile(r"application_\d+_\d+")
_CLI: Final = "org.apache.hadoop.yarn.client.cli.ApplicationCLI"
_CLI_SECONDS: Final = 120.0
_OVER: Final = "has already finished"
_LOGIN: Final = re.compile(r"Kerberos|GSS|authenticat", re.IGNORECASE)
_LOG_IN: Final = "set spark.principal and spark.keytab, or keep a ticket in the default cache (kinit)"


def end_group(process: "subprocess.Popen[bytes]", patience: float) -> None:
    """
    Send TERM, then KILL, to all processes of a process's group.

    Args:
        patience: seconds to wait after each signal.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
            return


def end_processes(keys: Collection[str], variable: str = JOB_VARIABLE) -> list[int]:
    """
    KILL processes of this user and machine that were started for one of these keys; returns their ids. Where there is
    no /proc, none are found.
    """
    ended = []
    for pid in started_for(keys, variable):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            ended.append(pid)
    return ended


def started_for(keys: Collection[str], variable: str = JOB_VARIABLE) -> Iterator[int]:
    """
    Ids of this machine's processes that were started with one of these values of an environment variable, as far as
    this user may read their environment.
    """
    wanted = {f"{variable}={key}".encode() for key in keys}
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if int(entry.parent.name) != os.getpid() and not wanted.isdisjoint(entry.read_bytes().split(b"\0")):
                yield int(entry.parent.name)


def end_on_yarn(keys: Collection[str], application: str | None, environment: Mapping[str, str]) -> list[str]:
    """
    Have the ResourceManager kill applications by tag, and one by its id. Takes some seconds.

    Args:
        environment: holds the place of Hadoop's configuration and the login (see `by_keytab`); the daemon's settings
            are left out of it.

    Returns:
        Ids of those that were running and that the ResourceManager reports as killed. A command that fails is a warning
            in the log.
    """
    found = {application} if application and YARN_ID.fullmatch(application) else set()
    for key in keys:
        said = _yarn(
            ["-list", "-appTags", tag(key), "-appStates", "NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING"], environment
        )
        found |= set(YARN_ID.findall(said or ""))
    return [
        one for one in sorted(found) if (said := _yarn(["-kill", one], environment)) is not None and _OVER not in said
    ]


def by_keytab(spark: Spark) -> dict[str, str]:
    """
    Environment variables by which Hadoop's commands log in with `spark.keytab`; none without a keytab, because then the
    default ticket cache counts.

    Source: Hadoop's UserGroupInformation.LoginParams.
    """
    return (
        {"KRB5PRINCIPAL": spark.principal, "KRB5KEYTAB": str(spark.keytab)} if spark.principal and spark.keytab else {}
    )


def _yarn(words: list[str], environment: Mapping[str, str]) -> str | None:
    """
    The output of Hadoop's own `application` command, from the jars of Spark; None when the command failed, which is
    logged.
    """
    line = [str(spark_home() / "bin" / "spark-class"), _CLI, "application", *words]
    # the settings hold passwords
    env = {key: value for key, value in environment.items() if not key.upper().startswith("COMPACTOR_")}
    try:
        done = subprocess.run(
            line, capture_output=True, text=True, timeout=_CLI_SECONDS, check=False, env=env, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:  # Hadoop waits on a refused login as for a ResourceManager's return
        why = f"no answer within {_CLI_SECONDS:g} s"
        help_ = "" if "KRB5KEYTAB" in env else f", which a YARN with Kerberos doesn't give without a login; {_LOG_IN}"
    except OSError as error:
        why, help_ = str(error), ""
    else:
        if done.returncode == 0:
            return done.stdout
        why = telling_line(done.stderr) or f"exit code {done.returncode}"
        help_ = f"; {_LOG_IN}" if _LOGIN.search(why) else ""
    _log.warning("yarn_command.failed", command=" ".join(words), error=f"{why}{help_}")
    return None
