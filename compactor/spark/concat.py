"""
Lets HDFS make one file of several, by Hadoop's client in the JVM of Spark's driver: hdfs-native has no such call.

HDFS' concat moves the blocks of the sources behind those of the target, in one step, and the sources are gone. It asks
for files of one directory that are closed and not empty, with a block size no larger than the target's, and refuses
encryption zones, files with different erasure coding policies, and sources that a snapshot holds. Files with an erasure
coding policy are left alone here, too: how readers of each release take them was never tried.

WebHDFS has the call as well, and isn't used: it would need an address, TLS and a login (SPNEGO) of its own.
Source: Hadoop's FSDirConcatOp, the same in 3.1 to 3.4.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from py4j.protocol import Py4JError, Py4JJavaError

from compactor.storage.location import name, parent, split
from compactor.storage.registry import StorageOptions

_SCHEMES: Final = ("hdfs", "viewfs")


@runtime_checkable
class DriverFunction(Protocol):
    """A function of a job that runs in Spark's driver instead of on executors, task by task."""

    def on_driver(self, context: Any, storage: StorageOptions, task: Any) -> Any:
        """
        Do one task.

        Args:
            context: the SparkContext.
            storage: how stores are reached.
        """


@dataclass(frozen=True, slots=True)
class Concat:
    """
    Files to make one of.

    Args:
        target: location of the first file, which becomes the whole.
        sources: locations of the others, in their order, in the same directory.
        length: bytes of all.
    """

    target: str
    sources: tuple[str, ...]
    length: int


class HdfsConcat:
    """
    Makes one file of several: returns its block size in bytes; or why it wasn't done, in one line, and then all files
    are as they were.
    """

    def __call__(self, task: Concat) -> int | str:
        return f"{task.target} can't be put together outside of Spark's driver"

    def on_driver(self, context: Any, storage: StorageOptions, task: Concat) -> int | str:
        """See the class. A repetition of what was done before changes nothing."""
        try:
            return _concat(context, storage, task)
        except Py4JJavaError as error:
            return str(error.java_exception.toString()).splitlines()[0]
        except Py4JError as error:
            return str(error).splitlines()[0]


def concatenates(location: str) -> bool:
    """Whether the location's store may be able to make one file of several."""
    return split(location).scheme in _SCHEMES


def _concat(context: Any, storage: StorageOptions, task: Concat) -> int | str:
    jvm = context._jvm  # noqa: SLF001 - PySpark has no public way to Hadoop's classes
    path = jvm.org.apache.hadoop.fs.Path
    conf = jvm.org.apache.hadoop.conf.Configuration(context._jsc.hadoopConfiguration())  # noqa: SLF001 - as above
    if (directory := storage.hdfs.conf_dir) is not None and directory.is_dir():
        for site in ("core-site.xml", "hdfs-site.xml"):
            if (file := Path(directory, site)).is_file():
                conf.addResource(path(str(file.absolute())))  # no URI: Hadoop takes its escapes for the name
    given = path(parent(task.target))
    above = given.getFileSystem(conf).resolvePath(given)  # through a mount table
    files = above.getFileSystem(conf)
    target = path(above, name(task.target))
    before = files.getFileStatus(target)
    if before.isErasureCoded():
        return f"{task.target} is erasure coded"
    if before.getLen() != task.length:
        sources = "\n".join(f"{above.toString()}/{name(source)}" for source in task.sources)
        listed = jvm.java.util.regex.Pattern.compile("\n").split(sources)  # one call, however many there are
        try:
            files.concat(target, jvm.org.apache.hadoop.util.StringUtils.stringToPath(listed))
        except Py4JJavaError:
            if files.getFileStatus(target).getLen() != task.length:  # the answer may have been lost
                raise
    return int(before.getBlockSize())
