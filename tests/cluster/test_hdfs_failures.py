"""
HDFS in trouble: safe mode, full quotas, DataNodes and NameNodes that die. A compaction goes on, or fails with one line
and nothing half-published.
"""

import shutil
import threading
import time
import xml.etree.ElementTree as ET

import pytest

from compactor.engine.compaction import Compaction
from compactor.errors import CompactorError, OutcomeUnknownError, RefusedError, RetryableError, UnreachableError
from compactor.reasons import Reason
from compactor.settings.stores import Hdfs
from compactor.storage.hdfs.client import require_package
from compactor.storage.hdfs.connections import connections
from compactor.storage.location import join, parent, split
from compactor.storage.registry import StorageOptions, configure, storage_for
from tests.cluster.mirror import fetch, put
from tests.cluster.network import Relay
from tests.cluster.test_hdfs_compaction import Remote, build
from tests.reference.compare import read_table

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


@pytest.fixture
def ready(warehouse, hdfs_directory):
    """A compaction that has only to be published, and its table."""
    table = build(warehouse, files=2, count=100)
    put(table.location, hdfs_directory)
    attempt = Remote(warehouse, table, hdfs_directory)
    attempt.stage()
    attempt.verify()
    return attempt, warehouse, table


def visible(location):
    """Directories that a reader sees."""
    return [name for name in storage_for(location).directories(location) if not name.startswith(".")]


def publish(attempt):
    return attempt.publish(lambda: None)


def one_line(error):
    """What is shown says what is wrong without Java's stack."""
    assert "\n" not in str(error)
    assert "\tat " not in str(error)
    assert "\\n" not in str(error)
    return str(error)


def rows_are_the_same(attempt, warehouse, table):
    """Once committed, a reader of what lies there sees the rows from before."""
    before = read_table(warehouse, table)
    attempt.commit()
    fetch(attempt.remote, table.location)
    assert read_table(warehouse, table) == before


def changed(conf, folder, properties):
    """A copy of a client's configuration with other values in hdfs-site.xml."""
    copy = folder / "conf"
    shutil.copytree(conf, copy)
    site = ET.parse(copy / "hdfs-site.xml")
    for item in [item for item in site.getroot() if item.findtext("name") in properties]:
        site.getroot().remove(item)
    for name, value in properties.items():
        item = ET.SubElement(site.getroot(), "property")
        ET.SubElement(item, "name").text = name
        ET.SubElement(item, "value").text = value
    site.write(copy / "hdfs-site.xml")
    return copy


def test_safe_mode_stops_a_publication_that_may_be_repeated(ready, hdfs):
    """Nothing was published and nothing is lost; when safe mode ends the same step succeeds."""
    attempt, warehouse, table = ready
    before = visible(attempt.remote)
    hdfs.command("safemode", "enter")
    try:
        with pytest.raises(UnreachableError, match="safe mode") as caught:
            publish(attempt)
        with pytest.raises(UnreachableError, match="safe mode"):
            storage_for(attempt.remote).write_small(join(attempt.remote, "f"), b"x")
        with pytest.raises(UnreachableError, match="safe mode"):
            attempt.compaction.discard()
        assert visible(attempt.remote) == before
    finally:
        hdfs.command("safemode", "leave")
    one_line(caught.value)
    publish(attempt)
    rows_are_the_same(attempt, warehouse, table)


@pytest.mark.parametrize(("quota", "said"), [((8, "-"), "name quota"), (("-", 1 << 20), "space quota")])
def test_a_quota_is_told_before_anything_is_written(warehouse, hdfs_directory, hdfs, quota, said):
    """The nearest directory with a quota counts; no staging directory is made."""
    table = build(warehouse, files=2, count=100)
    put(table.location, hdfs_directory)
    attempt = Remote(warehouse, table, hdfs_directory)
    before = storage_for(hdfs_directory).directories(hdfs_directory)
    hdfs.command("quota", "set", hdfs_directory.removeprefix(hdfs.root), *quota)
    with pytest.raises(RefusedError, match=said) as caught:
        attempt.stage()
    assert caught.value.reason is Reason.QUOTA_EXCEEDED
    assert storage_for(hdfs_directory).directories(hdfs_directory) == before


@pytest.fixture
def as_mallory(hdfs, monkeypatch):
    """What it is called with is done by an ordinary user."""
    monkeypatch.setenv("HADOOP_USER_NAME", "root")  # put back afterwards, for the driver sets it

    def ask(question):
        configure(StorageOptions(hdfs=Hdfs(conf_dir=hdfs.conf, user="mallory")))
        try:
            return question()
        finally:
            monkeypatch.setenv("HADOOP_USER_NAME", "root")
            configure(StorageOptions(hdfs=Hdfs(conf_dir=hdfs.conf)))

    return ask


