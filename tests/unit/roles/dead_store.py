"""A store on which nobody answers, for tables that a test puts there: each call to it fails and names it."""

from compactor.errors import UnreachableError
from compactor.roles.services import Services

STORE = "hdfs://away:8020"


class DeadStore:
    """`asked` holds the locations that were asked about, in order; `before` is called before each answer."""

    def __init__(self, world, monkeypatch) -> None:
        self._world = world
        self.asked: list[str] = []
        self.before = lambda: None
        world.root(STORE)
        storage = Services.storage
        monkeypatch.setattr(
            Services,
            "storage",
            lambda services, location: self if location.startswith(STORE) else storage(services, location),
        )

    def holds(self, *tables) -> None:
        """The catalog says that these tables lie there."""
        sds = self._world.database.schema.sds
        for table in tables:
            self._world.hive.change(
                sds.update().where(sds.c.location.like(f"%{table.location}")).values(location=f"{STORE}/{table.name}")
            )

    def gives(self, table) -> None:
        """The catalog says that it lies where it was made."""
        sds = self._world.database.schema.sds
        self._world.hive.change(
            sds.update().where(sds.c.location == f"{STORE}/{table.name}").values(location=str(table.location))
        )

    def names(self) -> list[str]:
        """Of the tables that were asked about."""
        return [location.removeprefix(f"{STORE}/") for location in self.asked]

    def __getattr__(self, _: str):
        def ask(location, *_: object, **__: object):
            self.asked.append(location)
            self.before()
            error = UnreachableError(f"no answer for {5 * len(self.asked)} s")
            error.store = STORE
            raise error

        return ask
