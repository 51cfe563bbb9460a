"""Asks pooled connections whether they live, and lead to a server that takes writes, unless they were used lately."""

import time
from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import Engine, event
from sqlalchemy.exc import InvalidatePoolError

_USED = "used"
_ASKED = "asked"
_FRESH_SECONDS: Final = 1.0
"""A connection that was used so lately is taken for alive: if it isn't, the transaction is repeated on another one."""


def replace_dead(
    engine: Engine, driver_error: type[Exception], takes_writes: Callable[[Any], None] | None = None
) -> None:
    """
    Replace a connection that doesn't answer when it comes from the pool; a question raises `driver_error` then.

    Args:
        takes_writes: asks the server of a connection, in place of a mere question, for a product whose demoted primary
            keeps its connections. It is asked also of a connection that was used lately, when another was made since:
            that one may lead to the next primary, and a look at the old one mustn't follow a look there.
    """
    newest = 0.0

    @event.listens_for(engine, "connect")
    def _note_new(_connection: object, record: Any) -> None:
        nonlocal newest
        newest = record.info[_ASKED] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def _require_alive(connection: Any, record: Any, _proxy: object) -> None:
        used, now = record.info.get(_USED), time.monotonic()
        if used is None:
            return
        lately = now - used < _FRESH_SECONDS
        if lately and (takes_writes is None or record.info[_ASKED] >= newest):
            return
        record.info[_ASKED] = now
        try:
            (takes_writes or engine.dialect.do_ping)(connection)
        except driver_error as error:
            raise InvalidatePoolError from error

    @event.listens_for(engine, "checkin")
    def _note_use(_connection: object, record: Any) -> None:
        record.info[_USED] = time.monotonic()
