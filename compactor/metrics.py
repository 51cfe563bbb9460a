"""
The daemon's Prometheus metrics, in a registry of their own.

Knows names, labels and units (seconds, bytes; counters end in `_total`); the roles set the values. One `Metrics` per
daemon.
"""

import functools
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from compactor.acid.compaction import SUPPORTED
from compactor.reasons import Reason

CONTENT_TYPE = CONTENT_TYPE_LATEST
_CYCLE_SECONDS = (0.005, 0.02, 0.1, 0.5, 2, 10, 60, 300, 1800)
JOB_OUTCOMES = ("compacted", "cleaning-only", "refused", "failed", "given-back", "cancelled", "lost")
CLEANING_OUTCOMES = ("cleaned", "failed", "unreachable", "left", "given-up", "refused", "rolled-back")
PICK_REASONS = (Reason.DELTA_COUNT, Reason.DELTA_RATIO, Reason.ABORTED_COUNT, Reason.ABORTED_AGE, Reason.SEVERAL_BASES)
MANY_ABORTS = 1500
"""Aborted writes from which a table counts as having many (hive.metastore.acidmetrics.table.aborted.txns.threshold)."""
_JOB_SECONDS = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600)

_RATIOS = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0)


@functools.cache
def version() -> str:
    """The installed package's version; `unknown` when the source tree was never installed."""
    try:
        return metadata.version("compactor")
    except metadata.PackageNotFoundError:
        return "unknown"


class StoreBytes(Collector):
    """
    Collects `compactor_object_store_bytes_total` from the counters of the stores at each scrape.

    Args:
        totals: returns (by, way, bytes) since the process started.
    """

    def __init__(self, totals: Callable[[], Iterable[tuple[str, str, int]]]) -> None:
        self._totals = totals

    def collect(self) -> Iterator[Metric]:
        text = "Bytes of objects on S3 that the daemon or its tasks sent or received, or that the store copied by itself for them."
        family = CounterMetricFamily("compactor_object_store_bytes", text, labels=("by", "way"))
        for by, way, count in self._totals():
            family.add_metric((by, way), count)
        yield family


