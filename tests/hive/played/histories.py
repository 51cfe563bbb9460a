"""Histories of the protocol's model for the fast lane: which are played, and on what."""

import random
import shutil

import pytest

from compactor.metastore.db.database import Database
from compactor.metastore.txn.allocated_ids import HandedOut
from compactor.roles.worker import monitor
from tests.counts import count
from tests.hive.histories import RELEASES, quietly
from tests.hive.java import UnavailableError as NoJavaError
from tests.hive.lane.lane import Lane
from tests.hive.lane.model import Turns
from tests.hive.party import HiveError
from tests.hive.played.player import CannotPlayError, Player
from tests.hive.played.worker import stand_before_renames
from tests.metastore.servers import UnavailableError, schema_script
from tests.model.protocol.scene import SCENES, SWITCHES
from tests.model.protocol.search import replay, search, walk
from tests.needs import missing


class Stage:
    """A database and a JVM on which histories are played one after the other."""

    def __init__(self, version, request, parties, folder) -> None:
        try:
            schema_script(version)
        except (UnavailableError, NoJavaError) as error:
            missing(str(error))
        self._version, self._parties, self._folder = version, parties, folder
        self._server = request.getfixturevalue("postgres")
        self.release = RELEASES[version]

    def __enter__(self):
        self._url = self._server.borrow(self._version)
        self._database = Database(self._url).__enter__()
        self._unchanged = quietly()
        self._unchanged.__enter__()
        return self

    def __exit__(self, *about):
        self._unchanged.__exit__(*about)
        self._database.__exit__(*about)
        self._server.give_back(self._version, self._url)

    def play(self, scene, choices):
        """
        Play a history; returns why it couldn't be played to its end, or None.

        Raises:
            AssertionError: a reader doesn't see what is due; with the actions up to there.
        """
        self._database.handed_out = HandedOut()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(monitor, "LOOK_SECONDS", 3600.0)  # a history's steps aren't in its time
            # of two that work at once the one that publishes first wins
            patch.setattr("compactor.metastore.compaction_queue.claims.places_at_work", lambda *_: frozenset())
            stand_before_renames(patch)
            lane = Lane(
                self._database,
                self._parties(self._version, self._url),
                Turns(),
                self._folder / "history",
                partitioned=scene.places > 1,
            )
            player = Player(scene, lane)
            done = []
            try:
                for _, action, after in replay(scene, choices):
                    done.append(str(action))
                    player.play(action, after)
            except CannotPlayError as error:
                return str(error)
            except (AssertionError, HiveError) as error:
                raise AssertionError("; ".join([*done, str(error)])) from error
            finally:
                player.close()
                self._server.empty(self._version, self._url)
                shutil.rmtree(self._folder / "history")
                count(f"actions of the model played on Hive {self.release}", len(done))
        return None


COUNTEREXAMPLES = {
    3: ("at-work", "ends-below-aborted", "seen-after-death", "beside"),
    4: (
        "strictly-below",
        "late-after-sweep",
        "late-after-cleaning",
        "late-covered",
        "all-places",
        "held-inside",
        "aborted-only",
        "first-commit",
        "later-results",
        "revoked-ended",
        "revoked-counts",
        "attempt-marked",
    ),
}
"""Of the switches whose actions the player has, by release."""
_WALKS, _LENGTH = 12, 30


def play_all(version, request, parties, folder):
    """Counterexamples of the model's switches, then random histories of its scenes, on the schema of that version."""
    hive = 3 if version == "3.1.0" else 4
    walks = request.config.getoption("--histories") or _WALKS
    rng = random.Random(walks)
    with Stage(version, request, parties, folder) as stage:
        for name in COUNTEREXAMPLES[hive]:
            scene = SWITCHES[name].scene.without(name, *SWITCHES[name].beside)
            said = stage.play(scene, search(scene).choices)
            count(f"counterexamples of the model played on Hive {stage.release}{' in part' if said else ''}")
        # beside an INSERT OVERWRITE Hive 4's own reader takes a base for valid whose id is the lowest open one
        scenes = [scene for scene in SCENES.values() if scene.hive == hive and not scene.shared_overwrites]
        for number in range(walks):
            scene = scenes[number % len(scenes)]
            choices, why = walk(scene, rng, _LENGTH)
            assert why is None
            said = stage.play(scene, choices)
            count(f"random histories of the model played on Hive {stage.release}{' in part' if said else ''}")
