"""
Whether files of an insert-only table can be joined, as far as the catalog knows how they are read.

Pure: looks at the names of Hive's classes and at properties; the files themselves may say otherwise.
Source: docs/compaction.md, "Insert-only tables"; Hive's IOConstants and serdeConstants, Hadoop's LineRecordReader.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from compactor.planning.facts import FileFormat, StoredAs

ORC: Final = "orc"
PARQUET: Final = "parquet"
TEXT: Final = "text"
AVRO: Final = "avro"
END_TO_END: Final = frozenset({TEXT, AVRO})
"""Formats whose files are joined by their bytes, and whose rows aren't counted."""
TEXT_INPUT: Final = "org.apache.hadoop.mapred.TextInputFormat"
_FORMATS: Final[Mapping[str, str]] = {
    "org.apache.hadoop.hive.ql.io.orc.OrcInputFormat": ORC,
    "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat": PARQUET,
    TEXT_INPUT: TEXT,
    "org.apache.hadoop.hive.ql.io.avro.AvroContainerInputFormat": AVRO,
}
"""By the class of Hive's that reads them."""
_LINE_SERDES: Final = {
    "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
    "org.apache.hadoop.hive.serde2.OpenCSVSerde",
    "org.apache.hadoop.hive.serde2.JsonSerDe",
    "org.apache.hive.hcatalog.data.JsonSerDe",
    "org.apache.hadoop.hive.serde2.RegexSerDe",
    "org.apache.hadoop.hive.serde2.MultiDelimitSerDe",
    "org.apache.hadoop.hive.contrib.serde2.MultiDelimitSerDe",
}
"""SerDes that take each line by itself."""
_BY_FILE: Final = ("skip.header.line.count", "skip.footer.line.count")
_LINE_ENDS: Final = ("line.delim", "textinputformat.record.delimiter")
_ENCODINGS: Final = {"utf-8", "utf8", "us-ascii", "iso-8859-1"}
"""Encodings in which the byte of a newline is a newline."""


def format_of(stored: StoredAs) -> FileFormat:
    """
    The format of a table's or partition's files, if they can be joined as far as the catalog knows.

    No file is joined whose first or last rows are skipped. Text is joined only where each line stands for itself: lines
    end as in Unix, and the SerDe is one of those that are known to read line by line.
    """
    name = _FORMATS.get(stored.input_format or "")
    if name is None:
        return FileFormat("", f"files read by {stored.input_format} can't be joined")
    if (skipped := lines_skipped(stored.properties)) is not None:
        return FileFormat("", f"{skipped}: lines at the start or end of a file have a meaning")
    if name == TEXT and (why := _why_no_lines(stored)) is not None:
        return FileFormat("", why)
    return FileFormat(name)


def lines_skipped(properties: Iterable[tuple[str, str]]) -> str | None:
    """
    The property by which readers leave out lines at the start or end of each file, for a sentence; None: there is none.

    To Hive 3.1 a row of any format is such a line, to later releases only a line of text (HIVE-24827).
    """
    for key, value in properties:
        if key.lower() in _BY_FILE and value.strip() != "0":
            return f"{key} is {value}"
    return None


def _why_no_lines(stored: StoredAs) -> str | None:
    if stored.serde not in _LINE_SERDES:
        return f"it isn't known whether {stored.serde} reads line by line"
    for key, value in stored.properties:
        name = key.lower()
        if name in _LINE_ENDS and value not in {"\n", "\\n", "10"}:
            return f"{key} is set: lines don't end as in Unix"
        if name == "serialization.encoding" and value.lower() not in _ENCODINGS:
            return f"{key} is {value}: a newline may be more than one byte"
    return None
