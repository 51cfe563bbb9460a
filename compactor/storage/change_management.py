"""
Decides whether replaced files at a location can be handed over to Hive's change-management root.

Hive names files in that root by HDFS' checksums, so only HDFS has one.
Source: docs/operations.md; Hive's ReplChangeManager.
"""

from dataclasses import replace

from compactor.storage.location import split
from compactor.storage.registry import configured


def why_not_recycled(location: str | None) -> str | None:
    """Why a table's files at a location can't be handed over; None if they can. Doesn't ask the store."""
    root = configured().hdfs.change_management_root
    if root is None:
        return "hdfs.change_management_root isn't set"
    if location is None or replace(split(location), path="") != replace(split(root), path=""):
        return f"{location} isn't on the file system of hdfs.change_management_root, {root}"
    return None
