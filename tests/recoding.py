"""A file of the rows that count of some sources, with its summary."""

from dataclasses import dataclass, field

from compactor.orc.recode import Recoded, recode_into
from compactor.orc.writing.splice import FileSummary, Splicer


@dataclass(frozen=True, slots=True)
class RecodeResult(Recoded):
    """The counts of `Recoded`, with the summary of the written file."""

    summary: FileSummary = field(kw_only=True)


def recode(sources, output, sink, row_filter=None, progress=None):
    """Write the rows of `sources` that count as one file of insert events. Otherwise like `recode_into`."""
    splicer = Splicer(sink, output)
    made = recode_into(sources, splicer, row_filter, progress)
    return RecodeResult(
        made.rows_in, made.rows_out, made.deleted, made.aborted, made.parts, summary=splicer.finish("insert")
    )
