"""`compactor init`: Hive's own configuration in our keys, each value with where it is from."""

import stat

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from compactor.cli.hive_site import Taken, as_yaml, read, seconds, settings_of
from compactor.cli.root import cli
from compactor.errors import SettingsError
from compactor.settings import load_settings

URL = {"javax.jdo.option.ConnectionURL": "jdbc:postgresql://db:5432/metastore"}


def site(folder, properties, name="hive-site.xml"):
    path = folder / name
    items = "".join(
        f"<property><name>{key}</name><value>{value}</value></property>" for key, value in properties.items()
    )
    path.write_text(f"<?xml version='1.0'?><configuration>{items}</configuration>", encoding="utf-8")
    return path


def taken(tmp_path, **properties):
    found = settings_of(read([site(tmp_path, URL | properties)]), None)
    return {one.key: one.value for one in found.taken}, found.notes


def run(*args):
    return CliRunner().invoke(cli, [str(arg) for arg in args])


@pytest.mark.parametrize(
    ("jdbc", "user", "expected"),
    [
        ("jdbc:postgresql://db/metastore", "hive", "postgresql://hive@db/metastore"),
        (
            "jdbc:postgresql://a:1,b:2/m?sslmode=require&amp;x=1&amp;sslfactory=y&amp;sslpassword=s3cret",
            "h@i",
            "postgresql://h%40i@/m?host=a:1&host=b:2&sslmode=require",
        ),
        ("jdbc:mysql://db:3306/hive?createDatabaseIfNotExist=true", "hive", "mysql://hive@db:3306/hive"),
        ("jdbc:mariadb://db/hive?user=ann", None, "mysql://ann@db/hive"),
        ("jdbc:mysql://db/h?sslMode=DISABLED", "a", "mysql://a@db/h?ssl_disabled=true"),
        ("jdbc:mysql://db/h?sslMode=PREFERRED&amp;password=x", "a", "mysql://a@db/h"),
        ("jdbc:mysql://db/h?sslMode=REQUIRED", "a", "mysql://a@db/h?ssl_check_hostname=false"),
        ("jdbc:mysql://db/h?sslMode=VERIFY_IDENTITY", "a", "mysql://a@db/h?ssl_check_hostname=false"),
        (
            "jdbc:mysql://db/h?useSSL=true&amp;requireSSL=true&amp;verifyServerCertificate=false",
            "a",
            "mysql://a@db/h?ssl_check_hostname=false",
        ),
        ("jdbc:mariadb://db/h?sslMode=trust", "a", "mysql://a@db/h?ssl_check_hostname=false"),
        (
            "jdbc:mariadb://db/h?sslMode=verify-ca&amp;serverSslCert=/etc/ca.pem",
            "a",
            "mysql://a@db/h?ssl_ca=%2Fetc%2Fca.pem&ssl_check_hostname=false",
        ),
        (
            "jdbc:mariadb://db/h?sslMode=verify-full&amp;serverSslCert=file:/etc/ca.pem",
            "a",
            "mysql://a@db/h?ssl_ca=%2Fetc%2Fca.pem",
        ),
        (
            "jdbc:postgresql://db/m?sslmode=verify-full&amp;sslrootcert=/ca.pem&amp;currentSchema=hive",
            "a",
            "postgresql://a@db/m?sslmode=verify-full&sslrootcert=%2Fca.pem&options=-csearch_path%3Dhive",
        ),
    ],
)
def test_addresses(tmp_path, jdbc, user, expected):
    """As the metastore's, without the driver's own options."""
    more = {} if user is None else {"javax.jdo.option.ConnectionUserName": user}
    assert taken(tmp_path, **{"javax.jdo.option.ConnectionURL": jdbc}, **more)[0]["database.url"] == expected


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"hive.txn.timeout": "300s", "metastore.txn.timeout": "10min"}, {"txn.timeout_seconds": "600"}),
        ({"hive.compactor.delta.num.threshold": "5"}, {"initiator.thresholds.delta_count": "5"}),
        ({"hive.compactor.delta.pct.threshold": "0.25"}, {"initiator.thresholds.delta_ratio": "0.25"}),
        ({"hive.compactor.aborted.txn.time.threshold": "2d"}, {"initiator.thresholds.aborted_age_hours": "48"}),
        ({"hive.compactor.worker.timeout": "86400"}, {"worker.timeout_hours": "24"}),
        ({"hive.compactor.cleaner.run.interval": "5000ms"}, {"cleaner.interval_seconds": "5"}),
        ({"hive.compactor.cleaner.run.interval": "5000"}, {"cleaner.interval_seconds": "5"}),
        ({"metastore.compactor.initiator.failed.retry.time": "3"}, {"initiator.failed_retry_days": "3"}),
        ({"hive.compactor.cleaner.retention.time.seconds": "60s"}, {}),
        (
            {
                "hive.compactor.cleaner.retention.time.seconds": "60s",
                "hive.compactor.delayed.cleanup.enabled": "true",
            },
            {"cleaner.retention_seconds": "60"},
        ),
        ({"orc.force.positional.evolution": "TRUE"}, {"readers.orc_columns": "position"}),
        ({"orc.force.positional.evolution": "false"}, {"readers.orc_columns": "name"}),
        ({"orc.force.positional.evolution": "maybe"}, {}),
        ({"hive.exec.schema.evolution": "true"}, {}),
        ({"hive.exec.schema.evolution": "false"}, {"readers.orc_columns": "both"}),
        (
            {"hive.exec.schema.evolution": "false", "orc.force.positional.evolution": "false"},
            {"readers.orc_columns": "name"},
        ),
        ({"a": "7", "hive.compactor.history.retention.failed": "${a}"}, {"housekeeper.history.failed": "7"}),
        (
            {"hive.compactor.worker.etl.threads": "3", "hive.compactor.worker.none.threads": "0"},
            {"worker.pools.etl": "3"},
        ),
    ],
)
def test_settings_in_hives_units(tmp_path, properties, expected):
    """The metastore's own name counts before the older one; variables are replaced."""
    found, _ = taken(tmp_path, **properties)
    assert {key: value for key, value in found.items() if not key.startswith("database")} == expected


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"hive.compactor.initiator.on": "true"}, "set it to false, or Hive's Initiator works beside"),
        ({"metastore.compactor.worker.threads": "4"}, "is 4: set it to 0"),
        ({"hive.txn.timeout": "soon"}, "hive-site.xml: hive.txn.timeout = soon isn't understood"),
        ({"javax.jdo.option.ConnectionPassword": "secret"}, "--password-file FILE"),
        (
            {"hadoop.security.credential.provider.path": "user:///,  jceks://file/etc/x.jceks"},
            "credential store user:/// (hive-site.xml: hadoop.security.credential.provider.path) for the password, as javax.jdo.option.ConnectionPassword: ask who",
        ),
        (
            {
                "javax.jdo.option.ConnectionPassword": "secret",
                "hadoop.security.credential.provider.path": "jceks://hdfs@nn:8020/x.jceks",
                "hadoop.security.credstore.java-keystore-provider.password-file": "store.pw",
            },
            "hadoop fs -get hdfs://nn:8020/x.jceks credentials.jceks; echo 'var p",
        ),
        (
            {
                "hadoop.security.credential.provider.path": "jceks://hdfs/x.jceks",
                "hadoop.security.credstore.java-keystore-provider.password-file": "store.pw",
            },
            "set HADOOP_CREDSTORE_PASSWORD to what Hive's store.pw holds",
        ),
        ({"hive.compactor.worker.a.b.threads": "3"}, "pool a.b has no workers until worker.pools names it"),
        ({"hive.compactor.worker.etl.threads": "many"}, "pool etl has no workers until worker.pools names it"),
        ({"hive.compactor.worker.etl.threads": "257"}, "pool etl has no workers until worker.pools names it"),
        (
            {"hive.metastore.warehouse.dir": "/w", "metastore.warehouse.external.dir": "hdfs://nn/e"},
            "name all places: the default file system's /w (hive-site.xml: hive.metastore.warehouse.dir) and hdfs://nn/e (hive-site.xml: metastore.warehouse.external.dir)",
        ),
        (
            {"hive.metastore.warehouse.dir": "/w", "fs.defaultFS": "hdfs://nn:8020/"},
            "name all places: hdfs://nn:8020/w (hive-site.xml: hive.metastore.warehouse.dir), and any other",
        ),
        ({"hive.zookeeper.quorum": "a,b:1", "hive.zookeeper.client.port": "9"}, "zookeeper.hosts names it: a:9,b:1"),
        ({"javax.jdo.option.ConnectionURL": "jdbc:mysql://d/h?useSSL=true"}, "needs the options of docs/metastore.md"),
        (
            {"javax.jdo.option.ConnectionURL": "jdbc:mysql://d/h?sslMode=VERIFY_CA"},
            "needs the options of docs/metastore.md",
        ),
        (
            {"javax.jdo.option.ConnectionURL": "jdbc:postgresql://d/h?loggerLevel=x&amp;currentSchema=a%20b"},
            "mean nothing to this driver were left out: loggerLevel, currentSchema",
        ),
        (
            {"javax.jdo.option.ConnectionURL": "jdbc:mysql://d/h?createDatabaseIfNotExist=true&amp;password=s3cret"},
            "were left out: createDatabaseIfNotExist, password",
        ),
        (
            {"javax.jdo.option.ConnectionURL": "jdbc:postgresql://d/h?ssl=true"},
            "needs the options of docs/metastore.md",
        ),
        (
            {"javax.jdo.option.ConnectionURL": "jdbc:postgresql://d/h?ssl=&amp;sslmode="},
            "needs the options of docs/metastore.md",
        ),
        ({"javax.jdo.option.ConnectionURL": "jdbc:mysql://d,e:1/h"}, "needs an address that leads to the primary"),
    ],
)
def test_what_must_be_said(tmp_path, properties, said):
    """What can't be taken over, or runs beside; never the password itself."""
    _, notes = taken(tmp_path, **properties)
    assert sum(said in note for note in notes) == 1
    assert "secret" not in " ".join(notes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<configuration/>", "no file names the database of the metastore"),
        ("<other/>", "is no configuration of Hadoop's"),
        ("<configuration>", "isn't XML"),
        (None, "can't be read"),
        ("jdbc:derby:;databaseName=metastore_db;create=true", "PostgreSQL and MySQL are served"),
        ("jdbc:oracle:thin:@//d/h", "PostgreSQL and MySQL are served; Oracle's dialect, never run on a server, is a"),
        ("nonsense", "PostgreSQL and MySQL are served"),
        ("<?xml version='1.0' encoding='nonsense'?><configuration/>", "isn't XML"),
        ("<?xml version='1.0' encoding='utf-7'?><configuration/>", "isn't XML"),
    ],
)
def test_files_that_tell_nothing(tmp_path, text, said):
    """One line, and nothing is written."""
    path = tmp_path / "hive-site.xml"
    if text is not None and not text.startswith("<"):
        site(tmp_path, {"javax.jdo.option.ConnectionURL": text})
    elif text is not None:
        path.write_text(text, encoding="utf-8")
    result = run("init", "--hive-site", path, "--to", tmp_path / "made.yaml")
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "made.yaml").exists()


