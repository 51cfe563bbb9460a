"""Settings: one line for each mistake, secrets hidden, and a default file that loads."""

from pathlib import Path

import pytest

from compactor.errors import SettingsError
from compactor.settings import Settings, hide_password, load_settings

ROOT = Path(__file__).parents[3]
SQLITE = "database: {url: 'sqlite:////tmp/m.db'}\n"
SERVER = "database: {url: 'postgresql://hive@db/metastore'}\n"


def load(tmp_path: Path, text: str, **env: str) -> Settings:
    path = tmp_path / "c.yaml"
    path.write_text(text, encoding="utf-8")
    return load_settings(path, env)


def test_the_default_file_loads():
    """The file as shipped is valid."""
    assert load_settings(ROOT / "config/compactor.yaml", {}).initiator.interval_seconds == 300


def test_environment_goes_over_the_file(tmp_path):
    """A variable replaces exactly its key, at any depth, whatever the letter case."""
    settings = load(
        tmp_path,
        SQLITE + "initiator: {interval_seconds: 7, failed_threshold: 3}",
        COMPACTOR_INITIATOR__THRESHOLDS__DELTA_COUNT="4",
        compactor_initiator__interval_seconds="9",
    )
    assert (
        settings.initiator.interval_seconds,
        settings.initiator.failed_threshold,
        settings.initiator.thresholds.delta_count,
    ) == (9, 3, 4)


def test_everything_may_come_from_the_environment():
    """No file is needed."""
    assert load_settings(
        None, {"COMPACTOR_DATABASE__URL": "sqlite:////m.db", "COMPACTOR_SPARK__CONF": '{"spark.a": "b"}'}
    ).spark.conf == {"spark.a": "b"}


def test_variables_of_the_command_line_are_not_settings():
    """COMPACTOR_CONFIG names the file; it is no unknown setting."""
    assert load_settings(None, {"COMPACTOR_DATABASE__URL": "sqlite:////m.db", "COMPACTOR_CONFIG": "x.yaml"})


def test_a_section_without_content_means_its_defaults(tmp_path):
    """`cleaner:` with everything below commented out is what people leave behind."""
    assert load(tmp_path, SQLITE + "cleaner:\n  # threads: 9\n").cleaner.threads == 4


def test_spark_properties_may_be_numbers_and_truth_values(tmp_path):
    """YAML users write `4` and `true`; Spark gets the texts it expects."""
    assert load(tmp_path, SQLITE + "spark: {conf: {spark.cores.max: 4, spark.x: true}}").spark.conf == {
        "spark.cores.max": "4",
        "spark.x": "true",
    }


def test_sizes_may_carry_a_unit(tmp_path):
    """8MiB is easier to read than 8388608."""
    assert load(tmp_path, SQLITE + "splice: {min_stripe_bytes: 16MiB}").splice.min_stripe_bytes == 16 * 1024 * 1024


