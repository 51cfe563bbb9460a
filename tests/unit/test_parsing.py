"""What a parser throws is the file's fault, and what the store throws isn't."""

import errno

import pytest

from compactor.errors import CorruptFileError, UnreachableError
from compactor.parsing import parsing


@pytest.mark.parametrize("error", [TypeError("no"), IndexError(), OSError("Arrow can't"), UnicodeError("bad")])
def test_what_a_library_throws_over_a_file_names_the_file(error):
    """Arrow's own errors of reading and writing are OSErrors without a number."""
    with pytest.raises(CorruptFileError, match="some/file can't be read"), parsing("some/file"):
        raise error


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EIO, "broken"),
        FileNotFoundError("gone"),
        TimeoutError(),
        ConnectionError("cut"),
        MemoryError(),
        UnreachableError("away"),
    ],
)
def test_what_the_store_throws_passes(error):
    """It may be another time, and says nothing about the file."""
    with pytest.raises(type(error)) as caught, parsing("some/file"):
        raise error
    assert caught.value is error
