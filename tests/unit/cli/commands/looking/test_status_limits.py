"""`compactor status` and the alerts call the same ages not well."""

import re
from pathlib import Path

import pytest
import yaml

from compactor.status.overview import LIMITS_MS

RULES = Path(__file__).parents[5] / "deploy" / "prometheus" / "rules.yaml"


@pytest.mark.parametrize("alert", LIMITS_MS)
def test_an_age_is_not_well_for_status_and_alert_alike(alert):
    """The first alert of a name is the warning; each part of its expression compares with the same seconds."""
    rules = [rule for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]
    expression = next(rule["expr"] for rule in rules if rule.get("alert") == alert)
    seconds = {int(number) for number in re.findall(r"> (\d+)$", expression, re.MULTILINE)}
    assert seconds == {LIMITS_MS[alert] // 1000}
