"""
Tells whether a file of HDFS is still open for writing.

The protocol that hdfs-native speaks has no such question (isFileClosed), and its listing shows an open file at the
length that the NameNode knows, which grows when the file is closed or its lease recovered. But the NameNode counts the
last block of an open file as a whole one against the space quota, and tells that count of each file. A closed file
takes its length times its replication, or what its erasure coding policy says.

Where the count says neither, the file is taken for an open one: also where a snapshot keeps a higher replication or a
longer state of it. An open file without any block looks like an empty one.
Source: Hadoop's INodeFile.storagespaceConsumed, StripedBlockUtil.spaceConsumedByStripedBlock, SystemErasureCodingPolicies.
"""

from typing import Any, Final

_CELL: Final = 1 << 20
_POLICIES: Final = ((6, 3), (3, 2), (10, 4), (2, 1))
"""Data and parity units of Hadoop's own erasure coding policies; all of them have cells of 1 MiB."""


def is_open_file(client: Any, path: str) -> bool:
    """Ask the NameNode about one file. Raises the client's errors."""
    status, summary = client.get_file_info(path), client.get_content_summary(path)
    if status.isdir:
        return False
    return not _is_closed(summary.length, summary.space_consumed, status.replication or 1, status.blocksize or 0)


def _is_closed(length: int, space: int, replication: int, block_size: int) -> bool:
    if space == length * replication:
        return True
    return replication == 1 and any(space == _striped(length, block_size, *units) for units in _POLICIES)


def _striped(length: int, block_size: int, data: int, parity: int) -> int:
    """The bytes that a closed file takes with an erasure coding policy."""
    groups, last = divmod(length, block_size * data) if block_size else (0, length)
    stripes, rest = divmod(last, _CELL * data)
    return length + parity * (groups * block_size + stripes * _CELL + min(rest, _CELL))
