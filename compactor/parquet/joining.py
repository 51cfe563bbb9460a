"""
Row groups of many files of one family become one file: large ones as bytes, small ones encoded anew.

Which row group is small is the caller's decision.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from compactor.handles import RandomReader, Sink
from compactor.parquet.assembly import Assembly
from compactor.parquet.footer import Footer
from compactor.parquet.recoding import FULL_STORED, Recoder, require_decoded


@dataclass(frozen=True, slots=True)
class Piece:
    """
    Neighbouring row groups of one file, which are treated alike.

    Args:
        row_groups: their indexes, ascending.
        recode: encode them anew, together with those of neighbouring pieces; otherwise copy them.
    """

    reader: RandomReader = field(repr=False)
    footer: Footer
    row_groups: tuple[int, ...]
    recode: bool


@dataclass(frozen=True, slots=True)
class Joined:
    """
    What was written.

    Args:
        length: bytes of the file.
        copied_bytes, recoded_bytes: stored bytes of the sources' row groups that were copied, and encoded anew.
        row_groups: number of row groups in the file.
    """

    rows: int
    length: int
    copied_bytes: int
    recoded_bytes: int
    row_groups: int


def join(
    pieces: Sequence[Piece],
    sink: Sink,
    *,
    full_stored: int = FULL_STORED,
    progress: Callable[[int], None] | None = None,
) -> Joined:
    """
    Write the row groups of all pieces, in their order, as one file. Those without rows are left out: older releases of
    parquet-mr refuse to read one.

    Args:
        full_stored: stored bytes of the sources that make a full row group; at most `FULL_STORED`.
        progress: called now and then with the number of stored bytes of the sources that were treated since.

    Raises:
        CorruptFileError: a source isn't what its footer says.
        ValueError: there are no pieces, or they may not share a file.
    """
    _check(pieces)
    report = progress or (lambda _: None)
    assembly = Assembly(sink, pieces[0].footer)
    recoder = Recoder(assembly, sink, min(FULL_STORED, full_stored), report)
    total = 0
    for piece in pieces:
        for index in piece.row_groups:
            if not piece.footer.row_groups[index].rows:
                continue
            total += piece.footer.row_groups[index].bytes
            source = piece.reader, piece.footer, index
            if piece.recode and piece.footer.kept is None and recoder.take(source):
                continue
            recoder.flush()
            assembly.copy(*source)
            report(piece.footer.row_groups[index].bytes)
    recoder.flush()
    assembly.finish()
    return Joined(assembly.rows, sink.position, total - recoder.recoded, recoder.recoded, assembly.row_groups)


def require_values(piece: Piece) -> None:
    """
    Decode what would be encoded anew.

    Raises:
        CorruptFileError: it can't be decoded.
    """
    for index in piece.row_groups:
        if piece.recode and piece.footer.kept is None and piece.footer.row_groups[index].rows:
            require_decoded((piece.reader, piece.footer, index))


def _check(pieces: Sequence[Piece]) -> None:
    if len({piece.footer.family for piece in pieces}) != 1:
        raise ValueError("pieces of one file have one family")
    for piece in pieces:
        if piece.footer.carried is not None:
            raise ValueError(f"{piece.footer.name} can only be carried over whole: {piece.footer.carried}")
