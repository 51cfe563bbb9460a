"""
What only the driver over fsspec does: a new object is sent whole, and what a package leaves of one that failed is
removed.
"""

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from compactor.errors import CompactorError
from compactor.storage.location import join
from compactor.storage.registry import storage_for


def fails(monkeypatch, error):
    """Sending leaves a part of the object there, and fails."""

    def put_file(self, _local, path, **_):
        self.pipe_file(path, b"par")
        raise error

    monkeypatch.setattr(MemoryFileSystem, "put_file", put_file)


def test_a_part_of_an_object_does_not_stay(fsspec_directory, monkeypatch):
    """Packages that send piece by piece may leave one; whoever lists finds none, and the error is told."""
    storage = storage_for(fsspec_directory)
    fails(monkeypatch, RuntimeError("connection reset"))
    with pytest.raises(CompactorError, match="RuntimeError"):
        storage.write_small(join(fsspec_directory, "f"), b"partial")
    assert storage.list_tree(fsspec_directory).files == ()


def test_what_somebody_else_made_meanwhile_stays(fsspec_directory, monkeypatch):
    """A package that refuses to replace says so: that object isn't ours."""
    storage = storage_for(fsspec_directory)
    fails(monkeypatch, FileExistsError("f"))
    with pytest.raises(FileExistsError):
        storage.write_small(join(fsspec_directory, "f"), b"partial")
    assert storage.read_small(join(fsspec_directory, "f")) == b"par"


def test_an_object_that_was_given_up_was_never_sent(fsspec_directory, monkeypatch):
    """It is put together on this machine: nothing of it is there before it is whole."""
    storage = storage_for(fsspec_directory)
    fails(monkeypatch, AssertionError("sent"))
    writer = storage.create(join(fsspec_directory, "f"))
    writer.write(bytes(1 << 20))
    writer.abort()
    assert storage.list_tree(fsspec_directory).files == ()
