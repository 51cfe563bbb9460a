"""Compares copied bytes with those they were copied from, at both ends."""

from typing import Final

from compactor.errors import VerificationError
from compactor.handles import RandomReader
from compactor.reasons import Reason

SAMPLE: Final = 4096


def require_copied(result: RandomReader, at: int, source: RandomReader, start: int, length: int) -> None:
    """
    Compare the first and last 4 KiB of a copied range.

    Args:
        at: where the copy begins in `result`.
        start: where the original begins in `source`.

    Raises:
        VerificationError: they differ.
    """
    for offset in (0, max(0, length - SAMPLE)):
        size = min(SAMPLE, length - offset)
        if result.read_at(at + offset, size) != source.read_at(start + offset, size):
            raise VerificationError(
                Reason.VERIFICATION_FAILED,
                f"{result.name} at byte {at + offset} hasn't the bytes of {source.name} at byte {start + offset}",
            )