def test_pools_and_words_of_yamls_own_are_read_back(tmp_path):
    """A pool may be called `on`, a user `null`; a value in several lines stays in its comment."""
    pools = {f"hive.compactor.worker.{name}.threads": "2" for name in ("etl", "on", "1", "a: b")}
    more = {"hive.compactor.run.as.user": "null", "hadoop.security.credential.provider.path": "user:///\n x: y\n,z"}
    made = tmp_path / "made.yaml"
    assert run("init", "--hive-site", site(tmp_path, URL | pools | more), "--to", made).exit_code == 0
    settings = load_settings(made, {})
    assert settings.worker.pools == dict.fromkeys(("etl", "on", "1", "a: b"), 2)
    assert settings.worker.run_as == "null"


def test_a_settings_file_is_made(tmp_path):
    """From all files beside each other; with the password apart, for its owner only; nothing is overwritten."""
    password = {"javax.jdo.option.ConnectionPassword": "pa ss"}
    hive = site(tmp_path, URL | password | {"hive.txn.timeout": "300s", "hive.compactor.delta.num.threshold": "5"})
    site(tmp_path, {"hive.txn.timeout": "100s", "metastore.compactor.initiator.on": "true"}, "metastore-site.xml")
    made, secret = tmp_path / "made.yaml", tmp_path / "password"
    result = run("init", "--hive-site", hive, "--to", made, "--password-file", secret)
    assert result.exit_code == 0, result.stderr
    assert "metastore.compactor.initiator.on is true" in result.stderr
    assert result.stderr.endswith(f"written to {made}; next: compactor --config {made} doctor\n")
    text = made.read_text(encoding="utf-8")
    assert "pa ss" not in text
    assert "# metastore-site.xml: hive.txn.timeout\n  timeout_seconds: 100\n" in text
    settings = load_settings(made, {})
    assert settings.database.secret() == "pa ss"
    assert (settings.txn.timeout_seconds, settings.initiator.thresholds.delta_count) == (100, 5)
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    again = run("init", "--hive-site", hive, "--to", made)
    assert again.exit_code == 2
    assert f"{made} is there already" in again.stderr
    assert made.read_text(encoding="utf-8") == text


