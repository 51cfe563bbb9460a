"""Named steps: none is forgotten by those who go through all of them."""

import re
from pathlib import Path

import compactor
from compactor.roles import steps

ENTERED = re.compile(r'(?:\benter|_step)\(\s*"([^"]+)"')


def test_every_named_step_is_listed():
    """
    ALL_STEPS, which the tests of fencing go through, has every name of `steps` and every literal that is entered
    elsewhere, once: none can be left out.
    """
    named = {value for name, value in vars(steps).items() if name.isupper() and isinstance(value, str)}
    for path in Path(compactor.__file__).parent.rglob("*.py"):
        named.update(ENTERED.findall(path.read_text(encoding="utf-8")))
    assert named == set(steps.ALL_STEPS)
    assert len(steps.ALL_STEPS) == len(named)


def test_every_step_is_told_of():
    """
    In docs/operations.md: what a process that is stopped there, succeeded and continued would do, and why that can't go
    wrong.
    """
    page = (Path(compactor.__file__).parents[1] / "docs" / "operations.md").read_text(encoding="utf-8")
    chapter = page.split("### Stopped at any point", 1)[1].split("\n## ", 1)[0]
    order = [
        step
        for group in (steps.INITIATOR_STEPS, steps.WORKER_STEPS, steps.CLEANER_STEPS, steps.RECOVERY_STEPS)
        for step in group
    ]
    told = set()
    for stopped in re.findall(r"^- (.*(?:\n  \w.*)*)\n  - (?:meanwhile|continued)", chapter, re.MULTILINE):
        names = re.findall(r"`([a-z-]*\.[a-z-]+)`|(…)", stopped)
        role = ""
        found = []
        for name, _ in names:
            if name:
                role = name.partition(".")[0] or role
                found.append(f"{role}.{name.partition('.')[2]}")
        if "…" in stopped and len(found) == 2:
            found = order[order.index(found[0]) : order.index(found[1]) + 1]
        told.update(found)
    assert set(steps.ALL_STEPS) <= told, set(steps.ALL_STEPS) - told
