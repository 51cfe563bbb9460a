"""
Asking ZooKeeper: paths below our root, answers within the session time-out, kazoo's errors in our words.

Knows nodes; what lies in them is known by `election`, `registry` and `values`.
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

from compactor.coordination.link import Link
from compactor.errors import CompactorError, OutcomeUnknownError, SettingsError, UnreachableError
from compactor.settings import ZooKeeper

NO_ANSWER = (ConnectionLoss, OperationTimeoutError, SessionExpiredError, KazooTimeoutError)
"""Whether it was done can't be told."""
ONLY_SASL = "these ZooKeeper servers let in only who logs in by SASL: zookeeper.auth must be kerberos or sasl-digest"


class Nodes:
    """
    Those of one root.

    Args:
        link: begun by somebody else.
        happened: called, from kazoo's thread, when something changed that is watched; must not block.
    """

    def __init__(self, link: Link, settings: ZooKeeper, happened: Callable[[], None]) -> None:
        self._link = link
        self.client = link.client
        self._settings = settings
        self._happened = happened

    @property
    def session_id(self) -> int:
        """0: there is no session."""
        client_id = self.client.client_id
        return int(client_id[0]) if client_id else 0

    def path(self, *parts: str) -> str:
        return "/".join((self._settings.root, *parts))

    def answer(self, result: Any) -> Any:
        """An answer within the session time-out; kazoo would wait for ever while it reconnects."""
        return result.get(timeout=self._link.timeout)

    def children(self, *parts: str) -> list[str]:
        """Names below a node that need not be there."""
        try:
            return list(self.answer(self.client.get_children_async(self.path(*parts))))
        except NoNodeError:
            return []

    def remove(self, path: str) -> None:
        """Remove a node that may be gone."""
        with contextlib.suppress(NoNodeError):
            self.answer(self.client.delete_async(path))

    def on_event(self, _: object) -> None:
        """To be given as a watch."""
        self._happened()

    @contextlib.contextmanager
    def answering(self, *, writing: bool = False) -> Iterator[None]:
        """
        Kazoo's errors in, ours out.

        Nothing is asked while there is no connection: kazoo would keep the question, and ask it whenever there is one, however long nobody has waited for it any more.
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