MISTAKES = [
    ("initator: {a: 1}", {}, "c.yaml: initator: unknown key; did you mean initiator?"),
    (
        "initiator: {interval_second: 1}",
        {},
        "c.yaml: initiator.interval_second: unknown key; did you mean interval_seconds?",
    ),
    (
        "initiator: {thresholds: {x: 1}}",
        {},
        "c.yaml: initiator.thresholds.x: unknown key; known are delta_count, delta_ratio, aborted_count, aborted_age_hours, open_age_hours",
    ),
    (
        "warehouse: {roots: [warehouse]}",
        {},
        "c.yaml: warehouse.roots: 'warehouse' isn't an absolute location such as hdfs://cluster/warehouse",
    ),
    (
        "warehouse: {roots: ['hdfs://nn/warehouse/../other']}",
        {},
        "c.yaml: warehouse.roots: 'hdfs://nn/warehouse/../other' has '.', '..' or a control character in its path: write the real path",
    ),
    (
        "zookeeper: {hosts: 'zk1:2181/compactor'}",
        {},
        "c.yaml: zookeeper.hosts: is a list such as zk1:2181,zk2:2181,zk3:2181; the path belongs into root",
    ),
    (
        "zookeeper: {root: compactor}",
        {},
        "c.yaml: zookeeper.root: is a path in ZooKeeper such as /compactor, one for all daemons of one metastore",
    ),
    (
        "zookeeper: {auth: digest, user: u}",
        {},
        "c.yaml: zookeeper: auth digest needs user, and password_file or COMPACTOR_ZOOKEEPER__PASSWORD",
    ),
    ("zookeeper: {user: u}", {}, "c.yaml: zookeeper: auth none takes no user and no password"),
    (
        "zookeeper: {password: geheim}",
        {},
        "c.yaml: zookeeper.password: a password doesn't belong in this file; use zookeeper.password_file",
    ),
    (
        "zookeeper: {tls: {enabled: true}}",
        {},
        "c.yaml: zookeeper.tls: ca_file is required: the authority that signed the servers' certificates",
    ),
    ("zookeeper: {tls: {ca_file: ca.pem}}", {}, "c.yaml: zookeeper.tls: files are given, but enabled is false"),
    ("initiator: {interval_seconds: yes}", {}, "c.yaml: initiator.interval_seconds: a truth value makes no sense here"),
    ("splice: {min_stripe_bytes: true}", {}, "c.yaml: splice.min_stripe_bytes: a truth value makes no sense here"),
    ("initiator: {interval_seconds: abc}", {}, "c.yaml: initiator.interval_seconds: input should be a valid number"),
    ("initiator: {interval_seconds: .inf}", {}, "c.yaml: initiator.interval_seconds: input should be a finite number"),
    (
        "worker: {timeout_hours: 1e300}",
        {},
        "c.yaml: worker.timeout_hours: input should be less than or equal to 100000",
    ),
    (
        "members: {heartbeat_seconds: 1e300}",
        {},
        "c.yaml: members.heartbeat_seconds: input should be less than or equal to",
    ),
    (
        "txn: {timeout_seconds: 1e30}",
        {},
        "c.yaml: txn.timeout_seconds: input should be less than or equal to 100000000",
    ),
    (
        "initiator: {failed_retry_days: 1e300}",
        {},
        "c.yaml: initiator.failed_retry_days: input should be less than or equal to 100000",
    ),
    (
        "initiator: {thresholds: {aborted_age_hours: 1e300}}",
        {},
        "thresholds.aborted_age_hours: input should be less than or equal to 100000",
    ),
    ("zookeeper: {hosts: 'a:b:c'}", {}, "c.yaml: zookeeper.hosts: is a list such as zk1:2181,zk2:2181,zk3:2181"),
    ("a: " + "[" * 5000, {}, "c.yaml: is nested too deeply: that is no settings file"),
    ("initiator: {interval_seconds: 0}", {}, "c.yaml: initiator.interval_seconds: input should be greater than 0"),
    ("initiator: 5", {}, "c.yaml: initiator: keys and values are wanted here"),
    ("worker: {pool: 5}", {}, "c.yaml: worker.pool: input should be a valid string"),
    ("log: {level: loud}", {}, "c.yaml: log.level: input should be 'debug', 'info', 'warning' or 'error'"),
    (
        "worker: {heartbeat_seconds: 200}",
        {},
        "worker.heartbeat_seconds is 200, but a transaction times out after txn.timeout_seconds = 300",
    ),
    (
        "initiator: {full_scan_seconds: 1}",
        {},
        "initiator.full_scan_seconds is 1, less than initiator.interval_seconds = 300",
    ),
    (
        "splice: {min_stripe_bytes: 99GiB}",
        {},
        "splice.min_stripe_bytes is 106300440576, more than recode.target_stripe_bytes = 67108864",
    ),
    (
        "recode: {target_stripe_bytes: 1MiB}",
        {},
        "splice.min_stripe_bytes is 8388608, more than recode.target_stripe_bytes = 1048576",
    ),
    ("cleaner: {}\ncleaner: {}", {}, "c.yaml line 3: the key cleaner stands twice in one place"),
    ("a: [1", {}, "c.yaml line 2: "),
    ("1: 2", {}, "c.yaml: 1: unknown key; known are database"),
    ("spark: {mode: cluster}", {}, "c.yaml: spark.mode: input should be 'session'"),
    ("host: 'a b'", {}, "c.yaml: host: "),
    (
        "",
        {"COMPACTOR_INITIATR__X": "1"},
        "environment: COMPACTOR_INITIATR__X: there is no setting initiatr; did you mean initiator?",
    ),
    (
        "",
        {"COMPACTOR_HTTP__PORTS": "1"},
        "environment: COMPACTOR_HTTP__PORTS: there is no setting http.ports; did you mean port?",
    ),
    (
        "",
        {"COMPACTOR_HTTP__PORT": "x"},
        "environment: COMPACTOR_HTTP__PORT: http.port: input should be a valid integer",
    ),
    ("", {"COMPACTOR_SPARK": "x"}, "environment: COMPACTOR_SPARK can't be read; a JSON object is wanted"),
    ("", {"compactor_spark__conf": "x"}, "environment: compactor_spark__conf can't be read; a JSON object is wanted"),
    ("", {"COMPACTOR_SPARK__CONF": "[" * 9999}, "COMPACTOR_SPARK__CONF can't be read; a JSON object is wanted"),
    (
        "",
        {"COMPACTOR_WAREHOUSE__ROOTS": "/warehouse"},
        "environment: COMPACTOR_WAREHOUSE__ROOTS can't be read; a JSON list is wanted",
    ),
]


