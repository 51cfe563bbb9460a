"""
Generates the dashboard: `.venv/bin/python deploy/grafana/generate.py` writes compactor.json beside this file. A test
checks that compactor.json is up to date.

Knows panels and PromQL; tests/deploy/test_grafana.py sends every query to a real Prometheus.
"""

from pathlib import Path

from grafana_foundation_sdk.builders import dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.builders.common import VizLegendOptions
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import BigValueGraphMode, LegendDisplayMode, LegendPlacement
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync, DataSourceRef, VariableRefresh

OUTPUT = Path(__file__).with_name("compactor.json")
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
JOB = 'job=~"$job"'
Queries = dict[str, str]
"""Legend → PromQL."""

GLANCE: tuple[tuple[str, str, str], ...] = (
    ("Daemons", "short", f"sum(up{{{JOB}}})"),
    ("Waiting", "short", f'sum(max by (job, state, kind) (compactor_queue_entries{{{JOB}, state="initiated"}}))'),
    ("Being compacted", "short", f"sum(compactor_jobs_running{{{JOB}}})"),
    (
        "Waiting to be cleaned",
        "short",
        f'sum(max by (job, state, kind) (compactor_queue_entries{{{JOB}, state="ready-for-cleaning"}}))',
    ),
    ("Oldest that waits", "s", f'max(compactor_queue_oldest_age_seconds{{{JOB}, state="initiated"}})'),
    ("Stuck threads", "short", f"sum(compactor_stuck_threads{{{JOB}}})"),
    ("Oldest open transaction", "s", f"max(compactor_oldest_open_writer_age_seconds{{{JOB}}})"),
    ("Verification refused, a day", "short", f"sum(increase(compactor_verification_refused_total{{{JOB}}}[1d]))"),
)
"""Title, unit, query."""

