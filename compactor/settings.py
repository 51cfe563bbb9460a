"""
What a user may choose: one YAML file, and `COMPACTOR_…` environment variables on top of it.

Knows names, types, defaults and which combinations make no sense; imports nothing of ours but errors. A mistake is a `SettingsError` of one line that names
the key, where it was set and what is allowed. A secret comes from the environment or from a file of its own, and is never shown.

    initiator:                                      COMPACTOR_INITIATOR__INTERVAL_SECONDS=300
      interval_seconds: 300
"""

import difflib
import os
import re
import socket
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, cast

import yaml
from pydantic import BaseModel, ByteSize, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from compactor.errors import SettingsError

PREFIX = "COMPACTOR_"
"""Environment variables that start so are settings; two underscores separate the levels."""

OTHER_VARIABLES = ("COMPACTOR_CONFIG", "COMPACTOR_OUTPUT", "COMPACTOR_DEBUG")
"""Start the same, but belong to the command line."""

MIB = 1024 * 1024
HIDDEN = "********"

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Seconds = Positive


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


class Database(Section):
    """The database behind the Hive metastore."""

    url: str = Field(repr=False, min_length=1)
    password: SecretStr | None = None
    password_file: Path | None = None
    connect_timeout_seconds: Seconds = 10

    @field_validator("url")
    @classmethod
    def _is_a_url(cls, value: str) -> str:
        if "://" not in value:
            raise ValueError("is not a database address such as postgresql://hive@host:5432/metastore or sqlite:////var/lib/compactor/metastore.db")
        return value

    @model_validator(mode="after")
    def _one_password(self) -> Self:
        given = [
            name for name, there in (("password", self.password), ("password_file", self.password_file), ("url", password_in(self.url))) if there is not None
        ]
        if len(given) > 1:
            raise ValueError(f"a password is given twice: by {' and by '.join(given)}; keep one")
        if self.url.startswith("sqlite") and given:
            raise ValueError("SQLite takes no password; remove it")
        return self

    def secret(self) -> str | None:
        """
        The password from the environment, or the first line of `password_file`; None when neither is set (it may still be part of the address).

        Raises:
            SettingsError: the file can't be read or is empty.
        """
        if self.password is not None:
            return self.password.get_secret_value()
        if self.password_file is None:
            return None
        try:
            text = self.password_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"database.password_file: {self.password_file} can't be read ({_plain(error)})") from None
        if not (first := text.split("\n", 1)[0].rstrip("\r")):
            raise SettingsError(f"database.password_file: {self.password_file} is empty; its first line must be the password")
        return first

    @property
    def shown_url(self) -> str:
        """The address without its password."""
        return hide_password(self.url)

    def __repr_args__(self) -> Sequence[tuple[str | None, Any]]:
        return [("url", self.shown_url), *((name, value) for name, value in super().__repr_args__() if name != "url")]


class Thresholds(Section):
    """When a partition is due; table properties override the first two (`compactorthreshold.…`)."""

    delta_count: int = Field(default=10, ge=0)
    delta_ratio: float = Field(default=0.1, ge=0, allow_inf_nan=False)
    aborted_count: int = Field(default=1000, ge=0)
    aborted_age_hours: float = Field(default=12, allow_inf_nan=False)
    open_age_hours: float = Field(default=24, allow_inf_nan=False)


class Initiator(Section):
    """Looks for partitions that are due, and queues them."""

    enabled: bool = True
    interval_seconds: Seconds = 300
    full_scan_seconds: Seconds = 3600
    look_back_seconds: NotNegative = 600
    listing_threads: int = Field(default=16, ge=1, le=512)
    thresholds: Thresholds = Thresholds()
    failed_threshold: int = Field(default=2, ge=1, le=20)
    failed_retry_days: NotNegative = 7


class Worker(Section):
    """Takes queue entries and compacts."""

    threads: int = Field(default=2, ge=0, le=256)
    pool: str | None = Field(default=None, min_length=1, max_length=128)
    poll_seconds: Seconds = 1
    timeout_hours: Positive = 24
    heartbeat_seconds: Seconds | None = None
    run_as: str | None = Field(default=None, min_length=1, max_length=128)
    prefer_major: bool = False


class Cleaner(Section):
    """Removes what nobody can be reading any more."""

    enabled: bool = True
    interval_seconds: Seconds = 5
    retention_seconds: NotNegative = 0
    quarantine: bool = False
    threads: int = Field(default=4, ge=1, le=256)
    retry_attempts: int = Field(default=5, ge=0, le=10)
    retry_seconds: Seconds = 300


class History(Section):
    """How many finished entries of one partition stay in COMPLETED_COMPACTIONS."""

    succeeded: int = Field(default=3, ge=1)
    failed: int = Field(default=3, ge=1)
    did_not_initiate: int = Field(default=2, ge=0)
    refused: int = Field(default=3, ge=0)
    timeout_days: Positive = 7


