"""
Reads the settings from a YAML file and the `COMPACTOR_…` variables on top of it.

A mistake is reported with the place, file or variable, that holds the wrong value.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource

from compactor.errors import SettingsError
from compactor.settings.database import hide_password, password_in
from compactor.settings.mistakes import PREFIX, plain, section_of, sentence, set_at, similar
from compactor.settings.model import Settings, leaves

OTHER_VARIABLES = ("COMPACTOR_CONFIG", "COMPACTOR_OUTPUT", "COMPACTOR_DEBUG")
"""Variables that start with the same prefix, but belong to the command line."""
_LARGEST = 1_000_000
"""Characters that a settings file may have."""


def load_settings(
    path: Path | None,
    env: Mapping[str, str] | None = None,
    wrong: Callable[[Settings], tuple[str, str] | None] = lambda _: None,
) -> Settings:
    """
    Read a YAML file (None: defaults) and put `COMPACTOR_…` variables on top.

    Args:
        wrong: finds what only a package above knows to be a mistake: its key, and what is wrong.

    Raises:
        SettingsError: one line: what is wrong, at which key, set where, and what is allowed.
    """
    env = os.environ if env is None else env
    file_values = _read_yaml(path) if path is not None else {}
    place = str(path) if path is not None else "no settings file is named (--config or COMPACTOR_CONFIG)"
    _no_secret_in_file(file_values, place)
    variables = _variables(env)
    env_values = _Environment(Settings, env)()
    try:
        settings = Settings(**_merged(file_values, env_values))
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False, include_input=False)
        raise SettingsError(sentence(details, Settings, variables, place)) from None
    if (found := wrong(settings)) is not None:
        key, said = found
        raise SettingsError(f"{set_at(key, variables, place)}: {key}: {said}")
    return settings


def sources(path: Path | None, env: Mapping[str, str] | None = None) -> dict[str, str]:
    """
    Where values are set: the file, or the name of a variable, by key path; what isn't among them is a default.

    Raises:
        SettingsError: as `load_settings`, where file or variables can't be read.
    """
    env = os.environ if env is None else env
    variables = _variables(env)
    found = dict.fromkeys(leaves(_read_yaml(path)), str(path)) if path is not None else {}
    for key in leaves(_Environment(Settings, env)()):
        found[key] = next(name for above, name in variables.items() if f"{key}.".startswith(f"{above}."))
    return found


class _Environment(EnvSettingsSource):
    """Reads nested variables as pydantic-settings does, from a given mapping."""

    def __init__(self, settings_cls: type[BaseSettings], env: Mapping[str, str]) -> None:
        self._given = env
        super().__init__(settings_cls, case_sensitive=False, env_prefix=PREFIX, env_nested_delimiter="__")

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {name.lower(): value for name, value in self._given.items()}

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        try:
            return super().decode_complex_value(field_name, field, value)
        except (ValueError, RecursionError):
            name = next(
                name
                for name, text in self._given.items()
                if text == value and name.upper().startswith(PREFIX) and name.upper().endswith(field_name.upper())
            )
            wanted = "list" if get_origin(field.annotation) is list else "object"
            raise SettingsError(f"environment: {name} can't be read; a JSON {wanted} is wanted") from None


def _variables(env: Mapping[str, str]) -> dict[str, str]:
    """Key path → variable name, for every variable of the compactor; an unknown name is an error."""
    found: dict[str, str] = {}
    for name in sorted(env):
        if not name.upper().startswith(PREFIX) or name.upper() in OTHER_VARIABLES:
            continue
        parts = name[len(PREFIX) :].lower().split("__")
        known: type[BaseModel] | None = Settings
        for depth, part in enumerate(parts):
            if known is None:
                break
            if part not in known.model_fields:
                raise SettingsError(
                    f"environment: {name}: there is no setting {'.'.join(parts[: depth + 1])}{similar(part, known)}"
                )
            known = section_of(known.model_fields[part].annotation)
        found[".".join(parts)] = name
    return found


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise SettingsError(f"{path}: is longer than {_LARGEST} characters: that is no settings file")
        values = yaml.load(text, Loader=_UniqueKeys)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        line = f" line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise SettingsError(f"{path}{line}: {error.problem or 'is not YAML'}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: is not YAML: {plain(error)}") from None
    except RecursionError:
        raise SettingsError(f"{path}: is nested too deeply: that is no settings file") from None
    except ValueError as error:  # YAML's own dates and numbers
        raise SettingsError(f"{path}: holds a value that can't be: {plain(error)}") from None
    except OSError as error:
        raise SettingsError(f"{path}: can't be read ({plain(error)})") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        kind = "a list" if isinstance(values, list) else "a single value"
        raise SettingsError(f"{path}: must hold keys and values such as `database:`, not {kind}")
    if (odd := next((key for key in values if not isinstance(key, str)), None)) is not None:
        raise SettingsError(f"{path}: {odd}: unknown key; known are {', '.join(Settings.model_fields)}")
    # `cleaner:` with everything below it commented out means the defaults
    return {key: value for key, value in values.items() if not (value is None and _issection_of(key))}


def _issection_of(key: str) -> bool:
    field = Settings.model_fields.get(key)
    return field is not None and section_of(field.annotation) is not None


class _UniqueKeys(yaml.SafeLoader):
    """Refuses equal keys: YAML silently lets the last of them win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key {key.value} stands twice in one place", problem_mark=key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _no_secret_in_file(values: Mapping[str, Any], place: str) -> None:
    zookeeper = values.get("zookeeper")
    if isinstance(zookeeper, Mapping) and zookeeper.get("password") is not None:
        advice = f"use zookeeper.password_file or {PREFIX}ZOOKEEPER__PASSWORD"
        raise SettingsError(f"{place}: zookeeper.password: a password doesn't belong in this file; {advice}")
    database = values.get("database")
    if not isinstance(database, Mapping):
        return
    advice = f"use database.password_file or {PREFIX}DATABASE__PASSWORD"
    if database.get("password") is not None:
        raise SettingsError(f"{place}: database.password: a password doesn't belong in this file; {advice}")
    url = database.get("url")
    if isinstance(url, str) and (password_in(url) is not None or hide_password(url) != url):
        raise SettingsError(f"{place}: database.url: a password doesn't belong in this file; {advice}")


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        under = result.get(key)
        result[key] = _merged(under, value) if isinstance(under, Mapping) and isinstance(value, Mapping) else value
    return result
