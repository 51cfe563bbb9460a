"""A store that is away: who waits for it, who is told at once, and how it comes back. The clock is moved by hand."""

import pickle
import threading

import pytest

from compactor.errors import OutcomeUnknownError, RefusedError, UnreachableError
from compactor.reasons import Reason
from compactor.storage.circuit_breaker import CircuitBreaker
from compactor.storage.registry import StorageOptions, configure, storage_for


class Driver:
    """Answers, or takes its time to say that nobody does."""

    links = True
    uploads = None

    def __init__(self):
        self.now = 1000.0
        self.takes = 0.0
        self.raises = None
        self.calls = []

    def _call(self, name):
        self.calls.append(name)
        self.now += self.takes
        if self.raises is not None:
            raise self.raises
        return name

    def exists(self, location):
        return self._call("exists")

    def list_tree(self, location):
        return self._call("list_tree")

    def open_read(self, location):
        return self._call("open_read")

    def rename_noreplace(self, source, target):
        return self._call("rename_noreplace")


@pytest.fixture
def driver():
    return Driver()


@pytest.fixture
def storage(driver):
    return CircuitBreaker(driver, "hdfs://nn", lambda: driver.now)


def away(driver, storage, seconds):
    """The store goes away: a call finds out after so long."""
    driver.takes, driver.raises = seconds, UnreachableError("can't list: RPC listener disconnected")
    with pytest.raises(UnreachableError) as caught:
        storage.list_tree("hdfs://nn/t")
    assert caught.value.store == "hdfs://nn"


def test_after_a_slow_failure_others_fail_at_once(driver, storage):
    """
    Whatever they ask, in one line that says since when, and what was learned; after a minute at most one asks for all.
    """
    away(driver, storage, 180)
    driver.calls.clear()
    for ask in (
        lambda: storage.exists("hdfs://nn/t"),
        lambda: storage.open_read("hdfs://nn/t"),
        lambda: storage.rename_noreplace("a", "b"),
    ):
        with pytest.raises(
            UnreachableError,
            match=r"^hdfs://nn is away since 180 s; asked again in 60 s; the latest: can't list: RPC listener disconnected$",
        ) as caught:
            ask()
        assert caught.value.store == "hdfs://nn"
    assert driver.calls == []
    driver.now += 60
    with pytest.raises(UnreachableError, match=r"^can't list"):
        storage.exists("hdfs://nn/t")
    assert driver.calls == ["exists"]
    with pytest.raises(UnreachableError, match="is away since 420 s; asked again in 60 s"):
        storage.exists("hdfs://nn/t")


def test_any_answer_ends_it(driver, storage):
    """Be it that something is missing, or isn't allowed."""
    for answer in (None, FileNotFoundError("gone"), RefusedError(Reason.PERMISSION_DENIED, "no")):
        away(driver, storage, 6)
        driver.now += 6
        driver.takes, driver.raises = 0.0, answer
        if answer is None:
            assert storage.exists("hdfs://nn/t") == "exists"
        else:
            with pytest.raises(type(answer)):
                storage.exists("hdfs://nn/t")
        driver.raises = None
        assert storage.list_tree("hdfs://nn/t") == "list_tree"


def test_what_fails_quickly_is_asked_as_often_as_one_likes(driver, storage):
    """There is nothing to spare anybody."""
    for _ in range(3):
        away(driver, storage, 1)
    assert len(driver.calls) == 3


def test_one_asks_while_the_others_fail_at_once(driver, storage):
    """However long it takes."""
    away(driver, storage, 10)
    driver.now += 10
    asked, answer = threading.Event(), threading.Event()

    def slowly(location):
        asked.set()
        answer.wait(60)
        return True

    driver.exists = slowly
    storage.__dict__.pop("exists", None)
    found = []
    one = threading.Thread(target=lambda: found.append(storage.exists("hdfs://nn/t")))
    one.start()
    assert asked.wait(60)
    with pytest.raises(UnreachableError, match="is away since 20 s; it is being asked"):
        storage.list_tree("hdfs://nn/t")
    answer.set()
    one.join()
    assert found == [True]
    driver.takes, driver.raises = 0.0, None
    assert storage.list_tree("hdfs://nn/t") == "list_tree"


def test_who_asks_and_learns_nothing_leaves_it_to_the_next(driver, storage):
    """An outcome that isn't known is no answer; nor is a failure of ours."""
    away(driver, storage, 10)
    for nothing in (OutcomeUnknownError("sent"), KeyError("ours")):
        driver.now += 10
        driver.takes, driver.raises = 0.0, nothing
        with pytest.raises(type(nothing)):
            storage.rename_noreplace("a", "b")
    driver.raises = None
    assert storage.exists("hdfs://nn/t") == "exists"


def test_a_call_that_was_lost_while_others_were_answered_says_nothing_of_the_store(driver, storage):
    """It may have been on the way to a NameNode that was succeeded."""

    def overtaken(location):
        assert storage.exists("hdfs://nn/other") == "exists"
        driver.now += 60
        raise UnreachableError("lost")

    driver.now += 1
    driver.list_tree = overtaken
    driver.takes = 1.0
    with pytest.raises(UnreachableError, match=r"^lost$"):
        storage.list_tree("hdfs://nn/t")
    assert storage.exists("hdfs://nn/t") == "exists"


def test_where_the_bytes_of_a_file_are_says_nothing_of_the_store(driver, storage):
    """Its DataNodes may be away, or its key throttled; the error still names the store."""
    driver.takes, driver.raises = 60.0, UnreachableError("no DataNode")
    with pytest.raises(UnreachableError, match=r"^no DataNode$") as caught:
        storage.open_read("hdfs://nn/t/f")
    assert caught.value.store == "hdfs://nn"
    driver.takes, driver.raises = 0.0, None
    assert storage.exists("hdfs://nn/t") == "exists"


def test_everything_else_is_the_drivers(driver, storage):
    """And a copy of it knows nothing of what this one learned."""
    assert storage.links is True
    assert storage.uploads is None
    away(driver, storage, 100)
    copy = pickle.loads(pickle.dumps(storage))
    driver.raises = None
    with pytest.raises(UnreachableError, match="is away"):
        storage.exists("hdfs://nn/t")
    copy._driver.raises = None
    assert copy.exists("hdfs://nn/t") == "exists"


def test_drivers_of_far_stores_are_patient(tmp_path):
    """What the registry gives out knows when its store is away; a local directory is always asked."""
    configure(StorageOptions())
    assert isinstance(storage_for("s3://bucket/t"), CircuitBreaker)
    assert not isinstance(storage_for(str(tmp_path)), CircuitBreaker)
