"""Which way directories are taken out of a partition: moved out of sight first where that is possible, else in place."""

from compactor.roles.trash import Trash
from compactor.roles.trash_in_place import TrashInPlace
from compactor.storage.base import Storage


def trash_for(storage: Storage, location: str, tag: str | int, *, recycled: bool = False) -> Trash | TrashInPlace:
    """
    A new trash.

    Args:
        storage, location: the partition.
        tag: what the removal is for: the queue entry's id, or `aborted`.
        recycled: the files go to Hive's change management, which is on HDFS only.
    """
    return Trash(storage, location, tag, recycled=recycled) if storage.uploads is None else TrashInPlace(storage, location, tag)