ROWS: tuple[tuple[str, tuple[tuple[str, str, str, Queries], ...]], ...] = (
    (
        "Queue",
        (
            (
                "Entries",
                "Entries of COMPACTION_QUEUE. Every daemon shows the same queue.",
                "short",
                {"{{state}} {{kind}}": f"max by (state, kind) (compactor_queue_entries{{{JOB}}})"},
            ),
            (
                "Age of the oldest",
                "How long the oldest entry has been in its state.",
                "s",
                {"{{state}}": f"max by (state) (compactor_queue_oldest_age_seconds{{{JOB}}})"},
            ),
            (
                "Queued, by reason",
                "Tables and partitions that the Initiator queued.",
                "short",
                {
                    "{{reason}} ({{kind}})": f"sum by (reason, kind) (increase(compactor_picks_total{{{JOB}}}[$__rate_interval]))"
                },
            ),
            (
                "Not queued, by reason",
                "Candidates that the Initiator did not queue.",
                "short",
                {"{{reason}}": f"sum by (reason) (increase(compactor_skips_total{{{JOB}}}[$__rate_interval]))"},
            ),
        ),
    ),
    (
        "Work",
        (
            (
                "Compactions that ended",
                "By outcome. Refused entries were never attempted.",
                "short",
                {"{{outcome}}": f"sum by (outcome) (increase(compactor_jobs_total{{{JOB}}}[$__rate_interval]))"},
            ),
            (
                "Duration",
                "From claim to commit.",
                "s",
                {
                    "half are faster": f"histogram_quantile(0.5, sum by (le) (rate(compactor_job_duration_seconds_bucket{{{JOB}}}[$__rate_interval])))",
                    "95 % are faster": f"histogram_quantile(0.95, sum by (le) (rate(compactor_job_duration_seconds_bucket{{{JOB}}}[$__rate_interval])))",
                },
            ),
            (
                "Bytes",
                "Copied stripes are never decoded; the cost follows the recoded bytes.",
                "Bps",
                {
                    "copied": f"sum(rate(compactor_copied_bytes_total{{{JOB}}}[$__rate_interval]))",
                    "recoded": f"sum(rate(compactor_recoded_bytes_total{{{JOB}}}[$__rate_interval]))",
                    "written": f"sum(rate(compactor_written_bytes_total{{{JOB}}}[$__rate_interval]))",
                },
            ),
            (
                "S3",
                "Bytes that the daemons and their tasks sent and received, and bytes that the store copied by itself.",
                "Bps",
                {
                    "{{by}} {{way}}": f"sum by (by, way) (rate(compactor_object_store_bytes_total{{{JOB}}}[$__rate_interval]))"
                },
            ),
            (
                "Files",
                "Files that published compactions read, and files that they published.",
                "short",
                {
                    "read": f"sum(increase(compactor_input_files_total{{{JOB}}}[$__rate_interval]))",
                    "published": f"sum(increase(compactor_output_files_total{{{JOB}}}[$__rate_interval]))",
                },
            ),
            (
                "Written, of what was predicted",
                "Bytes that published compactions wrote, divided by those that their plans predicted.",
                "percentunit",
                {
                    "half are below": f"histogram_quantile(0.5, sum by (le) (rate(compactor_written_to_predicted_ratio_bucket{{{JOB}}}[$__rate_interval])))",
                    "95 % are below": f"histogram_quantile(0.95, sum by (le) (rate(compactor_written_to_predicted_ratio_bucket{{{JOB}}}[$__rate_interval])))",
                },
            ),
        ),
    ),
    (
        "Cleaning",
        (
            (
                "Removed",
                "Directories that the Cleaner removed, by kind.",
                "short",
                {
                    "{{kind}}": f"sum by (kind) (increase(compactor_cleaned_directories_total{{{JOB}}}[$__rate_interval]))"
                },
            ),
            (
                "Freed",
                "Bytes of the files that the Cleaner removed.",
                "Bps",
                {"freed": f"sum(rate(compactor_cleaned_bytes_total{{{JOB}}}[$__rate_interval]))"},
            ),
            (
                "Held back",
                (
                    "Time since the retention of the oldest uncleaned compaction ended; time since the commit of the "
                    "oldest compaction that a transaction or lock blocks; age of the oldest open transaction."
                ),
                "s",
                {
                    "could have been cleaned": f"max(compactor_cleaning_overdue_seconds{{{JOB}}})",
                    "blocked by a reader": f"max(compactor_cleaner_blocked_age_seconds{{{JOB}}})",
                    "oldest open transaction": f"max(compactor_oldest_open_writer_age_seconds{{{JOB}}})",
                },
            ),
            (
                "Attempts to clean",
                "By outcome. The Cleaner tries again what failed; after it gave up, the files stay.",
                "short",
                {"{{outcome}}": f"sum by (outcome) (increase(compactor_cleanings_total{{{JOB}}}[$__rate_interval]))"},
            ),
            (
                "Aborted writes",
                "Aborted writes that the Cleaner hasn't cleaned yet.",
                "short",
                {
                    "writes": f"max(compactor_aborted_writes{{{JOB}}})",
                    "tables with very many": f"max(compactor_tables_with_many_aborted_writes{{{JOB}}})",
                },
            ),
        ),
    ),
    (
        "Control and trouble",
        (
            (
                "Paused and drained",
                "Scopes that are paused, and hosts whose workers claim nothing.",
                "short",
                {
                    "paused: {{scope}}": f"max by (scope) (compactor_paused{{{JOB}}}) or vector(0)",
                    "drained: {{instance}}": f"max by (instance) (compactor_drained{{{JOB}}})",
                },
            ),
            (
                "Held entries",
                "Initiated entries that no worker may claim now, and initiated entries that a worker may claim.",
                "short",
                {
                    "{{reason}}": f"max by (reason) (compactor_held_entries{{{JOB}}}) or vector(0)",
                    "may be claimed": f"max(compactor_claimable_entries{{{JOB}}})",
                },
            ),
            (
                "Ready",
                "1 if the daemon is ready (/-/ready answers 200); 1 if the daemon knows what is paused.",
                "short",
                {
                    "{{instance}} ready": f"max by (instance) (compactor_ready{{{JOB}}})",
                    "{{instance}} control known": f"max by (instance) (compactor_control_known{{{JOB}}})",
                },
            ),
            (
                "Given back in a row",
                (
                    "Compactions given back in a row because a service that they need doesn't answer or broke down; "
                    "compactions that have ended and can't be undone yet."
                ),
                "short",
                {
                    "{{instance}}": f"max by (instance) (compactor_worker_given_back_in_a_row{{{JOB}}})",
                    "{{instance}} not undone": f"max by (instance) (compactor_worker_unsettled{{{JOB}}})",
                },
            ),
            (
                "Errors and refusals",
                "Tables and partitions that the Initiator couldn't judge, entries that Workers refused, failed housekeeping duties.",
                "short",
                {
                    "scan errors": f"sum(increase(compactor_scan_errors_total{{{JOB}}}[$__rate_interval]))",
                    "refused": f'sum(increase(compactor_jobs_total{{{JOB}, outcome="refused"}}[$__rate_interval]))',
                    "housekeeping": f"sum(increase(compactor_housekeeping_failures_total{{{JOB}}}[$__rate_interval]))",
                },
            ),
            (
                "Nearest to stuck",
                "Seconds until the slowest thread counts as stuck and the watchdog acts; and how long the daemon has been up.",
                "s",
                {
                    "{{instance}} left": f"min by (instance) (compactor_thread_slack_seconds{{{JOB}}})",
                    "{{instance}} up for": f"time() - max by (instance) (process_start_time_seconds{{{JOB}}})",
                },
            ),
        ),
    ),
    (
        "Daemons",
        (
            (
                "Members",
                "Daemons that take part, as each daemon counts them.",
                "short",
                {"{{instance}}": f"max by (instance) (compactor_members{{{JOB}}})"},
            ),
            (
                "Leaders",
                "1 if the daemon leads the role (without ZooKeeper: if it did the latest cycle).",
                "short",
                {"{{instance}} {{role}}": f"max by (instance, role) (compactor_leader{{{JOB}}})"},
            ),
            (
                "Reached",
                "1 if the database answers; 1 for the state of the daemon's connection to the service that elects leaders.",
                "short",
                {
                    "{{instance}} database": f"max by (instance) (compactor_database_up{{{JOB}}})",
                    "{{instance}} {{by}} {{state}}": f"max by (instance, by, state) (compactor_coordination_connection{{{JOB}}})",
                },
            ),
            (
                "Cycles without an error",
                "Cycles per minute, by role.",
                "short",
                {
                    "{{role}}": f'sum by (role) (rate(compactor_cycles_total{{{JOB}, outcome="ok"}}[$__rate_interval])) * 60'
                },
            ),
            (
                "Duration of a cycle",
                "95 % are faster.",
                "s",
                {
                    "{{role}}": f"histogram_quantile(0.95, sum by (role, le) (rate(compactor_cycle_duration_seconds_bucket{{{JOB}}}[$__rate_interval])))"
                },
            ),
        ),
    ),
)


