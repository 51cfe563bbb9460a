"""Asks pooled connections whether they live, unless they were used lately."""

import time
from typing import Any, Final

from sqlalchemy import Engine, event
from sqlalchemy.exc import InvalidatePoolError

_USED = "used"
_FRESH_SECONDS: Final = 1.0
"""A connection that was used so lately is taken for alive: if it isn't, the transaction is repeated on another one."""


def replace_dead(engine: Engine, driver_error: type[Exception]) -> None:
    """Replace a connection that doesn't answer when it comes from the pool; a question raises `driver_error` then."""

    @event.listens_for(engine, "checkout")
    def _require_alive(connection: Any, record: Any, _proxy: object) -> None:
        used = record.info.get(_USED)
        if used is not None and time.monotonic() - used >= _FRESH_SECONDS:
            try:
                engine.dialect.do_ping(connection)
            except driver_error as error:
                raise InvalidatePoolError from error

    @event.listens_for(engine, "checkin")
    def _note_use(_connection: object, record: Any) -> None:
        record.info[_USED] = time.monotonic()
