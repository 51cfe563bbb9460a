"""
What of the HDFS driver needs no server: what errors mean, where the configuration comes from, copying with read-ahead,
renames without an answer.
"""

import os
import pickle
import sys

import pytest

from compactor.errors import (
    CompactorError,
    CorruptFileError,
    OutcomeUnknownError,
    RefusedError,
    RetryableError,
    SettingsError,
    UnreachableError,
)
from compactor.handles import MemoryReader
from compactor.reasons import Reason
from compactor.settings import load_settings
from compactor.settings.stores import Hdfs
from compactor.storage.hdfs.client import FileDefaults, conf_dir, file_defaults
from compactor.storage.hdfs.driver import HdfsStorage
from compactor.storage.hdfs.failures import explanation
from compactor.storage.hdfs.files import HdfsWriter
from compactor.storage.location import split
from compactor.storage.registry import StorageOptions, storage_for

SITE = """<?xml version="1.0"?><configuration>
  <property><name>dfs.replication</name><value>{replication}</value></property>
  <property><name> dfs.blocksize </name><value>{block_size}</value></property>
</configuration>"""


def answered(java, text):
    """As the client words what a NameNode refused."""
    return RuntimeError(f'RPCError("{java}", "{text}\\n\\tat org.apache.hadoop.Somewhere(Some.java:1)\\n")')


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        (
            answered(
                "org.apache.hadoop.hdfs.server.namenode.SafeModeException",
                "Cannot create /x. Name node is in safe mode.",
            ),
            UnreachableError,
            None,
        ),
        (answered("org.apache.hadoop.ipc.RetriableException", "starting"), RetryableError, None),
        (
            answered("org.apache.hadoop.hdfs.protocol.NSQuotaExceededException", "The NameSpace quota is exceeded"),
            RefusedError,
            Reason.QUOTA_EXCEEDED,
        ),
        (
            answered("org.apache.hadoop.hdfs.protocol.DSQuotaExceededException", "The DiskSpace quota is exceeded"),
            RefusedError,
            Reason.QUOTA_EXCEEDED,
        ),
        (
            answered("org.apache.hadoop.security.AccessControlException", "Permission denied: user=a"),
            RefusedError,
            Reason.PERMISSION_DENIED,
        ),
        (answered("org.apache.hadoop.fs.InvalidPathException", "Invalid path name"), RefusedError, Reason.UNKNOWN_NAME),
        (answered("org.apache.hadoop.fs.ParentNotDirectoryException", "/x is a file"), FileNotFoundError, None),
        (answered("org.apache.hadoop.ipc.StandbyException", "not supported in state standby"), UnreachableError, None),
        (
            answered("org.apache.hadoop.security.token.SecretManager$InvalidToken", "token expired"),
            UnreachableError,
            None,
        ),
        (
            answered("java.io.IOException", "File /x could only be written to 0 of the 1 minReplication nodes."),
            UnreachableError,
            None,
        ),
        (
            answered(
                "java.io.IOException", f"File /{'x' * 400} could only be written to 0 of the 1 minReplication nodes."
            ),
            UnreachableError,
            None,
        ),
        (answered("java.io.IOException", "whatever"), CompactorError, None),
        (RuntimeError('DataTransferError("All nodes failed for write")'), UnreachableError, None),
        (
            RuntimeError(f'DataTransferError("All DataNodes failed: [{"DatanodeInfoProto" * 500}]")'),
            UnreachableError,
            None,
        ),
        (RuntimeError("ChecksumError"), RefusedError, Reason.CORRUPT_FILE),
        (RuntimeError('GSSAPIError("no credentials")'), UnreachableError, None),
        (OSError("Connection refused (os error 111)"), UnreachableError, None),
    ],
)
def test_what_an_error_of_hdfs_means(error, kind, reason):
    """The Java class decides; one line, without Java's stack, with the path."""
    found = explanation(error, "write", "hdfs://nn/x")
    assert type(found) is kind
    assert getattr(found, "reason", None) is reason
    if isinstance(found, CompactorError):
        assert "hdfs://nn/x" in str(found)
        assert "\n" not in str(found)
        assert "\\n" not in str(found)
        assert len(str(found)) < 500


@pytest.mark.parametrize(
    "codes",
    [
        'GssMajorCodes { raw: "0x00070000", calling_error: "none", routine_error: "GSS_S_NO_CRED", supplementary_info: "0x0000" }',
        "GssMajorCodes(458752)",
    ],
)
def test_what_the_library_of_kerberos_said_is_shown_without_its_numbers(codes):
    """All of its words are, which name the cache, and what to look at."""
    words = f"No credentials were supplied: No Kerberos credentials available (default cache: {'/long' * 20})"
    assert str(explanation(RuntimeError(f'GSSAPIError({codes}, 2529639053, "{words}")'), "list", "hdfs://nn/x")) == (
        f"can't list 'hdfs://nn/x': Kerberos: {words}; hdfs.principal must be in hdfs.keytab, or have a valid ticket in the cache"
    )


