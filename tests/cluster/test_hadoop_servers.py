"""The servers that other tests of a cluster build on."""

import socket
import urllib.parse

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def answers(address):
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 10):
        return True


def test_hdfs_and_yarn_share_a_configuration(hdfs_server, yarn_server):
    """A client finds the file system and the ResourceManager by one HADOOP_CONF_DIR."""
    assert yarn_server.conf == hdfs_server.conf
    assert answers(urllib.parse.urlsplit(yarn_server.root).netloc)
    assert answers(yarn_server.setting("yarn-site.xml", "yarn.resourcemanager.address"))


def test_a_command_that_is_none_is_told(hdfs_server):
    """A test that says something wrong to the server hears about it."""
    with pytest.raises(RuntimeError, match="unknown command no such"):
        hdfs_server.command("no", "such")
