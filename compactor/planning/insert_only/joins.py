"""
Which small files of an insert-only table become one, and what happens to their stripes or row groups.

Pure. Files may share a file when they are of one bucket (where the table has buckets), end in the same extension, and
their format's package says that they are of one family and need the same of their readers. Files of at least half the
full size stay as they are, so a second compaction leaves the results of the first alone. The files of one family fill
as few files as the full size allows, evenly, in reading order.
Source: docs/compaction.md, "Insert-only tables"; Hive's hive.merge.size.per.task for the full size.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from compactor.planning import small
from compactor.planning.document import Action, FileCopy, FileJoin, InputFile, Segment, together
from compactor.planning.facts import FileFormat, WholeFacts
from compactor.planning.insert_only.names import extension_of, new_names

SMALL_PARTS = "small parts"
"""Why stripes and row groups are encoded anew."""


@dataclass(frozen=True, slots=True)
class JoinSizes:
    """
    Args:
        file: bytes of a full-sized file.
        part: bytes of a stripe that is encoded anew, in the writer's memory.
        min_part: stripes and row groups of less weight are encoded anew, together with their neighbours.
        room: most bytes that joined files may take together; None: no limit.
        footer: most bytes of a joined file's footer, as its sources have them. One above 16 MiB isn't read again, and
            places take more bytes in a larger file.
    """

    file: int
    part: int
    min_part: int
    room: int | None = None
    footer: int = 12 << 20


@dataclass(frozen=True, slots=True)
class _Group:
    """Files that become one file, or one file with the reason why it stays alone."""

    files: tuple[InputFile, ...]
    reason: str = ""


def joined(
    files: Sequence[InputFile], facts: Mapping[str, WholeFacts], kind: FileFormat, sizes: JoinSizes, *, bucketed: bool
) -> tuple[tuple[FileCopy, ...], tuple[FileJoin, ...]]:
    """
    Lay out one output directory.

    Args:
        files: in reading order.
        facts: by path; files without any stay whole.
        kind: the format of all files.

    Raises:
        RefusedError: UNKNOWN_NAME, see `new_names`.
    """
    groups = list(_within(_groups(files, facts, kind, sizes, bucketed=bucketed), sizes.room))
    copies, joins = [], []
    for group, name in zip(groups, new_names([group.files[0] for group in groups]), strict=True):
        if len(group.files) == 1:
            (file,) = group.files
            copies.append(FileCopy(file.path, name, file.length, group.reason))
        else:
            joins.append(FileJoin(name, kind.name, _segments(group.files, facts, sizes)))
    return tuple(copies), tuple(joins)


def _groups(
    files: Sequence[InputFile], facts: Mapping[str, WholeFacts], kind: FileFormat, sizes: JoinSizes, *, bucketed: bool
) -> list[_Group]:
    """All groups, in the order of their first files."""
    alone: list[tuple[int, _Group]] = []
    families: dict[_Kind, list[_Member]] = {}
    for place, file in enumerate(files):
        known = facts.get(file.path)
        if (why := _why_alone(file, known, kind, sizes)) is not None or known is None:
            alone.append((place, _Group((file,), why or "")))
        else:
            key = _Kind(file.bucket if bucketed else -1, extension_of(file.path), known.family, known.needs)
            families.setdefault(key, []).append(_Member(place, file, _footer_bytes(known, sizes)))
    made = list(alone)
    for members in _with_nothing(families):
        for part in _even(members, sizes):
            reason = "no other small file of its kind" if len(part) == 1 else ""
            made.append((part[0].place, _Group(tuple(member.file for member in part), reason)))
    return [group for _, group in sorted(made, key=lambda item: item[0])]


class _Kind(NamedTuple):
    """What files that become one have in common; `bucket` is -1 where it doesn't matter."""

    bucket: int
    extension: str
    family: str
    needs: str | None


@dataclass(frozen=True, slots=True)
class _Member:
    """
    A file of a family.

    Args:
        place: in reading order.
        footer: bytes of the joined file's footer that it makes.
    """

    place: int
    file: InputFile
    footer: int


