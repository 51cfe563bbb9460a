"""
Errors become one line and an exit code; options stand before or after the command; settings are checked and shown.
"""

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from compactor.cli import main, root
from compactor.cli.root import cli
from compactor.errors import OwnershipLostError, RefusedError, UnreachableError, UsageError
from compactor.metastore.compaction_queue.queue import Queue
from compactor.reasons import Reason
from compactor.settings.model import leaves

FAILURES = [
    (UsageError("x is\n wrong"), 2, "error: x is wrong\n"),
    (RefusedError(Reason.UNKNOWN_NAME, "odd directory"), 4, "error: odd directory\n"),
    (UnreachableError("no answer from db:5432"), 5, "error: no answer from db:5432\n"),
    (OwnershipLostError("somebody else has it"), 1, "error: somebody else has it\n"),
    (ValueError("boom"), 1, "error: ValueError: boom (unexpected; run again with --debug to see where)\n"),
    (KeyboardInterrupt(), 130, "\ninterrupted\n"),
]


def test_an_interrupt_while_modules_are_imported_is_one_line(monkeypatch, capsys):
    """As later: one line, and the code of an interrupt."""

    class Interrupting:
        def __getattr__(self, name):
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "compactor.cli.root", Interrupting())
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().err) == (130, "interrupted\n")


def test_an_output_that_can_not_be_written_is_one_line():
    """No guess at a fault of ours where a disk is full."""
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "compactor.cli", "completion", "bash"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (ran.returncode, ran.stderr) == (1, "error: the output can't be written: No space left on device\n")


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "compactor.yaml"
    path.write_text("database:\n  url: postgresql://hive@db/metastore\nworker:\n  threads: 3\n", encoding="utf-8")
    return str(path)


@pytest.fixture(autouse=True)
def _no_settings_around(monkeypatch):
    for name in [name for name in __import__("os").environ if name.startswith("COMPACTOR_")]:
        monkeypatch.delenv(name)


def invoke(*args):
    return invoke_with({}, *args)


def invoke_with(variables, *args):
    return CliRunner(env=variables).invoke(cli, list(args))


@pytest.mark.parametrize(("error", "code", "line"), FAILURES)
def test_an_error_is_one_line_and_its_exit_code(monkeypatch, error, code, line):
    """Ours, unexpected ones and an interrupt: one line on stderr, nothing on stdout, the code of its kind."""

    @click.command()
    def fails():
        raise error

    monkeypatch.setattr(root.LazyGroup, "get_command", lambda *_: fails)
    result = invoke("queue")
    assert (result.exit_code, result.stderr, result.stdout) == (code, line, "")


def test_debug_shows_the_traceback(monkeypatch):
    """Under --debug the traceback comes before the same line."""

    @click.command()
    def fails():
        raise ValueError("boom")

    monkeypatch.setattr(root.LazyGroup, "get_command", lambda *_: fails)
    result = invoke("--debug", "queue")
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("error: ValueError: boom")


def test_an_unknown_command_suggests_a_near_one():
    """A mistyped command is a usage error that names the right one."""
    result = invoke("histroy")
    assert result.exit_code == 2
    assert "did you mean history?" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_an_unknown_option_is_one_line():
    """So is a mistyped option, with the help to read."""
    result = invoke("config", "check", "--nope")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert "compactor config check --help" in result.stderr.replace("`cli", "`compactor")


def test_no_command_shows_help():
    """Without a command the list of commands comes on stderr with the usage code."""
    result = invoke()
    assert result.exit_code == 2
    assert "enqueue" in result.stderr


@pytest.mark.parametrize(
    "args",
    [
        ("--output", "json", "--config", "C", "config", "show"),
        ("config", "show", "-o", "json", "--config", "C"),
        ("config", "--config", "C", "-o", "json", "show"),
    ],
)
def test_global_options_stand_before_or_after_the_command(config, args):
    """--config and --output mean the same on both sides, and between a noun and its verb."""
    result = invoke(*(config if arg == "C" else arg for arg in args))
    assert result.exit_code == 0
    assert json.loads(result.stdout)["worker"]["threads"] == 3


