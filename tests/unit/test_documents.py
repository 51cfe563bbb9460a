"""The lists of docs/reasons.md, docs/settings.md and docs/logging.md hold what the code has, and nothing else."""

import ast
import json
import re
import typing
import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel, ByteSize, TypeAdapter
from pydantic.fields import FieldInfo

from compactor.reasons import Reason
from compactor.roles.initiator.scan_state import LASTING
from compactor.settings import Settings
from compactor.settings.mistakes import section_of
from compactor.settings.model import leaves
from docs.pictures import dashboard

PROJECT = Path(__file__).resolve().parents[2]
REASONS = PROJECT / "docs" / "reasons.md"
SETTINGS = PROJECT / "docs" / "settings.md"
DEFAULT_FILE = PROJECT / "config" / "compactor.yaml"
LOGGING = PROJECT / "docs" / "logging.md"
IMAGES = PROJECT / "docs" / "images"
PLACES = {"Initiator", "Worker", "Cleaner", "CLI"}
BYTES = TypeAdapter(ByteSize)
UNSAID = {0, 1, 1e5, -1e5, 1e8}
"""Limits that say little: of all seconds, hours and days, and that a number isn't negative."""
NOWHERE = "–"
"""An event without fields."""


REASON = re.compile(r"- `([^`]+)` \(([^)]+)\): (.+?)\n  - To do: (.+)", re.DOTALL)
"""Code, where it appears, what it means, what to do."""
SETTING = re.compile(r"- `([^`]+)` \((.+?); default (.+?); HUP: (yes|restart)\): (.+)", re.DOTALL)
"""Key, type, default, whether a running daemon takes it over, what it does."""
EVENT = re.compile(r"- `([^`]+)` \(([^;]+); ([^)]+)\): (.+)", re.DOTALL)
"""Name, levels, fields, what it means."""


def items_of(page: Path, form: re.Pattern[str]) -> list[tuple[str, ...]]:
    """The parts of each item of the page's lists that begins with a name between backquotes and a bracket."""
    items = re.findall(r"^- `[^`\n]+` \(.*(?:\n +\S.*)*", page.read_text(encoding="utf-8"), re.MULTILINE)
    found = [(item, form.fullmatch(item)) for item in items]
    assert [item for item, parts in found if parts is None] == []
    return [tuple(" ".join(part.split()) for part in parts.groups()) for _, parts in found if parts is not None]


def each_once(told: Sequence[str], names: Collection[str]) -> None:
    """A page has one item for each name that the code has, and no other."""
    wrong = {
        "has no item": sorted(set(names).difference(told)),
        "isn't in the code": sorted(set(told).difference(names)),
        "has two items": sorted({name for name in told if told.count(name) > 1}),
    }
    assert {why: those for why, those in wrong.items() if those} == {}


def bare(default: str) -> str:
    """A default without the backquotes around all of it."""
    return default.removeprefix("`").removesuffix("`")


