"""
The site's own Spark: where it lies, its PySpark, what its `spark-defaults.conf` says, and what of all that can't be.

`spark-submit` starts each session and application, and reads the file by itself; where a property of ours goes over the
site's, or a plan depends on the site's, we read it, too. Sessions and applications have a driver in Python that calls
its JVM: a driver beside a remote server (Spark Connect) has no jobs, groups and stages that we could name or cancel.
Source: Spark's SparkSubmitArguments, Utils.getDefaultPropertiesFile, PythonUtils.sparkPythonPath; PySpark's
launch_gateway; java.util.Properties.load.
"""

import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from compactor.errors import UnreachableError

_CONTINUES: Final = re.compile(r"(?<!\\)(?:\\\\)*\\$")
_KEY: Final = re.compile(r"((?:\\.|[^\\=:\s])*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_REMOTE: Final = "spark.remote"
_CLASSIC: Final = {"spark.submit.deployMode": "client", "spark.api.mode": "classic"}
"""How a session's driver must be, whatever the site prefers. Spark before 4.0 knows no other API."""
_VARIABLES: Final = (
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_CONNECT_MODE",
    "SPARK_CONNECT_MODE_ENABLED",
    "SPARK_LOCAL_REMOTE",
    "SPARK_REMOTE",
)
"""Variables by which PySpark would start another JVM than ours, or none."""
_CORE: Final = re.compile(r"spark-core_[\d.]+-(\d+\.\d+)[\w.-]*\.jar")


def spark_home() -> Path:
    """The cluster's own Spark where SPARK_HOME names it, else PySpark's."""
    return Path(home) if (home := os.environ.get("SPARK_HOME")) else _pyspark()


def site_python() -> list[str]:
    """
    What goes first on the path of a driver in Python: the PySpark and Py4J that belong to the Spark of SPARK_HOME, as
    `spark-submit` puts them first. Empty without SPARK_HOME.

    Raises:
        UnreachableError: that Spark has no PySpark, and is of another release than ours.
    """
    home = spark_home()
    if home.resolve() == _pyspark().resolve():
        return []
    libraries = home / "python" / "lib"
    found = [*libraries.glob("pyspark.zip"), *sorted(libraries.glob("py4j-*-src.zip"))]
    theirs, ours = _release(home), _release(_pyspark())
    if not found and theirs is not None and theirs != ours:
        raise UnreachableError(
            f"SPARK_HOME is {home}, a Spark {theirs} without PySpark (no python/lib/pyspark.zip), and the daemon's PySpark is {ours}: unset SPARK_HOME, or install pyspark of release {theirs}"
        )
    return [str(path) for path in found]


def classic(conf: Mapping[str, str]) -> dict[str, str]:
    """
    The properties, with those that a session's driver can't do without.

    Raises:
        UnreachableError: the site's defaults or these ask for Spark Connect, which no property of ours undoes.
    """
    require_no_connect(conf)
    return dict(conf) | _CLASSIC


def require_no_connect(conf: Mapping[str, str]) -> None:
    """Raises UnreachableError where the site's defaults or these properties ask for a remote server."""
    if (remote := (site_defaults() | dict(conf)).get(_REMOTE)) is not None:
        raise UnreachableError(
            f"{_REMOTE} is {remote}: there are no jobs of ours on Spark Connect; take it out of spark.conf and spark-defaults.conf, or let SPARK_CONF_DIR name a copy without it"
        )


def overridden(conf: Mapping[str, str], environment: Mapping[str, str]) -> list[str]:
    """Of properties (besides the site's defaults) and variables: those that a session sets otherwise, or leaves out."""
    wanted = site_defaults() | dict(conf)
    return [
        *(f"{key}={wanted[key]}" for key, value in _CLASSIC.items() if wanted.get(key, value) != value),
        *(name for name in _VARIABLES if name in environment),
    ]


def before_ours(conf: Mapping[str, str], key: str) -> str:
    """A property to which we add: as these properties have it, else the site's defaults, over which ours would go."""
    return conf[key] if key in conf else site_defaults().get(key, "")


def without_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a driver in Python, without the variables that lead PySpark elsewhere."""
    kept = {name: value for name, value in environment.items() if name not in _VARIABLES}
    return kept | {"PYSPARK_PIN_THREAD": "true"}  # job groups and names belong to threads


def _pyspark() -> Path:
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def _release(home: Path) -> str | None:
    """Major and minor of the Spark in a directory, by its jars; None where there are none."""
    names = (path.name for path in (home / "jars").glob("spark-core_*.jar"))
    return next((found[1] for name in names if (found := _CORE.fullmatch(name)) is not None), None)


def site_defaults() -> dict[str, str]:
    """Spark's properties as the site sets them, in SPARK_CONF_DIR or the Spark's own `conf`; none without a file."""
    folder = Path(os.environ.get("SPARK_CONF_DIR") or spark_home() / "conf")
    try:
        text = (folder / "spark-defaults.conf").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    return {key: value for key, value in _properties(text).items() if key.startswith("spark.")}


def _properties(text: str) -> dict[str, str]:
    """Java's properties: a key ends at white space, = or :, and a line goes on after a single backslash at its end."""
    found: dict[str, str] = {}
    lines = iter(re.split(r"\r\n|\r|\n", text))
    for first in lines:
        line = first.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        while _CONTINUES.search(line):
            line = line[:-1] + next(lines, "").lstrip(" \t\f")
        key = _KEY.match(line)
        assert key is not None
        found[_unescaped(key[1])] = _unescaped(line[key.end() :]).strip()
    return found


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(
        lambda found: chr(int(found[1][1:], 16)) if len(found[1]) > 1 else _ESCAPED.get(found[1], found[1]), text
    )
