"""The settings' thresholds are the picker's: each setting sets one of them."""

import dataclasses
import re
from pathlib import Path

import pytest

from compactor.metrics import PICK_REASONS
from compactor.planning.thresholds import Thresholds
from compactor.roles.initiator.rules import thresholds_from
from compactor.settings.roles import ThresholdSettings

REASONS = Path(__file__).parents[4] / "docs" / "reasons.md"


@pytest.mark.parametrize("name", ThresholdSettings.model_fields)
def test_each_setting_sets_a_threshold(name):
    """One that `thresholds_from` forgot would silently do nothing."""
    default = dataclasses.asdict(thresholds_from(ThresholdSettings()))
    changed = dataclasses.asdict(thresholds_from(ThresholdSettings(**{name: 7})))
    assert [key for key, value in changed.items() if value != default[key]] == [re.sub("_hours$", "_ms", name)]


def test_every_threshold_has_a_setting():
    """The fields are as many as the settings."""
    assert len(dataclasses.fields(Thresholds)) == len(ThresholdSettings.model_fields)


def test_each_reason_to_pick_is_counted():
    """The metric has a label for each reason that docs/reasons.md lists under *Queued because*."""
    (section,) = re.findall(
        r"^## Queued because.*?(?=^## )", REASONS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert {reason.value for reason in PICK_REASONS} == set(re.findall(r"^- `([a-z-]+)`", section, re.MULTILINE))