def build() -> dashboard.Dashboard:
    """The whole dashboard; its variable `job` chooses the metastores."""
    made = (
        dashboard.Dashboard("Compactor")
        .uid("compactor")
        .description("Compaction of Hive ACID tables")
        .tags(["hive", "compactor"])
        .refresh("30s")
        .time("now-6h", "now")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .editable()
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(
            dashboard.QueryVariable("job")
            .label("Metastore")
            .datasource(SOURCE)
            .query("label_values(compactor_build_info, job)")
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .multi(True)
            .include_all(True)
        )
    )
    for title, unit, query in GLANCE:
        panel = (
            stat.Panel().title(title).unit(unit).datasource(SOURCE).graph_mode(BigValueGraphMode.AREA).height(4).span(3)
        )
        made.with_panel(panel.with_target(prometheus.Dataquery().expr(query).ref_id("A")))
    for name, panels in ROWS:
        made.with_row(dashboard.Row(name))
        for title, description, unit, queries in panels:
            made.with_panel(_panel(title, description, unit, queries))
    return made


def _panel(title: str, description: str, unit: str, queries: Queries) -> timeseries.Panel:
    legend = VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM).show_legend(True)
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .min(0)
        .datasource(SOURCE)
        .legend(legend)
        .height(8)
        .span(12)
    )
    for number, (words, query) in enumerate(queries.items()):
        panel.with_target(prometheus.Dataquery().expr(query).legend_format(words).ref_id(chr(ord("A") + number)))
    return panel


def text() -> str:
    """The JSON that Grafana imports."""
    return JSONEncoder(sort_keys=True, indent=2).encode(build().build()) + "\n"


if __name__ == "__main__":
    OUTPUT.write_text(text(), encoding="utf-8")
