"""What servers and clients of a cluster with Kerberos are told, and what a client does there."""

from tests.cluster.hadoop.servers import HadoopServer, UnavailableError
from tests.cluster.kdc import REALM
from tests.needs import missing

ME = f"compactor@{REALM}"


def settings(keytab):
    """
    What a cluster with Kerberos says in its core-site.xml and hdfs-site.xml; one principal serves all its daemons.
    """
    servers = {f"dfs.{daemon}.keytab.file": keytab for daemon in ("namenode", "datanode")}
    servers |= {f"dfs.{daemon}.kerberos.principal": f"hdfs/localhost@{REALM}" for daemon in ("namenode", "datanode")}
    return servers | {
        "hadoop.security.authentication": "kerberos",
        "hadoop.security.authorization": "true",
        "hadoop.security.auth_to_local": "DEFAULT",
        "dfs.web.authentication.kerberos.principal": f"HTTP/localhost@{REALM}",
        "dfs.web.authentication.kerberos.keytab": keytab,
        "dfs.block.access.token.enable": "true",
        "dfs.data.transfer.protection": "authentication",
        "ignore.secure.ports.for.testing": "true",
    }


def java(kdc):
    """What tells Java of the realm: it doesn't look at KRB5_CONFIG."""
    return f"-Djava.security.krb5.conf={kdc.config}"


def hdfs(kdc, folder, kind="hdfs", **more):
    """
    A HDFS server of one DataNode that wants tickets and block tokens, and signs what DataNodes send; settings in
    Python's names.
    """
    given = settings(kdc.keytab("hdfs/localhost", "HTTP/localhost")) | more
    try:
        return HadoopServer(kind, folder, 1, given=given, java=(java(kdc),))
    except UnavailableError as error:
        missing(str(error))


def works(driver, location):
    """Whatever a compaction does on HDFS; files are the principal's."""
    driver.mkdir(location)
    driver.write_small(f"{location}/one", b"x" * 100_000)
    with driver.create(f"{location}/two") as file:
        file.write(b"y" * 100)
    driver.rename_noreplace(f"{location}/two", f"{location}/three")
    assert [file.path for file in driver.list_tree(location).files] == ["one", "three"]
    assert driver.read_small(f"{location}/one") == b"x" * 100_000
    assert driver.read_small(f"{location}/three") == b"y" * 100
    return driver.owner(f"{location}/one")