def _footer_bytes(known: WholeFacts, sizes: JoinSizes) -> int:
    """Bytes of the footer for those parts that are copied; small ones become few."""
    if known.kept is not None or not known.parts:
        return known.footer
    copied = sum(part.weight >= sizes.min_part for part in known.parts)
    return known.footer * copied // len(known.parts)


def _with_nothing(families: Mapping[_Kind, Sequence[_Member]]) -> Iterator[list[_Member]]:
    """The families; files without values, and those of every family, are among the first that they fit into."""
    left = {kind: members for kind, members in families.items() if not kind.family or kind.needs is None}
    for kind, members in families.items():
        if kind.family and kind.needs is not None:
            fitting = kind._replace(needs=None), kind._replace(family="", needs="")
            others = [member for other in fitting for member in left.pop(other, ())]
            yield sorted([*members, *others], key=lambda member: member.place)
    yield from map(list, left.values())


def _why_alone(file: InputFile, known: WholeFacts | None, kind: FileFormat, sizes: JoinSizes) -> str | None:
    if not kind.name:
        return kind.why_not
    if 2 * file.length >= sizes.file:
        return "full-sized"
    return "no other small file" if known is None else known.whole


def _even(members: Sequence[_Member], sizes: JoinSizes) -> list[list[_Member]]:
    """
    Cut the files of one family into about as few groups as the sizes allow. Each but the last has at least an even
    share of the bytes, which is more than half of a full-sized file, or a full footer.
    """
    total = sum(member.file.length for member in members)
    share = total / max(1, -(-total // sizes.file))
    parts: list[list[_Member]] = [[]]
    filled = footer = 0
    for member in members:
        if parts[-1] and (filled >= max(1, share) or footer + member.footer > sizes.footer):
            parts.append([])
            filled = footer = 0
        parts[-1].append(member)
        filled += member.file.length
        footer += member.footer
    return parts


def _within(groups: Sequence[_Group], room: int | None) -> Iterator[_Group]:
    """The groups; those that don't fit into the room are taken apart again."""
    left = room
    for group in groups:
        size = sum(file.length for file in group.files)
        if len(group.files) > 1 and left is not None and size > left:
            yield from (_Group((file,), "no room for a larger file") for file in group.files)
            continue
        if len(group.files) > 1 and left is not None:
            left -= size
        yield group


def _segments(files: Sequence[InputFile], facts: Mapping[str, WholeFacts], sizes: JoinSizes) -> tuple[Segment, ...]:
    """
    The contents of the files one after the other. Neighbouring small parts are encoded anew where that pays; a single
    one between large ones is copied.
    """
    parts = [part for file in files for part in _parts(file, facts[file.path])]
    made: list[Segment] = []
    chunk = -1
    for light, found in groupby(parts, lambda part: part[1] is not None and part[1] < sizes.min_part):
        run = [(copied, weight or 0) for copied, weight in found]
        anew = set(small.joined([weight for _, weight in run], [True] * len(run))) if light else set()
        for place, (copied, _) in enumerate(run):
            if place not in anew:
                made.append(copied)
                continue
            if not (made and made[-1].action is Action.RECODE):
                chunk += 1
            made.append(replace(copied, action=Action.RECODE, reason=SMALL_PARTS, chunk=chunk))
    return together(made)


def _parts(file: InputFile, known: WholeFacts) -> list[tuple[Segment, int | None]]:
    """A file's parts as they are copied, each with its weight; None: it can't be encoded anew."""
    if not known.parts:
        why = "end to end" if known.parts is None else "no rows"
        return [(Segment(Action.COPY, file.path, (), why, 0, file.length), None)]
    why = known.kept or "untouched"
    return [
        (
            Segment(Action.COPY, file.path, (number,), why, part.rows, part.bytes),
            part.weight if known.kept is None else None,
        )
        for number, part in enumerate(known.parts)
    ]
