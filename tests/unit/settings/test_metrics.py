"""Metrics: the field's conventions for names, units and registries."""

import re
from pathlib import Path

from compactor.metrics import Metrics


def test_names_follow_the_conventions():
    """
    Every metric starts with `compactor_`, but for those that every process has by the same names; counters end in
    _total, times in _seconds, sizes in _bytes.
    """
    families = [family for family in Metrics().registry.collect() if not family.name.startswith("process_")]
    assert families
    for family in families:
        assert re.fullmatch(r"compactor_[a-z_]+", family.name), family.name
        assert family.documentation.endswith(".") or family.documentation.endswith(")."), family.name
        for word, unit in (("duration", "_seconds"), ("age", "_seconds"), ("bytes", "_bytes")):
            if word in family.name.split("_"):
                assert family.name.endswith(unit), family.name


def test_every_metric_is_documented():
    """The list of docs/metrics.md holds the names, labels and texts that the daemon has, and nothing else."""
    items = re.findall(r"^- `.*(?:\n  \S.*)*", Path("docs/metrics.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert [" ".join(item.split()) for item in items] == _items()


def _items():
    metrics = Metrics(lambda: [("daemon", "sent", 0)])
    labelled = {
        name: kept._labelnames
        for name, kept in metrics.registry._names_to_collectors.items()
        if hasattr(kept, "_labelnames")
    }
    items = []
    for family in metrics.registry.collect():
        if family.name.startswith("process_"):
            continue
        name = family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")
        labels = (
            labelled.get(name)
            or labelled.get(family.name)
            or sorted({label for sample in family.samples for label in sample.labels})
        )
        kind = "; ".join([family.type, *filter(None, [", ".join(f"`{label}`" for label in labels)])])
        items.append(f"- `{name}` ({kind}): {family.documentation}")
    return items


def test_two_daemons_in_one_process_do_not_share_a_registry():
    """Each has its own values."""
    one, other = Metrics(), Metrics()
    one.picks.labels("major", "delta-count").inc()
    assert b'compactor_picks_total{kind="major",reason="delta-count"} 1.0' in one.render()
    assert b'compactor_picks_total{kind="major",reason="delta-count"} 0.0' in other.render()


def test_series_are_there_before_anything_happens():
    """`rate` sees only what had a value before: each outcome, each reason to pick or to skip starts at 0."""
    text = Metrics().render().decode()
    for series in (
        'jobs_total{kind="major",outcome="failed"}',
        'picks_total{kind="minor",reason="aborted-age"}',
        'skips_total{reason="failed-too-often"}',
    ):
        assert f"compactor_{series} 0.0" in text


def test_build_information_is_there():
    """`compactor_build_info` is 1 and carries version and Python."""
    assert re.search(rb'compactor_build_info\{python="3[^"]+",version="[^"]+"\} 1\.0', Metrics().render())


def test_the_process_tells_when_it_started():
    """By which a daemon that is started again and again is found."""
    value = Metrics().registry.get_sample_value
    assert (value("process_start_time_seconds") or 0) > 0
    assert (value("process_resident_memory_bytes") or 0) > 0


def test_a_gauge_shows_these_series_and_no_others():
    """What is gone goes; what stays isn't taken away in between."""
    metrics = Metrics()
    value = metrics.registry.get_sample_value
    metrics.show(metrics.queue_entries, {("initiated", "major"): 2, ("working", "minor"): 1})
    metrics.show(metrics.queue_entries, {("initiated", "major"): 3})
    assert value("compactor_queue_entries", {"state": "initiated", "kind": "major"}) == 3
    assert value("compactor_queue_entries", {"state": "working", "kind": "minor"}) is None
    metrics.show(metrics.queue_entries, {})
    assert value("compactor_queue_entries", {"state": "initiated", "kind": "major"}) is None
