"""
Runs `compactor restore --yes` in a process of its own, and has the plug pulled before a change of the store.

Which changes there are isn't written down here: the process counts them, and a caller goes on until it ends by itself.
"""

import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

from compactor.cli import main
from compactor.roles.services import Services
from compactor.storage.base import Storage
from compactor.storage.forwarding import Answer, ForwardingStorage
from tests import forked


class Plug(ForwardingStorage):
    """Kills the process in place of the change after so many."""

    def __init__(self, driver: Storage, left: list[int]) -> None:
        super().__init__(driver)
        self._left = left

    def _call(self, call: Callable[[], Answer], *changed: str, of_content: bool = False) -> Answer:
        if changed:
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)
            self._left.pop()
        return call()


def restore(config: Path, target: str, *, changes: int | None = None) -> tuple[int | None, str]:
    """
    The exit code of a restore, -9 where it was killed, and what it said.

    Args:
        changes: after so many it is killed; None: never.
    """
    with tempfile.TemporaryDirectory() as place:
        said = Path(place, "said")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("COMPACTOR_")}
        process = forked.start(
            _restore, str(config), target, changes, environment=environment, folder=config.parent, out=said, err=said
        )
        process.join(forked.PATIENCE)
        process.kill()
        process.join()
        return process.exitcode, said.read_text(encoding="utf-8")


def _restore(config: str, target: str, changes: int | None) -> None:
    import sys

    if changes is not None:
        left, storage = [0] * changes, Services.storage
        Services.storage = lambda services, location: Plug(storage(services, location), left)
    sys.argv = ["compactor", "--config", config, "restore", target, "--yes"]
    main()
