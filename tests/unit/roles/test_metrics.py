"""The registry itself: what tells of the process, and gauges whose series come and go."""

from compactor.metrics import Metrics


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