@pytest.mark.parametrize("noun", ["config", "archive"])
def test_verbs_are_listed_with_their_whole_sentence(noun):
    """Nothing is cut off in the middle."""
    result = invoke(noun, "--help")
    assert result.exit_code == 0
    assert "..." not in result.stdout.partition("Commands:")[2]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("enqueue", "a.b", "--type", "medium"), "'major', 'minor'"),
        (("enqueue", "a.b", "--property", "x"), "'x' is not KEY=VALUE"),
        (("plan", "a.b", "--property", "=x"), "'=x' is not KEY=VALUE"),
        (("enqueue", "a.b", "--timeout", "5"), "--timeout makes sense with --wait only"),
        (("cancel", "--timeout", "5", "3"), "--timeout makes sense with --wait only"),
        (("enqueue", "--timeout", "-1", "--wait", "a.b"), "-1"),
        (("retry", "x"), "'x' is not a valid whole number"),
        (("queue", "shop", "orders"), "'orders' is too much; name one table, DATABASE.TABLE/PARTITION, or a pattern"),
        (("pause", "shop.orders", "--reason", "x"), "'shop.orders' is too much; name tables by --table"),
        (("members", "now", "x"), "'now x' is too much (see `"),
        (("explain", "shop.*"), "'shop.*' is a pattern: name one table here"),
        (("help",), "there is no command 'help' (did you mean --help?)"),
        (("compact", "a.b"), "there is no command 'compact' (compactor enqueue)"),
        (("quue",), "there is no command 'quue' (did you mean queue or enqueue?)"),
        (("version",), "(did you mean --version or verify?)"),
        (("history", "--limit", "0"), "0 is not in the range"),
        (("history", "a.b.c"), "write DATABASE.TABLE"),
        (("cancel", "99999999999999999999"), "is no id of a compaction"),
        (("queue", "--state", "gone"), "'initiated', 'working', 'ready-for-cleaning'"),
        (("pause", "--all"), "--reason"),
        (("plan", "a.b/k=\udcff"), r"'a.b/k=\udcff' isn't text"),
        *(
            ((command, "--watch", seconds), "is no number of seconds up to 86400, a day")
            for command in ("queue", "history", "why", "members")
            for seconds in ("nan", "inf", "1e308", "86401")
        ),
        (("queue", "--watch", "0"), "0 is not in the range"),
        (("report", "--html", ""), "Invalid value for '--html': it is empty: name a file"),
        (("archive", "build", ""), "it is empty: name a file"),
        (("config",), ""),
    ],
)
def test_wrong_input_is_one_line_that_says_what_is_right(args, said):
    """Usage errors end with 2 before anything is opened, and name the help to read."""
    result = invoke(*args)
    assert result.exit_code == 2
    assert said in result.stderr
    assert args == ("config",) or len(result.stderr.splitlines()) == 1
    assert result.stdout == ""


def test_config_from_the_environment(config):
    """COMPACTOR_CONFIG names the file; settings variables go over it."""
    result = CliRunner(env={"COMPACTOR_CONFIG": config, "COMPACTOR_WORKER__THREADS": "5"}).invoke(
        cli, ["-o", "tsv", "config", "show"]
    )
    assert "worker.threads\t5" in result.stdout


def test_secrets_of_sparks_configuration_are_hidden(config):
    """By the names that their keys have, and inside of values."""
    secrets = {
        "spark.hadoop.fs.s3a.secret.key": "hunter2",
        "spark.hadoop.fs.s3a.access.key": "hunter2",
        "spark.ssl.keyPassword": "hunter2",
        "spark.executorEnv.API_TOKEN": "hunter2",
        "spark.hadoop.fs.azure.account.key.x": "hunter2",
        "spark.driver.extraJavaOptions": "-Djavax.net.ssl.trustStorePassword=hunter2 -Xmx1g",
        "spark.executor.cores": "2",
    }
    for form in ("tsv", "json"):
        result = CliRunner(env={"COMPACTOR_SPARK__CONF": json.dumps(secrets)}).invoke(
            cli, ["-o", form, "--config", config, "config", "show"]
        )
        assert result.exit_code == 0, result.stderr
        assert "hunter2" not in result.output
        assert "-Xmx1g" in result.output


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://hive:top@hunter2@127.0.0.1:1/x",
        "postgresql://hive@127.0.0.1:hunter2/x",
        "postgresql://a:b/hunter2@h/x",
    ],
)
def test_no_message_holds_a_password_of_an_address(url):
    """Also where it holds an @ or a /, or stands in the wrong place."""
    result = CliRunner(env={"COMPACTOR_DATABASE__URL": url}).invoke(cli, ["queue"])
    assert result.exit_code in {2, 5}
    assert "hunter2" not in result.output


def test_each_setting_says_what_it_is_set_by(tmp_path):
    """The file, a variable (also one for a whole section), or the default; of two the one that counts."""
    path = tmp_path / "compactor.yaml"
    path.write_text(
        "database:\n  url: postgresql://hive@db/metastore\nspark:\n  conf:\n    a.b: 1\n    c: 2\n"
        "worker:\n  threads: 3\n",
        encoding="utf-8",
    )
    variables = {"COMPACTOR_WORKER__THREADS": "5", "COMPACTOR_SPARK__CONF": '{"c": "3"}'}
    result = invoke_with(variables, "--config", str(path), "-o", "tsv", "config", "show")
    assert result.exit_code == 0, result.stderr
    said = {
        key: (value, source) for key, value, source in (line.split("\t") for line in result.stdout.splitlines()[1:])
    }
    assert said["database.url"] == ("postgresql://hive@db/metastore", str(path))
    assert said["worker.threads"] == ("5", "COMPACTOR_WORKER__THREADS")
    assert said["worker.poll_seconds"][1] == "default"
    assert said["spark.conf.a.b"] == ("1", str(path))
    assert said["spark.conf.c"] == ("3", "COMPACTOR_SPARK__CONF")
    document = json.loads(invoke_with(variables, "--config", str(path), "-o", "json", "config", "show").stdout)
    sources = document.pop("sources")
    assert {key: source for key, (_, source) in said.items()}.items() <= sources.items()
    assert sources.keys() == leaves(document).keys()


