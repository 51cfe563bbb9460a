"""What daemon and application say to each other through a directory."""

import os
import pickle

import pytest

from compactor.errors import CancelledError, CompactorError
from compactor.spark.application.mailbox import Mailbox
from compactor.storage.registry import storage_for

SECRET = b"s" * 32


@pytest.fixture
def home(tmp_path):
    """Where it lies, inside a staging directory."""
    staging = tmp_path / ".compactor-1-a"
    staging.mkdir()
    return f"{staging}/application"


def box(home, secret=SECRET):
    return Mailbox(storage_for(home), home, secret)


def test_a_request_and_its_answer(home):
    """Function, tasks and results arrive; what is there is seen by looking once."""
    daemon, application = box(home), box(home)
    daemon.open()
    assert application.look().asked == 0
    application.announce("application_1_0001")
    daemon.ask(1, "recode", len, ["a", "bb"])
    seen = application.look()
    assert (seen.asked, seen.answered, seen.application, seen.end) == (1, 0, "application_1_0001", False)
    step, function, tasks = application.request(1)
    assert step == "recode"
    application.tell_part(1, 50)
    assert daemon.look().part == 0.5
    application.reply(1, [function(task) for task in tasks])
    assert daemon.look().answered == 1
    assert daemon.answer(1) == [1, 2]


def test_the_share_is_that_of_the_last_request(home):
    """A second request starts at nothing."""
    both = box(home)
    both.open()
    both.ask(1, "recode", len, [])
    both.tell_part(1, 95)
    both.ask(2, "recode", len, [])
    assert both.look().part == 0


def test_the_end_may_be_said_twice_and_to_nobody(home):
    """Whoever gives a compaction up needn't know what is there."""
    both = box(home)
    both.end()
    both.open()
    both.end()
    both.end()
    assert both.look().end


def test_where_the_staging_directory_is_gone_both_sides_notice(home, tmp_path):
    """It is the fence: nothing is read, written or made again."""
    both = box(home)
    both.open()
    (tmp_path / ".compactor-1-a").rename(tmp_path / "gone")
    assert both.look() is None
    for act in (
        both.open,
        lambda: both.ask(1, "recode", len, []),
        lambda: both.reply(1, []),
        lambda: both.announce("x"),
        lambda: both.request(1),
    ):
        with pytest.raises(CancelledError, match="given up"):
            act()
    assert not (tmp_path / ".compactor-1-a").exists()


class Bomb:
    """What somebody who may write there leaves."""

    def __reduce__(self):
        return (os.mkdir, ("/nowhere/run",))


@pytest.mark.parametrize("prefix", [b"", b"x" * 32])
def test_what_somebody_else_wrote_is_never_opened(home, tmp_path, prefix):
    """Opening a pickle runs code: only what is sealed with the secret is opened."""
    both = box(home)
    both.open()
    (tmp_path / ".compactor-1-a" / "application" / "request-00001").write_bytes(prefix + pickle.dumps(Bomb()))
    with pytest.raises(CompactorError, match="wasn't written by this compaction"):
        both.request(1)


def test_a_file_is_sealed_with_its_name(home, tmp_path):
    """An old answer can't be passed off as a new one."""
    both = box(home)
    both.open()
    both.reply(1, [1])
    folder = tmp_path / ".compactor-1-a" / "application"
    (folder / "answer-00001").rename(folder / "answer-00002")
    with pytest.raises(CompactorError, match="wasn't written"):
        both.answer(2)
