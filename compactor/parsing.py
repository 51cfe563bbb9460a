"""
The one place where what a parser throws over a file becomes a refusal of that file.

Parsers check what they read and say what is wrong. What they didn't think of raises a TypeError, an IndexError or an
error of a library; it says the same, that the file isn't what it should be, and may stop nothing but that file.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from compactor.errors import CompactorError, CorruptFileError
from compactor.words import one_line


@contextmanager
def parsing(name: str) -> Iterator[None]:
    """
    Parse a file.

    Errors of the store (OSError), and want of memory, say nothing about the file and pass. Arrow raises an OSError too
    over what it can't read or write, without a number of the system's.

    Args:
        name: the file, for the message.

    Raises:
        CorruptFileError: for all that isn't an error of ours.
    """
    try:
        yield
    except (CompactorError, MemoryError):
        raise
    except Exception as error:  # whatever a library throws
        if isinstance(error, OSError) and (type(error) is not OSError or error.errno is not None):
            raise
        said = one_line(error) or "no more is known"
        raise CorruptFileError(f"{name} can't be read ({type(error).__name__}: {said})") from error
