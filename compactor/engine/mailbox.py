"""
How a daemon and the driver of one compaction's Spark application talk: through a directory inside the compaction's staging directory.

    .compactor-<entry>-<attempt>/application/
      open/                     it is meant; gone: the compaction was given up
      at-<application id>/      the driver is there
      request-00001             function and tasks
      asked-00001/              … and it is written completely
      part-00001-37/            37 % of its tasks are done
      answer-00001              results
      answered-00001/           … completely
      end/                      nothing more comes

Whatever says something by being there is an empty directory, for that appears in one step and at once on every store; looking is one listing. It needs no port
that is open from one machine to another, and it is the same fence as everything else of an attempt: where the staging directory is gone, so is this.

Functions and results are pickled, so they are sealed with a secret that only the two know: whoever may write into a table's directories must not be able to
have code run by us.
"""

import hashlib
import hmac
import pickle
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from compactor.errors import CancelledError, CompactorError
from compactor.storage.base import Storage
from compactor.storage.location import join

DIRECTORY: Final = "application"
_OPEN, _END = "open", "end"
_LIMIT: Final = 1 << 30
_NUMBERED = re.compile(r"(asked|answered)-(\d+)")
_PART = re.compile(r"part-(\d+)-(\d+)")
_DIGEST_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Answer:
    """
    What became of a request.

    Args:
        results: one for each task, for `task_results.results_of`.
        broken: why the job broke instead; None when it didn't.
    """

    results: list[Any]
    broken: str | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """
    What is there.

    Args:
        asked, answered: the last request, and the last one answered; 0: none.
        part: share of the tasks done of the last request, 0 to 1.
    """

    asked: int
    answered: int
    part: float
    application: str | None
    end: bool


class Mailbox:
    """
    Either side of it.

    Args:
        home: its location.
        secret: at least 32 bytes.
    """

    def __init__(self, storage: Storage, home: str, secret: bytes) -> None:
        self._storage = storage
        self._home = home
        self._secret = secret

    def look(self) -> Seen | None:
        """What is there; None when the compaction was given up."""
        names = self._storage.directories(self._home)
        if _OPEN not in names:
            return None
        last = {"asked": 0, "answered": 0}
        for name in names:
            if found := _NUMBERED.fullmatch(name):
                last[found[1]] = max(last[found[1]], int(found[2]))
        parts = [(int(found[1]), int(found[2])) for name in names if (found := _PART.fullmatch(name))]
        share = max((percent for number, percent in parts if number == last["asked"]), default=0) / 100
        at = next((name.removeprefix("at-") for name in names if name.startswith("at-")), None)
        return Seen(last["asked"], last["answered"], share, at, _END in names)

    # The daemon's side

    def open(self) -> None:
        """Make it. Raises CancelledError when the staging directory is gone."""
        self._say("")
        self._say(_OPEN)

    def ask(self, number: int, function: Callable[[Any], Any], tasks: Sequence[Any]) -> None:
        """Leave a request. Raises CancelledError when the compaction was given up."""
        self._write(f"request-{number:05d}", (function, list(tasks)))
        self._say(f"asked-{number:05d}")

    def answer(self, number: int) -> Answer:
        """Read a complete answer. Raises CompactorError when it isn't from our application."""
        found = self._read(f"answer-{number:05d}")
        assert isinstance(found, Answer)
        return found

    def end(self) -> None:
        """Say that nothing more comes; already said or gone is fine."""
        try:
            self._say(_END)
        except CancelledError:
            return

    # The application's side

    def announce(self, application: str) -> None:
        """Say that the driver is there. Raises CancelledError when the compaction was given up."""
        self._say(f"at-{application}")

    def request(self, number: int) -> tuple[Callable[[Any], Any], list[Any]]:
        """Read a complete request. Raises CompactorError when it isn't from our daemon."""
        function, tasks = self._read(f"request-{number:05d}")
        return function, tasks

    def tell_part(self, number: int, percent: int) -> None:
        """Say how far the job is. Raises CancelledError when the compaction was given up."""
        self._say(f"part-{number:05d}-{percent}")

    def reply(self, number: int, answer: Answer) -> None:
        """Leave an answer. Raises CancelledError when the compaction was given up."""
        self._write(f"answer-{number:05d}", answer)
        self._say(f"answered-{number:05d}")

    def _say(self, name: str) -> None:
        try:
            self._storage.mkdir(join(self._home, name) if name else self._home)
        except FileExistsError:
            return
        except FileNotFoundError:
            raise self._given_up() from None

    def _write(self, name: str, value: object) -> None:
        data = pickle.dumps(value)
        try:
            self._storage.write_small(join(self._home, name), self._seal(name, data) + data)
        except FileNotFoundError:
            raise self._given_up() from None

    def _read(self, name: str) -> Any:
        try:
            data = self._storage.read_small(join(self._home, name), _LIMIT)
        except FileNotFoundError:
            raise self._given_up() from None
        seal, content = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        if not hmac.compare_digest(seal, self._seal(name, content)):
            raise CompactorError(f"{self._home}/{name} wasn't written by this compaction: it isn't opened")
        return pickle.loads(content)  # noqa: S301 - sealed by whoever started us, or by whom we started

    def _seal(self, name: str, data: bytes) -> bytes:
        return hmac.digest(self._secret, name.encode() + b"\0" + data, hashlib.sha256)

    def _given_up(self) -> CancelledError:
        return CancelledError(f"this compaction was given up: {self._home} is gone")
