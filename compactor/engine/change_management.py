"""
Hands files of a replication source to Hive's change management, as Hive's Cleaner does before it deletes them.

A replica that copies files by an older dump looks for deleted files in the change-management root
(`hive.repl.cmrootdir`), under their name and HDFS' checksum. The compactor's own HDFS client supports neither checksums
of files nor extended attributes nor encryption zones, so a JVM with Spark's Hadoop client does this part; it starts at
the first use, and ends with the process. The metastore empties the root (`hive.repl.cm.retain`).
Source: docs/operations.md; Hive's ReplChangeManager (recycle, getCMPath, checksumFor), 3.1.3 and 4.0.1.
"""

import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError, Py4JJavaError

from compactor.errors import RefusedError, UnreachableError
from compactor.log import get_logger
from compactor.reasons import Reason
from compactor.settings.stores import Hdfs
from compactor.spark.java import require_java
from compactor.spark.site import spark_home
from compactor.storage.change_management import why_not_recycled
from compactor.storage.hdfs.client import conf_dir
from compactor.storage.location import join
from compactor.storage.registry import configured

_log = get_logger(__name__)
_LONGEST_NAME: Final = ("dfs.namenode.fs-limits.max-component-length", 255)
_ORIGIN: Final = "user.original-loc"
_FORBIDDEN: Final = "AccessControlException"


class ChangeManagement:
    """
    Moves files into one change-management root.

    Args:
        options: the root, and how HDFS is reached.
    """

    def __init__(self, options: Hdfs) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._made: tuple[JavaGateway, Any, Any] | None = None

    def require(self, location: str) -> None:
        """
        Raise unless files at this location could be moved into the root.

        Checked before a compaction: after it the Cleaner could only refuse to delete the replaced files.

        Raises:
            RefusedError: REPLICATION_SOURCE (no root, another file system, another encryption zone), PERMISSION_DENIED.
            UnreachableError: HDFS can't be asked.
        """
        if (why := why_not_recycled(location)) is not None:
            raise RefusedError(
                Reason.REPLICATION_SOURCE, f"replaced files can't be handed to Hive's change management: {why}"
            )
        root = str(self._options.change_management_root)
        with self._asked() as (jvm, files):
            if not files.exists(jvm.org.apache.hadoop.fs.Path(root)):
                why = f"{root} isn't there: does the metastore run with hive.repl.cm.enabled and this hive.repl.cmrootdir?"
                raise RefusedError(Reason.REPLICATION_SOURCE, why)
            zones = [self._zone(jvm, files, place) for place in (location, root)]
            if zones[0] != zones[1]:
                of = [f"encryption zone {zone}" if zone else "no encryption zone" for zone in zones]
                why = f"{location} is in {of[0]}, the change-management root {root} in {of[1]}: HDFS moves no file from the one to the other"
                raise RefusedError(Reason.REPLICATION_SOURCE, why)

    def recycle(self, directory: str, origin: str) -> int:
        """
        Move all files below a directory into the root, under the names that Hive's replication looks for.

        Hidden files stay, and so do files whose content is in the root already. The call may be interrupted at any
        point and repeated.

        Args:
            directory: the directory that will be deleted afterwards.
            origin: the directory's earlier location; each moved file is marked with its path there.

        Returns the number of files moved.

        Raises:
            As `require`; every file is then still in the directory or in the root.
        """
        self.require(origin)
        with self._asked() as (jvm, files):
            return sum(
                self._one(jvm, files, path, join(origin, below))
                for path, below in _below(files, jvm.org.apache.hadoop.fs.Path(directory), "")
            )

    def _one(self, jvm: Any, files: Any, path: Any, origin: str) -> int:
        checksum = _checksum(files, path)
        if checksum is None:
            raise RefusedError(
                Reason.REPLICATION_SOURCE,
                f"{origin}: its file system has no checksums of files, by which Hive's change management names them",
            )
        target = jvm.org.apache.hadoop.fs.Path(
            self._options.change_management_root, _name(files, path.getName(), checksum)
        )
        now = jvm.java.lang.System.currentTimeMillis()
        files.setTimes(path, now, -1)  # before the move: the metastore removes old files from the root
        if files.exists(target):
            if _checksum(files, target) != checksum:
                raise RefusedError(Reason.REPLICATION_SOURCE, f"{origin}: {target} holds another file already")
            files.setTimes(target, now, -1)
            return 0
        if not files.rename(path, target):
            raise UnreachableError(f"{origin} can't be moved to {target}")
        self._give_to_hive(jvm, files, target)
        try:
            files.setXAttr(target, _ORIGIN, bytearray(origin.encode()))
        except Py4JJavaError:
            _log.warning("origin.not_stored", file=origin, detail="nothing looks for a recycled file by its origin")
        return 1

    def _give_to_hive(self, jvm: Any, files: Any, target: Any) -> None:
        """
        Make the root's owner the owner of a recycled file, as the metastore of 3.1 does.

        Only a superuser may do that, so a refusal is ignored: for later releases the directory's group is enough.
        """
        root = files.getFileStatus(jvm.org.apache.hadoop.fs.Path(str(self._options.change_management_root)))
        if files.getFileStatus(target).getOwner() != root.getOwner():
            try:
                files.setOwner(target, root.getOwner(), root.getGroup())
            except Py4JJavaError as error:
                if _FORBIDDEN not in error.java_exception.getClass().getName():
                    raise

    def _zone(self, jvm: Any, files: Any, location: str) -> str | None:
        found = jvm.org.apache.hadoop.hdfs.client.HdfsAdmin(files.getUri(), files.getConf()).getEncryptionZoneForPath(
            jvm.org.apache.hadoop.fs.Path(location)
        )
        return None if found is None else str(found.getPath())

    @contextmanager
    def _asked(self) -> Iterator[tuple[Any, Any]]:
        """The JVM and the HDFS client in it; errors of either become the compactor's, with a message of one line."""
        try:
            with self._lock:
                if self._made is None:
                    self._made = self._started()
                gateway, _, files = self._made
            yield gateway.jvm, files
        except Py4JJavaError as error:
            name = str(error.java_exception.getClass().getSimpleName())
            said = f"{name}: {str(error.java_exception.getMessage()).splitlines()[0]}"
            if name == _FORBIDDEN:
                raise RefusedError(Reason.PERMISSION_DENIED, f"Hive's change management: {said}") from error
            raise UnreachableError(f"Hive's change management: {said}") from error
        except (Py4JError, OSError) as error:
            self.close()
            raise UnreachableError(
                f"Hive's change management: the JVM with Hadoop's client doesn't answer: {error}"
            ) from error

    def _started(self) -> tuple[JavaGateway, Any, Any]:
        options, jars = self._options, Path(spark_home()) / "jars"
        directory = conf_dir(options)
        classpath = [*([str(directory)] if directory is not None else []), f"{jars}/*"]
        java, (library,) = require_java(), jars.glob("py4j-*.jar")
        port, token, process = launch_gateway(
            jarpath=str(library),
            classpath=":".join(classpath),
            javaopts=["-Xmx256m"],
            die_on_exit=True,
            java_path=java,
            enable_auth=True,
            return_proc=True,
        )
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
        jvm = gateway.jvm
        conf = jvm.org.apache.hadoop.conf.Configuration()
        conf.set("ipc.client.rpc-timeout.ms", str(round(options.rpc_timeout_seconds * 1000)))
        where = jvm.org.apache.hadoop.fs.Path(str(options.change_management_root)).toUri()
        user = jvm.org.apache.hadoop.security.UserGroupInformation
        user.setConfiguration(conf)
        if options.keytab is not None:
            user.loginUserFromKeytab(options.principal, str(options.keytab))
        if options.ticket_cache is not None:
            conf.set("hadoop.security.kerberos.ticket.cache.path", options.ticket_cache)
            files = jvm.org.apache.hadoop.fs.FileSystem.newInstance(where, conf, options.principal)
        else:
            files = jvm.org.apache.hadoop.fs.FileSystem.newInstance(where, conf)
        _log.info("change_management.started", root=options.change_management_root)
        return gateway, process, files

    def close(self) -> None:
        """End the JVM."""
        with self._lock:
            made, self._made = self._made, None
        if made is not None:
            gateway, process, _ = made
            process.stdin.close()  # the JVM ends when its standard input is closed
            process.wait()
            with contextlib.suppress(Exception):
                gateway.shutdown()  # so that Python objects freed later don't call the JVM


