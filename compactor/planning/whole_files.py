"""
Names for files of insert-only tables that move into one directory.

Pure. A file keeps its bucket number (readers of bucketed tables rely on it) and its extension (Hadoop picks the decompressor by it); a second file of the
same bucket becomes a copy, as Hive names them: `000001_0`, `000001_0_copy_1`.
"""

import re
from collections.abc import Sequence

from compactor.acid.names import original_name
from compactor.planning.document import InputFile


def named_copies(files: Sequence[InputFile]) -> list[tuple[InputFile, str]]:
    """
    Pair every file with its new name, all different.

    Args:
        files: in reading order; `bucket` -1 where the name tells none (unbucketed tables only): those get numbers after the others.
    """
    free = max((file.bucket for file in files), default=-1) + 1
    used: dict[int, int] = {}
    named = []
    for file in files:
        bucket = file.bucket
        if bucket < 0:
            bucket, free = free, free + 1
        copy = used.get(bucket, 0)
        used[bucket] = copy + 1
        suffix = f"_copy_{copy}" if copy else ""
        named.append((file, f"{original_name(bucket)}{suffix}{_extension(file.path)}"))
    return named


def _extension(path: str) -> str:
    found = re.search(r"\.[A-Za-z0-9]{1,10}$", path.rsplit("/", 1)[-1])
    return found[0] if found else ""
