"""
The database products: one module with one subclass of `Dialect` each. No module outside this package knows a product.

`address` finds the dialect of an address. `liveness` watches pooled connections. `embedded_file` shares an embedded
database inside a process.
"""

from compactor.metastore.db.dialects.base import Dialect, Failure
from compactor.metastore.db.dialects.mysql import MySQL
from compactor.metastore.db.dialects.postgresql import PostgreSQL
from compactor.metastore.db.dialects.sqlite import SQLite

__all__ = ["DIALECTS", "Dialect", "Failure"]

DIALECTS: tuple[type[Dialect], ...] = (PostgreSQL, MySQL, SQLite)
"""The registry; `address.dialect_of` also knows those of other packages."""
