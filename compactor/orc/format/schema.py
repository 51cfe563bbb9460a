"""Converts between ORC's flat list of types and the tree that it encodes."""

from collections.abc import Sequence
from functools import lru_cache

from compactor.acid.types import ACID_NAMES, HiveType, Kind
from compactor.errors import CorruptFileError
from compactor.orc.format.proto import orc_pb2 as pb


def tree_of(types: Sequence[pb.Type], where: str) -> HiveType:
    """
    The tree of a footer's type list.

    Files of one table share a tree.

    Raises:
        CorruptFileError: the ids aren't those of a tree in parents-first order, or a kind is unknown.
    """
    try:
        return _tree(pb.Footer(types=types).SerializeToString())
    except ValueError as error:
        raise CorruptFileError(f"{where}: {error}") from None
    except RecursionError:
        raise CorruptFileError(f"{where}: its types are nested too deep") from None


@lru_cache(maxsize=64)
def _tree(packed: bytes) -> HiveType:
    types = pb.Footer.FromString(packed).types
    ids = iter(range(len(types)))

    def node(expected: int) -> HiveType:
        if next(ids, None) != expected:
            raise ValueError(f"type {expected} isn't where a tree in parents-first order has it")
        found = types[expected]
        if found.kind not in Kind._value2member_map_:
            raise ValueError(f"type kind {found.kind} of column {expected} is unknown")
        kind = Kind(found.kind)
        if not all(isinstance(name, str) for name in found.field_names):  # protobuf returns non-UTF-8 names as bytes
            raise ValueError(f"a field name of column {expected} isn't UTF-8")
        wanted = {Kind.LIST: 1, Kind.MAP: 2, Kind.STRUCT: len(found.field_names)}.get(kind)
        if wanted is not None and len(found.subtypes) != wanted:
            raise ValueError(f"column {expected} has {len(found.subtypes)} types inside instead of {wanted}")
        decimal, sized = kind is Kind.DECIMAL, kind in (Kind.CHAR, Kind.VARCHAR)
        return HiveType(
            kind,
            children=tuple(node(child) for child in found.subtypes),
            names=tuple(found.field_names),
            length=found.maximum_length if sized else None,
            precision=found.precision if decimal else None,
            scale=found.scale if decimal else None,
        )

    if not types:
        raise ValueError("no types in the footer")
    root = node(0)
    if next(ids, None) is not None:
        raise ValueError("types in the footer that belong to no column")
    return root


def types_of(tree: HiveType) -> list[pb.Type]:
    """The type list of a tree; column ids in parents-first order."""
    types: list[pb.Type] = []

    def add(node: HiveType) -> int:
        column = len(types)
        made = pb.Type(kind=node.kind, field_names=node.names)
        if node.kind in (Kind.CHAR, Kind.VARCHAR):
            made.maximum_length = node.length or 0
        if node.kind is Kind.DECIMAL:
            made.precision, made.scale = node.precision or 0, node.scale or 0
        types.append(made)
        made.subtypes.extend([add(child) for child in node.children])
        return column

    add(tree)
    return types


def is_acid_tree(tree: HiveType) -> bool:
    """Whether a root type is that of Hive's full-ACID files: the six ACID names, five integer kinds and a struct."""
    kinds = tuple(child.kind for child in tree.children)
    return tree.names == ACID_NAMES and kinds == (Kind.INT, Kind.LONG, Kind.INT, Kind.LONG, Kind.LONG, Kind.STRUCT)


def same_layout(one: HiveType, other: HiveType, *, names: bool) -> bool:
    """
    Whether stripes of one type can be copied into a file of the other: kinds, lengths and precisions are equal at each
    column id.

    Args:
        names: also compare the struct's field names exactly (Hive finds columns by exact name, at any depth). Names of
            structs inside it are always compared: Hive reads a file whose columns have no names of their own by
            position, but the structs inside by name.
    """
    if (one.kind, one.length, one.precision, one.scale, len(one.children)) != (
        other.kind,
        other.length,
        other.precision,
        other.scale,
        len(other.children),
    ):
        return False
    if names and one.names != other.names:
        return False
    return all(same_layout(left, right, names=True) for left, right in zip(one.children, other.children, strict=True))
