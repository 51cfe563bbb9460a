"""Patterns of names of databases, tables and partitions, as a user writes them: `*` is any text, `?` one letter."""

import re
from functools import lru_cache

_QUOTED = re.compile(r"`[^`/]*`")


def is_pattern(name: str) -> bool:
    """Whether the name contains `*` or `?`, but for names in backquotes, which are taken as they are."""
    bare = _QUOTED.sub("", name)
    return "*" in bare or "?" in bare


def fits(name: str, pattern: str) -> bool:
    """Whether a lower-case name fits a pattern of `*` and `?`."""
    return _compiled(pattern.lower()).fullmatch(name) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile("".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in pattern))
