"""
What is ended on YARN: only what the ResourceManager confirms counts, and what it refuses is said. The place of Hadoop's
command is taken by a script.
"""

import json
import sys

import pytest
from structlog.testing import capture_logs

from compactor.spark.application import orphans
from compactor.spark.application.orphans import by_keytab, end_on_yarn
from compactor.spark.application.submitter import ApplicationSubmitter
from tests.compacting import settings

COMMAND = """#!{python}
import json, os, sys
words = sys.argv[3:]
with open({asked!r}, "a") as file:
    file.write(json.dumps([words, dict(os.environ)]) + "\\n")
answer = json.load(open({answers!r}))[words[-1] if words[0] == "-kill" else words[0]]
sys.stdout.write(answer.get("out", ""))
sys.stderr.write(answer.get("err", ""))
sys.exit(answer.get("code", 0))
"""
ONE, TWO = "application_1700000000000_0001", "application_1700000000000_0002"
LISTED = f"Total number of applications:2\n{ONE}\tn\tSPARK\tu\tq\tRUNNING\n{TWO}\tn\tSPARK\tu\tq\tACCEPTED\n"
REFUSED = "12:00 WARN x: y\njava.io.IOException: org.apache.hadoop.security.AccessControlException: Client cannot authenticate via:[TOKEN, KERBEROS]\n\tat x.y\n"


@pytest.fixture
def yarn(tmp_path, monkeypatch):
    """Told what to answer; returns what it was asked, and in which environment."""
    script, asked, answers = tmp_path / "bin" / "spark-class", tmp_path / "asked", tmp_path / "answers"
    script.parent.mkdir()
    script.write_text(COMMAND.format(python=sys.executable, asked=str(asked), answers=str(answers)), encoding="utf-8")
    script.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setenv("COMPACTOR_DATABASE__PASSWORD", "geheim")

    def told(**given):
        answers.write_text(json.dumps(given), encoding="utf-8")
        return lambda: [json.loads(line) for line in asked.read_text(encoding="utf-8").splitlines()]

    return told


def test_what_is_listed_is_killed(yarn):
    """By its tag; without our settings, among which there are passwords."""
    asked = yarn(
        **{
            "-list": {"out": LISTED},
            ONE: {"out": f"Killing application {ONE}\n"},
            TWO: {"out": f"Killing application {TWO}\n"},
        }
    )
    assert end_on_yarn(
        ["7.a"], None, {"HADOOP_CONF_DIR": "/c", "COMPACTOR_DATABASE__PASSWORD": "geheim", "PATH": "/usr/bin:/bin"}
    ) == [ONE, TWO]
    assert [words for words, _ in asked()] == [
        ["-list", "-appTags", "compactor-7.a", "-appStates", "NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING"],
        ["-kill", ONE],
        ["-kill", TWO],
    ]
    assert all(
        environment["HADOOP_CONF_DIR"] == "/c" and "geheim" not in environment.values() for _, environment in asked()
    )


def test_only_what_is_confirmed_counts_as_ended(yarn):
    """One that had ended by itself wasn't ended by us; one that may not be killed goes on, and a warning says why."""
    yarn(
        **{
            "-list": {"out": LISTED},
            ONE: {"out": f"Application {ONE} has already finished \n"},
            TWO: {"code": 255, "err": REFUSED},
        }
    )
    with capture_logs() as lines:
        assert end_on_yarn(["7.a"], ONE, {}) == []
    (line,) = (line for line in lines if line["log_level"] == "warning")
    assert f"-kill {TWO}" in str(line)
    assert "Client cannot authenticate via:[TOKEN, KERBEROS]; set spark.principal and spark.keytab" in str(line)
    assert ONE not in str(lines)


def test_a_command_without_an_answer_is_told(yarn, monkeypatch):
    """
    Hadoop's goes on trying for a quarter of an hour where nobody is logged in; with a keytab it must be something else.
    """
    monkeypatch.setattr(orphans, "_CLI_SECONDS", 0.01)
    yarn()
    with capture_logs() as lines:
        assert end_on_yarn([], ONE, {}) == []
        assert end_on_yarn([], ONE, {"KRB5KEYTAB": "/k"}) == []
    without, by_key = lines
    assert (
        "no answer within 0.01 s, which a YARN with Kerberos doesn't give without a login; set spark.principal"
        in " ".join(map(str, without.values()))
    )
    assert "set spark.principal" not in str(by_key)


def test_a_list_that_is_refused_is_told(yarn):
    """What is known by its id is killed nevertheless."""
    yarn(
        **{
            "-list": {"code": 1, "err": "Exception in thread main: Connection refused\n"},
            ONE: {"out": f"Killing application {ONE}\n"},
        }
    )
    with capture_logs() as lines:
        assert end_on_yarn(["7.a"], ONE, {}) == [ONE]
    assert "Connection refused" in str(lines)


def test_who_has_a_keytab_needs_no_ticket():
    """Hadoop's commands take it from their environment; without one there is nothing to say."""
    given = settings(spark={"mode": "submit", "master": "yarn", "principal": "hive@R", "keytab": "/k"}).spark
    assert by_keytab(given) == {"KRB5PRINCIPAL": "hive@R", "KRB5KEYTAB": "/k"}
    assert by_keytab(settings().spark) == {}


def test_what_a_dead_worker_left_is_only_said_to_be_ended_when_it_is(yarn):
    """The log doesn't claim what YARN refused; and the command gets no password of ours."""
    asked = yarn(**{"-list": {"out": f"{ONE}\n"}, ONE: {"code": 255, "err": "Exception: not yours\n"}})
    submitter = ApplicationSubmitter(settings(spark={"mode": "submit", "master": "yarn"}))
    with capture_logs() as lines:
        submitter.end_left_over({"7.a"}, None)
        submitter.stop()
    assert "Exception: not yours" in str(lines)
    assert "orphans.ended" not in [line["event"] for line in lines]
    assert all("geheim" not in environment.values() for _, environment in asked())
