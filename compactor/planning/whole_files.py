"""
Names for files of insert-only tables that move into one directory.

Pure. A file keeps its bucket number (readers of bucketed tables rely on it) and its extension (Hadoop picks the decompressor by how a name ends:
`.gz`, `.lzo_deflate`, whatever a codec says); a second file of the same bucket becomes a copy, as Hive names them: `000001_0`, `000001_0_copy_1`.
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
"""Bytes of a file's name; HDFS and Linux' file systems have the same limit."""

_NUMBERED: Final = (re.compile(r"(\d+)_\d+(?:_copy_\d+)?(?:\..*)?", re.DOTALL), re.compile(r"bucket_(\d+)(?:_\d+)?(?:\..*)?", re.DOTALL))


def bucket_of(name: str) -> int | None:
    """The bucket that a file's name tells, whatever its extension; None where it tells none."""
    found = next((match for pattern in _NUMBERED if (match := pattern.fullmatch(name))), None)
    return int(found[1]) if found else None


def named_copies(files: Sequence[InputFile]) -> list[tuple[InputFile, str]]:
    """
    Pair every file with its new name, all different.

    Args:
        files: in reading order; `bucket` -1 where the name tells none (unbucketed tables only): those get numbers after the others.

    Raises:
        RefusedError: UNKNOWN_NAME, an extension is so long that no name can carry it.
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
        name = f"{original_name(bucket)}{suffix}{_extension(file.path)}"
        if len(name.encode()) > LONGEST_NAME:
            raise RefusedError(Reason.UNKNOWN_NAME, f"{file.path}: everything after the first dot may name its codec, and is too long to be kept")
        named.append((file, name))
    return named


def _extension(path: str) -> str:
    """Everything from the first dot on: any part of it may be what a codec goes by."""
    _, dot, rest = path.rsplit("/", 1)[-1].partition(".")
    return dot + rest
