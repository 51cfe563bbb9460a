"""
The parts in which a look is read, and their order.

Pure: `Look` is told how to read some tables. No part holds much more than `_AT_ONCE` candidates, unless one table has
more: stored names of partitions can only be told apart among all of their table's.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from compactor.metastore.candidates.left import Left
from compactor.metastore.candidates.unnamed import HandedOut
from compactor.metastore.model import Candidate, Entity

T = TypeVar("T")

_AT_ONCE = 10_000
"""Candidates that are read at a time: bounds the memory that a look at a large warehouse takes."""


class CandidatePart(NamedTuple):
    """
    Some of the candidates that a look finds.

    Args:
        unnamed: those with a newer write than any commit tells of.
    """

    candidates: list[Candidate]
    unnamed: frozenset[Entity] = frozenset()


@dataclass(frozen=True, slots=True)
class Look:
    """
    One look at what was written and aborted. It is read part by part, each of which says what is so when it is read.

    Args:
        reached: every transaction below this id had ended: for a look from here on only commits of this and later
            transactions are new, however long they ran, and however late a part was read.
        handed_out: of every table, for the next look.
        sizes: the tables in which there may be candidates, in order, each with about how many.
        read: reads all candidates of some tables, by table.
        waiting: what was asked for besides and is initiated or working. They are no candidates, and nothing is read of
            them, however many they are.
    """

    reached: int
    handed_out: HandedOut
    sizes: Mapping[Entity, int] = field(default_factory=dict)
    read: Callable[[Sequence[Entity]], CandidatePart] = lambda _: CandidatePart([])
    waiting: AbstractSet[Entity] = frozenset()

    def parts(self, left: Left) -> Iterator[CandidatePart]:
        """
        All candidates: those that an earlier cycle left first, in the order in which they were left, then the others,
        by table. So every candidate gets its turn, however few a cycle reaches.
        """
        held = CandidatePart([])
        for piece in self._pieces(left):
            if held.candidates and len(held.candidates) + len(piece.candidates) > _AT_ONCE:
                yield held
                held = piece
            else:
                held = CandidatePart(held.candidates + piece.candidates, held.unnamed | piece.unnamed)
        if held.candidates:
            yield held

    def _pieces(self, left: Left) -> Iterator[CandidatePart]:
        for entities in _grouped(left):
            part = self.read(list(dict.fromkeys(entity.whole_table() for entity in entities)))
            found = {candidate.entity: candidate for candidate in part.candidates}
            yield CandidatePart([found[one] for one in entities if one in found], part.unnamed.intersection(entities))
        for tables in self._groups():
            part, before = self.read(tables), left.of(tables)
            if before:
                others = [candidate for candidate in part.candidates if candidate.entity not in before]
                part = CandidatePart(others, part.unnamed - before)
            yield part

    def whole(self) -> CandidatePart:
        """All candidates in one part."""
        parts = list(self.parts(Left()))
        return CandidatePart(
            [candidate for part in parts for candidate in part.candidates],
            frozenset[Entity]().union(*(part.unnamed for part in parts)),
        )

    def _groups(self) -> Iterator[list[Entity]]:
        return _together(self.sizes.items())


def _grouped(left: Left) -> Iterator[list[Entity]]:
    """What was left, in its order. A table is read as a whole, so what follows each other of it stays together."""
    for runs in _together((run, len(run[1])) for run in left.by_table()):
        yield [Entity(table.database, table.table, name) for table, names in runs for name in names]


def _together(things: Iterable[tuple[T, int]]) -> Iterator[list[T]]:
    """Things with their sizes, in their order, as many together as fit, and one at least."""
    group: list[T] = []
    size = 0
    for thing, count in things:
        if group and size + count > _AT_ONCE:
            yield group
            group, size = [], 0
        group.append(thing)
        size += count
    if group:
        yield group
