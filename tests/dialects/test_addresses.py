"""Addresses of the products whose dialects are kept apart, once these are installed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.cli.hive_site import Property, settings_of
from compactor.errors import SettingsError
from compactor.metastore.db.dialects.address import mistake
from tests.unit.settings.test_address import PIECES, require_read_as_meant

WRONG = [
    ("jdbc:oracle:thin:@h:1521/x", "is a JDBC address; write oracle://USER@h:1521/x, the password"),
    ("jdbc:oracle:thin:@h:1521:x", "is a JDBC address; write oracle://compactor@host:1521/SERVICE?schema=HIVE, the"),
    ("jdbc:sqlserver://h:1433;databaseName=x", "is a JDBC address; write mssql://USER@h:1433/x, the"),
    ("jdbc:sqlserver://h\\i;databaseName=x", "is a JDBC address; write mssql://compactor@host:1433/metastore, the"),
    ("mssql+pymssql://h/x", "the driver pymssql isn't used here; write mssql://"),
]


@pytest.mark.parametrize(("url", "said"), WRONG)
def test_what_no_command_can_use_is_a_mistake_in_the_settings(url, said):
    """It says what to write instead."""
    assert mistake(url).startswith(said)


@pytest.mark.parametrize("url", ["jdbc:oracle:thin:u/geheim@x@h/db", "jdbc:sqlserver://u:geheim@h;databaseName=db"])
def test_a_password_is_never_repeated(url):
    """Also where the address can't be read."""
    assert "geheim" not in (mistake(url) or "geheim")


def settings_from(jdbc, user=None):
    given_ = {"javax.jdo.option.ConnectionURL": jdbc} | ({"javax.jdo.option.ConnectionUserName": user} if user else {})
    return settings_of({name: Property(name, value, "f") for name, value in given_.items()}, None).taken[0].value


@pytest.mark.parametrize(
    ("jdbc", "user", "expected"),
    [
        ("jdbc:oracle:thin:@//db:1521/meta.example.org", "hive", "oracle://hive@db:1521/meta.example.org"),
        ("jdbc:oracle:thin:ann/pw@db/META:dedicated", None, "oracle://ann@db/META"),
        ("jdbc:oracle:thin:@tcps://db:2484/M?wallet_location=/w", "h", "oracle://h@db:2484/M?protocol=tcps"),
        ("jdbc:sqlserver://db:1433;databaseName=meta;encrypt=true", "hive", "mssql://hive@db:1433/meta"),
        (
            "jdbc:sqlserver://db;encrypt=false;user=ann;password=x;trustServerCertificate=true;database=m",
            None,
            "mssql://ann@db/m?Encrypt=no&TrustServerCertificate=yes",
        ),
    ],
)
def test_a_metastores_address_is_taken_over(jdbc, user, expected):
    """As the metastore's, without the Java driver's own options."""
    assert settings_from(jdbc, user) == expected


@pytest.mark.parametrize(
    ("jdbc", "product"),
    [
        ("jdbc:oracle:thin:@db:1521:SID", "Oracle"),
        ("jdbc:oracle:thin:@(DESCRIPTION=(ADDRESS=(HOST=db)))", "Oracle"),
        ("jdbc:sqlserver://db\\named;databaseName=x", "SQL Server"),
        ("jdbc:sqlserver://db", "SQL Server"),
    ],
)
def test_a_metastores_address_without_an_equivalent_is_refused(jdbc, product):
    """It says what to give in its place."""
    with pytest.raises(SettingsError, match=f"give {product}'s address by --metastore, such as "):
        settings_from(jdbc)


JDBC = {
    "oracle:thin:{user}/{raw}@{host}/{database}": "oracle://{user}@{host}/{database}",
    "oracle:thin:{user}/{raw}@//{host}/{database}?a=b": "oracle://{user}@{host}/{database}",
    "oracle:thin:{user}/{raw}@{host}:1:{database}": None,
    "sqlserver://{host};databaseName={database};user={user};password={braced}": "mssql://{user}@{host}/{database}",
    "sqlserver://{host};user={user};password={braced};databaseName={database}": "mssql://{user}@{host}/{database}",
}
"""As in `tests.unit.settings.test_address`."""


@given(form=st.sampled_from(list(JDBC)), **PIECES)
def test_a_java_drivers_address_is_read_as_it_was_meant_or_refused(form, user, password, host, database):
    """Whatever the password, no part of it passes for another part of the address, is written or told."""
    require_read_as_meant(form, JDBC[form], user=user, password=password, host=host, database=database)
