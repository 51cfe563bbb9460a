"""
Alert and recording rules: valid, tried in both directions, built on metrics that exist, each with a page that says what
to do.
"""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from prometheus_client import Counter
from prometheus_client.metrics import MetricWrapperBase

from compactor.cli.root import cli
from compactor.metrics import CLEANING_OUTCOMES, JOB_OUTCOMES, Metrics
from tests.deploy.service import DEPLOY, PROJECT
from tests.needs import missing

with_promtool = pytest.mark.deploy
"""What needs the program; the rest needs no more than the files."""
FOLDER = DEPLOY / "prometheus"
RULES = [rule for group in yaml.safe_load((FOLDER / "rules.yaml").read_text())["groups"] for rule in group["rules"]]
ALERTS = [rule for rule in RULES if "alert" in rule]
NAMES = sorted({rule["alert"] for rule in ALERTS})
CASES = [
    check
    for case in yaml.safe_load((FOLDER / "rules_test.yaml").read_text())["tests"]
    for check in case["alert_rule_test"]
]


def promtool(*arguments: object):
    if shutil.which("promtool") is None:
        missing("promtool isn't installed (Debian: apt-get install prometheus)")
    return subprocess.run(
        ["promtool", *map(str, arguments)], capture_output=True, text=True, check=False, cwd=FOLDER, timeout=200
    )


@with_promtool
def test_prometheus_takes_the_rules():
    """`promtool check rules` has nothing to say."""
    done = promtool("check", "rules", "rules.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


@with_promtool
def test_the_cases_come_out():
    """Every alert fires where it should, with these words, and not where it shouldn't."""
    done = promtool("test", "rules", "rules_test.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_every_alert_is_tried_in_both_directions(name):
    """One case in which it fires with each of its severities, one in which it doesn't."""
    checks = [check["exp_alerts"] for check in CASES if check["alertname"] == name]
    fired = {alert["exp_labels"]["severity"] for alerts in checks for alert in alerts}
    assert fired == {rule["labels"]["severity"] for rule in ALERTS if rule["alert"] == name}
    assert [] in checks


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: f"{rule['alert']}-{rule['labels']['severity']}")
def test_every_alert_says_what_and_what_to_do(rule):
    """A severity, a summary of one sentence, and a page."""
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert rule["annotations"]["summary"].endswith(".")
    assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{rule['alert']}.md"


@with_promtool
def test_the_pages_may_lie_elsewhere(tmp_path):
    """The command in the head of the rules puts a site's address before every page, and Prometheus takes the result."""
    text = (FOLDER / "rules.yaml").read_text()
    (command,) = re.findall(r"^#\s+(sed -i '.*') rules\.yaml$", text, re.MULTILINE)
    (tmp_path / "rules.yaml").write_text(text)
    subprocess.run([*shlex.split(command), "rules.yaml"], cwd=tmp_path, check=True, timeout=60)
    rules = [
        rule
        for group in yaml.safe_load((tmp_path / "rules.yaml").read_text())["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]
    assert {rule["annotations"]["runbook_url"] for rule in rules} == {
        f"https://wiki.example.org/compactor/docs/runbooks/{name}.md" for name in NAMES
    }
    assert promtool("check", "rules", tmp_path / "rules.yaml").returncode == 0


def metrics_of_a_daemon() -> set[str]:
    """Names as Prometheus stores them."""
    names = set()
    for family in Metrics().registry.collect():
        names |= {
            family.name,
            f"{family.name}_total",
            f"{family.name}_count",
            f"{family.name}_sum",
            f"{family.name}_bucket",
            f"{family.name}_info",
        }
    return names


def labels_of_a_daemon() -> dict[str, set[str]]:
    """
    The labels of each metric, by its name as Prometheus stores it; every series that a case plays is one of these.
    """
    metrics = Metrics()
    found = {"up": set[str](), "process_start_time_seconds": set[str]()}
    for metric in vars(metrics).values():
        if isinstance(metric, MetricWrapperBase):
            found[f"{metric._name}_total" if isinstance(metric, Counter) else metric._name] = set(metric._labelnames)
    return found


def test_the_cases_play_series_that_a_daemon_has():
    """A case with another label, or a name that is gone, would show that an alert fires which never does."""
    known = labels_of_a_daemon()
    cases = yaml.safe_load((FOLDER / "rules_test.yaml").read_text())["tests"]
    for text in {series["series"] for case in cases for series in case["input_series"]}:
        name, _, labels = text.partition("{")
        assert set(re.findall(r"(\w+)=", labels)) - {"job", "instance"} <= known[name], text
        if name != "up":
            assert known[name] <= set(re.findall(r"(\w+)=", labels)), text
    outcomes = set(re.findall(r'outcome(?:=|=~)"([^"]+)"', " ".join(str(rule["expr"]) for rule in RULES)))
    assert {outcome for several in outcomes for outcome in several.split("|")} <= {*JOB_OUTCOMES, *CLEANING_OUTCOMES}


def test_rules_are_built_on_metrics_that_exist():
    """A metric that was renamed would make an alert silent for ever."""
    expressions = " ".join(str(rule["expr"]) for rule in RULES)
    recorded = {rule["record"] for rule in RULES if "record" in rule}
    used = set(re.findall(r"(?<!\d)[a-z_]+(?::[a-z0-9_]+)+", expressions))
    assert used <= recorded
    raw = set(re.findall(r"(?<![:\w])compactor_[a-z_]+(?![:\w])", expressions))
    assert raw
    assert raw <= metrics_of_a_daemon()


PROGRAMS = {"compactor", "curl", "journalctl", "systemctl", "psql", "beeline", "echo"}
"""With which one looks on any host of a daemon: test_edge_node_walk runs all of them there but Hive's client and nc."""
RUNBOOKS = sorted((PROJECT / "docs" / "runbooks").glob("Compactor*.md"))


def test_there_is_a_page_for_each_alert_and_none_besides():
    """Whoever is woken finds the page; nobody finds one of an alert that is gone."""
    assert [page.stem for page in RUNBOOKS] == NAMES
    contents = (PROJECT / "docs" / "runbooks" / "README.md").read_text()
    assert sorted(re.findall(r"^\| \[(\w+)\]\(\1\.md\)", contents, re.MULTILINE)) == NAMES


@pytest.mark.parametrize("page", RUNBOOKS, ids=lambda page: page.stem)
def test_a_page_names_commands_that_exist(page: Path):
    """
    What it means, a command to look with, what to do; each `compactor` command is one, with options that it has. Links
    are `make docs`' part.
    """
    text = page.read_text()
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["What it means", "Look", "Do"]
    commands = text.split("```")[1].split("\n")[1:-1]
    assert commands
    asked = re.findall(
        r"(?:^|`|\()compactor ([a-z]+)((?: [^`|\n)]*)?)", "\n".join([*commands, text.split("## Do")[1]]), re.MULTILINE
    )
    for command, rest in asked:
        path = [command, *re.findall(r"^ (check|show)\b", rest)] if command == "config" else [command]
        done = CliRunner().invoke(cli, [*path, "--help"])
        assert done.exit_code == 0, command
        for option in re.findall(r"(?<!\S)--?[a-z-]+", rest):
            assert option in done.output, (command, option)
    assert any(re.search(r"\b(compactor|systemctl|curl)\b", command) for command in commands)
    assert {command.split()[0] for command in commands} <= PROGRAMS
