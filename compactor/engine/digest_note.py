"""
The digest note of a compacted file, in the footer's user metadata: a digest of the stripes that were encoded anew, and
the checksums of those out of which rows were cut.

Readers ignore the note: they ask for metadata by name. The digest is made from the inputs, before the file is read
back, so `compactor verify` can later compare the file with the rows that went into it. The values of cut stripes were
compared when they were cut. Copied stripes were never decoded, and have neither.
Source: docs/compaction.md, "What is verified".
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from compactor.engine.results import Origin, counted
from compactor.orc.digests.digest import Digest

NOTE: Final = "compactor.digest"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Note:
    """
    A digest of the rows of some stripes.

    Args:
        stripes: the numbers of these stripes, ascending.
        checksums: number and CRC-32 of each stripe out of which rows were cut.
    """

    digest: Digest
    stripes: tuple[int, ...]
    checksums: tuple[tuple[int, int], ...] = ()


def note_of(digest: Digest, origins: Sequence[Origin], stripe_rows: Sequence[int]) -> dict[str, bytes]:
    """The note as user metadata for a file; empty for a file of copied stripes. No digest where values aren't verified."""
    runs: list[tuple[int, int]] = []
    checksums: list[tuple[int, int]] = []
    at = 0
    for origin in counted(origins, stripe_rows):
        if origin.checksum is not None:
            checksums.append((at, origin.checksum))
        elif origin.path is None and digest.columns:
            runs.append((at, origin.count))
        at += origin.count
    if not runs and not checksums:
        return {}
    sums = [f"{value:016x}" for value in (digest.keys, *digest.columns)]
    said = {"version": _VERSION, "rows": digest.rows, "keys": sums[0], "columns": sums[1:], "stripes": runs}
    if checksums:
        said["checksums"] = checksums
    return {NOTE: json.dumps(said, separators=(",", ":")).encode()}


def read_note(metadata: Mapping[str, bytes]) -> Note | None:
    """The note in a file's user metadata; None where it is missing, damaged, or of another version."""
    try:
        said = json.loads(metadata[NOTE])
        if said["version"] != _VERSION:
            return None
        digest = Digest(int(said["rows"]), int(said["keys"], 16), tuple(int(value, 16) for value in said["columns"]))
        stripes = tuple(stripe for first, count in said["stripes"] for stripe in range(first, first + count))
        return Note(digest, stripes, tuple((int(stripe), int(crc)) for stripe, crc in said.get("checksums", ())))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
