"""
What the roles work with, in one place: the metastore's parts, Spark, settings that a reload replaces, metrics, steps.

Opened by the daemon (and by tests, in the same way); the roles only use it.
"""

import getpass
import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from compactor.acid.columns import ColumnRule, column_rule
from compactor.acid.compaction import LayoutVersion
from compactor.control import Control
from compactor.coordination import Alone, Coordinator, open_coordinator
from compactor.log import about, get_logger
from compactor.metastore.candidates import Initiating
from compactor.metastore.catalog import Catalog
from compactor.metastore.clean.aborts import Aborts
from compactor.metastore.clean.ready import Cleaning
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.compaction_queue.work import WorkTable
from compactor.metastore.db.database import Database
from compactor.metastore.db.generation import Generation
from compactor.metastore.housekeeping import Housekeeping
from compactor.metastore.locations.places import Places
from compactor.metastore.model import Entity, QueueEntry, QueueState, TableFacts
from compactor.metastore.txn.locks import Locks
from compactor.metastore.txn.transactions import Transactions
from compactor.metrics import Metrics
from compactor.roles.cleaner.first_look import look
from compactor.roles.identity import Identity
from compactor.roles.steps import Observer, Steps
from compactor.roles.worker.backoff import Backoff, SharedLooks
from compactor.roles.worker.failures import Failures
from compactor.roles.worker.work_record import WorkRecords
from compactor.settings import Settings
from compactor.spark.factory import submitter_for
from compactor.spark.submitter import StoppableSubmitter
from compactor.storage.base import Storage
from compactor.storage.guarded import Guarded
from compactor.storage.registry import configure, require_changeable, storage_for

_log = get_logger(__name__)


@dataclass(slots=True)
class Services:
    """
    What the roles of one process work with.

    Args:
        settings: replaced as a whole by a reload; read them anew at each use.
        coordinator: says which daemon leads, and whether new work may begin.
        backoff: the backoff of entries that were given back because a service or store was unreachable.
        shared_looks: which worker has just found nothing in the queue.
        in_hand: the claims that a worker of this process works on, or has still to undo: entry and start of the claim.
        failures: how often the work on an entry failed, or ended with its process.
        work, work_records: the table of what compactions predicted and achieved, and the workers' way to write it.
        places: where the daemon may write and delete.
        control: what is paused, drained, outside its hours or over its budget.
        stopping: set when the daemon drains; roles end their cycle at the next good point.
    """

    settings: Settings
    identity: Identity
    database: Database
    catalog: Catalog
    transactions: Transactions
    locks: Locks
    queue: Queue
    cleaning: Cleaning
    aborts: Aborts
    initiating: Initiating
    housekeeping: Housekeeping
    submitter: StoppableSubmitter
    metrics: Metrics
    steps: Steps
    places: Places = field(init=False)
    coordinator: Coordinator = field(default_factory=Alone)
    stopping: threading.Event = field(default_factory=threading.Event)
    backoff: Backoff = field(default_factory=Backoff)
    shared_looks: SharedLooks = field(default_factory=SharedLooks)
    in_hand: set[tuple[int, int | None]] = field(default_factory=set)
    failures: Failures = field(init=False)
    work: WorkTable = field(init=False)
    work_records: WorkRecords = field(init=False)
    control: Control = field(init=False)

    def __post_init__(self) -> None:
        self.places = Places(self.database, lambda: self.settings.warehouse.roots)
        self.failures = Failures(lambda: self.coordinator, self._is_in_the_queue)
        self.work = WorkTable(self.database)
        self.work_records = WorkRecords(self.work)
        self.control = Control(lambda: self.coordinator, lambda: self.settings, self.now_ms, self.identity.host)

    @classmethod
    def open(
        cls,
        settings: Settings,
        *,
        metrics: Metrics | None = None,
        observers: Iterable[Observer] = (),
        submitter: StoppableSubmitter | None = None,
    ) -> "Services":
        """
        Connect to the metastore and make everything else ready; Spark starts when the first entry waits.

        Args:
            submitter: runs the engine's jobs; None: as `spark.mode` says.

        Raises:
            SettingsError, UnreachableError, RefusedError: as `Database.connect` says.
        """
        database = Database(
            settings.database.url,
            password=settings.database.secret,
            connect_timeout_seconds=settings.database.connect_timeout_seconds,
            idle_transaction_seconds=settings.database.idle_transaction_seconds,
            connections=settings.connections,
        ).connect()
        services = cls.over(database, settings, metrics=metrics, observers=observers, submitter=submitter)
        services.coordinator = open_coordinator(settings, lambda: database)
        return services

    @classmethod
    def over(
        cls,
        database: Database,
        settings: Settings,
        *,
        metrics: Metrics | None = None,
        observers: Iterable[Observer] = (),
        identity: Identity | None = None,
        submitter: StoppableSubmitter | None = None,
    ) -> "Services":
        """Make everything over a metastore that is connected already."""
        metrics = metrics or Metrics()
        configure(settings)
        services = cls(
            settings=settings,
            identity=identity or Identity(settings.host_name, settings.user or getpass.getuser()),
            database=database,
            catalog=Catalog(database),
            transactions=Transactions(database),
            locks=Locks(database),
            queue=Queue(database),
            cleaning=Cleaning(database, look=lambda entries: look(services, entries)),
            aborts=Aborts(database),
            initiating=Initiating(database),
            housekeeping=Housekeeping(database),
            submitter=submitter
            or submitter_for(settings, lambda found: metrics.failed_attempts.labels(found.host, found.kind).inc()),
            metrics=metrics,
            steps=Steps([_log_step, lambda step, _: metrics.steps.labels(step).inc(), *observers]),
        )
        metrics.given_back_in_a_row.set_function(lambda: services.backoff.in_a_row)
        metrics.unsettled.set_function(lambda: services.backoff.pending_rollbacks)
        return services

    @property
    def generation(self) -> Generation:
        """What the metastore's generation of Hive does otherwise than the other."""
        return self.database.schema.generation

    @property
    def layout(self) -> LayoutVersion:
        return self.generation.layout

    def columns_of(self, table: TableFacts) -> ColumnRule:
        """How the site's readers find a table's columns in an ORC file."""
        return column_rule(self.settings.readers.orc_columns, self.layout, table.reader_parameters)

    def now_ms(self) -> int:
        """The database clock, in ms."""
        return self.database.read(self.database.now_ms)

    def storage(self, location: str) -> Storage:
        """
        The driver of a location; what it changes lies inside the warehouse's roots, and no link below them is followed.

        Raises:
            RefusedError: UNSUPPORTED_STORE (also of a store that is only read), UNSAFE_LOCATION.
        """
        require_changeable(location)
        driver = storage_for(location, self.places.root_of)
        return Guarded(driver, self.places.require_inside, self.metrics.places_refused.inc)

    def _is_in_the_queue(self, entry_id: int) -> bool:
        entry = self.queue.entry(entry_id)
        return entry is not None and entry.state in {QueueState.INITIATED, QueueState.WORKING}

    def close(self) -> None:
        """Leave the coordinator, stop Spark, close the database's connections."""
        self.coordinator.close()
        self.submitter.stop()
        self.database.close()


def about_entity(entity: Entity, entry: QueueEntry | None = None) -> AbstractContextManager[None]:
    """Log context: db, table, partition, id."""
    return about(
        database=entity.database, table=entity.table, partition=entity.partition, entry_id=entry.id if entry else None
    )


def _log_step(step: str, _: object) -> None:
    _log.debug("step.entered", step=step)
