"""Words a mistake in the settings: one line with the key, where it was set and what is allowed."""

import difflib
from collections.abc import Mapping

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from compactor.words import one_line

PREFIX = "COMPACTOR_"
"""Prefix of the environment variables that are settings; two underscores separate the levels."""


def sentence(details: list[ErrorDetails], root: type[BaseModel], variables: Mapping[str, str], place: str) -> str:
    """
    The first of pydantic's complaints as one line: where it was set, the key, what is wrong; how many more there are.

    Unknown keys come first: a missing key is often what an unknown one was meant to be.

    Args:
        root: the model that was filled.
        variables: key path → the environment variable that set it.
        place: where keys that no variable set come from: the file's name.
    """
    first = min(details, key=lambda detail: detail["type"] != "extra_forbidden")
    path = [str(part) for part in first["loc"]]
    key = ".".join(path)
    where = set_at(key, variables, place)
    more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    kind = first["type"]
    if kind == "extra_forbidden":
        parent: type[BaseModel] | None = root
        for part in path[:-1]:
            parent = (
                section_of(parent.model_fields[part].annotation) if parent and part in parent.model_fields else None
            )
        said = f"{key}: unknown key{similar(path[-1], parent) if parent else ''}"
    elif kind == "missing":
        path = ["database", "url"] if path == ["database"] else path
        key = ".".join(path)
        said = f"{key}: is required; set it there or as {PREFIX}{'__'.join(path).upper()}"
    elif kind in {"model_type", "model_attributes_type", "dict_type"}:
        said = f"{key}: keys and values are wanted here"
    else:
        message = first["msg"]
        message = message.removeprefix("Value error, ") if kind == "value_error" else message[:1].lower() + message[1:]
        said = f"{key}: {message}" if key else message
    return f"{where}: {said}{more}"


def set_at(key: str, variables: Mapping[str, str], place: str) -> str:
    """Where a key was set: in the environment, or at the place that no variable overrides."""
    return f"environment: {variables[key]}" if key in variables else place


def similar(word: str, model: type[BaseModel]) -> str:
    """A guess at what an unknown name was meant to be, or all known names."""
    close = difflib.get_close_matches(word, model.model_fields, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known are {', '.join(model.model_fields)}"


def section_of(annotation: object) -> type[BaseModel] | None:
    """The model behind a field's type, None when the field is a plain value."""
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def plain(error: Exception) -> str:
    """An exception's words in one line, without Python's number and path."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return one_line(error)
