"""
Which locations have a change-management root of Hive's to which replaced files can be handed. Hive names them by HDFS' checksums, so only HDFS has one.

Source: docs/operations.md; Hive's ReplChangeManager.
"""

from dataclasses import replace

from compactor.storage.location import split
from compactor.storage.registry import configured


def why_not_recycled(location: str | None) -> str | None:
    """Why files of a table there can't be handed over, without a look at the store; None if they can."""
    root = configured().hdfs.change_management_root
    if root is None:
        return "hdfs.change_management_root isn't set"
    if location is None or replace(split(location), path="") != replace(split(root), path=""):
        return f"{location} isn't on the file system of hdfs.change_management_root, {root}"
    return None
