"""
Control state in ZooKeeper: JSON objects with compare-and-set by version.

    <root>/control/<key>
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from compactor.coordination.model import ConflictError, Value
from compactor.coordination.zk.nodes import Nodes, loaded

CONTROL = "control"


def read(nodes: Nodes, key: str) -> Value | None:
    """As `Coordinator.read`."""
    with nodes.answering():
        try:
            # without the sync a server that lags behind would answer with an old value
            nodes.answer(nodes.client.sync_async(nodes.path(CONTROL, key)))
            data, stat = nodes.answer(nodes.client.get_async(nodes.path(CONTROL, key)))
        except NoNodeError:
            return None
        return Value(loaded(data), int(stat.version)) if data else None


def write(nodes: Nodes, key: str, data: Mapping[str, Any], version: int | None) -> Value:
    """As `Coordinator.write`."""
    path, content = nodes.path(CONTROL, key), json.dumps(data).encode()
    with nodes.answering(writing=True):
        try:
            if version is not None:
                stat = nodes.answer(nodes.client.set_async(path, content, version=version))
                return Value(dict(data), int(stat.version))
            return Value(dict(data), _create(nodes, path, content))
        except (BadVersionError, NodeExistsError, NoNodeError):
            raise ConflictError(f"{key} was changed by another process meanwhile") from None


def _create(nodes: Nodes, path: str, content: bytes) -> int:
    """Write the first value of a key and return its version; the node may exist as the parent of other keys."""
    try:
        nodes.answer(nodes.client.create_async(path, content, makepath=True))
    except NodeExistsError:
        data, stat = nodes.answer(nodes.client.get_async(path))
        if data:
            raise
        return int(nodes.answer(nodes.client.set_async(path, content, version=stat.version)).version)
    return 0


def versions(nodes: Nodes, keys: Iterable[str]) -> dict[str, int | None]:
    """What changes with every write of these keys, None for one that doesn't exist; renews the watches. Raises kazoo's errors."""
    found: dict[str, int | None] = {}
    for key in keys:
        stat = nodes.answer(nodes.client.exists_async(nodes.path(CONTROL, key), watch=nodes.on_event))
        found[key] = None if stat is None else int(stat.mzxid)
    return found
