"""A password given by the environment, or by the first line of a file of its own."""

from pathlib import Path

from pydantic import SecretStr

from compactor.errors import SettingsError
from compactor.settings.mistakes import plain


def first_line(key: str, given: SecretStr | None, file: Path | None) -> str | None:
    """
    The secret; None when there is neither.

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