def test_an_address_alone_is_enough(tmp_path):
    """For who has no files of Hive's."""
    made = tmp_path / "made.yaml"
    assert run("init", "--metastore", "postgresql://hive@db/m", "--to", made).exit_code == 0
    assert load_settings(made, {}).database.url == "postgresql://hive@db/m"
    for wrong, said in (
        ([], "say where the metastore is"),
        (["--metastore", "x", "--hive-site", "y"], "give one of them"),
    ):
        assert said in run("init", *wrong, "--to", tmp_path / "b").stderr
    assert (
        "holds the password"
        in run(
            "init", "--metastore", "postgresql://h@d/m", "--to", tmp_path / "b", "--password-file", tmp_path / "p"
        ).stderr
    )


words = st.text("ab_", min_size=1, max_size=4)


@given(st.dictionaries(st.tuples(words, words) | st.tuples(words, words, words), st.text("a'#:${ }1", max_size=6)))
def test_every_value_is_read_as_it_was_written(values):
    """Whatever characters it has, at every depth."""
    keys = {".".join(key): value for key, value in values.items()}
    keys = {key: value for key, value in keys.items() if not any(other.startswith(f"{key}.") for other in keys)}
    parsed = yaml.load(as_yaml([Taken(*item, "there") for item in keys.items()], ["note"]), yaml.BaseLoader) or {}
    for key, value in keys.items():
        found = parsed
        for part in key.split("."):
            found = found[part]
        assert found == value