def test_a_keytab_that_cannot_be_read_is_named(tmp_path):
    """Without it Kerberos would only say that no ticket cache was found."""
    driver = HdfsStorage(
        split("hdfs://nn/x"), StorageOptions(hdfs=Hdfs(conf_dir=tmp_path, principal="a@B", keytab=tmp_path / "none"))
    )
    with pytest.raises(UnreachableError, match=r"hdfs.keytab leads to .*none, which isn't there"):
        driver.exists("hdfs://nn/x")


def test_a_principal_where_the_configuration_knows_no_kerberos(tmp_path):
    """
    It would go unused, and a NameNode that wants tickets isn't understood without: each of them has to be waited for.
    """
    (tmp_path / "k").touch()
    driver = HdfsStorage(
        split("hdfs://nn/x"), StorageOptions(hdfs=Hdfs(conf_dir=tmp_path, principal="a@B", keytab=tmp_path / "k"))
    )
    with pytest.raises(UnreachableError, match=r"hdfs.principal is set, but core-site.xml in .* doesn't name kerberos"):
        driver.exists("hdfs://nn/x")


def test_without_the_package_one_line_says_what_to_install(monkeypatch):
    """hdfs-native is an extra."""
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(RefusedError, match=r"pip install 'compactor\[hdfs\]'") as caught:
        storage_for("hdfs://nowhere:8020/x").exists("hdfs://nowhere:8020/x")
    assert caught.value.reason is Reason.UNSUPPORTED_STORE


def test_a_name_service_that_nobody_configured_is_refused(tmp_path):
    """The location and the directory of the configuration are named."""
    location = "hdfs://ns1/x"
    storage = HdfsStorage(split(location), StorageOptions(hdfs=Hdfs(conf_dir=tmp_path)))
    with pytest.raises(RefusedError, match=rf"ns1.*{tmp_path}.*No NameNode hosts"):
        storage.exists(location)


def test_where_the_configuration_is(tmp_path, monkeypatch):
    """The setting, else HADOOP_CONF_DIR, else HADOOP_HOME; a directory that isn't there is said, not passed over."""
    for name in ("HADOOP_CONF_DIR", "HADOOP_HOME"):
        monkeypatch.delenv(name, raising=False)
    home, conf = tmp_path / "home", tmp_path / "conf"
    (home / "etc/hadoop").mkdir(parents=True)
    conf.mkdir()
    assert conf_dir(Hdfs()) is None
    monkeypatch.setenv("HADOOP_HOME", str(home))
    assert conf_dir(Hdfs()) == home / "etc/hadoop"
    monkeypatch.setenv("HADOOP_CONF_DIR", str(conf))
    assert conf_dir(Hdfs()) == conf
    assert conf_dir(Hdfs(conf_dir=home)) == home
    with pytest.raises(UnreachableError, match=r"hdfs\.conf_dir leads to .*nowhere"):
        conf_dir(Hdfs(conf_dir=tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("replication", "block_size", "made"),
    [("3", "134217728", (3, 1 << 27)), ("2", "256m", (2, 1 << 28)), ("x", "${of.something}", (None, None))],
)
def test_how_new_files_are_made(tmp_path, replication, block_size, made):
    """
    As hdfs-site.xml says, in either spelling of sizes; the settings come first; what can't be read is left to the
    NameNode.
    """
    (tmp_path / "hdfs-site.xml").write_text(SITE.format(replication=replication, block_size=block_size))
    assert file_defaults(Hdfs(conf_dir=tmp_path)) == FileDefaults(*made)
    assert file_defaults(Hdfs(conf_dir=tmp_path, replication=5, block_size=1 << 20)) == FileDefaults(5, 1 << 20)


def test_a_configuration_that_is_no_xml(tmp_path):
    """One line with the file."""
    (tmp_path / "hdfs-site.xml").write_text("<configuration>")
    with pytest.raises(UnreachableError, match=r"hdfs-site\.xml can't be read"):
        file_defaults(Hdfs(conf_dir=tmp_path))


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"principal": "a@B"}, "belongs to a keytab or a ticket_cache"),
        ({"keytab": "/k"}, "belongs to a keytab or a ticket_cache"),
        ({"principal": "a@B", "keytab": "/k", "ticket_cache": "/c"}, "keep one"),
        ({"principal": "a@B", "keytab": "/k", "user": "a"}, "without Kerberos"),
        ({"replication": 0}, "greater than or equal to 1"),
    ],
)
def test_settings_that_make_no_sense(tmp_path, section, said):
    """Told with the key before anything is tried."""
    file = tmp_path / "compactor.yaml"
    lines = "".join(f"  {key}: {value}\n" for key, value in section.items())
    file.write_text(f"database:\n  url: sqlite:////x.db\nhdfs:\n{lines}")
    with pytest.raises(SettingsError, match=f"hdfs.*{said}"):
        load_settings(file, {})