def _below(files: Any, directory: Any, prefix: str) -> Iterator[tuple[Any, str]]:
    """Every file that isn't hidden, and its path below the directory."""
    for status in files.listStatus(directory):
        name = str(status.getPath().getName())
        if name.startswith("."):
            continue
        if status.isDirectory():
            yield from _below(files, status.getPath(), f"{prefix}{name}/")
        else:
            yield status.getPath(), f"{prefix}{name}"


def _checksum(files: Any, path: Any) -> str | None:
    """The checksum as text for the file's name in the root; None where the file system has none."""
    found = files.getFileChecksum(path)
    return None if found is None else bytes(found.getBytes())[: found.getLength()].hex()


def _name(files: Any, name: str, checksum: str) -> str:
    """A file's name in the root; too long a name is cut as Hive does, which is one character more than needed."""
    longest = files.getConf().getInt(*_LONGEST_NAME)
    whole = f"{name}_{checksum}"
    return whole if len(whole) <= longest else whole[: longest - 1]


class _Process:
    """Holds the process's one `ChangeManagement`, for the configured root."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: tuple[Hdfs, ChangeManagement] | None = None

    def get(self) -> ChangeManagement:
        options = configured().hdfs
        with self._lock:
            if self._made is None or self._made[0] != options:
                if self._made is not None:
                    self._made[1].close()
                self._made = options, ChangeManagement(options)
            return self._made[1]


change_management: Final = _Process().get
"""The `ChangeManagement` of the configured root, shared by all threads."""
