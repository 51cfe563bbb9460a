"""What Spark's JVM says on standard error: a configuration of log4j, of our own for each way to run it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

_TEMPLATE: Final = """rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = {pattern}
"""


def log_to_stderr(folder: Path, level: str, pattern: str, loggers: Mapping[str, str]) -> str:
    """
    Write the configuration into a folder; returns the JVM's option that names it.

    Args:
        level: of all loggers but these.
        pattern: of a line, as log4j's PatternLayout takes it.
        loggers: level of each logger that has one of its own, by name.
    """
    file = folder / "log4j2.properties"
    own = "".join(f"logger.own{number}.name = {name}\nlogger.own{number}.level = {of_its_own}\n" for number, (name, of_its_own) in enumerate(loggers.items()))
    file.write_text(_TEMPLATE.format(level=level, pattern=pattern) + own, encoding="utf-8")
    return f"-Dlog4j2.configurationFile={file.as_uri()}"
