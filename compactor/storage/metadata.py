"""
A base's `_metadata_acid`: one small JSON object whose `dataFormat` says how the base came about.

Source: Hive's AcidUtils.MetaDataFile.
"""

import json
from typing import Final

from compactor.acid.names import METADATA_FILE
from compactor.errors import CorruptFileError
from compactor.reasons import Reason

METADATA_LIMIT: Final = 1 << 16
"""Bytes read at most: the file holds about fifty."""


def data_format(content: bytes, path: str) -> str:
    """
    The value of `dataFormat`, in lower case as Hive writes it.

    Raises:
        CorruptFileError: not a JSON object, or no text under `dataFormat`.
    """
    try:
        found = json.loads(content)
        value = found["dataFormat"]
    except (ValueError, KeyError, TypeError) as error:
        raise _malformed(path) from error
    if not isinstance(value, str):
        raise _malformed(path)
    return value.lower()


def is_base_metadata(path: str) -> bool:
    """Whether a path below a partition is the metadata file of one of its bases."""
    directory, _, name = path.rpartition("/")
    return name == METADATA_FILE and "/" not in directory and directory.startswith("base_")


def _malformed(path: str) -> CorruptFileError:
    return CorruptFileError(Reason.CORRUPT_FILE, f'{path!r} isn\'t a JSON object with a "dataFormat": Hive readers fail on it; repair or remove it')
