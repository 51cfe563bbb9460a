"""
The site's own Spark: where it lies, and what its `spark-defaults.conf` says.

`spark-submit` starts each session and application, and reads the file by itself; where a property of ours goes over the
site's, or a plan depends on the site's, we read it, too.
Source: Spark's SparkSubmitArguments, Utils.getDefaultPropertiesFile; java.util.Properties.load.
"""

import os
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_CONTINUES: Final = re.compile(r"(?<!\\)(?:\\\\)*\\$")
_KEY: Final = re.compile(r"((?:\\.|[^\\=:\s])*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def spark_home() -> Path:
    """The cluster's own Spark where SPARK_HOME names it, else PySpark's."""
    if home := os.environ.get("SPARK_HOME"):
        return Path(home)
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


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
