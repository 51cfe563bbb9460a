"""Exit codes of the command line, as docs/cli.md lists them; errors of ours carry theirs (`CompactorError.exit_code`)."""

from enum import IntEnum


class Code(IntEnum):
    """What a script may rely on."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOTHING_TO_DO = 3
    REFUSED = 4
    UNREACHABLE = 5
    INTERRUPTED = 130