class Housekeeper(Section):
    """Duties a metastore's own threads have; done here only where nobody does them."""

    enabled: Literal["auto", "always", "never"] = "auto"
    interval_seconds: Seconds = 60
    history: History = History()

    @field_validator("enabled", mode="before")
    @classmethod
    def _truth_values_are_always_and_never(cls, value: object) -> object:
        return {True: "always", False: "never"}.get(value, value) if isinstance(value, bool) else value


class Spark(Section):
    """Where the data work runs."""

    mode: Literal["session"] = "session"
    master: str = Field(default="local[*]", min_length=1)
    conf: dict[str, str] = {}
    idle_seconds: Seconds = 600

    @field_validator("conf", mode="before")
    @classmethod
    def _values_as_spark_writes_them(cls, value: object) -> object:
        """`spark.cores.max: 4` and `true` are what YAML users write; Spark wants strings."""
        if not isinstance(value, Mapping):
            return value
        return {key: _spark_value(item) for key, item in value.items()}


def _spark_value(item: object) -> object:
    if isinstance(item, bool):
        return str(item).lower()
    return str(item) if isinstance(item, int | float) else item


class Splice(Section):
    """Copying stripes as bytes."""

    min_stripe_bytes: ByteSize = ByteSize(8 * MIB)


class Recode(Section):
    """Reading and writing rows."""

    target_stripe_bytes: ByteSize = Field(default=ByteSize(64 * MIB), ge=MIB)


class Http(Section):
    """Metrics and health."""

    enabled: bool = True
    host: str = "0.0.0.0"  # noqa: S104 - Prometheus and kubelet come from outside
    port: int = Field(default=9700, ge=0, le=65535)


class Log(Section):
    """What is said, and how."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "console", "json"] = "auto"


class Txn(Section):
    """Must be equal to the metastore's own settings."""

    timeout_seconds: Seconds = 300


class Drain(Section):
    """What TERM does."""

    timeout_seconds: NotNegative = 300