class Metrics:
    """
    Every metric of one daemon.

    Series whose labels are known beforehand exist from the start: the first failure is a step from 0 to 1, which `rate`
    shows.

    Args:
        store_bytes: the totals that `StoreBytes` reads.
    """

    def __init__(self, store_bytes: Callable[[], Iterable[tuple[str, str, int]]] = tuple) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"compactor_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"compactor_{name}", text, labels, registry=registry)

        build = Info("compactor_build", "Version of the daemon.", registry=registry)
        build.info({"version": version(), "python": platform.python_version()})

        # the process
        ProcessCollector(registry=registry)
        self.ready = gauge("ready", "1 if the daemon is ready (/-/ready answers 200).")
        self.slack = gauge(
            "thread_slack_seconds",
            "Time until the slowest thread counts as stuck and the watchdog acts (0: it counts as stuck).",
        )

        # roles
        self.cycle_duration = Histogram(
            "compactor_cycle_duration_seconds",
            "Time one cycle of a role took.",
            ("role",),
            registry=registry,
            buckets=_CYCLE_SECONDS,
        )
        self.cycles = counter(
            "cycles_total",
            "Cycles of a role; no-turn: another daemon leads or holds the mutex, or nothing may begin.",
            "role",
            "outcome",
        )
        self.last_cycle = gauge(
            "last_cycle_timestamp_seconds",
            "When a role of this daemon last completed a cycle without an error (Unix time; 0: never). A cycle with outcome no-turn doesn't count.",
            "role",
        )
        self.stuck_threads = gauge(
            "stuck_threads", "Threads that ended or completed no cycle for too long: the lines of /-/healthy."
        )
        self.steps = counter("steps_total", "Named steps the roles went through.", "step")

        # queue
        self.queue_entries = gauge("queue_entries", "Entries in COMPACTION_QUEUE.", "state", "kind")
        self.foreign_entries = gauge(
            "foreign_entries",
            "Entries in COMPACTION_QUEUE of a type or state that this release doesn't know; they are left to Hive.",
            "type",
        )
        self.queue_oldest_age = gauge(
            "queue_oldest_age_seconds",
            "How long the oldest entry has been in its state, or since the latest pause, blackout or closed window that held it ended; entries that one holds now don't count (0: none).",
            "state",
        )
        self.claimable = gauge(
            "claimable_entries", "Initiated entries that no pause, blackout or maintenance window holds."
        )

        # metastore
        self.database_up = gauge(
            "database_up", "1 if the metastore's database answered the latest query for these metrics."
        )
        self.open_writer_age = gauge(
            "oldest_open_writer_age_seconds",
            "Age of the oldest open transaction, which others wait for; those of replication are left out (0: none).",
        )
        self.aborted_writes = gauge("aborted_writes", "Aborted writes that the metastore hasn't forgotten yet.")
        self.aborted_writes_age = gauge(
            "aborted_writes_oldest_age_seconds",
            "Time since the oldest aborted write that isn't forgotten could have been (0: none).",
        )
        self.tables_with_many_aborts = gauge(
            "tables_with_many_aborted_writes",
            f"Tables and partitions with {MANY_ABORTS} or more aborted writes that could have been forgotten.",
        )

        # initiator
        self.partitions_scanned = counter(
            "partitions_scanned_total", "Tables and partitions whose directories the Initiator listed."
        )
        self.candidates = counter("candidates_total", "Tables and partitions the Initiator got from the metastore.")
        self.picks = counter("picks_total", "Tables and partitions the Initiator queued.", "kind", "reason")
        for kind in SUPPORTED:
            for reason in PICK_REASONS:
                self.picks.labels(kind.value, reason.value)
        self.skips = counter("skips_total", "Tables and partitions the Initiator did not queue.", "reason")
        for reason in Reason:
            self.skips.labels(reason.value)
        self.scan_errors = counter(
            "scan_errors_total", "Tables and partitions the Initiator could not judge because of an error."
        )

        # worker
        self.jobs = counter("jobs_total", "Queue entries a Worker finished.", "kind", "outcome")
        for kind in SUPPORTED:
            for outcome in JOB_OUTCOMES:
                self.jobs.labels(kind.value, outcome)
        self.places_refused = counter(
            "places_refused_total",
            "Renames, writes and deletions that were refused outside the warehouse's roots, and any call through a symbolic link below one.",
        )
        self.verification_refused = counter(
            "verification_refused_total",
            "Compactions whose output was found different from its inputs; nothing was published.",
        )
        self.given_back_in_a_row = gauge(
            "worker_given_back_in_a_row",
            "Compactions given back in a row because a service that they need doesn't answer or broke down, and starts of Spark that failed before a claim (0: all is well).",
        )
        self.unsettled = gauge(
            "worker_unsettled",
            "Compactions that have ended and can't be undone yet: each keeps its claim, and its transaction open.",
        )
        self.waiting_for_store = gauge(
            "worker_waiting_for_store",
            "Entries that were given back because this store is away, and wait for their next try.",
            "store",
        )
        self.failed_attempts = counter(
            "failed_task_attempts_total",
            "Attempts of Spark tasks that failed on a node of the cluster, also where another attempt took their place; kind: the code of a refusal, unreachable, or broke-down.",
            "host",
            "kind",
        )
        self.jobs_running = gauge("jobs_running", "Queue entries a Worker of this process is busy with.")
        self.job_duration = Histogram(
            "compactor_job_duration_seconds",
            "Time from claim to commit.",
            ("kind",),
            registry=registry,
            buckets=_JOB_SECONDS,
        )
        self.copied_bytes = counter("copied_bytes_total", "Stripe bytes copied without decoding.")
        self.recoded_bytes = counter(
            "recoded_bytes_total", "Bytes of stripes that were encoded anew, or out of which rows were cut."
        )
        self.written_bytes = counter("written_bytes_total", "Bytes of published files.")
        self.written_ratio = Histogram(
            "compactor_written_to_predicted_ratio",
            "Bytes that a published compaction wrote, divided by those that its plan predicted.",
            ("kind",),
            registry=registry,
            buckets=_RATIOS,
        )
        self.input_files = counter("input_files_total", "Files read by published compactions.")
        self.output_files = counter("output_files_total", "Files published.")

        registry.register(StoreBytes(store_bytes))

        # cleaner
        self.cleaner_blocked_age = gauge(
            "cleaner_blocked_age_seconds",
            "Time since the commit of the oldest compaction that a transaction or lock keeps from being cleaned (0: none).",
        )
        self.cleaner_blocked = gauge("cleaner_blocked_entries", "Compactions whose cleaning is held back.", "reason")
        self.cleanings = counter(
            "cleanings_total",
            "Attempts to clean an entry or aborted writes. failed: tried again later; left: directories were still there; given-up: after too many failures.",
            "outcome",
        )
        for outcome in CLEANING_OUTCOMES:
            self.cleanings.labels(outcome)
        self.cleaning_overdue = gauge(
            "cleaning_overdue_seconds",
            "For how long the oldest compaction that isn't cleaned could have been, by cleaner.retention_seconds (0: none).",
        )
        self.cleaned_directories = counter("cleaned_directories_total", "Directories the Cleaner removed.", "kind")
        self.cleaned_bytes = counter("cleaned_bytes_total", "Bytes of files the Cleaner removed.")

        # several daemons
        self.leader = gauge(
            "leader", "1 if this daemon leads the role (without ZooKeeper: if it did the latest cycle).", "role"
        )
        self.coordination = gauge(
            "coordination_connection",
            "1 for the state that this daemon's connection to the election service has.",
            "by",
            "state",
        )
        self.members = gauge("members", "Daemons among the members, this one included (0: not known).")
        self.members_expected = gauge(
            "members_expected", "Daemons that there should be, members.expected (0: not set)."
        )

        # control
        self.paused = gauge(
            "paused", "1 for each pause; the label names what it pauses: all, pool:…, database:…, table:….", "scope"
        )
        self.drained = gauge("drained", "1 if this host is drained: its workers claim nothing.")
        self.control_known = gauge(
            "control_known", "1 if the daemon knows what is paused; 0: it doesn't, and its workers claim nothing."
        )
        self.budget_used_bytes = gauge(
            "budget_used_bytes",
            "Written within the last hour by compactions that a budget of bytes covers, all daemons.",
            "budget",
        )
        self.held_entries = gauge("held_entries", "Initiated entries that no worker may claim now.", "reason")

        self.paused_since = gauge(
            "paused_since_timestamp_seconds",
            "Since when a pause without an end holds (Unix time).",
            "scope",
        )
        self.drained_since = gauge(
            "drained_since_timestamp_seconds", "Since when this host is drained (Unix time; 0: not drained)."
        )

        # housekeeper
        self.housekeeping_rows = counter(
            "housekeeping_rows_total", "Rows a housekeeping duty removed or changed.", "duty"
        )
        self.housekeeping_failures = counter(
            "housekeeping_failures_total", "How often a housekeeping duty failed.", "duty"
        )

    @staticmethod
    def show(gauge: Gauge, values: Mapping[tuple[str, ...], float]) -> None:
        """
        Set exactly these series of a gauge, by label values, and remove all others.

        Series that stay are never removed in between, so a scrape during the change doesn't miss them.
        """
        for labels, value in values.items():
            gauge.labels(*labels).set(value)
        for family in gauge.collect():
            for gone in {tuple(sample.labels.values()) for sample in family.samples} - values.keys():
                gauge.remove(*gone)

    def render(self) -> bytes:
        """The registry in Prometheus' text format."""
        return generate_latest(self.registry)
