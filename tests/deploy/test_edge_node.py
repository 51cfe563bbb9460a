"""The guide for edge nodes: its files, settings and commands are those that there are."""

import re

import pytest
import yaml
from click.testing import CliRunner

from compactor.cli.root import cli
from compactor.settings import load_settings
from tests.deploy.service import PROJECT

TEXT = (PROJECT / "docs" / "edge-node.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", TEXT, re.DOTALL)
SHELL = "\n".join(block for language, block in BLOCKS if not language)


def test_every_file_it_names_is_there():
    """Files of the project, in commands, text and links."""
    named = set(re.findall(r"\b(?:deploy|config)/[\w./-]+\w", TEXT)) | {"requirements.lock"}
    assert len(named) > 5
    assert [name for name in named if not (PROJECT / name).is_file()] == []
    assert [link for link in re.findall(r"\]\(([^)]+)\)", TEXT) if not (PROJECT / "docs" / link).is_file()] == []


def test_its_settings_are_settings(tmp_path):
    """The settings of step 4 load, with the hosts' places filled in."""
    (block,) = [block for language, block in BLOCKS if language == "yaml"]
    assert set(yaml.safe_load(block)) == {"database", "zookeeper", "spark"}
    (tmp_path / "compactor.yaml").write_text(block)
    settings = load_settings(tmp_path / "compactor.yaml", {"COMPACTOR_DATABASE__PASSWORD_FILE": "/etc/compactor/database-password"})
    assert settings.zookeeper.hosts == "ZK1:2181,ZK2:2181,ZK3:2181"


@pytest.mark.parametrize("command", sorted(set(re.findall(r"(?:^|`|\s)compactor (queue|explain|members|history|config check|run)\b", TEXT))))
def test_its_commands_are_commands(command):
    """Each is one of ours."""
    assert CliRunner().invoke(cli, [*command.split(), "--help"]).exit_code == 0


def test_unit_and_guide_mean_the_same_places():
    """Program, settings, password and state directory of the steps are those of the unit."""
    unit = (PROJECT / "deploy" / "systemd" / "compactor.service").read_text()
    password = (PROJECT / "deploy" / "systemd" / "password.conf").read_text()
    for place in ("/opt/compactor/bin/compactor", "/etc/compactor/compactor.yaml", "/etc/compactor/environment", "/var/lib/compactor"):
        assert place in unit
        assert place in TEXT
    assert "/etc/compactor/database-password" in password
    assert "/etc/compactor/database-password" in SHELL
