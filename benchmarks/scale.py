"""
What the metastore's side costs where it is large: a million partitions, 100,000 entries, on PostgreSQL and MariaDB.

`BENCH_SCALE=50` takes a fiftieth of everything for a quick look; the bars of counts a second then tell little. Listing
is left out: a store that answers at once takes the place of the real one.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from unittest.mock import patch

from click.testing import CliRunner

from benchmarks import harness
from benchmarks.processes import peak_mib
from compactor.cli.main import main
from compactor.log import configure
from compactor.metastore.db.database import Database
from compactor.roles.cleaner.cleaner import Cleaner
from compactor.roles.initiator.initiator import Initiator
from compactor.roles.services import Services
from compactor.settings import Settings
from tests.metastore import large
from tests.metastore.mysql_server import MySQLServer
from tests.metastore.servers import postgres_server
