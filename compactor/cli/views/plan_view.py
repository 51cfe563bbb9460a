"""
Shows a `CompactionPlan`: totals per bucket, verdicts on stripes with their reasons, and the cost.

Pure.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pydantic import TypeAdapter
from rich.console import Group, RenderableType
from rich.text import Text

from compactor.cli import units
from compactor.cli.output import OutputColumn, Record, View, part_of_picture
from compactor.planning.document import FORMAT, Action, CompactionPlan, Cut, Segment
from compactor.planning.prediction import is_cut
from compactor.words import binary_units, plural

BUCKET_COLUMNS = (
    OutputColumn("directory", "DIRECTORY"),
    OutputColumn("file", "FILE"),
    OutputColumn("copied_stripes", "COPY", right=True, show=units.number, less=2),
    OutputColumn("probed_stripes", "PROBE", right=True, show=units.number, less=4),
    OutputColumn("cut_stripes", "CUT", right=True, show=units.number, less=4),
    OutputColumn("recoded_stripes", "RECODE", right=True, show=units.number, less=2),
    OutputColumn("copied_bytes", "COPIED", right=True, show=binary_units),
    OutputColumn("probed_bytes", "PROBED", right=True, show=binary_units, less=6),
    OutputColumn("cut_bytes", "CUT FROM", right=True, show=binary_units, less=6),
    OutputColumn("recoded_bytes", "RECODED", right=True, show=binary_units),
    OutputColumn("rows", "ROWS", right=True, show=units.number, less=3),
    OutputColumn("delete_events", "DELETES", right=True, show=units.number, less=5),
)
FILE_COLUMNS = (
    OutputColumn("directory", "DIRECTORY"),
    OutputColumn("file", "FILE"),
    OutputColumn("source", "FROM"),
    OutputColumn("copied_bytes", "COPIED", right=True, show=binary_units),
    OutputColumn("recoded_bytes", "RECODED", right=True, show=binary_units),
)
VERDICT_COLUMNS = (
    OutputColumn("verdict", "VERDICT"),
    OutputColumn("stripes", "STRIPES", right=True, show=units.number),
    OutputColumn("bytes", "SIZE", right=True, show=binary_units),
    OutputColumn("rows", "ROWS", right=True, show=units.number),
    OutputColumn("reason", "WHY", folds=24),
)
WHOLE_COLUMNS = (
    OutputColumn("verdict", "VERDICT"),
    OutputColumn("stripes", "PARTS", right=True, show=units.number),
    OutputColumn("bytes", "SIZE", right=True, show=binary_units),
    OutputColumn("reason", "WHY", folds=24),
)
"""Of insert-only tables: parts are stripes, row groups, or whole files."""
_CUT = "cut"
_VERDICTS: Final = {
    (Action.COPY, Cut.NO): "copy",
    (Action.PROBE, Cut.YES): "probe: copy or cut",
    (Action.PROBE, Cut.PERHAPS): "probe: copy, cut or recode",
    (Action.PROBE, Cut.NO): "probe: copy or recode",
    (Action.RECODE, Cut.YES): _CUT,
    (Action.RECODE, Cut.PERHAPS): "cut or recode",
    (Action.RECODE, Cut.NO): "recode",
}
_CARRY = "carry"
_INSIDE: Final[dict[str, Any]] = {
    "outputs": {
        "__all__": {files: {"__all__": {"segments": {"__all__": {"hit_by"}}}} for files in ("buckets", "joins")}
    }
}
"""What the document doesn't show: a bit for each of thousands of delete files makes no number of JSON's."""


@dataclass(slots=True)
class Sum:
    """Stripes, rows and bytes of one verdict."""

    stripes: int = 0
    rows: int = 0
    bytes: int = 0

    def add(self, segment: Segment) -> None:
        self.stripes += max(1, len(segment.stripes))
        self.rows += segment.rows
        self.bytes += segment.bytes


def plan_view(plan: CompactionPlan) -> View:
    """The answer: tables for people, one record per output file for TSV, the plan's document for JSON and YAML."""
    records = list(_file_records(plan) if plan.insert_only else _bucket_records(plan))
    columns = FILE_COLUMNS if plan.insert_only else BUCKET_COLUMNS
    document = {
        "compaction-plan": FORMAT,
        **TypeAdapter(CompactionPlan).dump_python(plan, mode="json", exclude=_INSIDE),
    }
    return View(columns, records, document=document, picture=lambda: _picture(plan, columns, records))


def _sums(segments: Iterable[Segment]) -> dict[str, Sum]:
    """The sums of what is copied, probed, cut and recoded, each with an entry; what is perhaps cut counts as recoded."""
    found = {name: Sum() for name in (*Action, _CUT)}
    for segment in segments:
        found[_CUT if is_cut(segment) else segment.action].add(segment)
    return found


def headline(plan: CompactionPlan) -> str:
    """
    One sentence: kind and entity of the compaction, files and bytes of its inputs, names of its outputs; of an
    insert-only table also their number of files.
    """
    directories = len({file.directory for file in plan.inputs if file.directory})
    size = sum(file.length for file in plan.inputs)
    files = sum(len(output.copies) + len(output.joins) for output in plan.outputs)
    made = f", {plural(files, 'file')}" if plan.insert_only else ""
    instead = "" if plan.kind is plan.requested else f" (asked for {plan.requested.value})"
    return (
        f"{plan.kind.value} compaction{instead} of {plan.entity}: {plural(len(plan.inputs), 'file')} in {plural(directories, 'directory', 'directories')}, "
        f"{binary_units(size)} → {' and '.join(plan.names) or 'nothing'}{made}"
    )


