"""
Whether a role got its turn, told by the type of what its cycle says.

A standby is alive, and its cycles end without an error, but nothing comes of them: taken for progress they would hide that the leader's cycles all fail.
Source: docs/operations.md, Watching.
"""


class NoTurn(str):
    """The sentence of a cycle that couldn't begin its work since it wasn't the daemon's turn: another leads, holds the mutex, or nobody can tell."""

    __slots__ = ()
