"""What a daemon tells the driver of an application that it starts: a small file that nobody else may read."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from compactor import __version__
from compactor.engine.submit import JobName
from compactor.errors import CompactorError
from compactor.settings.stores import S3, Hdfs
from compactor.storage.options import StorageOptions


@dataclass(frozen=True, slots=True)
class Assignment:
    """
    Args:
        home: location of the mailbox.
        secret: of the mailbox, in hexadecimal digits.
        silence_seconds: nothing asked for so long while nothing is running: the daemon is gone.
    """

    version: str
    name: str
    key: str
    home: str
    secret: str
    silence_seconds: float
    storage: StorageOptions

    def write(self, path: Path) -> None:
        plain = {name: value for name, value in asdict(self).items() if name != "storage"}
        stores = {"hdfs": self.storage.hdfs.model_dump(mode="json"), "s3": self.storage.s3.model_dump(mode="json"), "root": self.storage.root}
        path.touch(0o600, exist_ok=False)
        path.write_text(json.dumps(plain | {"storage": stores}), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Assignment":
        """
        Raises:
            CompactorError: it was written by another version of this package.
        """
        plain = json.loads(path.read_text(encoding="utf-8"))
        if plain["version"] != __version__:
            what = f"the daemon is compactor {plain['version']}, but what was shipped to the cluster is {__version__}"
            raise CompactorError(f"{what}: build the archive again (`compactor archive build`)")
        stores = plain.pop("storage")
        return cls(**plain, storage=StorageOptions(Hdfs(**stores["hdfs"]), S3(**stores["s3"]), stores["root"]))

    @property
    def job(self) -> JobName:
        return JobName(self.name, self.key, root=self.storage.root)
