"""Database addresses: what no command could use is a mistake in the settings already, with what to write instead."""

from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import make_url

from compactor.cli.hive_site import Property, as_yaml, settings_of
from compactor.errors import SettingsError
from compactor.metastore.db.database import Database
from compactor.metastore.db.dialects.address import mistake, wrong_setting
from compactor.settings import Settings, load_settings

WRONG = [
    ("db2://h/x", "db2 isn't supported; PostgreSQL, MySQL and SQLite are: postgresql://"),
    ("mysql+mysqldb://h/x", "the driver mysqldb isn't used here; write mysql://"),
    ("postgresql+psycopg2://h/x", "the driver psycopg2 isn't used here; write postgresql://"),
    ("sqlite://", "SQLite needs a file, such as sqlite:////"),
    ("sqlite:///", "SQLite needs a file"),
    ("sqlite:///:memory:", "SQLite needs a file"),
    ("postgresql://h:notaport/x", "what follows the host's colon is no port: a number from 1 to 65535 is wanted"),
    ("postgresql://h:/x", "what follows the host's colon is no port"),
    ("postgresql:///x?host=h:1&host=i:70000", "what follows the colon in one host=… is no port: a number"),
    ("postgresql:///x?host=h:1,i:2", "names several servers with ports in one host=…: write a host=… for each"),
    ("postgresql:///x?host=h,i&port=1,70000", "what follows port= is no port: a number from 1 to 65535 is wanted"),
    ("postgresql:///x?host=h:ham", "what follows the colon in one host=… is no port"),
    ("postgresql://h:70000/x", "what follows the host's colon is no port"),
    ("postgresql://a@c@h/x", "has several @: write %40"),
    ("jdbc:postgresql://h/x", "is a JDBC address; write postgresql://USER@h/x, the password in database.password_file"),
    ("jdbc:postgresql://h:5433/m?user=hive&ssl=true", "is a JDBC address; write postgresql://hive@h:5433/m,"),
    (
        "jdbc:postgresql://h/m?ssl=true",
        "is a JDBC address; write postgresql://USER@h/m, with options of docs/metastore.md for TLS, the password in",
    ),
    ("jdbc:mysql://h/x", "is a JDBC address; write mysql://USER@h/x, the password in database.password_file"),
    ("jdbc:mariadb://h:3307/m?user=hive", "is a JDBC address; write mysql://hive@h:3307/m,"),
    ("postgresql://h:1,i:2/m", "names several servers: write postgresql:///metastore?host=h:1&host=i:2"),
    ("mysql://h,i/m", "names several servers; MySQL's driver takes one: write an address that leads to the primary"),
    ("mysql://h:1,i:2/m", "names several servers; MySQL's driver takes one"),
    ("jdbc:postgresql://h:1,i:2/m", "is a JDBC address; write postgresql://USER@/m?host=h:1&host=i:2, the password"),
    (
        "jdbc:mysql://h:1,i/m",
        "is a JDBC address of several servers; MySQL's driver takes one: write mysql://USER@HOST/m",
    ),
    ("jdbc:derby:;databaseName=metastore_db;create=true", "is a JDBC address of derby, which isn't supported"),
    ("jdbc:sqlite:/var/m.db", "is a JDBC address; write sqlite:////var/m.db"),
    ("mysql://address=(host=h)(port=1)(user=u)/x", "is not a database address such as postgresql://"),
    ("postgresql://(host=h,port=1,user=u)/x", "is not a database address"),
    ("nonsense", "is not a database address such as postgresql://"),
]


@pytest.mark.parametrize(("url", "said"), WRONG)
def test_what_no_command_can_use_is_a_mistake_in_the_settings(tmp_path, url, said):
    """
    One line that names `database.url` and says what to write instead; opening the database gives the same answer.
    """
    file = tmp_path / "c.yaml"
    file.write_text(f"database: {{url: '{url}'}}")
    with pytest.raises(SettingsError) as caught:
        load_settings(file, {}, wrong_setting)
    assert str(caught.value).startswith(f"{file}: database.url: {said}")
    assert "\n" not in str(caught.value)
    with pytest.raises(SettingsError, match=r"^database\.url: ") as caught:
        Database(url)
    assert said in str(caught.value)


