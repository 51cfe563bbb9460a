"""Compares copied bytes with those they were copied from, at both ends."""

from compactor.errors import VerificationError
from compactor.handles import RandomReader, same_ends


def require_copied(result: RandomReader, at: int, source: RandomReader, start: int, length: int) -> None:
    """
    Compare the first and last 4 KiB of a copied range.

    Args:
        at: where the copy begins in `result`.
        start: where the original begins in `source`.

    Raises:
        VerificationError: they differ.
    """
    if not same_ends(result, at, source, start, length):
        raise VerificationError(
            f"{result.name} from byte {at} on hasn't the bytes of {source.name} from byte {start} on"
        )
