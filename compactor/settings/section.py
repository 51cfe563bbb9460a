"""
Base of every part of the settings: immutable, strict about names, and no truth value for a number.

Also reads a password, from the environment or from the first line of a file of its own.
"""

import typing
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from compactor.errors import SettingsError
from compactor.settings.mistakes import plain

MIB = 1024 * 1024
_MOST = 1e8
"""Three years of seconds: more would pass what threads, sockets and databases take."""
Positive = Annotated[float, Field(gt=0, le=_MOST, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, le=_MOST, allow_inf_nan=False)]
Seconds = Positive
Hours = Annotated[float, Field(gt=0, le=1e5, allow_inf_nan=False)]
Days = Annotated[float, Field(ge=0, le=1e5, allow_inf_nan=False)]


def first_line(key: str, given: SecretStr | None, file: Path | None) -> str | None:
    """
    The secret; None when neither a value nor a file is given.

    Args:
        key: the setting that names the file.

    Raises:
        SettingsError: the file can't be read or is empty.
    """
    if given is not None:
        return given.get_secret_value()
    if file is None:
        return None
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{key}: {file} can't be read ({plain(error)})") from None
    if not (first := text.split("\n", 1)[0].rstrip("\r")):
        raise SettingsError(f"{key}: {file} is empty; its first line must be the password")
    return first


class Section(BaseModel):
    """A part of the settings: immutable, and strict about names."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, validate_default=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_value_for_a_number(cls, value: object, info: Any) -> object:
        """YAML's `yes` would otherwise become the number 1."""
        if isinstance(value, bool) and _is_number(cls.model_fields[info.field_name].annotation):
            raise ValueError("a truth value makes no sense here")
        return value


def _is_number(annotation: object) -> bool:
    if isinstance(annotation, type):
        return issubclass(annotation, int | float) and annotation is not bool
    return any(_is_number(part) for part in typing.get_args(annotation))
