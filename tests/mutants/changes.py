"""
Small changes of the code: which there are, and a module with one of them.

A change is named by its module and number; numbers hold until the module changes. Decorators, annotations and texts
stay as they are. Statements of SQL are built of expressions, so a condition that is one of several (`and_`, `where`, a
list of conditions) goes as a change of its own: a guard that no test needs would be left otherwise.
"""

import ast
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
_OTHERS: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
}
_OTHER_NAMES: Final = {"and_": "or_", "or_": "and_", "is_": "is_not", "is_not": "is_", "in_": "not_in", "not_in": "in_"}
"""Of SQLAlchemy."""
_UNTOUCHED: Final = {"annotation", "returns", "decorator_list"}
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True, slots=True)
class Place:
    """
    One change of a tree: how it is made, the lines of its statement, whether it is inside a function, and the names of
    what it belongs to, the innermost last.
    """

    change: Callable[[], None]
    first: int
    last: int
    in_function: bool
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A module with one change, printed before and after, and compiled."""

    path: Path
    number: int
    place: Place
    before: str
    after: str
    code: Any

    @property
    def name(self) -> str:
        return f"{self.path.relative_to(ROOT)}#{self.number}"

    @property
    def module(self) -> str:
        names = self.path.relative_to(ROOT).with_suffix("").parts
        return ".".join(names[:-1] if names[-1] == "__init__" else names)


def places(tree: ast.AST) -> Iterator[Place]:
    """All changes of a tree, always in the same order; those of SQL come last."""
    yield from _places(tree, _replacements)
    yield from _places(tree, _of_sql)


def _places(
    tree: ast.AST,
    replacements: Callable[[ast.AST], Iterator[ast.AST]],
    span: tuple[int, int] = (1, 1),
    in_function: bool = False,
    names: tuple[str, ...] = (),
) -> Iterator[Place]:
    names = (*names, *_names(tree))
    for name, value in ast.iter_fields(tree):
        if name in _UNTOUCHED:
            continue
        inside = in_function or (isinstance(tree, _FUNCTIONS) and name == "body")
        for position, node in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(node, ast.AST):
                continue
            lines = _span(node) or span
            if isinstance(node, ast.JoinedStr):  # a text for people
                continue
            for other in replacements(node):
                yield Place(_change(tree, name, position, ast.copy_location(other, node)), *lines, inside, names)
            yield from _places(node, replacements, lines, inside, names)


def _names(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def _change(tree: ast.AST, name: str, position: int, other: ast.AST) -> Callable[[], None]:
    def change() -> None:
        value = getattr(tree, name)
        if isinstance(value, list):
            value[position] = other
        else:
            setattr(tree, name, other)

    return change


def _span(node: ast.AST) -> tuple[int, int] | None:
    """The lines of a statement, or of the head of one that has a body."""
    if not isinstance(node, ast.stmt):
        return None
    body = getattr(node, "body", None)
    end = body[0].lineno - 1 if body else node.end_lineno or node.lineno
    return node.lineno, max(end, node.lineno)


def _replacements(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in the place of a node."""
    match node:
        case _ if type(node) in _OTHERS:
            yield _OTHERS[type(node)]()
        case ast.Expr(value=ast.Constant()):  # a docstring
            pass
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.Return(value=ast.Constant(value=None | False)):  # nothing is false
            pass
        case ast.Return(value=ast.expr()):
            yield ast.Return(ast.Constant(None))
        case ast.Expr() | ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break():
            yield ast.Pass()
        case ast.If() | ast.While():
            yield type(node)(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
        case ast.IfExp():
            yield ast.IfExp(node.test, node.orelse, node.body)
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.comprehension(ifs=[_, *_]):
            yield ast.comprehension(node.target, node.iter, [], node.is_async)


def _of_sql(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in the place of a part of a statement of SQL: the same with a condition less, or the opposite."""
    match node:
        case ast.Call(func=ast.Name(id="and_" | "or_" as name), args=[_, _, *_]):
            yield ast.Call(ast.Name(_OTHER_NAMES[name], ast.Load()), node.args, node.keywords)
            for args in _one_less(node.args):
                yield ast.Call(node.func, args, node.keywords)
        case ast.Call(func=ast.Name(id="not_"), args=[condition]):
            yield condition
        case ast.Call(func=ast.Attribute(value=ast.Name(id="np"))):
            pass
        case ast.Call(func=ast.Attribute(value=query, attr="where"), args=[_]):
            yield query
        case ast.Call(func=ast.Attribute(attr="where"), args=args):
            for others in _one_less(args):
                yield ast.Call(node.func, others, node.keywords)
        case ast.Call(func=ast.Attribute(value=column, attr="is_" | "is_not" | "in_" | "not_in" as name)):
            yield ast.Call(ast.Attribute(column, _OTHER_NAMES[name], ast.Load()), node.args, node.keywords)
        case ast.List(elts=elements) if any(isinstance(element, ast.Compare) for element in elements):
            for others in _one_less(elements):
                yield ast.List(others, ast.Load())


def _one_less(nodes: list[ast.expr]) -> Iterator[list[ast.expr]]:
    for number in range(len(nodes)):
        yield [*nodes[:number], *nodes[number + 1 :]]


def mutant(path: Path, number: int) -> Mutant:
    """A module's mutant of that number."""
    tree = ast.parse(path.read_text())
    before = ast.unparse(tree)
    place = list(places(tree))[number]
    place.change()
    ast.fix_missing_locations(tree)
    return Mutant(path, number, place, before, ast.unparse(tree), compile(tree, str(path), "exec"))


def modules(package: str) -> list[Path]:
    """The files of a package."""
    return sorted((ROOT / "compactor" / package).rglob("*.py"))


def every(package: str) -> list[tuple[Path, int]]:
    """All changes of a package: module and number."""
    return [
        (file, number) for file in modules(package) for number in range(len(list(places(ast.parse(file.read_text())))))
    ]


def drawn(package: str, count: int, seed: int) -> list[tuple[Path, int]]:
    """Some of them."""
    known = every(package)
    return random.Random(f"{package} {seed}").sample(known, min(count, len(known)))
