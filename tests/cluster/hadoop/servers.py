"""
Hadoop's own servers for tests: HDFS (one NameNode or two) and YARN, each in one JVM on free ports, its state in a
folder given by the caller.

Built once by Maven and javac below `.tools/`. A server ends with the process that started it, for it reads its commands
from a pipe.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import threading
import xml.etree.ElementTree as ET
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[3]
SOURCE = Path(__file__).parent
START_SECONDS = 180
_LOGGING = """log4j.rootLogger=WARN,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %-5p %c{1}: %m%n
"""


class UnavailableError(Exception):
    """Java, Maven or the jars can't be had, or a server doesn't start; the message says which."""


class HadoopServer:
    """
    One kind of server with what belongs to it. Use as a context manager.

    Args:
        kind: "hdfs", "zones" (with a KMS), "ha" (two NameNodes) or "yarn".
        folder: an empty one; `conf` in it becomes the clients' HADOOP_CONF_DIR, `log` what the server says.
        conf: for yarn, the HDFS server's `conf`: both then share it.
        arguments: number of DataNodes or NodeManagers; for yarn then MiB of each NodeManager.
        given: more settings of HDFS' servers and clients, by name.
        java: more options of the JVM.

    Raises:
        UnavailableError: it can't be built or started here.
    """

    def __init__(self, kind, folder, *arguments, conf=None, memory="512m", given=None, java=()):
        home, classpath = built()
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.conf = Path(conf or self.folder / "conf")
        self.conf.mkdir(parents=True, exist_ok=True)
        if given:
            write_site(self.conf / "given-site.xml", given)
        self.log = self.folder / f"{kind}.log"
        self._lock = threading.Lock()
        command = [
            "java",
            f"-Xmx{memory}",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "--add-opens=java.base/java.lang=ALL-UNNAMED",
        ]
        command += [
            "-Djava.net.preferIPv4Stack=true",
            *java,
            "-cp",
            f"{home}:{self.conf}:{classpath}",
            "Servers",
            kind,
            str(self.conf),
            str(self.folder),
        ]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, *map(str, arguments)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                encoding="utf-8",
                cwd=self.folder,
            )
        watchdog = threading.Timer(START_SECONDS, self._process.kill)
        watchdog.start()
        try:
            self._answer("READY")
        except UnavailableError:
            self.close()
            raise
        finally:
            watchdog.cancel()

    def command(self, *words):
        """Tell the server something (see Servers.java) and wait until it is done; the lines that it answers."""
        with self._lock:
            self._process.stdin.write(" ".join(map(str, words)) + "\n")
            self._process.stdin.flush()
            return self._answer("OK")

    def setting(self, file, name):
        """A value from the clients' configuration."""
        for item in ET.parse(self.conf / file).getroot():
            if item.findtext("name") == name:
                return item.findtext("value")
        raise KeyError(name)

    @property
    def root(self):
        """`hdfs://host:port`, or the name service."""
        return self.setting("core-site.xml", "fs.defaultFS")

    def close(self):
        """End the server."""
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _answer(self, wanted):
        lines = []
        for line in self._process.stdout:
            if line.strip() == wanted:
                return lines
            if line.startswith("ERROR"):
                raise RuntimeError(line.strip())
            lines.append(line.rstrip("\n"))
        said = [line for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        raise UnavailableError(f"the server ended: {said[-1] if said else self._process.wait()}")


def write_site(file, properties):
    """Settings in Hadoop's form."""
    root = ET.Element("configuration")
    for name, value in properties.items():
        item = ET.SubElement(root, "property")
        ET.SubElement(item, "name").text = name
        ET.SubElement(item, "value").text = str(value)
    ET.ElementTree(root).write(file)


def built():
    """Folder of the class files, and the class path; built when the sources changed or jars are gone."""
    for tool in ("java", "javac", "mvn"):
        if shutil.which(tool) is None:
            raise UnavailableError(f"Hadoop's servers need {tool}, which isn't installed")
    home = PROJECT / ".tools" / "hadoop"
    home.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256((SOURCE / "pom.xml").read_bytes() + (SOURCE / "Servers.java").read_bytes()).hexdigest()
    stamp, classpath = home / "stamp", home / "classpath"
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (
            stamp.exists()
            and stamp.read_text() == digest
            and all(map(os.path.exists, classpath.read_text().split(":")))
        ):
            _run(
                "the jars of Hadoop",
                [
                    "mvn",
                    "-q",
                    "-B",
                    "-f",
                    SOURCE / "pom.xml",
                    "dependency:build-classpath",
                    f"-Dmdep.outputFile={classpath}",
                ],
            )
            _run(
                "the servers",
                [
                    "javac",
                    "-nowarn",
                    "-encoding",
                    "UTF-8",
                    "-cp",
                    classpath.read_text(),
                    "-d",
                    home,
                    SOURCE / "Servers.java",
                ],
            )
            (home / "log4j.properties").write_text(_LOGGING)
            stamp.write_text(digest)
    return home, classpath.read_text()


def _run(what, command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise UnavailableError(f"can't get {what}: {lines[0] if lines else done.returncode}")
