"""
A Kerberos realm for tests: MIT's KDC on a free loopback port, its database, keytabs and configuration in a folder of
their own.

Only programs that are given `environment` see it. What can't be had is said by `UnavailableError`.
"""

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

from tests.metastore.servers import UnavailableError
from tests.ports import free_port

REALM = "COMPACTOR.TEST"
START_SECONDS = 20
_SBIN = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
_CLIENTS = """[libdefaults]
  default_realm = {realm}
  dns_lookup_realm = false
  dns_lookup_kdc = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
  kdc_timeout = 5s
[realms]
  {realm} = {{
    kdc = 127.0.0.1:{port}
  }}
[domain_realm]
  localhost = {realm}
"""
_SERVER = """[kdcdefaults]
  kdc_listen = 127.0.0.1:{port}
  kdc_tcp_listen = 127.0.0.1:{port}
[realms]
  {realm} = {{
    database_name = {folder}/principal
    key_stash_file = {folder}/stash
    acl_file = {folder}/acl
    max_life = 1h
    max_renewable_life = 1d
    supported_enctypes = aes256-cts-hmac-sha1-96:normal
  }}
[logging]
  kdc = FILE:{folder}/kdc.log
"""


class Kdc:
    """
    A realm, whose server runs while the object is used as a context manager.

    Args:
        folder: an empty one.

    Raises:
        UnavailableError: MIT's programs aren't here, or the server doesn't start.
    """

    def __init__(self, folder):
        self._programs = {}
        for program, package in (
            ("kdb5_util", "krb5-kdc"),
            ("krb5kdc", "krb5-kdc"),
            ("kadmin.local", "krb5-admin-server"),
            ("kinit", "krb5-user"),
            ("klist", "krb5-user"),
        ):
            found = shutil.which(program, path=_SBIN)
            if found is None:
                raise UnavailableError(
                    f"a Kerberos realm needs {program}, which isn't installed (in Debian's {package})"
                )
            self._programs[program] = found
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._port = free_port()
        said = {"realm": REALM, "port": self._port, "folder": self.folder}
        self.config = self.folder / "krb5.conf"
        self.config.write_text(_CLIENTS.format(**said), encoding="utf-8")
        (self.folder / "kdc.conf").write_text(_SERVER.format(**said), encoding="utf-8")
        self.environment = {"KRB5_CONFIG": str(self.config), "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf")}
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "geheim")
        self._process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        """Start the server, and wait until it listens."""
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs["krb5kdc"], "-n"], env=os.environ | self.environment, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
                return
            except OSError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    raise UnavailableError(
                        f"krb5kdc doesn't start: {(self.folder / 'server.log').read_text(encoding='utf-8')[-500:]}"
                    ) from error
                time.sleep(0.05)

    def stop(self):
        """End the server; the database stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def keytab(self, *principals, life="1h"):
        """
        Make principals with random keys.

        Args:
            principals: without the realm.
            life: how long each one's tickets are valid at most.

        Returns:
            Path of one keytab with all their keys.
        """
        file = self.folder / (principals[0].replace("/", "_") + ".keytab")
        for principal in principals:
            self._run("kadmin.local", "-r", REALM, "-q", f'addprinc -randkey -maxlife "{life}" {principal}')
            self._run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {file} {principal}")
        return file

    def login(self, principal, keytab, cache):
        """What a job beside the daemon does: put a ticket into a cache."""
        self._run("kinit", "-k", "-t", str(keytab), "-c", str(cache), f"{principal}@{REALM}")

    def valid(self, cache):
        """Whether a ticket in the cache hasn't run out."""
        return (
            subprocess.run(
                [self._programs["klist"], "-s", "-c", str(cache)], env=os.environ | self.environment, check=False
            ).returncode
            == 0
        )

    def log(self):
        """What the server wrote of the tickets that it gave."""
        return (self.folder / "kdc.log").read_text(encoding="utf-8", errors="replace")

    def _run(self, program, *arguments):
        done = subprocess.run(
            [self._programs[program], *arguments],
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise UnavailableError(f"{program} {' '.join(arguments)}: {(done.stderr or done.stdout).strip()}")
