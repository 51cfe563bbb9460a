"""
Tables whose columns change between their writes, and what their readers must see: known from the statements and a
small rule of its own, not from the code under test.
"""

from dataclasses import dataclass, field

from compactor.errors import RefusedError
from compactor.reasons import Reason
from tests.reference.values import canonical, parse_type

WIDER = {"int": ("bigint", "string"), "bigint": ("string",)}
"""What CHANGE makes of a type; every value has a place in the new one."""
NAMES = ("a", "b", "c", "d", "e")
FIRST = (("a", "int"), ("b", "string"), ("c", "string"), ("d", "struct<x:int,y:string>"))
"""The columns with which a table begins."""


def fields_of(kind):
    """Names and types inside a struct without nested ones."""
    return [tuple(part.split(":")) for part in kind.removeprefix("struct<").removesuffix(">").split(",")]


def a_value(kind, number, place):
    """One that tells its row and the place at which it was written."""
    if kind.startswith("struct<"):
        return tuple(a_value(inner, number, 10 * place + at) for at, (_, inner) in enumerate(fields_of(kind)))
    return 100 * number + place if kind in {"int", "bigint"} else f"{number}/{place}"


def read_as(value, written, now):
    """A value of one type as one of another; struct fields go by their names."""
    if value is None or written == now:
        return value
    if now.startswith("struct<"):
        found = {name: (kind, one) for (name, kind), one in zip(fields_of(written), value, strict=True)}
        return tuple(
            read_as(found[name][1], found[name][0], kind) if name in found else None for name, kind in fields_of(now)
        )
    return str(value) if now == "string" else value


def row_as(row, written, now, rule):
    """A row of a file with these columns as a reader of the table's columns sees it."""
    nameless = all(name.startswith("_col") for name, _ in written)
    by_name = {} if rule == "position" or nameless else {name: at for at, (name, _) in enumerate(written)}
    seen = []
    for place, (name, kind) in enumerate(now):
        at = by_name.get(name) if by_name else place if place < len(row) else None
        seen.append(None if at is None else read_as(row[at], written[at][1], kind))
    return tuple(seen)


def loses(written, now, rule):
    """Whether a compaction would lose values that a file holds, or can't read them as the table's type."""
    nameless = all(name.startswith("_col") for name, _ in written)
    positional = rule == "position" or nameless
    if positional:
        pairs = list(zip(written, now, strict=False))
        if len(written) > len(now):
            return True
    else:
        wanted = dict(now)
        if any(name not in wanted for name, _ in written):
            return True
        pairs = [(one, (one[0], wanted[one[0]])) for one in written]
    return not all(_fits(before, after) for (_, before), (_, after) in pairs)


def _fits(before, after):
    if before.startswith("struct<") and after.startswith("struct<"):
        wanted = dict(fields_of(after))
        return all(name in wanted and _fits(kind, wanted[name]) for name, kind in fields_of(before))
    return before == after or after in WIDER.get(before, ())


def refused_for_its_columns(attempt):
    """Run a compaction, or say that a file's columns don't fit the table's; any other refusal is raised."""
    try:
        attempt.run()
    except RefusedError as error:
        if error.reason is not Reason.SCHEMA_MISMATCH:
            raise
        return True
    return False


