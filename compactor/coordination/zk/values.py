"""
Control state in ZooKeeper: JSON objects with compare-and-set by version.

    <root>/control/<key>
"""

import json
import threading
from collections.abc import Mapping
from typing import Any

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from compactor.coordination.base import Changed
from compactor.coordination.model import ConflictError, Value
from compactor.coordination.zk.nodes import Nodes, loaded

CONTROL = "control"


class Values:
    """The values below the root. Safe in any number of threads, except `look`: only one thread may call it."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._lock = threading.Lock()
        self._watched: dict[str, list[Changed]] = {}
        self._versions: dict[str, int | None] = {}

    def read(self, key: str) -> Value | None:
        """As `Coordinator.read`."""
        nodes = self._nodes
        with nodes.answering():
            try:
                # without the sync a server that lags behind would answer with an old value
                nodes.answer(nodes.client.sync_async(nodes.path(CONTROL, key)))
                data, stat = nodes.answer(nodes.client.get_async(nodes.path(CONTROL, key)))
            except NoNodeError:
                return None
            return Value(loaded(data), int(stat.version)) if data else None

    def write(self, key: str, data: Mapping[str, Any], version: int | None) -> Value:
        """As `Coordinator.write`."""
        nodes = self._nodes
        path, content = nodes.path(CONTROL, key), json.dumps(data).encode()
        with nodes.answering(writing=True):
            try:
                if version is not None:
                    stat = nodes.answer(nodes.client.set_async(path, content, version=version))
                    return Value(dict(data), int(stat.version))
                return Value(dict(data), self._create(path, content))
            except (BadVersionError, NodeExistsError, NoNodeError):
                raise ConflictError(f"{key} was changed by another process meanwhile") from None

    def _create(self, path: str, content: bytes) -> int:
        """Write the first value of a key and return its version; the node may exist as the parent of other keys."""
        nodes = self._nodes
        try:
            nodes.answer(nodes.client.create_async(path, content, makepath=True))
        except NodeExistsError:
            data, stat = nodes.answer(nodes.client.get_async(path))
            if data:
                raise
            return int(nodes.answer(nodes.client.set_async(path, content, version=stat.version)).version)
        return 0

    def watch(self, key: str, changed: Changed) -> None:
        """Have `changed` called by `look`."""
        with self._lock:
            self._watched.setdefault(key, []).append(changed)

    def look(self) -> None:
        """Call `changed` of watched keys that have changed, and renew the watches. Raises kazoo's errors."""
        nodes = self._nodes
        with self._lock:
            watched = {key: list(callbacks) for key, callbacks in self._watched.items()}
        for key, callbacks in watched.items():
            stat = nodes.answer(nodes.client.exists_async(nodes.path(CONTROL, key), watch=nodes.on_event))
            version = None if stat is None else int(stat.mzxid)
            if version != self._versions.get(key):
                self._versions[key] = version
                for changed in callbacks:
                    changed()
