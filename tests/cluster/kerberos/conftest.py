"""A realm, for each module; servers in it are the module's own."""

import ctypes.util

import pytest

from tests.cluster.kdc import Kdc
from tests.metastore.servers import UnavailableError
from tests.needs import missing


@pytest.fixture(scope="module")
def kdc(tmp_path_factory):
    """A realm with its server."""
    try:
        with Kdc(tmp_path_factory.mktemp("kdc")) as started:
            yield started
    except UnavailableError as error:
        missing(str(error))


@pytest.fixture
def realm(kdc, tmp_path, monkeypatch):
    """This process knows the realm, and its default cache is empty."""
    if ctypes.util.find_library("gssapi_krb5") is None:
        missing("Kerberos' library isn't installed (in Debian's libgssapi-krb5-2)")
    for name, value in kdc.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/default")
    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)
    return kdc


@pytest.fixture(scope="module")
def keytab(kdc):
    """Of the daemon."""
    return kdc.keytab("compactor")
