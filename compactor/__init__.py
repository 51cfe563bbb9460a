"""Compaction of Hive ACID tables from outside the metastore."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str
else:

    def __getattr__(name: str) -> str:
        """`__version__`; what reads it takes long to import, and few commands need it."""
        if name != "__version__":
            raise AttributeError(name)
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

        try:
            return version("compactor")
        except PackageNotFoundError:  # a source tree that was never installed
            return "0+unknown"
