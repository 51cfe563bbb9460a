"""Ticket caches in a /tmp that the service doesn't share with whoever renews them."""

import os
import subprocess
import sys

import pytest

from compactor.daemon.private_tmp import unseen_caches
from tests.needs import missing

pytestmark = pytest.mark.deploy
SHARED = "29 1 253:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n31 29 0:29 / /tmp rw,nosuid,nodev shared:15 - tmpfs tmpfs rw\n"
PRIVATE = f"""{SHARED}617 598 0:29 /systemd-private-6f1c-compactor.service-Yk3Q1p/tmp /tmp rw,nosuid,nodev shared:328 - tmpfs tmpfs rw
618 598 253:1 /var/tmp/systemd-private-6f1c-compactor.service-x0ZbTq/tmp /var/tmp rw,relatime shared:329 - ext4 /dev/vda1 rw
"""


@pytest.mark.parametrize(
    ("cache", "seen"),
    [
        ("/tmp/krb5cc_998", False),
        ("FILE:/tmp/krb5cc_998", False),
        ("DIR:/var/tmp/caches", False),
        ("/var/lib/compactor/krb5cc", True),
        ("/tmpfs/krb5cc", True),
        ("KEYRING:persistent:998", True),
    ],
)
def test_a_cache_that_the_service_does_not_see_is_named(cache, seen):
    """Whether the setting or the environment leads there; where /tmp is everybody's there is nothing to say."""
    for name, said in (
        ("hdfs.ticket_cache", unseen_caches(cache, {}, PRIVATE)),
        ("KRB5CCNAME", unseen_caches(None, {"KRB5CCNAME": cache}, PRIVATE)),
    ):
        assert len(said) == (0 if seen else 1)
        assert all(sentence.startswith(f"{name} is {cache}, but this service has a /") for sentence in said)
    assert unseen_caches(cache, {"KRB5CCNAME": cache}, SHARED) == []


def test_run_says_so_before_it_begins(tmp_path):
    """
    In a mount namespace made as systemd makes one; of the two directories the one under which nobody keeps projects.
    """
    own = tmp_path / "systemd-private-1-compactor.service-a" / "tmp"
    own.mkdir(parents=True)
    (own / "compactor.yaml").write_text(
        "database: {url: sqlite:///none.db}\nhttp: {enabled: false}\nhdfs: {principal: a@B, ticket_cache: /var/tmp/krb5cc_998}\n"
    )
    (own / "none.db").write_text("no database")
    script = (
        'mount --bind "$1" /var/tmp && cd /var/tmp && exec "$2" -m compactor.cli --config /var/tmp/compactor.yaml run'
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COMPACTOR_")} | {
        "TMPDIR": str(tmp_path)
    }
    command = ["unshare", "-m", "sh", "-c", script, "sh", str(own), sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=120)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        missing("a mount namespace can't be made here")
    assert done.stderr.splitlines()[0].startswith(
        "warning: hdfs.ticket_cache is /var/tmp/krb5cc_998, but this service has a /var/tmp of its own (PrivateTmp)"
    )
