"""Answers in four formats, on the right stream."""

import contextlib
import importlib
import io
import json
import pkgutil
import re

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

import compactor.cli
from compactor.cli.output import Format, Output, OutputColumn, View, part_of_picture
from tests.strategies import listed_records

COLUMNS = (OutputColumn("name", "NAME"), OutputColumn("bytes", "BYTES", right=True, show=lambda value: f"{value} B"))
RECORDS = [
    {"name": "dt=ü [red]x[/red]", "bytes": 12, "more": {"k": 1}},
    {"name": "tab\tnew\nline", "bytes": None, "more": {}},
]


def test_table_shows_values_for_people(capsys):
    """
    A table folds nothing where nobody looks at a screen, shows markup-like text as it is, and leaves missing values
    empty.
    """
    Output(Format.TABLE).show(View(COLUMNS, RECORDS))
    out = capsys.readouterr().out
    assert "NAME" in out
    assert "dt=ü [red]x[/red]    12 B" in out


def test_long_values_are_not_cut_in_a_pipe(capsys):
    """A pipe gets the whole name on one line, however long."""
    name = "k=" + "x" * 500
    Output(Format.TABLE).show(View(COLUMNS, [{"name": name, "bytes": 1}]))
    assert name in capsys.readouterr().out


@pytest.mark.parametrize(("form", "parse"), [(Format.JSON, json.loads), (Format.YAML, yaml.safe_load)])
def test_json_and_yaml_hold_the_records(capsys, form, parse):
    """JSON and YAML give every value, also those that no column shows, as it is."""
    Output(form).show(View(COLUMNS, RECORDS))
    assert parse(capsys.readouterr().out) == RECORDS


def test_tsv_is_one_line_a_record(capsys):
    """TSV has a heading, one line per record, no raw tab or newline inside a value, nothing for a missing one."""
    Output(Format.TSV).show(View(COLUMNS, RECORDS))
    assert capsys.readouterr().out == "name\tbytes\ndt=ü [red]x[/red]\t12\ntab\\tnew\\nline\t\n"


def test_a_picture_is_for_tables_only(capsys):
    """People see the picture, programs the document."""
    view = View(COLUMNS, RECORDS, document={"a": 1}, picture=lambda: Text("drawn"))
    Output(Format.TABLE).show(view)
    assert capsys.readouterr().out == "drawn\n"
    Output(Format.JSON).show(view)
    assert json.loads(capsys.readouterr().out) == {"a": 1}


@pytest.mark.parametrize(
    ("form", "data"), [(Format.TABLE, ""), (Format.JSON, "[]\n"), (Format.YAML, "[]\n"), (Format.TSV, "name\tbytes\n")]
)
def test_an_empty_answer_is_said_on_stderr(capsys, form, data):
    """With no records, stdout holds an empty value of its format and stderr the sentence."""
    Output(form).show(View(COLUMNS, [], empty="nothing is queued"))
    captured = capsys.readouterr()
    assert captured.out == data
    assert captured.err == "nothing is queued\n"


def test_busy_tells_each_change_once_when_piped(capsys):
    """Where no terminal is, a long wait is one line per change on stderr."""
    with Output(Format.JSON).busy("waiting") as tell:
        tell("waiting")
        tell("working")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "waiting\nworking\n"


def test_a_narrow_terminal_gets_the_columns_that_matter(monkeypatch, capsys):
    """Names stay whole; what is left out is said, and `wide` shows all. A pipe gets all."""
    columns = (
        OutputColumn("name", "NAME"),
        OutputColumn("worker", "WORKER", less=1),
        OutputColumn("job", "JOB", less=2),
        OutputColumn("empty", "EMPTY", less=3),
    )
    record = {"name": "sales.orders/dt=2024-01-01", "worker": "edge-7.example.org", "job": "application_17"}
    for key, value in {"FORCE_COLOR": "1", "TERM": "dumb", "COLUMNS": "50", "LINES": "20"}.items():
        monkeypatch.setenv(key, value)
    Output(Format.TABLE).show(View(columns, [record]))
    shown = capsys.readouterr()
    assert "sales.orders/dt=2024-01-01" in shown.out
    assert "edge-7.example.org" in shown.out
    assert "application_17" not in shown.out
    assert shown.err == "left out for want of room: JOB; -o wide shows all\n"
    Output(Format.WIDE).show(View(columns, [record]))
    assert capsys.readouterr().err == ""
    monkeypatch.delenv("FORCE_COLOR")
    Output(Format.TABLE).show(View(columns, [record]))
    shown = capsys.readouterr()
    assert "application_17" in shown.out
    assert shown.err == ""