@dataclass
class ChangingTable:
    """
    A table of the builder that lives through steps of `strategies.column_lives`.

    Args:
        rows: of each key, the columns of the file that it was written into, and its values there.
    """

    warehouse: object
    table: object
    rows: dict = field(default_factory=dict)
    numbers: int = 0

    def play(self, steps):
        kinds = {
            step.__name__: step
            for step in (
                self.insert,
                self.load,
                self.delete,
                self.rename,
                self.swap,
                self.reorder,
                self.add,
                self.replace,
                self.widen,
            )
        }
        for name, *about in steps:
            kinds[name](*about)
        return self

    @property
    def directory(self):
        (found,) = self.table.directories.values()
        return found

    def original(self, names=None):
        """Rows from before the migration, perhaps under names of their own."""
        self._as(names, lambda rows: self.warehouse.write_original(self.table, rows))

    def insert(self):
        self._write(lambda txn, rows: txn.insert(self.table, rows))

    def load(self, names):
        """LOAD DATA of a file whose columns have other names, in this order."""
        self._as(names, lambda rows: self._transaction(lambda txn: txn.load(self.table, rows)))

    def delete(self, number):
        """Delete a row, if there are so many."""
        keys = sorted(self.rows)
        if number < len(keys):
            self._transaction(lambda txn: txn.delete_keys(self.table, self.directory, [keys[number]], statement=0))
            self.deleting.add(self.table.columns)
            del self.rows[keys[number]]

    def rename(self, place, name):
        """CHANGE under another name, if no column has it."""
        columns = list(self.table.columns)
        if name not in dict(columns):
            columns[place % len(columns)] = (name, columns[place % len(columns)][1])
        self.table.columns = tuple(columns)

    def swap(self, one, other):
        """CHANGE of two columns, which exchange their names and keep their types."""
        columns = list(self.table.columns)
        one, other = one % len(columns), other % len(columns)
        names = columns[one][0], columns[other][0]
        columns[one], columns[other] = (names[1], columns[one][1]), (names[0], columns[other][1])
        self.table.columns = tuple(columns)

    def reorder(self, order):
        """REPLACE COLUMNS by the same ones in another order."""
        columns = self.table.columns
        self.table.columns = tuple(columns[place] for place in order if place < len(columns))

    def add(self, name):
        """ADD COLUMNS, if none has that name; an old name may come back."""
        if name not in dict(self.table.columns):
            self.table.columns += ((name, "string"),)

    def replace(self, names):
        """REPLACE COLUMNS by columns of other names, perhaps more or fewer."""
        self.table.columns = self._named(names)

    def _named(self, names):
        kinds = [kind for _, kind in self.table.columns]
        return tuple(zip(names, [*kinds, *["string"] * len(names)], strict=False))

    def widen(self, place, choice):
        columns = list(self.table.columns)
        name, kind = columns[place % len(columns)]
        if kind in WIDER:
            columns[place % len(columns)] = (name, WIDER[kind][choice % len(WIDER[kind])])
        elif kind.startswith("struct<"):
            columns[place % len(columns)] = (name, "struct<y:string,new:int,x:int>")
        self.table.columns = tuple(columns)

    def expected(self, rule):
        """Sorted (ROW__ID, values), as the reference and the judges give them."""
        kinds = [parse_type(kind) for _, kind in self.table.columns]
        return sorted(
            (tuple(key), tuple(map(canonical, kinds, row_as(row, written, self.table.columns, rule))))
            for key, (written, row) in self.rows.items()
        )

    def loses(self, rule):
        """Whether some file holds what a compaction would lose; the files of deleted rows count too."""
        return any(loses(written, self.table.columns, rule) for written in self.written)

    def hinders(self, rule):
        """
        Whether Hive can't read the table itself: some delete event has columns, though no values in them, that are no
        columns of the table's types (seen on 3.1.3, whose readers evolve them as those of a row).
        """
        now = self.table.columns
        for written in self.deleting:
            pairs = (
                zip(written, now, strict=False)
                if rule == "position"
                else ((one, (one[0], dict(now)[one[0]])) for one in written if one[0] in dict(now))
            )
            if not all(_fits(before, after) for (_, before), (_, after) in pairs):
                return True
        return False

    def __post_init__(self):
        self.written, self.deleting = set(), set()

    def _write(self, write):
        self._keep(lambda rows: self._transaction(lambda txn: write(txn, rows)))

    def _transaction(self, statement):
        with self.warehouse.begin() as txn:
            statement(txn)

    def _as(self, names, write):
        """Write under other names than the table's, if they are given."""
        before = self.table.columns
        if names is not None:
            self.table.columns = self._named(names)
        self._keep(write)
        self.table.columns = before

    def _keep(self, write):
        known = set(self.directory.inserted)
        self.numbers += 2
        made = [
            tuple(a_value(kind, number, place) for place, (_, kind) in enumerate(self.table.columns))
            for number in (self.numbers, self.numbers + 1)
        ]
        write(made)
        self.written.add(self.table.columns)
        self.rows |= {
            key: (self.table.columns, row) for key, row in self.directory.inserted.items() if key not in known
        }
