"""
The daemon's log: structlog, one line per event; console style on a terminal, JSON otherwise.

Lines of libraries (stdlib `logging`) go through the same processors. Secrets are removed from every line, including
those of libraries. `about` puts db, table, partition and id on every line written inside its block.
"""

import logging
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

HIDDEN = "********"
_PRIORITIES = {"CRITICAL": 2, "ERROR": 3, "WARNING": 4, "INFO": 6, "DEBUG": 7}
"""Syslog priorities by the names of logging's levels."""
_SECRET_KEY = re.compile(r"password|passwd|secret|token|credential|(?:access|account)[._]?key", re.IGNORECASE)
_SECRET_TEXT = (
    (re.compile(r"(://[^:/@\s]*:)[^\s/]+@"), rf"\1{HIDDEN}@"),
    (
        re.compile(
            r"(?i)\b((?:[a-z0-9_.]*)(?:password|passwd|secret|token)\s*[=:]\s*)(?:'[^']*'|\"[^\"]*\"|[^\s&,;'\"]+)"
        ),
        rf"\1{HIDDEN}",
    ),
)
_known: set[str] = set()
_known_lock = threading.Lock()


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger; an event is named `noun.verb` (docs/logging.md), its facts are keyword arguments."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger


def keep_secret(value: str | None) -> None:
    """Replace `value` in every line written from now on; values of one or two characters are ignored."""
    if value and len(value) > 2:
        with _known_lock:
            _known.add(value)


@contextmanager
def about(
    *,
    database: str | None = None,
    table: str | None = None,
    partition: str | None = None,
    entry_id: int | None = None,
    **more: object,
) -> Iterator[None]:
    """Put db, table, partition, id (those that are given) on every line that this thread logs inside the block."""
    facts = {"db": database, "table": table, "partition": partition, "id": entry_id, **more}
    with structlog.contextvars.bound_contextvars(**{key: value for key, value in facts.items() if value is not None}):
        yield


def configure(
    level: str = "info", style: Literal["auto", "console", "json"] = "auto", stream: TextIO | None = None
) -> None:
    """
    Send structlog and stdlib logging to one stream (stderr unless given).

    Args:
        level: debug, info, warning or error; libraries are held at warning unless it is debug.
        style: auto means console when the stream is a terminal.
    """
    stream = stream or sys.stderr
    console = style == "console" or (style == "auto" and stream.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: Processor
    if console:
        # plain tracebacks: the pretty ones show local variables, which may hold secrets
        renderer = structlog.dev.ConsoleRenderer(
            colors=stream.isatty() and not _no_color(), exception_formatter=structlog.dev.plain_traceback
        )
    else:
        renderer = structlog.processors.JSONRenderer(ensure_ascii=False, default=str)
    last: list[Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        structlog.processors.format_exc_info,
        redact,
        renderer,
    ]
    handler = logging.StreamHandler(stream)
    formatter = _ForJournal if _is_journal(stream) else structlog.stdlib.ProcessorFormatter
    handler.setFormatter(formatter(foreign_pre_chain=shared, processors=last))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    number = logging.getLevelNamesMapping()[level.upper()]
    root.setLevel(number if number <= logging.DEBUG else max(number, logging.WARNING))
    logging.getLogger("compactor").setLevel(number)
    logging.getLogger("py4j").setLevel(logging.WARNING)  # its debug lines show every byte sent to the JVM
    logging.captureWarnings(capture=True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


class _ForJournal(structlog.stdlib.ProcessorFormatter):
    """
    Formatter for systemd's journal: each line begins with its syslog priority, which the journal strips.

    Without the prefix `journalctl -p warning` finds nothing (sd-daemon(3)).
    """

    def format(self, record: logging.LogRecord) -> str:
        return f"<{_PRIORITIES.get(record.levelname, 6)}>{super().format(record)}"


def _is_journal(stream: TextIO) -> bool:
    """
    Whether the stream leads into systemd's journal.

    JOURNAL_STREAM names device and inode of the stream that systemd gave to the service (systemd.exec(5)).
    """
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Remove secrets from a line: by key, by their usual shapes, and every value given to `keep_secret`."""
    for key, value in event.items():
        event[key] = HIDDEN if _SECRET_KEY.search(key) and value is not None else hide(value)
    return event


def hide(value: Any) -> Any:
    """The value without secrets; only strings, and strings inside lists, dicts and exceptions, can hold any."""
    match value:
        case str():
            for secret in tuple(_known):
                value = value.replace(secret, HIDDEN)
            for pattern, instead in _SECRET_TEXT:
                value = pattern.sub(instead, value)
            return value
        case dict():
            return {key: HIDDEN if _SECRET_KEY.search(str(key)) else hide(item) for key, item in value.items()}
        case list() | tuple():
            return type(value)(hide(item) for item in value) if not hasattr(value, "_fields") else value
        case BaseException():
            return hide(str(value))
        case _:
            return value


def _no_color() -> bool:

    return bool(os.environ.get("NO_COLOR"))
