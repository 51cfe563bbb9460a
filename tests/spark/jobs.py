"""Functions that tests run on executors; importable there by name."""

import contextlib
import os
import socket
import time
from pathlib import Path

from pyspark import TaskContext

from compactor.engine.tasks.buckets import run_task
from compactor.errors import RefusedError
from compactor.reasons import Reason


def double(number):
    return number * 2


def refuse(number):
    raise RefusedError(Reason.CORRUPT_FILE, f"file {number} is broken")


def refuse_or_linger(path):
    """Refuse without a file; else make it, after a while."""
    if path is None:
        refuse(7)
    time.sleep(30)
    Path(path).touch()


def crash_once(marker):
    """Fail at the first attempt as a bug would."""
    path = Path(marker)
    if not path.exists():
        path.touch()
        raise ValueError("not this time")
    return TaskContext.get().attemptNumber()


def spoken_over(_):
    """The kinds of the connected sockets of this process, and the directory of the other end, if any."""
    found = set()
    for handle in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(handle.name))) as one:
            found.add((one.family.name, str(Path(one.getsockname()).parent) if one.family == socket.AF_UNIX else ""))
    return sorted(found)


def crash(_):
    raise ValueError("never works")


def pool_and_group(_):
    """What Spark says about the job that this task belongs to."""
    context = TaskContext.get()
    return (
        context.getLocalProperty("spark.scheduler.pool"),
        context.getLocalProperty("spark.jobGroup.id"),
        context.getLocalProperty("spark.job.description"),
    )


def seen_together(path):
    """As `pool_and_group`, with the stage's name, once as many tasks as the path's folder is to hold are at work."""
    Path(path).touch()
    deadline = time.monotonic() + 60
    while len(list(Path(path).parent.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    return *pool_and_group(path), TaskContext.get().getLocalProperty("callSite.short")


def wait_for(paths):
    """Make the first file, and go on when the second is there."""
    started, release = map(Path, paths)
    started.touch()
    deadline = time.monotonic() + 60
    while not release.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return os.getpid()


def die_first(shared, task):
    """Work, then lose the worker process at the first attempt: the file it wrote stays behind."""
    result = run_task(shared, task)
    if TaskContext.get().attemptNumber() == 0:
        os._exit(1)
    return result


def die_first_whole(task):
    from compactor.engine.insert_only.tasks import run_whole

    result = run_whole(task)
    if TaskContext.get().attemptNumber() == 0:
        os._exit(1)
    return result


def die_first_piece(task):
    from compactor.engine.tasks.layout import write_piece

    result = write_piece(task)
    if TaskContext.get().attemptNumber() == 0:
        os._exit(1)
    return result


class OnHdfs:
    """Something that is done in the driver with Hadoop's client, on one location: `do` gets both, and Hadoop's path."""

    def __init__(self, do):
        self.do = do

    def on_driver(self, context, storage, location):
        jvm = context._jvm
        path = jvm.org.apache.hadoop.fs.Path
        conf = jvm.org.apache.hadoop.conf.Configuration(context._jsc.hadoopConfiguration())
        for site in ("core-site.xml", "hdfs-site.xml"):
            conf.addResource(path(Path(storage.hdfs.conf_dir, site).as_uri()))
        given = path(location)
        return self.do(given.getFileSystem(conf), given)


def blocks_of(files, path):
    """The lengths of a file's blocks, and the checksum by which DistCp compares files."""
    status = files.getFileStatus(path)
    blocks = files.getFileBlockLocations(status, 0, status.getLen())
    return [block.getLength() for block in blocks], files.getFileChecksum(path).toString()


def take_snapshot(files, path):
    files.allowSnapshot(path)
    files.createSnapshot(path, "meanwhile")


def drop_snapshot(files, path):
    files.deleteSnapshot(path, "meanwhile")
    files.disallowSnapshot(path)


def bytes_beside(shared, _):
    """How many bytes its job's tasks share."""
    return len(shared)
