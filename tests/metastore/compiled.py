"""
Statements compiled once a process, as a daemon does that keeps one database open: tests open a new one each.

A fifth of what a test of the roles does is to compile; schemas that are equal share their tables, and engines whose
dialects are equal what was compiled for these.
"""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from sqlalchemy import Dialect, Engine

from compactor.metastore.db import database, schema

_MOST = 4_000


class _Compiled(dict[Hashable, Any]):
    """By statement and what the dialect knows of its server; SQLAlchemy's own cache goes by dialect's identity."""

    def __init__(self) -> None:
        super().__init__()
        self._known: WeakKeyDictionary[Dialect, tuple[object, Hashable]] = WeakKeyDictionary()

    def get(self, key: tuple[Any, ...], default: object = None) -> Any:
        return super().get(self._shared(key), default)

    def __setitem__(self, key: tuple[Any, ...], compiled: object) -> None:
        if len(self) == _MOST:
            self.clear()
        super().__setitem__(self._shared(key), compiled)

    def _shared(self, key: tuple[Any, ...]) -> Hashable:
        dialect, *rest = key
        version, known = self._known.get(dialect, (dialect, None))
        if version != dialect.server_version_info:  # not yet asked, or only now
            told = {name: value for name, value in vars(dialect).items() if isinstance(value, bool | int | str | tuple)}
            known = (type(dialect), repr(sorted(told.items())))
            self._known[dialect] = dialect.server_version_info, known
        return known, *rest


@contextmanager
def compiled_once() -> Iterator[None]:
    """While it lasts."""
    compiled, built = _Compiled(), {}
    create_engine, build = database.create_engine, schema._build

    def engine(*arguments: Any, **options: Any) -> Engine:
        made = create_engine(*arguments, **options)
        made.update_execution_options(compiled_cache=compiled)
        return made

    def build_once(dialect, *what):
        key = type(dialect), repr(what)
        if key not in built:
            built[key] = build(dialect, *what)
        return built[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "create_engine", engine)
        patch.setattr(schema, "_build", build_once)
        yield
