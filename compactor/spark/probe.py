"""A task that shows whether executors see a store: `compactor doctor` runs it."""

from compactor.errors import CompactorError
from compactor.storage.registry import storage_for
from compactor.words import one_line


def seen_from_here(location: str) -> str | None:
    """Why a location can't be seen from the process that runs this; None: it can."""
    try:
        return None if storage_for(location).exists(location) else f"there is no {location}"
    except CompactorError as error:
        return one_line(error)
