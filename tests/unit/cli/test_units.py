"""Numbers as people read them."""

import time

import pytest

from compactor.cli import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-1, "0 s"),
        (0.44, "0.4 s"),
        (12.2, "12 s"),
        (59.7, "1 min"),
        (185, "3 min 5 s"),
        (3600, "1 h"),
        (7800, "2 h 10 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_seconds(value, text):
    """Durations have two units at most."""
    assert units.seconds(value) == text


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        ("UTC", "2024-05-01 08:30:00 UTC"),
        ("Europe/Berlin", "2024-05-01 10:30:00 CEST"),
        ("America/Sao_Paulo", "2024-05-01 05:30:00 -03"),
    ],
)
def test_clock(monkeypatch, zone, text):
    """Times are to the second for people, in the zone of whoever asks; what is no time stays as it is."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    shown = units.clock("2024-05-01T08:30:00.123Z"), units.clock("900000000000000000")
    monkeypatch.undo()
    time.tzset()
    assert shown == (text, "900000000000000000")
