"""
The mailbox through which a daemon and the driver of one compaction's Spark application talk: a directory inside the
compaction's staging directory.

    .compactor-<entry>-<attempt>/application/
      open/                     the compaction goes on; when this is gone, it was given up
      at-<application id>/      the driver is there
      request-00001             step, function and tasks
      asked-00001/              the request is written completely
      part-00001-37/            37 % of the request's tasks are done
      answer-00001              results
      answered-00001/           the answer is written completely
      end/                      no more requests come

Each signal is an empty directory, because a directory appears in one step and at once on every store. Looking is one
listing. The mailbox needs no open port between two machines. It has the same fence as everything else of an attempt:
when the staging directory is gone, so is the mailbox.

Functions and results are pickled, so they are sealed with a secret that only daemon and driver know: a user who may
write into a table's directories must not get code run as the daemon.

`Assignment` is what a daemon tells the driver of an application that it starts: a small file that no other user may
read.
"""

import hashlib
import hmac
import json
import pickle
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from compactor.errors import CancelledError, CompactorError
from compactor.settings.stores import S3, Hdfs
from compactor.spark.code_identity import require_code
from compactor.spark.results import JobEnd
from compactor.spark.submitter import JobName
from compactor.storage.base import Storage
from compactor.storage.location import join
from compactor.storage.registry import StorageOptions

DIRECTORY: Final = "application"
_OPEN, _END = "open", "end"
_LIMIT: Final = 1 << 30
_NUMBERED = re.compile(r"(asked|answered)-(\d+)")
_PART = re.compile(r"part-(\d+)-(\d+)")
_DIGEST_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Assignment:
    """
    What a daemon tells the driver that it starts.

    Args:
        code: the daemon's; see `code_identity`.
        home: location of the mailbox.
        secret: of the mailbox, in hexadecimal digits.
        silence_seconds: the daemon counts as gone when it asks for nothing for so long while nothing is running.
    """

    code: str
    name: str
    key: str
    home: str
    secret: str
    silence_seconds: float
    storage: StorageOptions

    def write(self, path: Path) -> None:
        plain = {name: value for name, value in asdict(self).items() if name != "storage"}
        stores = {
            "hdfs": self.storage.hdfs.model_dump(mode="json"),
            "s3": self.storage.s3.model_dump(mode="json"),
            "root": self.storage.root,
        }
        path.touch(0o600, exist_ok=False)
        path.write_text(json.dumps(plain | {"storage": stores}), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Assignment":
        """
        Read an assignment.

        Raises:
            CompactorError: a daemon of other code wrote it.
        """
        plain = json.loads(path.read_text(encoding="utf-8"))
        require_code(str(plain.get("code", "an earlier release")))
        stores = plain.pop("storage")
        return cls(**plain, storage=StorageOptions(Hdfs(**stores["hdfs"]), S3(**stores["s3"]), stores["root"]))

    @property
    def job(self) -> JobName:
        return JobName(self.name, self.key, root=self.storage.root)


@dataclass(frozen=True, slots=True)
class Seen:
    """
    What one look at a mailbox shows.

    Args:
        asked, answered: numbers of the last request, and of the last one answered; 0: none.
        part: share of the last request's tasks that are done, 0 to 1.
    """

    asked: int
    answered: int
    part: float
    application: str | None
    end: bool


class Mailbox:
    """
    A mailbox; daemon and driver each use their side of it.

    Args:
        home: its location.
        secret: at least 32 bytes.
    """

    def __init__(self, storage: Storage, home: str, secret: bytes) -> None:
        self._storage = storage
        self._home = home
        self._secret = secret

    def look(self) -> Seen | None:
        """What is in the mailbox; None when the compaction was given up."""
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
        """Make the mailbox. Raises CancelledError when the staging directory is gone."""
        self._say("")
        self._say(_OPEN)

    def ask(self, number: int, step: str, function: Callable[[Any], Any], tasks: Sequence[Any]) -> None:
        """Leave a request for a step's job. Raises CancelledError when the compaction was given up."""
        self._write(f"request-{number:05d}", (step, function, list(tasks)))
        self._say(f"asked-{number:05d}")

    def answer(self, number: int) -> JobEnd:
        """Read a complete answer. Raises CompactorError when this compaction's driver didn't write it."""
        found: JobEnd = self._read(f"answer-{number:05d}")
        return found

    def end(self) -> None:
        """Say that no more requests come. It is no error when that was said already, or when the mailbox is gone."""
        try:
            self._say(_END)
        except CancelledError:
            return

    # The application's side

    def announce(self, application: str) -> None:
        """Say that the driver is there. Raises CancelledError when the compaction was given up."""
        self._say(f"at-{application}")

    def request(self, number: int) -> tuple[str, Callable[[Any], Any], list[Any]]:
        """
        Read a complete request: step, function, tasks. Raises CompactorError when this compaction's daemon didn't write
        it.
        """
        step, function, tasks = self._read(f"request-{number:05d}")
        return step, function, tasks

    def tell_part(self, number: int, percent: int) -> None:
        """Say which percentage of the tasks is done. Raises CancelledError when the compaction was given up."""
        self._say(f"part-{number:05d}-{percent}")

    def reply(self, number: int, answer: JobEnd) -> None:
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
        return pickle.loads(content)  # noqa: S301 - sealed by this compaction's daemon or driver

    def _seal(self, name: str, data: bytes) -> bytes:
        return hmac.digest(self._secret, name.encode() + b"\0" + data, hashlib.sha256)

    def _given_up(self) -> CancelledError:
        return CancelledError(f"this compaction was given up: {self._home} is gone")