def test_the_driver_travels_with_its_options():
    """A copy on an executor makes a connection of its own, as the settings say."""
    storage = HdfsStorage(split("hdfs://nn:8020/x"), StorageOptions(hdfs=Hdfs(user="etl")))
    copy = pickle.loads(pickle.dumps(storage))
    assert isinstance(copy, HdfsStorage)
    assert copy._options == storage._options


class File:
    """What the client gives to write to."""

    def __init__(self):
        self.data = bytearray()

    def write(self, data):
        self.data += data

    def close(self):
        self.closed = True


class Streaming(MemoryReader):
    """Reads front to back in pieces, and may break off."""

    def __init__(self, data, *, fails_after=None):
        super().__init__(data, "source")
        self.fails_after = fails_after

    def stream(self, offset, length):
        for number, start in enumerate(range(offset, min(offset + length, self.size), 1000)):
            if number == self.fails_after:
                raise UnreachableError("no DataNode answers")
            yield self.read_at(start, min(1000, offset + length - start))


def writer():
    made = HdfsWriter(None, File(), "/f", "hdfs://nn/f")
    return made, made._file


@pytest.mark.parametrize("kind", [MemoryReader, Streaming])
@pytest.mark.parametrize("length", [0, 1, 1000, 60_001])
def test_copies_are_whole_and_in_order(kind, length):
    """Read by another thread, written in order; any reader will do."""
    data = os.urandom(60_001)
    made, file = writer()
    made.write(b"head")
    made.copy_from(kind(data), 0, length)
    made.close()
    assert bytes(file.data) == b"head" + data[:length]
    assert made.position == 4 + length


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("size", [10, 3 << 20])
def test_the_client_is_never_given_a_memoryview(kind, size):
    """It would take it byte by byte, which made every copy ten times as slow."""
    made, file = writer()
    given = []
    file.write = given.append
    made.write(kind(bytes(size)))
    made.close()
    assert {type(data) for data in given} <= {bytes, bytearray}
    assert sum(map(len, given)) == size


def test_a_source_that_ends_early_or_breaks_off():
    """Truncated is corrupt; what the reading thread met is raised where the copy is."""
    made, _ = writer()
    with pytest.raises(CorruptFileError, match="truncated"):
        made.copy_from(Streaming(bytes(5000)), 0, 6000)
    with pytest.raises(UnreachableError, match="no DataNode answers"):
        made.copy_from(Streaming(bytes(50_000), fails_after=30), 0, 50_000)


def test_a_write_that_fails_stops_the_reading_thread():
    """Nothing goes on behind the error."""
    made, file = writer()

    def fail(_):
        raise RuntimeError('DataTransferError("All nodes failed for write")')

    file.write = fail
    with pytest.raises(UnreachableError, match="All nodes failed"):
        made.copy_from(Streaming(bytes(40 << 20)), 0, 40 << 20)


class Names:
    """A NameNode as far as renames go: whether the request comes through, and whether the answer does."""

    def __init__(self, *names, does, error):
        self.names, self.does, self.error = set(names), does, error

    def get_file_info(self, path):
        if path not in self.names:
            raise FileNotFoundError(path)

    def rename(self, old, new, *, overwrite):
        assert not overwrite
        if self.does:
            self.names = (self.names - {old}) | {new}
        raise self.error


def renaming(client):
    storage = HdfsStorage(split("hdfs://nn:8020/"), StorageOptions())
    storage._made = (client, FileDefaults(None, None))
    storage.rename_noreplace("hdfs://nn:8020/a", "hdfs://nn:8020/b")


SAFE = answered("org.apache.hadoop.hdfs.server.namenode.SafeModeException", "Name node is in safe mode")


@pytest.mark.parametrize(
    ("names", "does", "error", "kind"),
    [
        (["/a"], False, OSError("Connection reset"), OutcomeUnknownError),
        (["/a"], True, OSError("Connection reset"), OutcomeUnknownError),
        (["/a"], True, FileNotFoundError("repeated"), OutcomeUnknownError),
        (["/a"], True, SAFE, OutcomeUnknownError),
        (["/a"], False, SAFE, UnreachableError),
        ([], False, FileNotFoundError("gone"), FileNotFoundError),
        (["/b"], False, FileNotFoundError("gone"), FileNotFoundError),
        (["/a", "/b"], False, FileExistsError("taken"), FileExistsError),
        (["/a", "/b"], False, answered("java.io.IOException", "must both be directories"), FileExistsError),
    ],
)
def test_a_rename_that_failed_is_looked_up(names, does, error, kind):
    """
    The client repeats requests by itself, so an answer may be that of a second try: only where the source still stands
    did nothing happen.
    """
    with pytest.raises(kind):
        renaming(Names(*names, does=does, error=error))