@pytest.mark.parametrize(("text", "env", "said"), MISTAKES, ids=[f"{text}{''.join(env)}" for text, env, _ in MISTAKES])
def test_a_mistake_is_one_line_naming_the_key(tmp_path, text, env, said):
    """Unknown key, wrong type, impossible combination: one line with the place, the key and what is allowed."""
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, SQLITE + text, **env)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "c.yaml: database.url: is required; set it there or as COMPACTOR_DATABASE__URL"),
        (
            "database: {password_file: /p}",
            "c.yaml: database.url: is required; set it there or as COMPACTOR_DATABASE__URL",
        ),
        ("databse: {url: 'sqlite:////v/m.db'}", "c.yaml: databse: unknown key; did you mean database?"),
        ("database: {ulr: 'sqlite:////v/m.db'}", "c.yaml: database.ulr: unknown key; did you mean url?"),
        ("- 1", "must hold keys and values"),
        (
            "database: {url: 'postgresql://u:geheim@h/db'}",
            "c.yaml: database.url: a password doesn't belong in this file; use database.password_file or COMPACTOR_DATABASE__PASSWORD",
        ),
        (
            "database: {url: 'postgresql://h/db?password=geheim'}",
            "c.yaml: database.url: a password doesn't belong in this file",
        ),
        (
            "database: {url: 'postgresql://u@h/db', password: geheim}",
            "c.yaml: database.password: a password doesn't belong in this file",
        ),
    ],
)
def test_the_database_is_required_and_holds_no_password_in_the_file(tmp_path, text, said):
    """A file that others can read is no place for a password, and the message doesn't repeat it."""
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, text)
    assert said in str(caught.value)
    assert "geheim" not in str(caught.value)


def test_a_missing_file_is_one_line(tmp_path):
    """The path and why."""
    with pytest.raises(SettingsError, match=r"nowhere\.yaml: can't be read \(No such file or directory\)"):
        load_settings(tmp_path / "nowhere.yaml", {})


def test_what_is_too_long_for_settings_is_not_read_to_its_end():
    """Of a device without an end, as little as of a wrong file."""
    with pytest.raises(SettingsError, match="/dev/zero: is longer than 1000000 characters: that is no settings file"):
        load_settings(Path("/dev/zero"), {})


def test_two_passwords_are_refused(tmp_path):
    """Which one holds would be a guess."""
    with pytest.raises(SettingsError, match="a password is given twice: by password and by password_file"):
        load(tmp_path, SERVER.replace("}", ", password_file: /p}"), COMPACTOR_DATABASE__PASSWORD="a")


def test_the_password_comes_from_its_file(tmp_path):
    """The first line; an unreadable or empty file is one line of its own."""
    secret = tmp_path / "secret"
    secret.write_text("geheim\nmore\n", encoding="utf-8")
    text = SERVER.replace("}", f", password_file: '{secret}'}}")
    assert load(tmp_path, text).database.secret() == "geheim"
    secret.write_text("", encoding="utf-8")
    with pytest.raises(SettingsError, match="is empty; its first line must be the password"):
        load(tmp_path, text).database.secret()
    secret.unlink()
    with pytest.raises(SettingsError, match="can't be read"):
        load(tmp_path, text).database.secret()


def test_secrets_are_never_shown(tmp_path):
    """Neither repr, str nor `shown` holds a password, whichever way it was given."""
    one = load(tmp_path, SERVER, COMPACTOR_DATABASE__PASSWORD="geheim")
    other = load(tmp_path, "", COMPACTOR_DATABASE__URL="postgresql://u:geheim@h/db")
    for settings in (one, other):
        assert "geheim" not in repr(settings) + str(settings) + str(settings.shown()) + repr(settings.database)
    assert one.database.secret() == "geheim"
    assert other.database.url == "postgresql://u:geheim@h/db"


def test_hide_password_leaves_the_rest():
    """User, host, database and other parameters stay readable."""
    assert (
        hide_password("postgresql://u:p:w@h:1/db?a=b&password=x&c=d")
        == "postgresql://u:********@h:1/db?a=b&password=********&c=d"
    )
    assert (
        hide_password("oracle://c@h/s?wallet_password=x&schema=A") == "oracle://c@h/s?wallet_password=********&schema=A"
    )
    assert hide_password("mssql://c@h/m?PWD=x&APP=a") == "mssql://c@h/m?PWD=********&APP=a"


def test_changes_are_told_apart_by_what_a_running_daemon_can_take_over(tmp_path):
    """A reload applies some keys and names those that need a restart."""
    old = load(tmp_path, SQLITE)
    new = load(
        tmp_path, SQLITE + "cleaner: {threads: 9}\nworker: {threads: 3, poll_seconds: 2}\nspark: {conf: {a: b}}\n"
    )
    applied, restart = old.changes(new)
    assert applied == ("cleaner.threads", "worker.poll_seconds")
    assert set(restart) == {"worker.threads", "spark.conf", "spark.conf.a"}


def test_values_can_not_be_changed_afterwards(tmp_path):
    """Settings are a value: a reload makes a new one."""
    with pytest.raises(ValueError, match="frozen"):
        load(tmp_path, SQLITE).cleaner.threads = 5  # type: ignore[misc]
