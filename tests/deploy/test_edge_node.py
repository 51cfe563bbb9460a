"""The guide for edge nodes: its files and settings are those that there are. test_edge_node_walk follows it."""

import re

import yaml

from compactor.settings import load_settings
from tests.deploy.service import PROJECT

TEXT = (PROJECT / "docs" / "edge-node.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
SHELL = "\n".join(block for language, block in BLOCKS if not language)
(FIRST,) = re.findall(r"^cat > /etc/compactor/compactor\.yaml <<'END'\n(.*?)^END$", TEXT, re.DOTALL | re.MULTILINE)
PARTS = [block for language, block in BLOCKS if language == "yaml"]


def test_every_file_it_names_is_there():
    """Files of the project, in commands, text and links."""
    named = set(re.findall(r"(?<!/)\b(?:deploy|config|tests)/[\w./-]+\w", TEXT)) | {
        "requirements.lock",
        "requirements-kerberos.lock",
    }
    assert len(named) > 5
    assert [name for name in named if not (PROJECT / name).is_file()] == []
    links = [link.partition("#") for link in re.findall(r"\]\(([^)]+)\)", TEXT)]
    assert [page for page, _, _ in links if not (PROJECT / "docs" / page).is_file()] == []
    for page, _, heading in links:
        headings = re.findall(r"^#+ (.*)$", (PROJECT / "docs" / page).read_text(), re.MULTILINE)
        assert not heading or heading in {
            re.sub(r"[^\w -]", "", found).lower().replace(" ", "-") for found in headings
        }, (page, heading)


def test_its_settings_are_settings(tmp_path):
    """Those of step 5 load as they stand, and so they do with any later part over them."""
    assert len(PARTS) == 3
    for part in ("{}", *PARTS):
        values = yaml.safe_load(FIRST)
        for section, keys in yaml.safe_load(part).items():
            values[section] = (values.get(section) or {}) | keys
        if "principal" in values["hdfs"]:
            del values["hdfs"]["user"]  # as its page says
        (tmp_path / "compactor.yaml").write_text(yaml.safe_dump(values))
        settings = load_settings(
            tmp_path / "compactor.yaml", {"COMPACTOR_DATABASE__PASSWORD_FILE": "/etc/compactor/database-password"}
        )
        assert settings.zookeeper.hosts == "ZK1:2181,ZK2:2181,ZK3:2181"
        assert settings.members.expected == 2


def test_unit_and_guide_mean_the_same_places():
    """Program, settings, password and state directory of the steps are those of the unit."""
    unit = (PROJECT / "deploy" / "systemd" / "compactor.service").read_text()
    password = (PROJECT / "deploy" / "systemd" / "password.conf").read_text()
    for place in (
        "/opt/compactor/bin/compactor",
        "/etc/compactor/compactor.yaml",
        "/etc/compactor/environment",
        "/var/lib/compactor",
    ):
        assert place in unit
        assert place in TEXT
    assert "/etc/compactor/database-password" in password
    assert "/etc/compactor/database-password" in SHELL
