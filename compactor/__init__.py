"""Compaction of Hive ACID tables from outside the metastore."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("compactor")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"