def fields_of(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """
    Every setting with its dotted key. The keys of a list's items follow the list as `list[].key`; those of a second
    list of the same items are not repeated.
    """
    repeated: set[type[BaseModel]] = set()
    for name, field in model.model_fields.items():
        key = f"{path}{name}"
        if (section := section_of(field.annotation)) is not None:
            yield from fields_of(section, f"{key}.")
            continue
        yield key, field
        for item in filter(None, map(section_of, typing.get_args(field.annotation))):
            if item not in repeated:
                repeated.add(item)
                yield from fields_of(item, f"{key}[].")


def default_of(field: FieldInfo) -> str:
    """The default of a setting as YAML writes it."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    return value if isinstance(value, str) else json.dumps(value)


def limits_of(field: FieldInfo) -> set[float]:
    """The least, the most and the greatest length that a setting may have, by what pydantic shows of it."""
    return {float(number) for number in re.findall(r"\b(?:ge|gt|le|max_length)=(-?[\d.]+)", repr(field))}


def written(node: yaml.Node, text: str, path: str = "") -> Iterator[tuple[str, str]]:
    """Every value of a YAML file as it is written, by its dotted key."""
    if isinstance(node, yaml.MappingNode) and node.value:
        for key, value in node.value:
            yield from written(value, text, f"{path}.{key.value}".strip("."))
    else:
        yield path, text[node.start_mark.index : node.end_mark.index]


@cache
def events() -> dict[str, tuple[set[str], set[str]]]:
    """The levels and the fields of each log event of the code."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    for file in sorted((PROJECT / "compactor").rglob("*.py")):
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(call, ast.Call) or not (
                said := re.findall(r"(?<!\.)\b_log\.(\w+)", ast.unparse(call.func))
            ):
                continue
            (event,) = call.args
            assert isinstance(event, ast.Constant), f"{file}:{call.lineno}: an event is a literal"
            levels, fields = found.setdefault(str(event.value), (set(), set()))
            levels.update("error" if level == "exception" else level for level in said)
            fields.update(keyword.arg or "**" for keyword in call.keywords)
    return found


def test_every_event_is_explained_once():
    """docs/logging.md has one row for each log event, and none for an event that doesn't exist."""
    each_once([name for name, *_ in items_of(LOGGING, EVENT)], events())


def test_an_event_is_a_noun_and_a_verb():
    """The name of an event is `noun.verb` in lower case, and can't be taken for a setting; the page says what it means."""
    word = "[a-z]+(?:_[a-z]+)*"
    assert [event for event in events() if not re.fullmatch(rf"{word}\.{word}", event)] == []
    assert [event for event in events() if event.partition(".")[0] in Settings.model_fields] == []


def test_levels_and_fields_of_events_are_those_of_the_code():
    """
    The page names each level of an event, and each field but those that lines about an entity have anyway. Fields that
    the code passes on as a mapping (`**`) stand in the page only.
    """
    everywhere = {"db", "table", "partition", "id", "exc_info"}
    told = {
        name: (set(levels.split(", ")), set(fields.split(", ")) - {NOWHERE})
        for name, levels, fields, _ in items_of(LOGGING, EVENT)
    }
    for event, (levels, fields) in events().items():
        assert told[event][0] == levels, event
        missing, unknown = fields - everywhere - {"**"} - told[event][1], told[event][1] - fields
        assert not missing, event
        assert not unknown or "**" in fields, event


def test_every_reason_is_explained_once():
    """docs/reasons.md has one item for each reason, and none for a code that doesn't exist."""
    each_once([name for name, *_ in items_of(REASONS, REASON)], [reason.value for reason in Reason])


def test_a_reason_is_explained_wholly():
    """Each item says where the code appears, what it means, and what to do; nowhere is where no code gives it."""
    code = "\n".join(file.read_text(encoding="utf-8") for file in (PROJECT / "compactor").rglob("*.py"))
    given = {reason.value for reason in Reason if re.search(rf"\bReason\.{reason.name}\b", code)}
    for name, places, *_ in items_of(REASONS, REASON):
        assert name in given, f"no code gives {name}"
        assert set(places.split(", ")) <= PLACES, f"{name} appears in one of {sorted(PLACES)}"


def test_the_lasting_refusals_are_marked():
    """The items of refusals that the Initiator remembers say so."""
    marked = {name for name, _, meaning, _ in items_of(REASONS, REASON) if meaning.endswith("Lasting")}
    assert marked == {reason.value for reason in LASTING}


def test_every_setting_is_explained_once():
    """docs/settings.md has one item for each setting, and none for a key that doesn't exist."""
    each_once([key for key, *_ in items_of(SETTINGS, SETTING)], [key for key, _ in fields_of(Settings)])


def test_the_defaults_are_those_of_the_models():
    """docs/settings.md says the default that a setting has when no file and no variable sets it."""
    told = {key: bare(default) for key, _, default, *_ in items_of(SETTINGS, SETTING)}
    assert told == {key: default_of(field) for key, field in fields_of(Settings)}


def test_the_defaults_are_written_as_in_the_default_file():
    """docs/settings.md and config/compactor.yaml write a default in the same way; the required address is an example."""
    text = DEFAULT_FILE.read_text(encoding="utf-8")
    file = dict(written(yaml.compose(text, Loader=yaml.SafeLoader), text))
    told = {key: bare(default) for key, _, default, *_ in items_of(SETTINGS, SETTING) if "[]." not in key}
    assert file.keys() == leaves(yaml.safe_load(text)).keys()
    assert {key: value for key, value in file.items() if told[key] != "required"} == {
        key: value for key, value in told.items() if value != "required"
    }


def test_the_bounds_are_those_of_the_models():
    """The type of an item in docs/settings.md names each limit that is the setting's own, and no other number."""
    told = {key: kind for key, kind, *_ in items_of(SETTINGS, SETTING)}
    for key, field in fields_of(Settings):
        named = {int(BYTES.validate_python(size)) for size in re.findall(r"\d+(?: [KMG]iB)?", told[key])}
        own = limits_of(field)
        assert own - UNSAID <= named <= own, f"{key}: {told[key]}"


def test_the_default_file_marks_what_needs_a_restart():
    """config/compactor.yaml has `[restart]` in the comment above each key of Settings.RESTART, and above no other."""
    marked, section, comment = set(), "", ""
    for line in DEFAULT_FILE.read_text(encoding="utf-8").splitlines():
        if key := re.match(r"(  )?(\w+):", line):
            section = section if key[1] else key[2]
            if "[restart]" in comment:
                marked.add(f"{section}.{key[2]}" if key[1] else section)
        comment = comment + line if line.lstrip().startswith("#") else ""
    assert marked == set(Settings.RESTART)


def test_what_a_running_daemon_takes_over_is_told():
    """HUP is `restart` for the keys of Settings.RESTART and all below them, and `yes` for the others."""
    fixed = tuple(f"{stop}." for stop in Settings.RESTART)
    told = {key: hup for key, _, _, hup, _ in items_of(SETTINGS, SETTING)}
    assert told == {key: "restart" if f"{key}.".startswith(fixed) else "yes" for key, _ in fields_of(Settings)}


@pytest.mark.parametrize(("row", "panels"), [pytest.param(row, panels, id=row) for row, panels in dashboard.rows()])
def test_the_pictures_of_the_dashboard_show_its_panels(row, panels):
    """Each row of deploy/grafana has a picture, with the panels that the row has now; else `make pictures` is due."""
    groups = ET.parse(dashboard.image(IMAGES, row)).iterfind("{*}g")
    assert [group.findtext("{*}title") for group in groups] == [panel.title for panel in panels]


def test_every_picture_is_on_a_page():
    """A picture that no page shows is one of a row or a command that is gone."""
    text = "".join(page.read_text(encoding="utf-8") for page in [PROJECT / "README.md", *IMAGES.parent.glob("*.md")])
    assert [file.name for file in IMAGES.iterdir() if f"images/{file.name})" not in text] == []
