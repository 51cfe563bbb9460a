"""
Names for files of insert-only tables that move into one directory.

Pure. A file keeps its bucket number (readers of bucketed tables rely on it) and its extension (Hadoop picks the
decompressor by the end of a name: `.gz`, `.lzo_deflate`, or any other that a codec declares). A second file of the same
bucket becomes a copy, named as Hive does: `000001_0`, `000001_0_copy_1`.
Source: Hadoop's CompressionCodecFactory.getCodec; Hive's Utilities (FILE_NAME_TO_TASK_ID_REGEX).
"""

import re
from collections.abc import Sequence
from typing import Final

from compactor.acid.names import original_name
from compactor.errors import RefusedError
from compactor.planning.document import InputFile
from compactor.reasons import Reason

LONGEST_NAME: Final = 255
"""Longest file name in bytes; HDFS and Linux' file systems have the same limit."""

_NUMBERED: Final = (
    re.compile(r"(\d+)_\d+(?:_copy_\d+)?(?:\..*)?", re.DOTALL),
    re.compile(r"bucket_(\d+)(?:_\d+)?(?:\..*)?", re.DOTALL),
)


def bucket_of(name: str) -> int | None:
    """The bucket that a file's name states, with any extension; None where the name states none."""
    found = next((match for pattern in _NUMBERED if (match := pattern.fullmatch(name))), None)
    return int(found[1]) if found else None


def new_names(files: Sequence[InputFile]) -> list[str]:
    """
    A new name for every file, all different.

    Args:
        files: in reading order; `bucket` is -1 where the name states none (unbucketed tables only): such files get
            numbers after the others.

    Raises:
        RefusedError: UNKNOWN_NAME, an extension is so long that no name can carry it.
    """
    free = max((file.bucket for file in files), default=-1) + 1
    used: dict[int, int] = {}
    names = []
    for file in files:
        bucket = file.bucket
        if bucket < 0:
            bucket, free = free, free + 1
        copy = used.get(bucket, 0)
        used[bucket] = copy + 1
        suffix = f"_copy_{copy}" if copy else ""
        name = f"{original_name(bucket)}{suffix}{extension_of(file.path)}"
        if len(name.encode()) > LONGEST_NAME:
            raise RefusedError(
                Reason.UNKNOWN_NAME,
                f"{file.path}: everything after the first dot may name its codec, and is too long to be kept",
            )
        names.append(name)
    return names


def names_apart(name: str, count: int) -> list[str]:
    """
    Names for so many files in the place of one that `new_names` named. Its names end in attempt 0, these in later ones,
    so they are free.
    """
    bucket, _, rest = name.partition("_0")
    return [f"{bucket}_{number}{rest}" for number in range(1, count + 1)]


def extension_of(path: str) -> str:
    """Everything from the first dot on, because a codec may be chosen by any part of it."""
    _, dot, rest = path.rsplit("/", 1)[-1].partition(".")
    return dot + rest