def test_a_private_directory_beside_the_table_refuses_no_compaction(hdfs_directory, hdfs, as_mallory):
    """
    The NameNode counts what is below a directory only for who may look into all of it; a table's and a database's quota
    are noticed all the same.
    """
    storage, path = storage_for(hdfs_directory), split(hdfs_directory).path
    for name in ("db", "db/t", "db/t/p=1", "private"):
        storage.mkdir(join(hdfs_directory, name))
    client = require_package().Client(hdfs.root, config_dir=str(hdfs.conf))
    client.set_permission(f"{path}/private", 0o700)

    def room():
        return as_mallory(lambda: storage_for(hdfs_directory).room(join(hdfs_directory, "db/t/p=1")))

    assert (room().bytes, room().names) == (None, None)
    hdfs.command("quota", "set", f"{path}/db", 8, 1 << 30)
    assert (room().names, room().limited_by) == (5, f"the space quota of {path}/db or the name quota of {path}/db")
    storage.mkdir(join(hdfs_directory, "db/private"))
    client.set_permission(f"{path}/db/private", 0o700)
    hdfs.command("quota", "set", f"{path}/db/t", 4, "-")
    assert (room().names, room().bytes) == (2, None)


@pytest.mark.parametrize("quota", [(11, "-"), ("-", 1 << 20)], ids=["names", "space"])
def test_a_quota_that_fills_up_meanwhile(warehouse, hdfs_directory, hdfs, quota):
    """A refusal with its reason from the task that met it; discarding leaves the directory as it was."""
    table = build(warehouse, files=2, count=100)
    put(table.location, hdfs_directory)
    attempt = Remote(warehouse, table, hdfs_directory)
    before = storage_for(hdfs_directory).directories(hdfs_directory)
    attempt.compaction._step = lambda step: hdfs.command("quota", "set", hdfs_directory.removeprefix(hdfs.root), *quota)
    with pytest.raises(RefusedError) as caught:
        attempt.stage()
    assert caught.value.reason is Reason.QUOTA_EXCEEDED
    one_line(caught.value)
    attempt.compaction.discard()
    assert storage_for(hdfs_directory).directories(hdfs_directory) == before


def test_what_may_not_be_written_is_refused(hdfs_directory, as_mallory):
    """Another user's directory: the reason is named. The user is the settings'."""
    with pytest.raises(RefusedError, match="Permission denied: user=mallory") as caught:
        as_mallory(lambda: storage_for(hdfs_directory).mkdir(join(hdfs_directory, "d")))
    assert caught.value.reason is Reason.PERMISSION_DENIED
    one_line(caught.value)


def test_a_datanode_that_dies_while_a_file_is_written_twice(hdfs_directory, hdfs):
    """With another replica the file is finished, and holds what was written."""
    configure(StorageOptions(hdfs=Hdfs(conf_dir=hdfs.conf, replication=2)))
    storage = storage_for(hdfs_directory)
    piece = bytes(range(256)) * (1 << 15)
    try:
        with storage.create(join(hdfs_directory, "f")) as writer:
            writer.write(piece)
            hdfs.command("datanode", "stop", 0)
            writer.write(piece)
        with storage.open_read(join(hdfs_directory, "f")) as reader:
            assert reader.read_at(0, reader.size) == piece * 2
    finally:
        hdfs.command("datanode", "start")


@pytest.mark.parametrize("node", [0, 1])
def test_a_datanode_that_dies_while_a_file_is_read(hdfs_directory, hdfs, node):
    """The other replica is read, by position and from front to back."""
    configure(StorageOptions(hdfs=Hdfs(conf_dir=hdfs.conf, replication=2)))
    storage, data = storage_for(hdfs_directory), bytes(range(256)) * (1 << 16)
    storage.write_small(join(hdfs_directory, "f"), data)
    hdfs.command(
        "replicas", "wait", join(hdfs_directory, "f").removeprefix(hdfs.root), 2
    )  # the NameNode hears of the second one a little later
    with storage.open_read(join(hdfs_directory, "f")) as reader:
        pieces = reader.stream(0, reader.size)
        begun = next(pieces)
        hdfs.command("datanode", "stop", node)
        try:
            assert reader.read_at(1000, 5000) == data[1000:6000]
            assert begun + b"".join(pieces) == data
        finally:
            hdfs.command("datanode", "start")


def test_no_datanode_left_while_a_file_is_written(hdfs_directory, hdfs):
    """
    The file can't be finished: unreachable, in one line, and it is gone. The client itself waits for ever now and then;
    we don't.
    """
    configure(StorageOptions(hdfs=Hdfs(conf_dir=hdfs.conf, rpc_timeout_seconds=5)))
    storage = storage_for(hdfs_directory)
    location = join(hdfs_directory, "f")
    try:
        writer = storage.create(location)
        writer.write(bytes(8 << 20))
        hdfs.command("datanode", "stop", 1)
        hdfs.command("datanode", "stop", 0)
        with pytest.raises(UnreachableError) as caught:
            _finish(writer)
        one_line(caught.value)
        assert not storage.exists(location)
    finally:
        hdfs.command("datanode", "start")


