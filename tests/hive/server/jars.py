"""
The class path of a whole Hive server, metastore and HiveServer2, from Maven: release 3.1.3 or 4.0.1. Built once below
`.tools/`.

Of Hive 4.1 and later Maven Central has no metastore server and no HiveServer2. Which artifacts are left out, and which
versions are held, was found by running them on JDK 17.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[3]
JAVA = Path(__file__).parent / "java"
HADOOP = "3.3.6"
_HADOOP = "org.apache.hadoop:hadoop-"
_OF_HADOOP = (
    "common",
    "hdfs",
    "hdfs-client",
    "mapreduce-client-core",
    "mapreduce-client-common",
    "mapreduce-client-jobclient",
    "yarn-client",
)
_HELD = (
    "auth",
    "annotations",
    "mapreduce-client-shuffle",
    "mapreduce-client-app",
    "yarn-common",
    "yarn-api",
    "yarn-server-common",
    "yarn-server-web-proxy",
    "yarn-server-resourcemanager",
    "yarn-server-applicationhistoryservice",
    "yarn-server-nodemanager",
    "yarn-server-timeline-pluginstorage",
    "archives",
    "distcp",
)
_OF_TEZ = ("api", "dag", "mapreduce", "runtime-library")
_NEVER = ("org.slf4j:slf4j-reload4j", "ch.qos.reload4j:reload4j", "org.apache.hadoop:hadoop-client-api")
"""Two bindings of slf4j, an older log4j before a newer one, and all of Hadoop's classes a second time."""


class UnavailableError(Exception):
    """Java, Maven or the jars can't be had; the message says which."""


@dataclass(frozen=True)
class Release:
    """What differs between the releases."""

    version: str
    schema: str
    tez: str
    hive: tuple[str, ...]
    excluded: tuple[str, ...]
    more: tuple[str, ...] = ()
    managed: tuple[str, ...] = field(default=())
    sources: tuple[str, ...] = ("common",)
    by_name: bool = False

    @property
    def dependencies(self) -> list[str]:
        """As group:artifact:version."""
        return [
            *(f"org.apache.hive:hive-{name}:{self.version}" for name in self.hive),
            *(f"{_HADOOP}{name}:{HADOOP}" for name in _OF_HADOOP),
            *(f"org.apache.tez:tez-{name}:{self.tez}" for name in _OF_TEZ),
            "org.postgresql:postgresql:42.7.7",
            "com.mysql:mysql-connector-j:8.0.33",
            *self.more,
        ]


RELEASES = {
    "3": Release(
        "3.1.3",
        "3.1.0",
        "0.9.2",
        ("service", "metastore", "standalone-metastore", "exec", "jdbc", "streaming"),
        (
            "org.slf4j:slf4j-log4j12",
            "log4j:log4j",
            "org.pentaho:*",
            "jdk.tools:jdk.tools",
            "org.apache.hbase:*",
            "org.apache.logging.log4j:log4j-web",
            "org.glassfish:javax.el",
            "org.apache.slider:*",
            "org.apache.solr:*",
            "org.apache.atlas:*",
            "org.apache.curator:apache-curator",
            "org.eclipse.jetty.aggregate:*",
            "org.apache.directory.server:*",
            "org.apache.druid:*",
            "io.druid:*",
        ),
        ("com.lmax:disruptor:3.4.4", f"{_HADOOP}yarn-registry:{HADOOP}"),
        (
            "com.google.guava:guava:27.0-jre",
            "org.apache.commons:commons-lang3:3.12.0",
            "commons-io:commons-io:2.8.0",
            "com.google.code.findbugs:jsr305:3.0.2",
            *(f"{_HADOOP}{name}:{HADOOP}" for name in _HELD),
        ),
        ("common", "hive3"),
        by_name=True,
    ),
    "4": Release(
        "4.0.1",
        "4.0.0",
        "0.10.4",
        ("service", "metastore", "standalone-metastore-server", "exec", "jdbc"),
        (
            "org.pac4j:*",
            "org.opensaml:*",
            "net.shibboleth.tool:*",
            "org.apache.logging.log4j:log4j-web",
            "org.apache.hbase:*",
            "org.apache.solr:*",
            "org.apache.atlas:*",
        ),
        ("ch.qos.reload4j:reload4j:1.2.22",),  # Tez needs a class of it that log4j-1.2-api lacks; the last of all jars
        sources=("common", "hive4"),
    ),
}


