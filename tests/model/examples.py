"""Lives that the suites play after those that are drawn: each has something to compact under every option set."""

from tests.model.histories import Life
from tests.model.steps import (
    AddColumn,
    Clean,
    Come,
    Compact,
    Delete,
    End,
    Insert,
    JoinFiles,
    Leave,
    Load,
    Merge,
    Overwrite,
    Stream,
    Update,
)

OF_EVERYTHING = Life(
    steps=[
        Insert(10, writers=2),
        Insert(60),
        Update(3, 1),
        Insert(3, end="abort"),
        Compact("minor"),
        Delete(4, 2),
        Insert(3, place=1),
        Stream(((5, "commit"), (3, "abort"), (2, "open"))),
        Compact("major"),
        End(),
        AddColumn(),
        Merge(5),
        Insert(1),
        Compact("minor"),
        Clean(),
        Load(4),
        Overwrite(5),
        Insert(10, end="open"),
        Insert(10),
    ],
    originals=[(7, 0), (30, 0), (3, 1)],
    parameters={"orc.stripe.row.count": "17"},
)
OF_AN_EMPTIED_TABLE = Life(steps=[Overwrite(0), Insert(1), Insert(1), Compact("minor")])
"""A base without files, beside which a minor joins what came after it."""
OF_A_TABLE_EMPTIED_LAST = Life(steps=[Insert(1), Overwrite(0)])
"""A base without files over what it replaced."""
BESIDE_READERS = Life(
    steps=[
        Insert(10),
        Insert(10),
        Come(),
        Delete(3, 1),
        Compact("minor"),
        Clean(),
        Insert(3, place=1),
        Come(),
        Compact("major"),
        Clean(),
        Leave(),
        Update(2, 1, end="open"),
        Clean(),
        Insert(10),
        End(commit=False),
    ]
)
OF_JOINED_FILES = Life(
    steps=[
        Insert(10),
        Insert(3, end="abort"),
        Stream(((5, "commit"), (3, "abort"))),
        JoinFiles(),
        Insert(10),
        Compact("minor"),
        Clean(),
        Delete(3, 1),
        Compact("major"),
        Clean(),
    ]
)
