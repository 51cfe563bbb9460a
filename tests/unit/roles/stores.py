"""Stores that go away: each database's directory is one, and nothing there answers as long as a test says so."""

from compactor.errors import UnreachableError
from compactor.roles.services import Services


class Stores:
    """`away` holds the names of the directories that don't answer; `asked` what was asked of them meanwhile."""

    def __init__(self, monkeypatch):
        self.away: set[str] = set()
        self.asked: list[str] = []
        storage = Services.storage
        monkeypatch.setattr(Services, "storage", lambda services, location: _Driver(self, storage(services, location)))

    def require(self, name, location):
        for away in self.away:
            if f"/{away}/" in f"{location}/":
                self.asked.append(name)
                error = UnreachableError(f"{away} doesn't answer")
                error.store = away
                raise error


class _Driver:
    def __init__(self, stores, driver):
        self._stores, self._driver = stores, driver

    def __getattr__(self, name):
        found = getattr(self._driver, name)
        if not callable(found):
            return found

        def asked(*arguments, **named):
            self._stores.require(name, str(arguments[0]) if arguments else "")
            return found(*arguments, **named)

        return asked