def test_a_mistake_in_a_variable_names_the_variable(tmp_path):
    """The file isn't blamed for what a variable says."""
    file = tmp_path / "c.yaml"
    file.write_text("database: {url: 'sqlite:////v/m.db'}")
    with pytest.raises(SettingsError, match=r"^environment: COMPACTOR_DATABASE__URL: database\.url: db2 isn't"):
        load_settings(file, {"COMPACTOR_DATABASE__URL": "db2://h/x"}, wrong_setting)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("oracle://h/x", "Oracle"),
        ("mssql+pyodbc://h/x", "SQL Server"),
        ("sqlserver://h/x", "SQL Server"),
        ("jdbc:oracle:thin:u/geheim@h:1521/x", "Oracle"),
        ("jdbc:sqlserver://u:geheim@h;databaseName=db", "SQL Server"),
    ],
)
def test_a_product_whose_dialect_is_kept_apart_is_refused(url, name):
    """One line says so, and where the dialect is; without a password."""
    said = mistake(url)
    assert said is not None
    assert "isn't supported; PostgreSQL, MySQL and SQLite are: postgresql://" in said
    assert said.endswith(
        f"; {name}'s dialect, never run on a server, is a package apart: deploy/dialects in the sources"
    )
    assert "geheim" not in said


def test_a_dialect_that_cannot_be_loaded_is_named(tmp_path, monkeypatch):
    """An entry point of another package whose code isn't there is a mistake in the settings, and no traceback."""
    (tmp_path / "other-1.dist-info").mkdir()
    (tmp_path / "other-1.dist-info" / "entry_points.txt").write_text("[compactor.dialects]\ndb2 = absent.db2:Db2\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SettingsError, match=r"^database\.url: the dialect absent\.db2:Db2 can't be loaded: No module"):
        mistake("db2://h/x")


@pytest.mark.parametrize(
    ("text", "env"),
    [
        ("database: {url: 'sqlite:///x', password_file: /p}", {}),
        ("database: {url: 'sqlite:///x'}", {"COMPACTOR_DATABASE__PASSWORD": "geheim"}),
    ],
)
def test_an_embedded_database_takes_no_password(tmp_path, text, env):
    """A password that would protect nothing is refused."""
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_settings(file, env, wrong_setting)
    assert str(caught.value) == f"{file}: database: SQLite takes no password; remove it"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://h/x",
        "postgres://hive@h:5432/m",
        "postgresql+psycopg://h/x",
        "postgresql://[::1]:5432/m",
        "postgresql:///m",
        "postgresql://hive@/m?host=a:5432&host=b:5433",
        "postgresql://hive@a,b/m",
        "postgresql:///m?host=/var/run/postgresql",
        "postgresql:///m?host=a,b&port=5432,5433",
        "postgresql:///m?host=[::1]:5433&host=[::1]&host=::1&host=a",
        "sqlite:////v/m.db",
        "sqlite:///m.db",
        "SQLite:///m.db",
    ],
)
def test_what_works_is_none(url):
    """Every form that commands can use passes, and is opened by the right dialect."""
    assert mistake(url) is None
    assert wrong_setting(Settings(database={"url": url})) is None
    assert Database(url).dialect is not None


def test_what_can_be_read_in_two_ways_is_not_read():
    """What stands before the last @ may be a user and a password, and not a server with a database and options."""
    assert mistake("jdbc:mysql://u:5/b?c=d@h").startswith("is a JDBC address; write mysql://hive@host:3306/metastore,")
    assert mistake("jdbc:mysql://h:5/b?user=u&password=d@h").startswith("is a JDBC address; write mysql://u@h:5/b,")
    assert mistake("jdbc:mysql://h:5/b?user=u&x=me%40h").startswith("is a JDBC address; write mysql://u@h:5/b,")


def test_a_password_is_never_repeated():
    """Neither that of a JDBC address nor that of one with a bad port."""
    for url in (
        "jdbc:postgresql://h/x?user=a&password=geheim",
        "postgresql://u:geheim@h:x/db",
        "jdbc:postgresql://u:geheim@h/db",
        "jdbc:postgresql://u:ge/geheim@h/db",
        "my:sql://u:geheim@h/x",
    ):
        assert "geheim" not in (mistake(url) or "geheim")


@given(
    user=st.sampled_from(["", "hive@", "hive:p/w:x@", "h%40x:y@"]),
    host=st.sampled_from(["", "h", "h.example.org", "127.0.0.1", "[::1]"]),
    port=st.one_of(st.just(""), st.integers(1, 65535).map(lambda number: f":{number}")),
    rest=st.sampled_from(["", "/", "/m", "/m?sslmode=require", "/m?application_name=a:b/c"]),
)
def test_what_sqlalchemy_reads_passes(user, host, port, rest):
    """No address that SQLAlchemy can take apart, with a port that exists, is refused."""
    url = f"postgresql://{user}{host}{port}{rest}"
    make_url(url)
    assert mistake(url) is None


