"""Which driver serves a location. Drivers hold no state worth keeping, so one of each is shared."""

from typing import Final

from compactor.storage.base import Storage
from compactor.storage.local import LocalStorage
from compactor.storage.location import local_path

_LOCAL: Final = LocalStorage()


def storage_for(location: str) -> Storage:
    """
    The driver for a location: `file:` and plain paths are local.

    Raises:
        RefusedError: UNSUPPORTED_STORE (any other scheme, a host, a relative path).
    """
    local_path(location)
    return _LOCAL
