"""
Settings from Hive's own configuration: what hive-site.xml, metastore-site.xml and core-site.xml say, in our keys.

Reads the files' text; opens no database. Source: Hive's MetastoreConf and HiveConf for names and units.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote

import yaml

from compactor.errors import SettingsError
from compactor.metastore.db.dialects import DIALECTS
from compactor.metastore.db.dialects.address import dialect_of, kept_apart, written
from compactor.words import one_line

FILES: Final = ("core-site.xml", "hive-site.xml", "metastore-site.xml", "hivemetastore-site.xml")
"""Read in this order, as Hive does: a later file's value counts."""
_UNITS: Final = {
    "ms": 0.001,
    "msec": 0.001,
    "s": 1.0,
    "sec": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
    "d": 86400.0,
    "day": 86400.0,
}
_LONGEST: Final = 1 << 16
"""Characters of a value; one that refers to others any number of times would grow without an end."""
_TIME: Final = re.compile(r"(\d+)\s*([a-z]*)")
_VARIABLE: Final = re.compile(r"\$\{([^}$\s]+)\}")
_JDBC: Final = re.compile(r"jdbc:(?P<product>[a-z]+):(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
PASSWORD: Final = ("javax.jdo.option.ConnectionPassword",)
_URL: Final = ("javax.jdo.option.ConnectionURL",)
_USER: Final = ("javax.jdo.option.ConnectionUserName",)
_CREDENTIALS: Final = "hadoop.security.credential.provider.path"
_OPENED_BY: Final = "hadoop.security.credstore.java-keystore-provider.password-file"
_KEYSTORE: Final = re.compile(r"(?:local)?jceks://(?P<store>[^/@]*)@?(?P<host>[^/]*)(?P<path>/[\w./+=-]+)")
"""A credential store in a file. Source: Hadoop's ProviderUtils.unnestUri."""
_SHOWN_BY: Final = (
    """echo 'var p = System.getenv().getOrDefault("HADOOP_CREDSTORE_PASSWORD", "none").toCharArray(); """
    """var k = java.security.KeyStore.getInstance("jceks"); k.load(new java.io.FileInputStream("{file}"), p); """
    """System.out.println(new String(k.getKey("{alias}", p).getEncoded(), "UTF-8"))' | jshell -s -"""
)
"""Shows a password of a credential store, which no command of Hadoop's does. Source: its JavaKeyStoreProvider."""
_POOL: Final = re.compile(r"hive\.compactor\.worker\.(.*)\.threads")
"""The workers of a pool. Source: Hive 4's Constants.COMPACTION_POOLS_PATTERN."""
_MOST_WORKERS: Final = 256
_ROLES: Final = ("compactor.initiator.on", "compactor.cleaner.on")
ORIGINALS: Final = "hive.mm.allow.originals"
_DEFAULT_STORE: Final = ("fs.defaultFS", "fs.default.name")
_WAREHOUSES: Final = ("metastore.warehouse.dir", "metastore.warehouse.external.dir")


@dataclass(frozen=True, slots=True)
class Property:
    """A property of Hive's configuration, with the file it stands in."""

    name: str
    value: str
    file: str

    @property
    def source(self) -> str:
        return f"{self.file}: {self.name}"

    @property
    def values(self) -> list[str]:
        """Those of a list."""
        return [one for part in self.value.split(",") if (one := part.strip())]


@dataclass(frozen=True, slots=True)
class Taken:
    """One setting of ours: its key, its value as YAML, and where it is from."""

    key: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class HiveConfiguration:
    """
    What a configuration says.

    Args:
        notes: sentences for the operator, about what can't be taken over or must be changed in Hive.
        password: as it stands in the files; None where it doesn't.
    """

    taken: tuple[Taken, ...]
    notes: tuple[str, ...]
    password: str | None


@dataclass(frozen=True, slots=True)
class Clash:
    """What Hive does beside by its configuration: a sentence, and what to do."""

    said: str
    remedy: str


def with_those_beside(site: Path) -> list[Path]:
    """A file of Hive's, and those of `FILES` in its directory, in the order in which Hive reads them."""
    beside = [site.parent / name for name in FILES if name != site.name and (site.parent / name).is_file()]
    order = {name: number for number, name in enumerate(FILES)}
    return sorted([*beside, site], key=lambda path: order.get(path.name, 1))


def read(paths: Sequence[Path]) -> dict[str, Property]:
    """
    The properties of some files by name; those of later files count.

    Raises:
        SettingsError: a file can't be read, or isn't a Hadoop configuration.
    """
    found: dict[str, Property] = {}
    for path in paths:
        try:
            root = ET.parse(path).getroot()  # noqa: S314 - the administrator's own file
        except OSError as error:
            raise SettingsError(f"{path} can't be read: {error.strerror}") from None
        except (ET.ParseError, LookupError, ValueError) as error:  # an encoding that isn't known
            raise SettingsError(f"{path} isn't XML: {error}") from None
        if root.tag != "configuration":
            raise SettingsError(f"{path} is no configuration of Hadoop's: it begins with <{root.tag}>")
        for item in root.iter("property"):
            name, value = (item.findtext("name") or "").strip(), (item.findtext("value") or "").strip()
            if name:
                found[name] = Property(name, value, path.name)
    return {name: Property(name, _expanded(one.value, found), one.file) for name, one in found.items()}


def _expanded(value: str, known: Mapping[str, Property]) -> str:
    """`${name}` replaced by that property; what isn't known stays, as in Hadoop."""
    for _ in range(20):
        replaced = _VARIABLE.sub(lambda found: known[found[1]].value if found[1] in known else found[0], value)
        if replaced == value or len(replaced) > _LONGEST:
            break
        value = replaced
    return value


def seconds(text: str, unit: str = "s") -> float:
    """
    A length of time as Hive writes it: `300s`, `5min`, `12h`; a number alone has the property's own unit.

    Raises:
        ValueError: it is none.
    """
    found = _TIME.fullmatch(text.strip().lower())
    said = (found[2] or unit) if found is not None else ""
    factor = _UNITS.get(said, _UNITS.get(said.removesuffix("s")))
    if found is None or factor is None:
        raise ValueError(f"{text!r} is no length of time")
    return int(found[1]) * factor


def _number(value: float) -> str:
    return f"{value:g}" if value < 1e6 else str(round(value))


def _time(own: str, wanted: str) -> Callable[[str], str]:
    """From a length of time whose own unit is `own` to one in `wanted`."""
    return lambda text: _number(seconds(text, own) / _UNITS[wanted])


def _whole(text: str) -> str:
    return str(int(text))


def _fraction(text: str) -> str:
    return _number(float(text))


def _boolean(text: str) -> str:
    if (value := text.strip().lower()) not in {"true", "false"}:
        raise ValueError(f"{text!r} is neither true nor false")
    return value


def _both(name: str) -> tuple[str, ...]:
    """The metastore's own name of a property, which counts, and Hive's older one."""
    return f"metastore.{name}", f"hive.{name}"


_TXN_TIMEOUT: Final = _both("txn.timeout")
_SETTINGS: Final[Mapping[str, tuple[tuple[str, ...], Callable[[str], str]]]] = {
    "txn.timeout_seconds": (_TXN_TIMEOUT, _time("s", "s")),
    "initiator.interval_seconds": (("hive.compactor.check.interval",), _time("s", "s")),
    "initiator.thresholds.delta_count": (("hive.compactor.delta.num.threshold",), _whole),
    "initiator.thresholds.delta_ratio": (("hive.compactor.delta.pct.threshold",), _fraction),
    "initiator.thresholds.aborted_count": (("hive.compactor.abortedtxn.threshold",), _whole),
    "initiator.thresholds.aborted_age_hours": (("hive.compactor.aborted.txn.time.threshold",), _time("h", "h")),
    "initiator.failed_threshold": (_both("compactor.initiator.failed.compacts.threshold"), _whole),
    "initiator.failed_retry_days": (_both("compactor.initiator.failed.retry.time"), _time("d", "d")),
    "worker.timeout_hours": (("hive.compactor.worker.timeout",), _time("s", "h")),
    "worker.run_as": (_both("compactor.run.as.user"), str),
    "cleaner.interval_seconds": (("hive.compactor.cleaner.run.interval",), _time("ms", "s")),
    "cleaner.retry_attempts": (("hive.compactor.cleaner.retry.maxattempts",), _whole),
    "cleaner.retry_seconds": (("hive.compactor.cleaner.retry.retention.time",), _time("s", "s")),
    "housekeeper.history.succeeded": (_both("compactor.history.retention.succeeded"), _whole),
    "housekeeper.history.failed": (_both("compactor.history.retention.failed"), _whole),
    "housekeeper.history.did_not_initiate": (
        (*_both("compactor.history.retention.did.not.initiate"), *_both("compactor.history.retention.attempted")),
        _whole,
    ),
    "housekeeper.history.refused": (_both("compactor.history.retention.refused"), _whole),
    "housekeeper.history.timeout_days": (_both("compactor.history.retention.timeout"), _time("d", "d")),
    "readers.insert_only_originals": ((ORIGINALS,), _boolean),
}
_POSITIONAL: Final = "orc.force.positional.evolution"
_EVOLUTION: Final = "hive.exec.schema.evolution"
_DELAY: Final = "hive.compactor.delayed.cleanup.enabled"
_RETENTION: Final = "hive.compactor.cleaner.retention.time.seconds"


def settings_of(found: Mapping[str, Property], password_file: Path | None) -> HiveConfiguration:
    """
    Our settings that a configuration tells.

    Args:
        password_file: where the password will stand; None: nowhere yet.

    Raises:
        SettingsError: it names no database, or one of a product that isn't supported.
    """
    notes: list[str] = []
    first = partial(_first, found)
    url = first(_URL)
    if url is None:
        raise SettingsError(f"no file names the database of the metastore ({_URL[-1]}); name it by --metastore")
    taken = [Taken("database.url", _address(url, first(_USER), notes), url.source)]
    password = first(PASSWORD)
    if password_file is not None:
        taken.append(Taken("database.password_file", str(password_file), "--password-file"))
    elif password is not None:
        notes.append(
            f"the password stands in {password.source}: --password-file FILE writes it there, or put it into a file and name that by database.password_file"
        )
    if (provider := first((_CREDENTIALS,))) is not None:
        notes += [_from_credentials(store, provider, first((_OPENED_BY,))) for store in provider.values]
    taken += _taken(found, notes)
    notes += _advice(found)
    return HiveConfiguration(tuple(taken), tuple(notes), password.value if password is not None else None)


def _taken(found: Mapping[str, Property], notes: list[str]) -> Iterator[Taken]:
    """The settings that a configuration names in other words; what can't be taken over is noted."""
    wanted = dict(_SETTINGS)
    if _DELAY in found and truth(found[_DELAY]):
        wanted["cleaner.retention_seconds"] = ((_RETENTION,), _time("s", "s"))
    for key, (names, convert) in wanted.items():
        if (one := _first(found, names)) is None:
            continue
        try:
            yield Taken(key, convert(one.value), one.source)
        except ValueError:
            notes.append(f"{one.source} = {one.value} isn't understood: {key} stays as delivered")
    for name, one in found.items():
        if (pool := _POOL.fullmatch(name)) is None or one.value in {"", "0"}:
            continue
        if one.value.isdecimal() and int(one.value) <= _MOST_WORKERS and "." not in pool[1]:
            yield Taken(f"worker.pools.{pool[1]}", str(int(one.value)), one.source)
        else:
            notes.append(f"{one.source} = {one.value}: pool {pool[1]} has no workers until worker.pools names it")
    if (columns := orc_columns(found)) is not None:
        yield Taken("readers.orc_columns", columns.value, columns.source)


def _advice(found: Mapping[str, Property]) -> Iterator[str]:
    """What an operator decides, or must change in Hive."""
    first = partial(_first, found)
    places = [one for name in _WAREHOUSES if (one := first((name, f"hive.{name}"))) is not None]
    if places:
        store = one.value.rstrip("/") if (one := first(_DEFAULT_STORE)) is not None else "the default file system's "
        told = " and ".join(f"{store if one.value.startswith('/') else ''}{one.value} ({one.source})" for one in places)
        yield (
            "warehouse.roots stays empty, which means the locations of the catalog's databases; only where tables are "
            f"refused as outside-roots must it name all places: {told}, and any other"
        )
    if (quorum := first(("hive.zookeeper.quorum",))) is not None:
        hosts = _hosts(quorum.value, found)
        yield f"several daemons elect their leaders by ZooKeeper where zookeeper.hosts names it: {hosts}"
    for clash in clashes(found):
        yield f"{clash.said}: {clash.remedy}"
    if silent := [names[0] for names in map(_both, _ROLES) if first(names) is None]:
        yield f"Hive 4.1 and newer deliver {' and '.join(silent)} as true: set what no file names to false there"


def _first(found: Mapping[str, Property], names: Sequence[str]) -> Property | None:
    """The property that counts: the first of these names that has a value."""
    return next((found[name] for name in names if name in found and found[name].value), None)


def orc_columns(found: Mapping[str, Property]) -> Property | None:
    """
    `readers.orc_columns` as a configuration says it, under the name of Hive's property; None: as delivered.

    Without schema evolution Hive 4 finds columns by their names in queries without a job, and by their places in jobs.
    Source: Hive 4's FetchOperator.ensureCorrectSchemaEvolutionConfigs.
    """
    said = {name: one for name in (_POSITIONAL, _EVOLUTION) if (one := found.get(name)) and truth(one) is not None}
    by_position = truth(said[_POSITIONAL]) if _POSITIONAL in said else None
    if _EVOLUTION in said and not truth(said[_EVOLUTION]) and by_position is not False:
        return replace(said[_EVOLUTION], value="both")
    if by_position is None:
        return None
    return replace(said[_POSITIONAL], value="position" if by_position else "name")


def truth(one: Property) -> bool | None:
    """As Hadoop's Configuration.getBoolean: anything else is the default."""
    return {"true": True, "false": False}.get(one.value.strip().lower())


def txn_timeout(found: Mapping[str, Property]) -> tuple[float, str]:
    """
    Hive's transaction time-out in seconds, and the property that says so.

    Raises:
        SettingsError: it is no length of time.
    """
    one = _first(found, _TXN_TIMEOUT)
    if one is None:
        return 300, f"{_TXN_TIMEOUT[0]}, which no file has,"  # the default of Hive 3.1 and 4
    try:
        return seconds(one.value), one.source
    except ValueError as error:
        raise SettingsError(f"{one.source}: {error}") from None


def _from_credentials(store: str, provider: Property, password_file: Property | None) -> str:
    """How to get the password out of a credential store."""
    where = f"Hive asks the credential store {store} ({provider.source}) for the password, as {PASSWORD[-1]}"
    keystore = _KEYSTORE.fullmatch(store)
    if keystore is None:
        return f"{where}: ask who put it there, and name a file with it by database.password_file"
    file, fetched = keystore["path"], ""
    if keystore["store"] not in {"", "file"}:
        fetched = f"hadoop fs -get {keystore['store']}://{keystore['host']}{file} credentials.jceks; "
        file = "credentials.jceks"
    own = f" to what Hive's {password_file.value} holds" if password_file is not None else ", if it isn't Hadoop's own"
    return (
        f"{where}: as a user who may read it, {fetched}{_SHOWN_BY.format(file=file, alias=PASSWORD[-1])} "
        f"shows it (by a JDK from 9 on; set HADOOP_CREDSTORE_PASSWORD{own}): "
        "put it into a file, and name that by database.password_file"
    )


def _hosts(quorum: str, found: Mapping[str, Property]) -> str:
    port = found["hive.zookeeper.client.port"].value if "hive.zookeeper.client.port" in found else "2181"
    return ",".join(host if ":" in host else f"{host}:{port}" for host in map(str.strip, quorum.split(",")) if host)


def _address(url: Property, user: Property | None, notes: list[str]) -> str:
    given = _JDBC.fullmatch(url.value)
    product = "" if given is None else given["product"].lower()
    dialect = dialect_of(product)
    if given is None or dialect is None or product not in dialect.jdbc:
        served = " and ".join(one.name for one in DIALECTS if one.jdbc)
        raise SettingsError(
            f"{url.source} is an address of {product or 'none'}: {served} are served{kept_apart(product)}"
        )
    if (named := dialect.from_jdbc(given["rest"])) is None:
        raise SettingsError(
            f"{url.source} has no equivalent here: give {dialect.name}'s address by --metastore, such as {dialect.example}"
        )
    if named.tls:
        notes.append(
            "the metastore reaches its database by TLS and looks at the certificate: database.url needs the options of docs/metastore.md"
        )
    if named.dropped:
        notes.append(
            f"options of {url.source} that mean nothing to this driver were left out: {', '.join(named.dropped)}"
        )
    name = user.value if user is not None else named.user
    whom = f"{quote(name, safe='')}@" if name else ""
    server = named.servers
    if "," in server and not dialect.several_servers:
        notes.append(
            f"{url.source} names several servers, and {dialect.name}'s driver takes one: database.url needs an address that leads to the primary"
        )
        server = server.partition(",")[0]
    return written(dialect, whom, server, named.database, named.options)


def clashes(found: Mapping[str, Property]) -> list[Clash]:
    """
    What Hive does beside, as far as these files tell. What they don't name is off in Hive 3.1 and 4.0, and on in newer
    releases (`hive_settings.deviations`).
    """
    on = [(name.split(".")[1], _first(found, _both(name))) for name in _ROLES]
    threads = _first(found, _both("compactor.worker.threads"))
    said = [
        Clash(
            f"{one.source} is {one.value}", f"set it to false, or Hive's {role.capitalize()} works beside this daemon's"
        )
        for role, one in on
        if one is not None and one.value.lower() == "true"
    ]
    if threads is not None and threads.value not in {"0", "-1"}:
        remedy = "set it to 0, or Hive's workers share the queue with this daemon's"
        said.append(Clash(f"{threads.source} is {threads.value}", remedy))
    return said


def as_yaml(taken: Sequence[Taken], notes: Sequence[str]) -> str:
    """A settings file in which each value says where it is from."""
    lines = ["# Settings of compactor. config/compactor.yaml explains every key; those left out stay as delivered."]
    lines += [f"# {one_line(note)}" for note in notes]
    open_keys: list[str] = []
    for one in sorted(taken, key=lambda one: one.key.split(".")[:-1]):
        *above, last = one.key.split(".")
        common = 0
        while common < min(len(above), len(open_keys)) and above[common] == open_keys[common]:
            common += 1
        for depth in range(common, len(above)):
            lines.append(f"{'  ' * depth}{above[depth]}:")
        open_keys = above
        indent = "  " * len(above)
        lines += [f"{indent}# {one.source}", f"{indent}{_text(last)}: {_value(one.value)}"]
    return "\n".join(lines) + "\n"


def _value(value: str) -> str:
    return value if re.fullmatch(r"-?\d+(\.\d+)?|true|false", value) else _text(value)


def _text(value: str) -> str:
    """In quotes where YAML would read another than this text, such as of `on` or `null`."""
    plain = re.fullmatch(r"[A-Za-z/][\w./:@?=&%-]*[\w/]", value) and yaml.safe_load(value) == value
    return value if plain else "'" + value.replace("'", "''") + "'"