class Settings(BaseSettings):
    """All settings. Made by `load_settings`; in code by `Settings(database={"url": …})`."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    RESTART: ClassVar[tuple[str, ...]] = ("database", "initiator.enabled", "worker.threads", "cleaner.enabled", "spark", "http", "host", "user", "txn")
    """Keys (and all below them) that a running daemon can't change."""

    database: Database
    initiator: Initiator = Initiator()
    worker: Worker = Worker()
    cleaner: Cleaner = Cleaner()
    housekeeper: Housekeeper = Housekeeper()
    spark: Spark = Spark()
    splice: Splice = Splice()
    recode: Recode = Recode()
    http: Http = Http()
    log: Log = Log()
    txn: Txn = Txn()
    drain: Drain = Drain()
    host: str | None = Field(default=None, min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._-]+$")
    user: str | None = Field(default=None, min_length=1, max_length=128)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        limit = self.txn.timeout_seconds / 2
        if self.worker.heartbeat_seconds is not None and self.worker.heartbeat_seconds > limit:
            raise ValueError(
                f"worker.heartbeat_seconds is {self.worker.heartbeat_seconds:g}, but a transaction times out after txn.timeout_seconds = "
                f"{self.txn.timeout_seconds:g}: at most half of that, {limit:g}, is allowed"
            )
        if self.initiator.full_scan_seconds < self.initiator.interval_seconds:
            raise ValueError(
                f"initiator.full_scan_seconds is {self.initiator.full_scan_seconds:g}, less than initiator.interval_seconds = "
                f"{self.initiator.interval_seconds:g}: a full scan can't come more often than a cycle"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic-settings passes all by name
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """`load_settings` merges file and environment itself, because it must say where a wrong value stands."""
        return (init_settings,)

    @property
    def host_name(self) -> str:
        """This machine's name in Spark job names, locks and worker ids."""
        return self.host or socket.getfqdn()

    @property
    def heartbeat_seconds(self) -> float:
        """Half the transaction time-out unless set."""
        return self.worker.heartbeat_seconds or self.txn.timeout_seconds / 2

    def shown(self) -> dict[str, Any]:
        """As plain values for people: secrets hidden."""
        plain = cast("dict[str, Any]", _plain_values(self.model_dump()))
        plain["database"]["url"] = self.database.shown_url
        return plain

    def changes(self, other: Self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """
        Keys that differ in `other`: (those that a running daemon can take over, those that need a restart).
        """
        mine, theirs = dict(_leaves(self.model_dump())), dict(_leaves(other.model_dump()))
        different = [key for key in sorted(mine.keys() | theirs.keys()) if mine.get(key) != theirs.get(key)]
        fixed = tuple(key for key in different if any(key == stop or key.startswith(f"{stop}.") for stop in self.RESTART))
        return tuple(key for key in different if key not in fixed), fixed

    def taking_over(self, other: Self) -> Self:
        """`other`, but with our values of the keys that need a restart."""
        kept: dict[str, Any] = {}
        for key in self.RESTART:
            section, _, name = key.partition(".")
            mine = getattr(self, section)
            kept[section] = kept.get(section, getattr(other, section)).model_copy(update={name: getattr(mine, name)}) if name else mine
        return other.model_copy(update=kept)


def load_settings(path: Path | None, env: Mapping[str, str] | None = None) -> Settings:
    """
    Read a YAML file (None: defaults) and put `COMPACTOR_…` variables on top.

    Raises:
        SettingsError: one line: what is wrong, at which key, set where, and what is allowed.
    """
    env = os.environ if env is None else env
    file_values = _read_yaml(path) if path is not None else {}
    place = str(path) if path is not None else "settings"
    _no_secret_in_file(file_values, place)
    variables = _variables(env)
    env_values = _Environment(Settings, env)()
    try:
        return Settings(**_merged(file_values, env_values))
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False, include_input=False)
        raise SettingsError(_one_line(details, variables, place)) from None


def password_in(url: str) -> str | None:
    """The password part of an address, or None."""
    found = re.match(r"^[a-z0-9+]+://[^:/@]*:([^@]*)@", url, re.IGNORECASE)
    return found[1] if found else None


def hide_password(url: str) -> str:
    """The address with its password, also one given as a query parameter, replaced."""
    hidden = re.sub(r"(://[^:/@\s]*:)[^@\s]*@", rf"\1{HIDDEN}@", url)
    return re.sub(r"([?&]password=)[^&\s]*", rf"\1{HIDDEN}", hidden, flags=re.IGNORECASE)


class _Environment(EnvSettingsSource):
    """pydantic-settings' reading of nested variables, from a given mapping."""

    def __init__(self, settings_cls: type[BaseSettings], env: Mapping[str, str]) -> None:
        self._given = env
        super().__init__(settings_cls, case_sensitive=False, env_prefix=PREFIX, env_nested_delimiter="__", env_ignore_empty=True)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {name.lower(): value for name, value in self._given.items()}

    def __call__(self) -> dict[str, Any]:
        try:
            return super().__call__()
        except ValueError as error:  # a dict-valued variable that isn't JSON
            field = re.search(r'field "([^"]+)"', str(error))
            raise SettingsError(f"environment: {PREFIX}{field[1].upper() if field else '…'} can't be read; a JSON object is wanted") from None


def _variables(env: Mapping[str, str]) -> dict[str, str]:
    """Key path → variable name, for every variable of ours; an unknown name is an error."""
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
                raise SettingsError(f"environment: {name}: there is no setting {'.'.join(parts[: depth + 1])}{_similar(part, known)}")
            known = _section(known.model_fields[part].annotation)
        found[".".join(parts)] = name
    return found


def _section(annotation: object) -> type[BaseModel] | None:
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeys)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        line = f" line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise SettingsError(f"{path}{line}: {error.problem or 'is not YAML'}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: is not YAML: {_plain(error)}") from None
    except OSError as error:
        raise SettingsError(f"{path}: can't be read ({_plain(error)})") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise SettingsError(f"{path}: must hold keys and values such as `database:`, not a {type(values).__name__}")
    if (odd := next((key for key in values if not isinstance(key, str)), None)) is not None:
        raise SettingsError(f"{path}: {odd}: unknown key; known are {', '.join(Settings.model_fields)}")
    # `cleaner:` with everything below it commented out means the defaults
    return {key: value for key, value in values.items() if not (value is None and _is_section(key))}


def _is_section(key: str) -> bool:
    field = Settings.model_fields.get(key)
    return field is not None and _section(field.annotation) is not None


class _UniqueKeys(yaml.SafeLoader):
    """YAML lets the last of two equal keys win, silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"the key {key.value} stands twice in one place", problem_mark=key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _no_secret_in_file(values: Mapping[str, Any], place: str) -> None:
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


def _one_line(details: list[ErrorDetails], variables: Mapping[str, str], place: str) -> str:
    first = details[0]
    path = [str(part) for part in first["loc"]]
    key = ".".join(path)
    where = f"environment: {variables[key]}" if key in variables else place
    more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    kind = first["type"]
    if kind == "extra_forbidden":
        parent: type[BaseModel] | None = Settings
        for part in path[:-1]:
            parent = _section(parent.model_fields[part].annotation) if parent and part in parent.model_fields else None
        said = f"{key}: unknown key{_similar(path[-1], parent) if parent else ''}"
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


def _similar(word: str, model: type[BaseModel]) -> str:
    close = difflib.get_close_matches(word, model.model_fields, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known are {', '.join(model.model_fields)}"


def _leaves(value: object, path: str = "") -> list[tuple[str, object]]:
    if isinstance(value, Mapping) and value:
        return [leaf for key, item in value.items() for leaf in _leaves(item, f"{path}.{key}" if path else str(key))]
    return [(path, value)]


def _plain_values(value: object) -> object:
    match value:
        case Mapping():
            return {key: _plain_values(item) for key, item in value.items()}
        case SecretStr():
            return HIDDEN
        case Path():
            return str(value)
        case ByteSize():
            return int(value)
        case _:
            return value


def _plain(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split())
