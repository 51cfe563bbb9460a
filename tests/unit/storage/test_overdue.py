"""Calls to storage that nobody waits for any longer once they take too long."""

import os
import threading

import pytest

from compactor.errors import UnreachableError
from compactor.storage.hdfs.call_timeout import within
from compactor.storage.hdfs.files import HdfsReader, HdfsWriter

SOON = 0.05


def test_what_a_call_returns_and_raises():
    """As if it had been made here, in this thread or in another."""
    for seconds in (None, 60):
        assert within(seconds, divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            within(seconds, divmod, 7, 0)


def test_one_thread_does_for_calls_in_turn():
    """A thread that has answered makes the next call."""
    within(60, int)
    assert len({within(60, threading.get_ident) for _ in range(20)} - {threading.get_ident()}) == 1


def test_an_overdue_call_is_left_behind():
    """It ends when it ends; what it returns is nobody's, and its thread makes no other call."""
    held, done = threading.Event(), threading.Event()

    def slow():
        held.wait()
        done.set()
        return "late"

    try:
        with pytest.raises(TimeoutError, match=r"no answer for 0\.05 s"):
            within(SOON, slow)
        assert [within(60, int, "5") for _ in range(3)] == [5, 5, 5]
    finally:
        held.set()
    assert done.wait(60)
    assert within(60, str, "next") == "next"


def test_a_forked_process_has_threads_of_its_own():
    """Spark's workers are forked: threads that were idle in their parent aren't there."""
    within(60, int)
    child = os.fork()
    if not child:
        os._exit(within(10, int, "7"))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


class Stuck:
    """The client's open file, of DataNodes that never answer."""

    def __init__(self):
        self.held = threading.Event()

    def __len__(self):
        return 100

    def read(self, path):
        return self

    def read_range(self, offset, length):
        self.held.wait()

    def read_range_stream(self, offset, length):
        yield b"begun"
        self.held.wait()

    def write(self, data):
        self.held.wait()

    def close(self):
        self.held.wait()

    def delete(self, path, recursive):
        self.deleted = path


@pytest.fixture
def stuck():
    client = Stuck()
    yield client
    client.held.set()


def test_datanodes_that_never_answer_are_unreachable(stuck):
    """
    Reading by position and from front to back, writing and closing: in one line, and a file that was written is
    deleted.
    """
    reader = HdfsReader(stuck, "/f", "hdfs://nn/f", SOON)
    with pytest.raises(UnreachableError, match=r"can't read 'hdfs://nn/f': no answer for 0\.05 s"):
        reader.read_at(0, 10)
    with pytest.raises(UnreachableError, match="can't read"):
        list(reader.stream(0, 100))
    for size in (1, 2 << 20):
        stuck.deleted = None
        writer = HdfsWriter(stuck, stuck, "/f", "hdfs://nn/f", SOON)
        with pytest.raises(UnreachableError, match=r"can't write 'hdfs://nn/f': no answer for 0\.05 s"), writer:
            writer.write(bytes(size))
        assert stuck.deleted == "/f"