def test_what_yaml_shows_is_a_settings_file(config, tmp_path):
    """Without `sources`: what applies now can be kept as a file."""
    shown = yaml.safe_load(invoke("--config", config, "-o", "yaml", "config", "show").stdout)
    del shown["sources"]
    kept = tmp_path / "kept.yaml"
    kept.write_text(yaml.safe_dump(shown), encoding="utf-8")
    again = yaml.safe_load(invoke("--config", str(kept), "-o", "yaml", "config", "show").stdout)
    assert {key: value for key, value in again.items() if key != "sources"} == shown


@pytest.mark.parametrize("before", [True, False], ids=["before the command", "after it"])
def test_config_on_the_command_line_wins_against_the_environment(config, tmp_path, before):
    """As in the systemd unit, whose environment file may still name another one."""
    other = tmp_path / "other.yaml"
    other.write_text("database:\n  url: sqlite:///elsewhere.db\n", encoding="utf-8")
    option, command = ["--config", config], ["config", "show"]
    result = CliRunner(env={"COMPACTOR_CONFIG": str(other)}).invoke(
        cli, ["-o", "tsv", *(option + command if before else command + option)]
    )
    assert result.exit_code == 0, result.stderr
    assert "elsewhere.db" not in result.stdout


def test_secrets_are_hidden(config):
    """Neither `config show` nor `config check` prints a password, whatever the format."""
    for form in ("table", "json", "yaml", "tsv"):
        for verb in ("show", "check"):
            result = CliRunner(env={"COMPACTOR_DATABASE__PASSWORD": "hunter2"}).invoke(
                cli, ["-o", form, "--config", config, "config", verb]
            )
            assert result.exit_code == 0, result.stderr
            assert "hunter2" not in result.output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("database:\n  url: sqlite:///x\nworkr: {}\n", "workr"),
        ("database:\n  url: sqlite:///x\nworker:\n  threads: many\n", "worker.threads"),
        ("worker: {}\n", "database"),
        ("a: [\n", "compactor.yaml"),
    ],
)
def test_a_config_mistake_is_one_line_that_names_the_key(tmp_path, text, said):
    """A typo, a wrong type, a missing key, broken YAML: exit 2 and one line with the place."""
    path = tmp_path / "compactor.yaml"
    path.write_text(text, encoding="utf-8")
    result = invoke("--config", str(path), "config", "check")
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_without_a_settings_file_the_line_says_how_to_name_one():
    """What a new user sees first: not only which key is missing, but where it would be read from."""
    result = invoke("queue")
    assert result.exit_code == 2
    assert result.stderr == (
        "error: no settings file is named (--config or COMPACTOR_CONFIG): database.url: is required; set it there or as COMPACTOR_DATABASE__URL\n"
    )


def test_a_missing_file_is_a_usage_error():
    """A settings file that isn't there is one line with its name."""
    result = invoke("--config", "/nowhere/compactor.yaml", "config", "check")
    assert result.exit_code == 2
    assert "/nowhere/compactor.yaml" in result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(shell):
    """Each shell gets a script that knows the command's name."""
    result = invoke("completion", shell)
    assert result.exit_code == 0
    assert "compactor" in result.stdout


def test_start_up_imports_nothing_heavy():
    """`compactor --version` reads no database driver, no Spark, no Arrow."""
    program = "import sys\nfrom compactor.cli.root import cli\ntry: cli.main(['--version'])\nexcept SystemExit: pass\nprint([m for m in ('sqlalchemy','pyspark','pyarrow','numpy','pydantic') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_closed_pipe_is_silent(config):
    """`compactor … | head -0` leaves nothing on stderr."""
    program = f"{sys.executable} -m compactor.cli --config {config} -o tsv config show | true"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("enqueue 'shop.*' --yes 2>&-", 0),
        ("cancel 'shop.*' --yes 2>&-", 3),
        ("report 2>&-", 0),
        ("verify shop.orders 2>&-", 0),
        ("queue --state nonsense 2>&-", 2),
        ("members <&- >&- 2>&-", 0),
        ("completion bash >&-", 0),
        ("queue --state nonsense 2>/dev/full", 2),
        ("explain shop.nix 2>/dev/full", 4),
    ],
)
def test_a_closed_stream_changes_no_exit_code(shop, words, code):
    """The code is that of the work; what nobody can read is left out, and an error that finds no room."""
    program = f"{sys.executable} -m compactor.cli --config {shop.config} {words}"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "")
    if words.startswith("enqueue"):
        with shop.open() as database:
            assert len(Queue(database).entries()) == 3