def _finish(writer):
    with writer:
        writer.write(bytes(64 << 20))


def test_a_call_that_hangs_takes_no_connection_from_others(hdfs_directory, hdfs):
    """
    Whoever waits for DataNodes may do so for ever; the NameNode answers all others meanwhile, on the connection they
    have.
    """
    configure(StorageOptions(hdfs=Hdfs(conf_dir=hdfs.conf, rpc_timeout_seconds=5)))
    storage = storage_for(hdfs_directory)
    namenode = frozenset({("127.0.0.1", int(hdfs.root.rpartition(":")[2]))})

    def lines():
        with connections(namenode) as found:
            return set(found)

    before = lines()
    storage.mkdir(join(hdfs_directory, "d"))
    own = lines() - before
    assert len(own) == 1
    until = time.monotonic() + 12
    with storage._driver._client._timeouts.asking(data=True):
        while time.monotonic() < until:
            assert storage.exists(join(hdfs_directory, "d"))
            time.sleep(0.02)
    assert own <= lines()


def test_a_namenode_that_restarts_during_publication(ready, hdfs):
    """The client asks again until it is back; the directory is published once."""
    attempt, warehouse, table = ready
    hdfs.command("namenode", "stop", 0)
    outcome = []

    def work():
        try:
            outcome.append(publish(attempt))
        except CompactorError as error:
            outcome.append(error)

    publisher = threading.Thread(target=work)
    publisher.start()
    hdfs.command("namenode", "start", 0)
    publisher.join()
    (done,) = outcome
    if isinstance(done, CompactorError):  # it met the start-up's safe mode
        one_line(done)
        assert isinstance(done, RetryableError | OutcomeUnknownError | UnreachableError)
        publish(attempt)
    rows_are_the_same(attempt, warehouse, table)


def test_a_namenode_that_stays_away(ready, hdfs, tmp_path):
    """
    As often as the configuration says it is asked again; then the file system is unreachable, and nothing was
    published.
    """
    attempt, _, _ = ready
    before = visible(attempt.remote)
    impatient = changed(hdfs.conf, tmp_path, {"dfs.client.failover.max.attempts": "1"})
    configure(StorageOptions(hdfs=Hdfs(conf_dir=impatient)))
    storage = storage_for(attempt.remote)
    attempt.compaction = Compaction(attempt.request, storage, attempt.submitter, attempt.settings)
    hdfs.command("namenode", "stop", 0)
    try:
        for ask in (
            storage.list_tree,
            storage.stat,
            storage.directories,
            storage.delete_tree,
            storage.room,
            storage.owner,
        ):
            with pytest.raises(UnreachableError) as caught:
                ask(attempt.remote)
            one_line(caught.value)
        with pytest.raises(UnreachableError) as caught:  # it looks before it asks: nothing was sent
            storage.rename_noreplace(attempt.remote, join(parent(attempt.remote), "elsewhere"))
        one_line(caught.value)
        with pytest.raises(UnreachableError):
            publish(attempt)
    finally:
        hdfs.command("namenode", "start", 0)
    assert visible(attempt.remote) == before


def test_a_namenode_that_hangs_is_succeeded_by_the_other(ha, tmp_path):
    """
    It neither answers nor closes its connection: after the time limit the other one is asked, and what was being done
    is done once.
    """
    name = "dfs.namenode.rpc-address.ns1.nn1"
    ha.command("namenode", "activate", 0)
    with Relay(int(ha.setting("hdfs-site.xml", name).rpartition(":")[2])) as relay:
        conf = changed(ha.conf, tmp_path, {name: f"127.0.0.1:{relay.port}"})
        configure(StorageOptions(hdfs=Hdfs(conf_dir=conf, rpc_timeout_seconds=2)))
        top = f"{ha.root}/warehouse/hangs"
        storage = storage_for(top)
        storage.mkdir(top)
        storage.write_small(join(top, "f"), b"x")
        relay.cut()
        ha.command("namenode", "activate", 1)
        storage.rename_noreplace(join(top, "f"), join(top, "g"))
        assert storage.read_small(join(top, "g")) == b"x"
        storage.delete_tree(top)


def test_a_name_service_goes_on_with_the_other_namenode(warehouse, ha):
    """A compaction on `hdfs://ns1` whose active NameNode is succeeded by the other between its steps, and then dies."""
    location = f"{ha.root}/warehouse/t"
    storage = storage_for(location)
    storage.mkdir(location)
    table = build(warehouse, files=2, count=100)
    put(table.location, location)
    before = read_table(warehouse, table)
    attempt = Remote(warehouse, table, location)
    attempt.stage()
    ha.command("namenode", "activate", 1)
    attempt.verify()
    ha.command("namenode", "stop", 0)
    try:
        publish(attempt)
    finally:
        ha.command("namenode", "start", 0)
    attempt.commit()
    fetch(location, table.location)
    assert read_table(warehouse, table) == before
