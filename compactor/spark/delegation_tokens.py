"""
Gives the tasks of a Spark application with Kerberos the delegation tokens that Spark's JVM holds, so that the tasks
reach HDFS by their own client.

Spark gets tokens when the application starts, and new ones before they run out, where it has a keytab or a ticket. YARN
puts the first tokens into each container. In an executor that lives longer than these, only the JVM has newer ones. So
each job takes the current tokens along.
Source: Spark's HadoopDelegationTokenManager; Hadoop's UserGroupInformation, Credentials.
"""

import os
from pathlib import Path

from pyspark import SparkContext

from compactor.storage.hdfs.tokens import HELD, VARIABLE, parse, written


def tokens_of(context: SparkContext) -> bytes:
    """
    The HDFS tokens of the application's user, as Hadoop writes credentials; empty where there are none, as without
    Kerberos.
    """
    jvm = context._jvm  # noqa: SLF001 - PySpark has no public way to Hadoop's classes
    assert jvm is not None
    user = jvm.org.apache.hadoop.security.UserGroupInformation
    if not user.isSecurityEnabled():
        return b""
    stream = jvm.java.io.ByteArrayOutputStream()
    user.getCurrentUser().getCredentials().writeTokenStorageToStream(jvm.java.io.DataOutputStream(stream))
    found = parse(bytes(stream.toByteArray()))
    return written(found) if found else b""


def keep_current(context: SparkContext) -> None:
    """Take Spark's current tokens, in a driver that reaches HDFS by tokens itself."""
    if HELD.services(()):
        HELD.take(tokens_of(context))


def in_a_container() -> None:
    """Hold the tokens that YARN put beside a driver in the cluster, if there are any."""
    if (said := os.environ.get(VARIABLE)) and (file := Path(said)).is_file():
        HELD.take(file.read_bytes())