def cost(plan: CompactionPlan) -> str:
    """The predicted cost in one sentence."""
    predicted = plan.prediction
    parts = [f"reads {binary_units(predicted.read)}", f"copies {binary_units(predicted.copied)} as bytes"]
    if predicted.probed:
        parts.append(f"probes {binary_units(predicted.probed)}")
    if predicted.cut:
        parts.append(f"cuts rows out of {binary_units(predicted.cut)}")
    small = f" ({binary_units(predicted.joined)} only to join what is small)" if predicted.joined else ""
    parts += [
        f"recodes {binary_units(predicted.recoded)}{small}",
        f"writes about {binary_units(predicted.written)}",
        f"takes {units.about(predicted.seconds)} of processor time",
    ]
    return ", ".join(parts)


def on_spark(plan: CompactionPlan) -> str:
    """What Spark's driver must hold, in one sentence."""
    predicted = plan.prediction
    return f"{plural(predicted.tasks, 'task')} in the largest job, about {binary_units(predicted.driver_bytes)} of the driver's memory"


def effect(plan: CompactionPlan) -> str:
    """What readers open afterwards, and instead of what, in one sentence."""
    predicted = plan.prediction
    files = f"readers open {plural(predicted.files_after, 'file')} instead of {units.number(predicted.files_before)}"
    joins = [join for output in plan.outputs for join in output.joins]
    stripes = "row group" if any(join.format == "parquet" for join in joins) else "stripe"
    after, before = predicted.stripes_after, units.number(predicted.stripes_before)
    if not plan.insert_only:
        return f"{files}, with about {plural(after, stripes)} of rows instead of {before}"
    if not joins:
        return files
    count = len({segment.path for join in joins for segment in join.segments})
    size = binary_units(sum(join.bytes for join in joins))
    inside = f", with about {plural(after, stripes)} instead of {before}" if predicted.stripes_before else ""
    return f"{files}: {plural(count, 'small file')} of {size} become {plural(len(joins), 'file')}{inside}"


def _bucket_records(plan: CompactionPlan) -> Iterator[Record]:
    buckets = ((output.name, bucket) for output in plan.outputs for bucket in output.buckets)
    for directory, bucket in buckets:
        found = _sums(bucket.segments)
        yield {
            "directory": directory,
            "file": bucket.name,
            "copied_stripes": found[Action.COPY].stripes,
            "probed_stripes": found[Action.PROBE].stripes,
            "cut_stripes": found[_CUT].stripes,
            "recoded_stripes": found[Action.RECODE].stripes,
            "copied_bytes": found[Action.COPY].bytes,
            "probed_bytes": found[Action.PROBE].bytes,
            "cut_bytes": found[_CUT].bytes,
            "recoded_bytes": found[Action.RECODE].bytes,
            "rows": sum(segment.rows for segment in bucket.segments),
            "delete_events": bucket.delete_events,
        }


def _file_records(plan: CompactionPlan) -> Iterator[Record]:
    for output in plan.outputs:
        for copy in output.copies:
            yield {
                "directory": output.name,
                "file": copy.name,
                "source": copy.path,
                "copied_bytes": copy.bytes,
                "recoded_bytes": 0,
            }
        for join in output.joins:
            found = _sums(join.segments)
            yield {
                "directory": output.name,
                "file": join.name,
                "source": plural(len({segment.path for segment in join.segments}), "file"),
                "copied_bytes": found[Action.COPY].bytes,
                "recoded_bytes": found[Action.RECODE].bytes,
            }


def _verdicts(plan: CompactionPlan) -> list[Record]:
    found: dict[tuple[str, str], Sum] = {}
    for output in plan.outputs:
        for segment in output.segments:
            found.setdefault((_VERDICTS[segment.action, segment.cut], segment.reason), Sum()).add(segment)
        for copy in output.copies:
            carried = found.setdefault((_CARRY, copy.reason), Sum())
            carried.stripes += 1
            carried.bytes += copy.bytes
    order = [*_VERDICTS.values(), _CARRY]
    ranked = sorted(found.items(), key=lambda item: (order.index(item[0][0]), -item[1].bytes))
    return [
        {"verdict": verdict, "stripes": total.stripes, "bytes": total.bytes, "rows": total.rows, "reason": reason}
        for (verdict, reason), total in ranked
    ]


def _picture(plan: CompactionPlan, columns: tuple[OutputColumn, ...], records: list[Record]) -> RenderableType:
    parts: list[RenderableType] = [Text(headline(plan), style="bold"), Text()]
    if records:
        parts += [part_of_picture(columns, records), Text()]
    if verdicts := _verdicts(plan):
        parts += [part_of_picture(WHOLE_COLUMNS if plan.insert_only else VERDICT_COLUMNS, verdicts), Text()]
    parts += [Text(f"cost: {cost(plan)}"), Text(f"spark: {on_spark(plan)}"), Text(f"effect: {effect(plan)}")]
    parts += [Text(f"warning: {warning}", style="yellow") for warning in plan.warnings]
    return Group(*parts)
