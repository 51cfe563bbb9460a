"""
What a Spark application with Kerberos gives its tasks, so that they reach HDFS by our own client: the delegation tokens that Spark's JVM holds.

Spark gets them when the application starts, and new ones before they run out, where it has a keytab or a ticket to do so. YARN puts those of the start into
each container; an executor that lives longer than they do has newer ones in its JVM alone. So they go with every job.
Source: Spark's HadoopDelegationTokenManager; Hadoop's UserGroupInformation, Credentials.
"""

import os
from pathlib import Path

from pyspark import SparkContext

from compactor.storage.hdfs_tokens import HELD, VARIABLE, parse, written


def tokens_of(context: SparkContext) -> bytes:
    """Those of HDFS that the application's user has, as Hadoop writes credentials; empty where there are none, as without Kerberos."""
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
    """For a driver that reaches HDFS by tokens itself: take those that Spark has now."""
    if HELD.services(()):
        HELD.take(tokens_of(context))


def in_a_container() -> None:
    """For a driver in the cluster: hold the tokens that YARN put beside it, where it did."""
    if (said := os.environ.get(VARIABLE)) and (file := Path(said)).is_file():
        HELD.take(file.read_bytes())
