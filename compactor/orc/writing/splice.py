"""
Joins stripes of several files into one file: copies their bytes and writes a new tail that locates them.

The only module that writes an ORC tail. It decodes no values (except the last key of a stripe whose file doesn't state
that key).
Source: docs/orc.md; the ORC specification, "File tail"; Hive's OrcRecordUpdater for the user metadata.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from compactor.acid.row_id import RowKey
from compactor.acid.types import HiveType, Kind
from compactor.errors import RefusedError, VerificationError
from compactor.handles import RandomReader, Sink
from compactor.orc.events.keys import ACID_STATS, ACID_VERSION, StripeBounds, format_key_index, last_key, stripe_bounds
from compactor.orc.format import codec
from compactor.orc.format.proto import orc_pb2 as pb
from compactor.orc.format.schema import types_of
from compactor.orc.format.statistics import merge_statistics
from compactor.orc.format.tail import CPP_WRITER, JAVA_WRITER, KEY_INDEX, MAGIC, Tail, read_stripe_footer
from compactor.orc.format.zones import may_follow, zone_of
from compactor.orc.writing.output import OutputFormat, common_calendar, compatible
from compactor.reasons import Reason

ACID_FORMAT_VERSION: Final = b"2"
_SHARED_VERSION: Final = 6
"""The version of Java's ORC-135 and C++'s first version: the highest that a file with stripes of both may claim."""


@dataclass(frozen=True, slots=True)
class FileSummary:
    """
    Facts about a written file.

    Args:
        length: bytes.
        stripe_rows: rows of each stripe, in order.
        first_key, last_key: of the whole file; `first_key` may be a lower bound. None without rows or ACID columns.
    """

    rows: int
    stripes: int
    length: int
    stripe_rows: tuple[int, ...]
    first_key: RowKey | None = None
    last_key: RowKey | None = None


class Splicer:
    """
    Writes one file: stripes in the order they are added, then `finish`.

    Args:
        sink: an empty sink, at position 0.
        output: the file's format.
        types: the footer's types, where they say more than `output.types` (attributes); None: they don't.
    """

    def __init__(self, sink: Sink, output: OutputFormat, types: Sequence[pb.Type] | None = None) -> None:
        if sink.position != 0:
            raise ValueError(f"an ORC file starts at byte 0 of its sink, not at {sink.position}")
        self.output = output
        self._sink = sink
        self._types = list(types or types_of(output.types))
        self._kinds = [node.kind for node in output.types.walk()]
        self._stripes: list[pb.StripeInformation] = []
        self._statistics: list[pb.StripeStatistics] = []
        self._tails: dict[int, Tail] = {}
        self._last_keys: list[RowKey] = []
        self._bounds: list[StripeBounds] = []
        self._block_size = output.block_size
        self._zone: str | None = None
        sink.write(MAGIC)

    @property
    def rows(self) -> int:
        return sum(self.stripe_rows)

    @property
    def stripe_rows(self) -> tuple[int, ...]:
        """Rows of each stripe, in order."""
        return tuple(stripe.number_of_rows for stripe in self._stripes)

    def add_stripe(self, reader: RandomReader, tail: Tail, index: int, last: RowKey | None = None) -> None:
        """
        Copy a stripe.

        Args:
            index: the stripe, from 0. A stripe without rows is left out.
            last: the stripe's last key, if the caller knows it; None: the splicer determines it.

        Raises:
            CorruptFileError: the stripe's footer can't be read.
            RefusedError: UNSUPPORTED_FORMAT; the stripe can't be part of this file (see `compatible`), or can't follow
                a stripe of another time zone.
            VerificationError: the stripe's keys don't follow those of the stripe before.
        """
        if not tail.stripes[index].number_of_rows:
            return
        reason = compatible(tail, self.output, index)
        if reason is not None:
            raise RefusedError(Reason.UNSUPPORTED_FORMAT, f"{tail.name}: stripe {index + 1} can't be copied: {reason}")
        key = (last or last_key(reader, tail, index)) if self.output.is_acid else None
        self._append(reader, tail, index, key)

    def add_recoded(self, image: RandomReader, tail: Tail, last: RowKey | None, calendar: int = 0) -> None:
        """
        Copy the stripe of a file that the recoder has just written for this output in memory. Its types may be coarser
        (string for char).

        Args:
            tail: of one stripe, or none.
            last: the last key of the stripe's rows.
            calendar: the calendar that the stripe's dates count in, as in a footer.

        Raises:
            VerificationError: the stripe's columns or form aren't this file's, or its keys don't follow those of the
                stripe before.
        """
        if _coarse(tail.tree) != _coarse(self.output.types):
            raise VerificationError(f"{image.name} has columns {tail.tree} instead of {self.output.types}")
        if (
            tail.compression is not self.output.compression
            or tail.stride != self.output.stride
            or len(tail.stripes) > 1
        ):
            what = f"{len(tail.stripes)} stripes, {tail.compression.name}, row index stride {tail.stride}"
            raise VerificationError(f"{image.name} was written in another form than asked for ({what})")
        if tail.stripes and tail.rows:
            footer = pb.Footer()
            footer.CopyFrom(tail.footer)
            del footer.types[:]
            footer.types.extend(self._types)
            footer.calendar = calendar
            self._append(image, Tail(tail.name, tail.postscript, footer, tail.metadata, tail.length), 0, last)

    def finish(self, operation: str | None, notes: Mapping[str, bytes] = MappingProxyType({})) -> FileSummary:
        """
        Write metadata, footer and postscript.

        Args:
            operation: `insert` or `delete`, the kind of all rows of an ACID file; None for a file without ACID columns.
            notes: user metadata beside Hive's.

        Raises:
            RefusedError: SCHEMA_MISMATCH; the stripes count dates in different calendars.
            VerificationError: the file holds rows of another operation.
        """
        self._check_operation(operation)
        kind, content_end = self.output.compression, self._sink.position
        metadata = codec.compress_section(
            pb.Metadata(stripe_stats=self._statistics).SerializeToString(), kind, self.output.block_size
        )
        if not self._stripes:
            metadata = b""
        footer = codec.compress_section(
            self._footer(operation, notes, content_end).SerializeToString(), kind, self.output.block_size
        )
        postscript = pb.PostScript(
            footer_length=len(footer),
            compression=kind,
            compression_block_size=self._block_size,
            version=(0, 12),
            metadata_length=len(metadata),
            writer_version=self._label()[1],
            magic=MAGIC.decode(),
        ).SerializeToString()
        self._sink.write(metadata + footer + postscript + bytes([len(postscript)]))
        return self._summary()

    def _append(self, reader: RandomReader, tail: Tail, index: int, last: RowKey | None) -> None:
        stripe, statistics = tail.stripes[index], tail.metadata.stripe_stats[index]
        # reading the footer also keeps a stripe without one out of the file, where the damage would be hidden
        self._enter_zone(tail, zone_of(tail, read_stripe_footer(reader, tail, index)))
        if last is not None:
            bounds = stripe_bounds(tail, index)
            if bounds is None or not bounds.first <= last <= bounds.last:
                raise VerificationError(
                    f"{tail.name}: last key {tuple(last)} of stripe {index + 1} is outside its statistics"
                )
            if self._last_keys and (
                last <= self._last_keys[-1] or (bounds.exact and bounds.first <= self._last_keys[-1])
            ):
                message = f"{tail.name}: keys of stripe {index + 1} don't come after {tuple(self._last_keys[-1])}, the last key before it"
                raise VerificationError(message)
            self._last_keys.append(last)
            self._bounds.append(bounds)
        made = pb.StripeInformation()
        made.CopyFrom(stripe)
        self._sink.write(bytes(self._sink.gap_before(stripe.offset, tail.stripe_length(index))))
        made.offset = self._sink.position
        self._sink.copy_from(reader, stripe.offset, tail.stripe_length(index))
        self._stripes.append(made)
        self._statistics.append(statistics)
        self._tails[id(tail)] = tail
        self._block_size = max(self._block_size, tail.block_size)

    def _enter_zone(self, tail: Tail, zone: str) -> None:
        if not may_follow(zone, self._zone, one_zone=self.output.one_zone):
            before, now = (name or "of no said zone" for name in (self._zone, zone))
            message = f"{tail.name}: timestamps in time zone {now} would follow some in {before} in one file, which readers take for the same"
            raise RefusedError(
                Reason.UNSUPPORTED_FORMAT, f"{message}; a major compaction by Hive itself rewrites them in one zone"
            )
        self._zone = zone

    def _footer(self, operation: str | None, notes: Mapping[str, bytes], content_end: int) -> pb.Footer:
        footer = self._template()
        writer, _ = self._label()
        rows, stride = self.rows, self.output.stride
        footer.MergeFrom(
            pb.Footer(
                header_length=len(MAGIC),
                content_length=content_end,
                number_of_rows=rows,
                row_index_stride=stride,
                writer=writer,
            )
        )
        footer.stripes.extend(self._stripes)
        footer.types.extend(self._types)
        footer.statistics.extend(merge_statistics([stripe.columns for stripe in self._statistics], self._kinds))
        for name, value in (*self._user_metadata(operation), *notes.items()):
            footer.metadata.add(name=name, value=value)
        calendar = common_calendar(self._tails.values())
        if calendar:
            footer.calendar = calendar
        return footer

    def _template(self) -> pb.Footer:
        """
        Footer fields of the sources that this package doesn't know, and the software version: each is kept when all
        sources have the same.
        """
        rests: list[pb.Footer] = []
        versions: set[str] = set()
        for tail in self._tails.values():
            rest = pb.Footer()
            rest.CopyFrom(tail.footer)
            versions.add(rest.software_version)
            for name in pb.Footer.DESCRIPTOR.fields_by_name:
                rest.ClearField(name)  # type: ignore[arg-type]  # every field by its own name
            rests.append(rest)
        footer = (
            rests[0]
            if rests and all(rest.SerializeToString() == rests[0].SerializeToString() for rest in rests)
            else pb.Footer()
        )
        if len(versions) == 1 and (version := versions.pop()):
            footer.software_version = version
        return footer

    def _label(self) -> tuple[int, int]:
        """
        Writer and writer version of the file.

        Only a file without Java stripes is labelled C++, because Java trusts the C++ label in more respects than old
        Java stripes justify.
        """
        java = [tail.writer_version for tail in self._tails.values() if tail.writer == JAVA_WRITER]
        others = any(tail.writer != JAVA_WRITER for tail in self._tails.values())
        if not java:
            return CPP_WRITER, _SHARED_VERSION
        return JAVA_WRITER, min([*java, _SHARED_VERSION] if others else java)

    def _user_metadata(self, operation: str | None) -> Sequence[tuple[str, bytes]]:
        if operation is None:
            return ()
        counts = f"{self.rows},0,0" if operation == "insert" else f"0,0,{self.rows}"
        return (
            (KEY_INDEX, format_key_index(self._last_keys)),
            (ACID_STATS, counts.encode()),
            (ACID_VERSION, ACID_FORMAT_VERSION),
        )

    def _check_operation(self, operation: str | None) -> None:
        if (operation is not None) != self.output.is_acid:
            raise ValueError(f"operation {operation!r} doesn't fit columns {self.output.types}")
        wanted = {"insert": 0, "delete": 2}.get(operation or "")
        for bounds in self._bounds:
            if bounds.operation is None or bounds.operation != (wanted, wanted):
                raise VerificationError(f"rows with operation {bounds.operation} in a file of {operation} events")

    def _summary(self) -> FileSummary:
        rows = self.stripe_rows
        first, last = (self._bounds[0].first, self._last_keys[-1]) if self._bounds else (None, None)
        return FileSummary(sum(rows), len(rows), self._sink.position, rows, first, last)


def _coarse(tree: HiveType) -> list[tuple[Kind, int, int | None, int | None]]:
    """A tree in the precision that Arrow keeps: kinds by column id, with char and varchar as string."""
    texts = (Kind.CHAR, Kind.VARCHAR)
    return [
        (Kind.STRING if node.kind in texts else node.kind, len(node.children), node.precision, node.scale)
        for node in tree.walk()
    ]