def built(name: str) -> list[Path]:
    """
    Class path of a release, "3" or "4": our classes, then the jars.

    Raises:
        UnavailableError: a program or a jar can't be had.
    """
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            raise UnavailableError(f"a Hive server needs {tool}, which isn't installed")
    release = RELEASES[name]
    home = PROJECT / ".tools" / f"hive-server-{name}"
    home.mkdir(parents=True, exist_ok=True)
    sources = sorted(path for folder in release.sources for path in (JAVA / folder).rglob("*.java"))
    digest = hashlib.sha256(
        b"".join([Path(__file__).read_bytes(), *(path.read_bytes() for path in sources)])
    ).hexdigest()
    stamp, classpath, classes = home / "stamp", home / "classpath", home / "classes"
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = classpath.exists() and all(map(os.path.exists, classpath.read_text().split(":")))
        if not (found and stamp.exists() and stamp.read_text() == digest):
            pom = home / "pom.xml"
            if not (found and pom.exists() and pom.read_bytes() == _pom(release)):
                pom.write_bytes(_pom(release))
                what = f"the jars of Hive {release.version}"
                _run(
                    what, ["mvn", "-q", "-B", "-f", pom, "dependency:build-classpath", f"-Dmdep.outputFile={classpath}"]
                )
            shutil.rmtree(classes, ignore_errors=True)
            classes.mkdir()
            jars = ":".join(map(str, _jars(release, classpath)))
            _run(
                "the server's classes", ["javac", "-nowarn", "-encoding", "UTF-8", "-cp", jars, "-d", classes, *sources]
            )
            stamp.write_text(digest)
    return [classes, *_jars(release, classpath)]


def _jars(release: Release, classpath: Path) -> list[Path]:
    """In 3.1 by name: its hive-exec holds an old Guava under Guava's own name, which must come after the real one."""
    found = list(map(Path, classpath.read_text().split(":")))
    return sorted(found, key=lambda path: path.name) if release.by_name else found


def _pom(release: Release) -> bytes:
    project = ET.Element("project", xmlns="http://maven.apache.org/POM/4.0.0")
    for tag, text in (
        ("modelVersion", "4.0.0"),
        ("groupId", "compactor.tests"),
        ("artifactId", "hive-server"),
        ("version", "1"),
        ("packaging", "pom"),
    ):
        ET.SubElement(project, tag).text = text
    held = ET.SubElement(ET.SubElement(project, "dependencyManagement"), "dependencies")
    for name in release.managed:
        _dependency(held, name, ())
    wanted = ET.SubElement(project, "dependencies")
    for name in release.dependencies:
        _dependency(wanted, name, () if name in release.more else (*_NEVER, *release.excluded))
    return ET.tostring(project)


def _dependency(parent: ET.Element, name: str, excluded: tuple[str, ...]) -> None:
    element = ET.SubElement(parent, "dependency")
    for tag, text in zip(("groupId", "artifactId", "version"), name.split(":"), strict=True):
        ET.SubElement(element, tag).text = text
    exclusions = ET.SubElement(element, "exclusions")
    for pair in excluded:
        exclusion = ET.SubElement(exclusions, "exclusion")
        for tag, text in zip(("groupId", "artifactId"), pair.split(":"), strict=True):
            ET.SubElement(exclusion, tag).text = text


def _run(what: str, command: list[object]) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise UnavailableError(f"can't get {what}: {' '.join(lines)[:600] if lines else done.returncode}")
