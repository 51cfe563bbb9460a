"""
Requests to ZooKeeper: paths below the root, answers within the session time-out, kazoo's errors as the compactor's.

Knows nodes; `election`, `members` and `values` know their content.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

from kazoo.exceptions import (
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NoNodeError,
    OperationTimeoutError,
    SessionClosedRequireSaslError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError

from compactor.coordination.zk.connection import Link
from compactor.errors import CompactorError, OutcomeUnknownError, SettingsError, UnreachableError
from compactor.settings import ZooKeeper

NO_ANSWER = (ConnectionLoss, OperationTimeoutError, SessionExpiredError, KazooTimeoutError)
"""Errors after which it is unknown whether the request was carried out."""
ONLY_SASL = (
    "these ZooKeeper servers let in only clients that log in by SASL: zookeeper.auth must be kerberos or sasl-digest"
)


class Nodes:
    """
    The nodes below one root.

    Args:
        link: the connection; the caller begins it.
        happened: called, from kazoo's thread, when a watched node changed; must not block.
    """

    def __init__(self, link: Link, settings: ZooKeeper, happened: Callable[[], None]) -> None:
        self._link = link
        self.client = link.client
        self._settings = settings
        self._happened = happened

    @property
    def session_id(self) -> int:
        """The id of the session; 0: there is no session."""
        client_id = self.client.client_id
        return int(client_id[0]) if client_id else 0

    def path(self, *parts: str) -> str:
        return "/".join((self._settings.root, *parts))

    def answer(self, result: Any) -> Any:
        """The result of a request, within the session time-out; kazoo would wait for ever while it reconnects."""
        return result.get(timeout=self._link.timeout)

    def children(self, *parts: str) -> list[str]:
        """Names below a node; empty if the node doesn't exist."""
        try:
            return list(self.answer(self.client.get_children_async(self.path(*parts))))
        except NoNodeError:
            return []

    def remove(self, path: str) -> None:
        """Remove a node if it exists."""
        with contextlib.suppress(NoNodeError):
            self.answer(self.client.delete_async(path))

    def on_event(self, _: object) -> None:
        """A watch for kazoo's requests."""
        self._happened()

    @contextlib.contextmanager
    def answering(self, *, writing: bool = False) -> Iterator[None]:
        """
        Raise kazoo's errors inside the block as the compactor's errors.

        No request is sent while there is no connection: kazoo would keep it, and send it on the next connection, even
        if the caller has long given up waiting.

        Args:
            writing: the block writes: after a lost answer the outcome is unknown.

        Raises:
            UnreachableError, OutcomeUnknownError, SettingsError, CompactorError.
        """
        if not self._link.wait(self._link.patience):
            raise UnreachableError(f"ZooKeeper {self._settings.hosts} can't be reached: {self._link.trouble}")
        try:
            yield
        except NO_ANSWER as error:
            said = f"ZooKeeper {self._settings.hosts}: no answer ({type(error).__name__})"
            raise OutcomeUnknownError(said) if writing else UnreachableError(said) from None
        except NoAuthError:
            who = "zookeeper.auth: the ticket's principal" if self._settings.auth == "kerberos" else "zookeeper.user:"
            raise SettingsError(f"{who} isn't allowed to do that below {self._settings.root}") from None
        except SessionClosedRequireSaslError:
            raise SettingsError(ONLY_SASL) from None
        except KazooException as error:
            raise CompactorError(f"ZooKeeper {self._settings.hosts}: {type(error).__name__} {error}".rstrip()) from None


def loaded(data: bytes) -> dict[str, Any]:
    """A JSON object; empty for anything else."""
    try:
        value = json.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