JDBC = {
    "postgresql://{user}:{raw}@{host}/{database}": "postgresql://{user}@{host}/{database}",
    "postgresql://{user}:{raw}@{host}/{database}?sslmode=require&a=b": (
        "postgresql://{user}@{host}/{database}?sslmode=require"
    ),
    "postgresql://{host}/{database}?user={user}&password={quoted}": "postgresql://{user}@{host}/{database}",
    "postgresql://{host}/{database}?user={user}@corp&password={quoted}": "postgresql://{user}%40corp@{host}/{database}",
    "postgresql://{user}:{raw}@{host},i:2/{database}": "postgresql://{user}@/{database}?host={listed}&host=i:2",
    "mysql://{user}:{raw}@{host}/{database}?useSSL=true": "mysql://{user}@{host}/{database}",
    "mysql://{user}:{raw}@{host},i/{database}": "mysql://{user}@{host}/{database}",
    "mariadb://{host}/{database};user={user};password={raw}": None,
    "mysql://address=(host={host})(port=1)(user={user})(password={raw})/{database}": None,
    "mysql://(host={host},port=1,user={user},password={raw})/{database}": None,
    "mysql://[(host={host},user={user},password={raw})]/{database}": None,
    "mysql://h:1,address=(host={host})(user={user})(password={raw})/{database}": None,
    "mysql://{user}:{raw}@[h1,h2]/{database}": None,
    "mysql://{user}:{raw}@h1,{user}:{raw}@h2/{database}": None,
    "mysql://h:1,{user}:{raw}@h2/{database}": None,
}
"""Addresses of Java drivers, and ours that mean the same; None where none does."""
_PARTS = ("@", "/", "?", "=", "&", ":", ";", ",", "(", ")", "[", "]", "{", "}", "#", "%", "1", "h", "a=", "database=")
PIECES = {
    "user": st.sampled_from(["hive", "h.i-v_e"]),
    "password": st.lists(st.sampled_from((*_PARTS, "\n", "Zecret")), max_size=12).map("".join),
    "host": st.sampled_from(["h", "h.example.org:5432", "[::1]:1"]),
    "database": st.sampled_from(["meta", "m_1"]),
}
"""Of a Java driver's address."""


@given(form=st.sampled_from(list(JDBC)), **PIECES)
@example(next(iter(JDBC)), "hive", "p@ss/w?rd;Zecret", "h", "meta")
@example(next(iter(JDBC)), "hive", "Zecret@@#/?x", "h", "meta")
@example(next(iter(JDBC)), "hive", "5/Zecret?x=y", "h", "meta")
@example(next(iter(JDBC)), "hive", "p@Zecret/x?a=b", "h", "meta")
def test_a_java_drivers_address_is_read_as_it_was_meant_or_refused(form, user, password, host, database):
    """Whatever the password, no part of it passes for another part of the address, is written or told."""
    require_read_as_meant(form, JDBC[form], user=user, password=password, host=host, database=database)


def require_read_as_meant(form, ours, *, user, password, host, database):
    """A Java driver's address of this form is read as the one in our form, or refused, and the password never told."""
    braced = "{" + password.replace("}", "}}") + "}" if set(password) & set(";{}") else password
    given_ = {"user": user, "raw": password, "quoted": quote(password, safe="@/?:;,()[]="), "braced": braced}
    url = "jdbc:" + form.format(**given_, host=host, database=database)
    assert "Zecret" not in (mistake(url) or "Zecret")
    meant = ours and ours.format(user=user, host=host, listed=quote(host, safe=":"), database=database)
    try:
        found = settings_of({"javax.jdo.option.ConnectionURL": Property("u", url, "f")}, None)
        read, told = found.taken[0].value, as_yaml(found.taken, found.notes)
    except SettingsError as error:
        read, meant, told = None, None, str(error)
    assert "Zecret" not in told
    assert read == meant


@pytest.mark.parametrize("form", [form for form, meant in JDBC.items() if meant is not None])
@pytest.mark.parametrize("password", ["", "geheim", "p#ss%w*rd!$^~'", "ge:he/im"])
def test_a_java_drivers_address_with_a_usual_password_is_read(form, password):
    """Only what could be read in two ways is refused."""
    url = form.format(
        user="hive", raw=password, quoted=quote(password, safe=""), braced=password, host="h:1", database="m"
    )
    found = settings_of({"javax.jdo.option.ConnectionURL": Property("u", f"jdbc:{url}", "f")}, None)
    assert found.taken[0].value == JDBC[form].format(user="hive", host="h:1", listed="h:1", database="m")