@given(st.integers(0, 10**6), st.sampled_from(["ms", "s", "sec", "min", "h", "d", "days", "hours", " seconds"]))
def test_lengths_of_time(count, unit):
    """With and without a plural's s; a number alone has the property's unit."""
    if unit.strip() == "seconds":
        with pytest.raises(ValueError, match="is no length of time"):
            seconds(f"{count}{unit}")
        return
    factor = {"m": 60, "s": 1, "h": 3600, "d": 86400}[unit[0]] if unit != "ms" else 0.001
    assert seconds(f"{count}{unit}") == pytest.approx(count * factor)
    assert seconds(str(count), "h") == count * 3600


def test_what_cant_be_read_says_why(tmp_path):
    """As the settings' own errors do."""
    with pytest.raises(SettingsError, match="can't be read: No such file"):
        read([tmp_path / "none.xml"])


@pytest.mark.parametrize(
    "jdbc",
    [
        "jdbc:oracle:thin:scott/s3cret@//db:1521/x",
        "jdbc:sqlserver://db;user=a;password=s3cret;databaseName=x",
        "jdbc:postgresql://bob:s3cret@db:5432/meta",
        "jdbc:postgresql://bob:a/s3cret@db:5432/meta",
        "jdbc:postgresql://bob:s3cret@x:y/z@db:5432/meta",
        "s3cret:nonsense",
    ],
)
def test_no_password_of_an_address_is_told_or_written(tmp_path, jdbc):
    """Neither in a message nor in the file; whose it is, is."""
    made = tmp_path / "made.yaml"
    result = run("init", "--hive-site", site(tmp_path, {"javax.jdo.option.ConnectionURL": jdbc}), "--to", made)
    assert "s3cret" not in result.output
    assert result.exit_code == (0 if made.exists() else 2)
    if made.exists():
        assert "postgresql://bob@db:5432/meta" in made.read_text(encoding="utf-8")
        assert "s3cret" not in made.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:s3cret@db/x",
        "postgresql://u@db/x?password=s3cret",
        "postgresql://u@db:s3cret/x",
        "oracle://db/x",
    ],
)
def test_an_address_that_is_not_taken_leaves_nothing(tmp_path, url):
    """It is judged before a file is made."""
    result = run("init", "--metastore", url, "--to", tmp_path / "made.yaml")
    assert (result.exit_code, list(tmp_path.iterdir()), "s3cret" in result.output) == (2, [], False)


