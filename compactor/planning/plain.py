"""Dataclasses, enums and tuples as what JSON knows, and back, by the types that their fields are declared with. Pure."""

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from compactor.errors import UsageError


def to_plain(value: object) -> Any:
    """Dataclasses, enums and tuples as what JSON knows."""
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: to_plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    return value


def from_plain(kind: Any, value: Any) -> Any:
    """
    The inverse of `to_plain` for a value of type `kind`.

    Raises:
        UsageError: the document doesn't have that shape.
    """
    origin = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if origin in {typing.Union, types.UnionType}:
        return None if value is None else from_plain(next(item for item in arguments if item is not type(None)), value)
    if origin is tuple:
        if not isinstance(value, list):
            raise UsageError(f"a plan has a list where {value!r} stands")
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(from_plain(arguments[0], item) for item in value)
        return tuple(from_plain(part, item) for part, item in zip(arguments, value, strict=True))
    if is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, Mapping):
            raise UsageError(f"a plan has an object where {value!r} stands")
        hints = typing.get_type_hints(kind)
        if unknown := sorted(set(value) - set(hints)):
            raise UsageError(f"a plan has no field {unknown[0]} in {kind.__name__}")
        try:
            return kind(**{name: from_plain(hints[name], item) for name, item in value.items()})
        except TypeError as error:
            raise UsageError(f"not a plan: {error}") from None
    if isinstance(kind, type) and issubclass(kind, Enum):
        try:
            return kind(value)
        except ValueError as error:
            raise UsageError(f"not a plan: {error}") from None
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(kind, type) and not isinstance(value, kind):
        raise UsageError(f"a plan has {kind.__name__} where {value!r} stands")
    return value
