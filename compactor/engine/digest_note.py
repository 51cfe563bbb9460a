"""
The digest note of a compacted file: a digest of its recoded stripes in the footer's user metadata.

Readers ignore the note: they ask for metadata by name. The digest is made from the inputs, before the file is read
back, so `compactor verify` can later compare the file with the rows that went into it. Copied stripes were never
decoded, and have no digest.
Source: docs/compaction.md, "What is verified".
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from compactor.engine.results import Origin, counted
from compactor.orc.digest import Digest

NOTE: Final = "compactor.digest"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Note:
    """
    A digest of the rows of some stripes.

    Args:
        stripes: the numbers of these stripes, ascending.
    """

    digest: Digest
    stripes: tuple[int, ...]


def note_of(digest: Digest, origins: Sequence[Origin], stripe_rows: Sequence[int]) -> dict[str, bytes]:
    """The note as user metadata for a file; empty when no row was recoded, or values aren't verified."""
    if not digest.columns or not digest.rows:
        return {}
    runs: list[tuple[int, int]] = []
    at = 0
    for origin in counted(origins, stripe_rows):
        if origin.path is None and origin.checksum is None:
            runs.append((at, origin.count))
        at += origin.count
    sums = [f"{value:016x}" for value in (digest.keys, *digest.columns)]
    said = {"version": _VERSION, "rows": digest.rows, "keys": sums[0], "columns": sums[1:], "stripes": runs}
    return {NOTE: json.dumps(said, separators=(",", ":")).encode()}


def read_note(metadata: Mapping[str, bytes]) -> Note | None:
    """The note in a file's user metadata; None where it is missing, damaged, or of another version."""
    try:
        said = json.loads(metadata[NOTE])
        if said["version"] != _VERSION:
            return None
        digest = Digest(int(said["rows"]), int(said["keys"], 16), tuple(int(value, 16) for value in said["columns"]))
        return Note(digest, tuple(stripe for first, count in said["stripes"] for stripe in range(first, first + count)))
    except (KeyError, TypeError, ValueError):
        return None
