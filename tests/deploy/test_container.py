"""The image: its recipe passes the linter, copies what the builder is sent, and nothing else is sent."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.service import DEPLOY, PROJECT
from tests.needs import missing

pytestmark = pytest.mark.deploy
FOLDER = DEPLOY / "docker"
RECIPE = (FOLDER / "Dockerfile").read_text()


@pytest.fixture
def hadolint():
    """The linter; gives its exit code and words."""
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if program is None:
        missing("hadolint isn't installed (deploy/setup deploy)")

    def run(recipe: Path):
        done = subprocess.run(
            [program, "--config", FOLDER / "hadolint.yaml", recipe],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return done.returncode, done.stdout + done.stderr

    return run


def test_the_recipe_is_clean(hadolint):
    """Hadolint has nothing to say, not even about style."""
    assert hadolint(FOLDER / "Dockerfile") == (0, "")


@pytest.mark.parametrize(
    ("line", "code"), [("RUN cd /opt", "DL3003"), ("RUN pip install compactor", "DL3013"), ("USER root", "DL3002")]
)
def test_the_linter_would_say(hadolint, tmp_path, line, code):
    """The test above can fail."""
    (tmp_path / "Dockerfile").write_text(f"{RECIPE}\n{line}\n")
    status, said = hadolint(tmp_path / "Dockerfile")
    assert status == 1
    assert code in said


def test_what_is_copied_is_sent_and_there():
    """The builder is sent nothing but what the recipe copies from the folder; all of it exists."""
    copied = {
        name.removeprefix("./")
        for line in re.findall(r"^COPY (?!--from)(.*) \S+$", RECIPE, re.MULTILINE)
        for name in line.split()
    }
    sent = set(re.findall(r"^!(.*)$", (FOLDER / "Dockerfile.dockerignore").read_text(), re.MULTILINE))
    assert copied == sent
    assert all((PROJECT / name).exists() for name in copied)


def test_the_image_runs_as_nobody_and_is_looked_after():
    """No root at run time; hashes at build time; TERM reaches the daemon; health is asked."""
    last = RECIPE.rpartition("FROM ")[2]
    assert re.search(r"^USER 10001:10001$", last, re.MULTILINE)
    assert "--require-hashes --requirement requirements.lock" in RECIPE
    assert 'ENTRYPOINT ["tini", "--", "compactor"]' in last
    assert re.search(r"^HEALTHCHECK .*\\\n.*/-/healthy", last, re.MULTILINE)