def test_a_long_text_that_may_be_folded_pushes_no_column_out(monkeypatch, capsys):
    """It gets the room that the others leave; names stay whole, and what matters less is left out only then."""
    columns = (
        OutputColumn("name", "NAME"),
        OutputColumn("files", "FILES", right=True, less=1),
        OutputColumn("message", "MESSAGE", folds=20),
    )
    name = "sales.customer_orders_daily/dt=2024-01-01/region=emea"
    record = {"name": name, "files": "24 → 1", "message": "corrupt-file: " + "delta/bucket " * 20}
    for key, value in {"FORCE_COLOR": "1", "TERM": "dumb", "LINES": "20", "COLUMNS": "90"}.items():
        monkeypatch.setenv(key, value)
    Output(Format.TABLE).show(View(columns, [record]))
    shown = capsys.readouterr()
    assert f"{name}   24 → 1   corrupt-file:" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 90
    assert shown.err == ""
    monkeypatch.setenv("COLUMNS", "80")
    Output(Format.TABLE).show(View(columns, [record]))
    shown = capsys.readouterr()
    assert name in shown.out
    assert shown.err == "left out for want of room: FILES; -o wide shows all\n"
    monkeypatch.setenv("COLUMNS", "400")
    Output(Format.TABLE).show(View(columns, [record]))
    assert str(record["message"]).strip() in capsys.readouterr().out


def test_a_table_in_a_picture_leaves_columns_out_likewise(monkeypatch, capsys):
    """And says so below itself."""
    columns = (OutputColumn("name", "NAME"), OutputColumn("job", "JOB", less=1))
    record = {"name": "sales.orders/dt=2024-01-01", "job": "application_17"}
    view = View(columns, [record], picture=lambda: part_of_picture(columns, [record]))
    Output(Format.TABLE).show(view)
    assert "application_17" in capsys.readouterr().out
    for key, value in {"FORCE_COLOR": "1", "TERM": "dumb", "LINES": "20", "COLUMNS": "40"}.items():
        monkeypatch.setenv(key, value)
    Output(Format.TABLE).show(view)
    shown = " ".join(capsys.readouterr().out.split())
    assert "sales.orders/dt=2024-01-01" in shown
    assert "application_17" not in shown
    assert "left out for want of room: JOB; a wider terminal shows them" in shown


def listings():
    """The columns of each listing that a module of the command line has, once."""
    seen = set()
    for found in pkgutil.walk_packages(compactor.cli.__path__, "compactor.cli."):
        for name, value in vars(importlib.import_module(found.name)).items():
            if isinstance(value, tuple) and value not in seen and {type(one) for one in value} == {OutputColumn}:
                seen.add(value)
                yield pytest.param(value, id=f"{found.name}.{name}")


@pytest.mark.parametrize("columns", list(listings()))
@settings(max_examples=20)
@given(st.data(), st.sampled_from([60, 80]))
def test_no_listing_breaks_a_name(columns, data, width):
    """
    A name that a line has room for stands on one line, in a sentence too; so does each number. What is shown of a
    record is all of it but the columns that are said to be left out, and no line is wider than the terminal.
    """
    records = data.draw(listed_records(columns))
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        for key, value in {"FORCE_COLOR": "1", "TERM": "dumb", "LINES": "20", "COLUMNS": str(width)}.items():
            patch.setenv(key, value)
        Output(Format.TABLE).show(View(columns, records))
    lines = out.getvalue().splitlines()
    assert max(map(cell_len, lines), default=0) <= width
    said = re.fullmatch(r"left out for want of room: (.*); -o wide shows all\n", err.getvalue())
    left = said[1].split(", ") if said else []
    for column in columns:
        if column.people and column.title not in left:
            for text in (column.text(record) for record in records):
                for part in text.split() if column.folds else [text]:
                    assert cell_len(part) > width or "://" in part or any(part in line for line in lines), part
    assert not {column.title for column in columns if not column.less} & set(left)