@pytest.mark.parametrize(
    ("there", "to", "secret"),
    [
        ("made.yaml", "made.yaml", "pw"),
        ("pw", "made.yaml", "pw"),
        (None, "made.yaml", "nowhere/pw"),
        (None, "nowhere/made.yaml", "pw"),
        (None, "same", "same"),
    ],
)
def test_both_files_are_made_or_neither(tmp_path, there, to, secret):
    """So that the corrected command works, and a password lies nowhere by chance."""
    path = site(tmp_path, URL | {"javax.jdo.option.ConnectionPassword": "s3cret"})
    if there is not None:
        (tmp_path / there).write_text("before", encoding="utf-8")
    before = {found: found.read_text(encoding="utf-8") for found in tmp_path.iterdir()}
    result = run("init", "--hive-site", path, "--to", tmp_path / to, "--password-file", tmp_path / secret)
    assert result.exit_code == 2
    assert {found: found.read_text(encoding="utf-8") for found in tmp_path.iterdir()} == before


def test_the_password_is_found_from_any_directory(tmp_path, monkeypatch):
    """Its file is named as a whole: the daemon begins elsewhere."""
    path = site(tmp_path, URL | {"javax.jdo.option.ConnectionPassword": "s3cret"})
    monkeypatch.chdir(tmp_path)
    assert run("init", "--hive-site", path, "--to", "made.yaml", "--password-file", "pw").exit_code == 0
    monkeypatch.chdir("/")
    assert load_settings(tmp_path / "made.yaml", {}).database.secret() == "s3cret"


def test_variables_do_not_grow_without_end(tmp_path):
    """Each doubles the next: a value ends at its longest."""
    doubled = {f"v{number}": f"${{v{number + 1}}}${{v{number + 1}}}" for number in range(60)}
    found = read([site(tmp_path, URL | doubled | {"v60": "x" * 100})])
    assert len(found["v0"].value) < 1 << 20


@pytest.mark.parametrize(("value", "expected"), [("true", True), (" FALSE ", False), ("yes", None)])
def test_whether_queries_read_files_in_no_delta(tmp_path, value, expected):
    """As the site says; what isn't understood stays as delivered, and is told."""
    found, notes = taken(tmp_path, **{"hive.mm.allow.originals": value})
    if expected is None:
        assert "readers.insert_only_originals" not in found
        assert any("readers.insert_only_originals stays as delivered" in note for note in notes)
    else:
        assert yaml.safe_load(
            as_yaml([Taken("readers.insert_only_originals", found["readers.insert_only_originals"], "x")], ())
        ) == {"readers": {"insert_only_originals": expected}}


def test_what_newer_releases_turn_on_is_told(tmp_path):
    """Where no file names Hive's own Initiator or Cleaner."""
    _, notes = taken(tmp_path, **{"hive.compactor.cleaner.on": "false"})
    assert [note for note in notes if "4.1" in note] == [
        "Hive 4.1 and newer deliver metastore.compactor.initiator.on as true: set what no file names to false there"
    ]
