"""What tests of database connections share: an error's one line, and a connection that is lost."""

import pytest


def message_of(action, kind):
    """The message of the expected error: one line."""
    with pytest.raises(kind) as caught:
        action()
    line = str(caught.value)
    assert "\n" not in line
    return line


def kill(server, database):
    """Cut every connection of the package to a database, as a failing server or firewall does."""
    server.cut_off(str(database).rpartition("/")[2])
