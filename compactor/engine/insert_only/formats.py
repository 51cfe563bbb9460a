"""
The formats whose files can be joined, behind one interface: what a file is made of, how a joined file is written, and how
it is compared with its inputs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from compactor.acid.columns import ColumnRule
from compactor.acid.types import row_type
from compactor.concat import avro, text
from compactor.errors import RefusedError, VerificationError
from compactor.handles import RandomReader, Sink
from compactor.orc import joining as orc
from compactor.orc.format.tail import Tail, read_tail
from compactor.orc.reading.soundness import require_opened, require_sound_stripes
from compactor.orc.writing.writer_choice import check_nanoseconds
from compactor.parquet import joining as parquet
from compactor.parquet.checking import check as parquet_check
from compactor.parquet.fields import FILE_ROW_GROUPS
from compactor.parquet.footer import Footer, read_footer
from compactor.parquet.soundness import require_sound
from compactor.planning.document import Action, Segment
from compactor.planning.facts import PartFacts, WholeFacts
from compactor.planning.insert_only import formats as known
from compactor.planning.insert_only.names import extension_of
from compactor.reasons import Reason


@dataclass(frozen=True, slots=True)
class JoinOptions:
    """
    Args:
        part_bytes: of a stripe that is encoded anew, in the writer's memory; of a row group, as stored.
        verify_values: whether values that were encoded anew are compared with those of the inputs.
        names: see `names_of`.
    """

    part_bytes: int
    verify_values: bool
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadAs:
    """
    How the table's readers read its files.

    Args:
        columns: the table's, (name, Hive type).
        rule: how they find them in an ORC file.
    """

    columns: tuple[tuple[str, str], ...]
    rule: ColumnRule


@dataclass(frozen=True, slots=True)
class JoinedFile:
    """
    A file that was written, with the check that compares it with its inputs.

    Args:
        rows: 0 where the format doesn't count them.
        check: takes the file; raises VerificationError.
    """

    rows: int
    copied_bytes: int
    recoded_bytes: int
    check: Callable[[RandomReader], None]


def names_of(columns: Sequence[tuple[str, str]], rule: ColumnRule) -> tuple[str, ...]:
    """
    Names that a joined ORC file gets, those of the table's columns, where all of the site's readers find columns by
    their places; empty where they find them by the names in the file.
    """
    return tuple(name for name, _ in columns) if rule is ColumnRule.POSITION else ()


class _Nowhere:
    """A sink that keeps nothing; what is to be copied is read."""

    def __init__(self) -> None:
        self.position = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.position += len(data)

    def gap_before(self, offset: int, length: int) -> int:  # noqa: ARG002 - no copy is shared
        return 0

    def copy_from(self, reader: RandomReader, offset: int, length: int) -> None:  # noqa: ARG002 - see above
        self.position += length


Opener = Callable[[str], RandomReader]
"""Opens an input by its path."""


class JoinableFormat(ABC):
    """One format."""

    @abstractmethod
    def facts(self, reader: RandomReader, read_as: ReadAs) -> WholeFacts:
        """
        What a file is made of.

        Raises:
            RefusedError: the file isn't a sound one of this format.
        """

    @abstractmethod
    def join(self, segments: Sequence[Segment], reader: Opener, sink: Sink, options: JoinOptions) -> JoinedFile:
        """
        Write one file.

        Raises:
            RefusedError: an input can't be read, or isn't what it was when the plan was made.
        """

    def judge(self, segments: Sequence[Segment], reader: Opener, options: JoinOptions) -> None:
        """
        Read one input as `join` reads it, and write nothing.

        Raises:
            RefusedError: it can't be read.
        """
        self.join(segments, reader, _Nowhere(), options)


class _Orc(JoinableFormat):
    def facts(self, reader: RandomReader, read_as: ReadAs) -> WholeFacts:
        if not reader.size:
            return WholeFacts("", ())
        written = read_tail(reader)
        tail = orc.named(written, names_of(read_as.columns, read_as.rule))
        manners = orc.manners_of(reader, tail)
        why = orc.why_whole(tail, manners) or orc.why_apart(written, row_type(read_as.columns), read_as.rule)
        if why is not None:
            return WholeFacts("", whole=why)
        parts = tuple(PartFacts(*orc.stripe_sizes(tail, index)) for index in range(len(tail.stripes)))
        return WholeFacts(orc.family_of(tail, manners), parts, kept=orc.why_copied(tail))

    def join(self, segments: Sequence[Segment], reader: Opener, sink: Sink, options: JoinOptions) -> JoinedFile:
        tails: dict[str, tuple[RandomReader, Tail]] = {}
        pieces = []
        for segment in segments:
            if segment.path not in tails:
                opened = reader(segment.path)
                if not opened.size:
                    continue
                tails[segment.path] = opened, orc.named(read_tail(opened), options.names)
            pieces.append(orc.Piece(*tails[segment.path], segment.stripes, segment.action is Action.RECODE))
        if not pieces:
            return JoinedFile(0, 0, 0, _require_nothing)
        for opened, tail in tails.values():
            require_opened(opened, tail)
        for piece in pieces:
            require_sound_stripes(piece.reader, piece.tail, piece.stripes)
            for index in piece.stripes:  # over one such value Hive's reader fails, and over all that it is joined with
                check_nanoseconds(piece.reader, piece.tail, index)
        made = orc.join(pieces, sink, stripe_bytes=options.part_bytes, digests=options.verify_values)
        return JoinedFile(
            made.rows, made.copied_bytes, made.recoded_bytes, lambda result: orc.check(result, pieces, made)
        )


def _require_nothing(result: RandomReader) -> None:
    """
    Raises:
        VerificationError: a file that was made of files of no bytes has some.
    """
    if result.size:
        raise VerificationError(f"{result.name} has {result.size} bytes, and its files none")


class _Parquet(JoinableFormat):
    def facts(self, reader: RandomReader, read_as: ReadAs) -> WholeFacts:  # noqa: ARG002 - of ORC's columns
        footer = read_footer(reader)
        if footer.carried is not None:
            return WholeFacts("", whole=footer.carried)
        parts = tuple(PartFacts(one.rows, one.bytes, max(one.bytes, one.raw_bytes)) for one in footer.row_groups)
        described = len(footer.value(FILE_ROW_GROUPS))
        return WholeFacts(footer.family, parts, kept=footer.kept, footer=described, needs=footer.needs)

    def join(self, segments: Sequence[Segment], reader: Opener, sink: Sink, options: JoinOptions) -> JoinedFile:
        footers: dict[str, tuple[RandomReader, Footer]] = {}
        for segment in segments:
            if segment.path not in footers:
                opened = reader(segment.path)
                footers[segment.path] = opened, read_footer(opened)
        families = {footer.family: footer.name for _, footer in footers.values() if footer.carried is None}
        if len(families) != 1:
            raise RefusedError(Reason.INPUT_CHANGED, f"{' and '.join(families.values())} aren't alike any more")
        pieces = [
            parquet.Piece(*footers[segment.path], segment.stripes, segment.action is Action.RECODE)
            for segment in segments
        ]
        for piece in pieces:
            require_sound(piece.reader, piece.footer, piece.row_groups)
        made = parquet.join(pieces, sink, full_stored=options.part_bytes)
        return JoinedFile(
            made.rows, made.copied_bytes, made.recoded_bytes, lambda result: parquet_check(result, pieces)
        )

    def judge(
        self,
        segments: Sequence[Segment],
        reader: Opener,
        options: JoinOptions,  # noqa: ARG002 - nothing is written
    ) -> None:
        opened = reader(segments[0].path)
        footer = read_footer(opened)
        for segment in segments:
            piece = parquet.Piece(opened, footer, segment.stripes, segment.action is Action.RECODE)
            require_sound(opened, footer, segment.stripes)
            parquet.require_values(piece)


class _Text(JoinableFormat):
    def facts(self, reader: RandomReader, read_as: ReadAs) -> WholeFacts:  # noqa: ARG002 - of ORC's columns
        extension = extension_of(reader.name)
        kind = text.kind_of(extension)
        if kind is None:
            return WholeFacts("", whole=f"its extension {extension} may name a codec")
        return WholeFacts(kind, whole=text.why_whole(reader, kind))

    def join(
        self,
        segments: Sequence[Segment],
        reader: Opener,
        sink: Sink,
        options: JoinOptions,  # noqa: ARG002 - nothing is encoded anew
    ) -> JoinedFile:
        kind = text.kind_of(extension_of(segments[0].path)) or text.PLAIN
        placed = text.join([reader(segment.path) for segment in segments], kind, sink)
        return JoinedFile(0, sum(one.length for one in placed), 0, lambda result: text.check(result, placed, kind))


class _Avro(JoinableFormat):
    def facts(self, reader: RandomReader, read_as: ReadAs) -> WholeFacts:  # noqa: ARG002 - of ORC's columns
        return WholeFacts(avro.read_header(reader).family)

    def join(
        self,
        segments: Sequence[Segment],
        reader: Opener,
        sink: Sink,
        options: JoinOptions,  # noqa: ARG002 - nothing is encoded anew
    ) -> JoinedFile:
        readers = [reader(segment.path) for segment in segments]
        made = avro.join(readers, sink)
        copied = sum(one.size for one in readers)
        return JoinedFile(0, copied, 0, lambda result: avro.check(result, readers, made))


FORMATS: Final[Mapping[str, JoinableFormat]] = {
    known.ORC: _Orc(),
    known.PARQUET: _Parquet(),
    known.TEXT: _Text(),
    known.AVRO: _Avro(),
}
