"""A credential store that Hadoop's own command made: the password comes out by the command that `compactor init` tells."""

import os
import re
import shutil
import subprocess

import pytest

from compactor.cli.hive_site import PASSWORD, read, settings_of
from tests.hive.java import UnavailableError, built, java
from tests.hive.party import JUDGE, PROFILES, SOURCE
from tests.needs import missing
from tests.unit.cli.commands.setup.test_init import URL, site

pytestmark = pytest.mark.hive

SHELL = "org.apache.hadoop.security.alias.CredentialShell"


@pytest.fixture(scope="module")
def hadoop():
    """The beginning of a command of Hadoop's."""
    if shutil.which("jshell") is None:
        missing("a credential store is read by jshell, which isn't installed")
    try:
        _, classpath = built(SOURCE, PROFILES["4.0.0"], beside=[JUDGE])
    except UnavailableError as error:
        missing(str(error))
    return java(classpath, heap="256m")


@pytest.mark.parametrize("own", [None, "the store's own"])
@pytest.mark.parametrize("scheme", ["jceks", "localjceks"])
def test_the_password_comes_out(hadoop, tmp_path, scheme, own):
    """As it was put in, whatever its characters; with Hadoop's own password of the store or the site's."""
    secret, store = "p\u00e4 ss'\"$\\", f"{scheme}://file{tmp_path}/hive.jceks"
    environment = os.environ | {"LC_ALL": "C.UTF-8"} | ({} if own is None else {"HADOOP_CREDSTORE_PASSWORD": own})
    create = [*hadoop, SHELL, "create", PASSWORD[0], "-value", secret, "-provider", store]
    subprocess.run(create, env=environment, check=True, capture_output=True)
    found = settings_of(read([site(tmp_path, URL | {"hadoop.security.credential.provider.path": store})]), None)
    (note,) = [note for note in found.notes if "jshell" in note]
    command = re.search(r"echo '.*jshell -s -", note)[0]
    done = subprocess.run(command, shell=True, env=environment, check=True, capture_output=True, encoding="utf-8")
    assert done.stdout == f"{secret}\n"
