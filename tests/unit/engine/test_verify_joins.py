"""Joined files and the inputs beside them that were carried over alone: each must be somewhere, once, and whole."""

from types import SimpleNamespace

import pytest

from compactor.engine.insert_only.tasks import apart
from compactor.engine.results import Checked, RowCounts
from compactor.engine.verify.result import check_joins
from compactor.errors import VerificationError
from compactor.planning.document import Action, FileJoin, Segment

INPUTS = [SimpleNamespace(path=f"delta_{n}/000000_0", length=10 * n, rows=n) for n in (1, 2, 3)]
DIRECTORY, NAME = "base_3", "000000_0"


def staged(*, rows=None, copied=60, alone=(), shorter=0, checked=(), kind="text"):
    """
    Three inputs of 10, 20 and 30 bytes, and 1, 2 and 3 rows, as one file.

    Args:
        rows, copied: of the joined file; without rows there is none.
        alone: the numbers of those that were carried over alone, by so many bytes `shorter`.
    """
    segments = [Segment(Action.COPY, one.path, (), "", one.rows, one.length) for one in INPUTS]
    join = FileJoin(NAME, kind, tuple(segments))
    copies = apart(join, INPUTS)
    files = [
        SimpleNamespace(directory=DIRECTORY, name=copies[n - 1].name, length=copies[n - 1].bytes - shorter)
        for n in alone
    ]
    if rows is not None:
        written = RowCounts(rows, rows)
        files.append(SimpleNamespace(directory=DIRECTORY, name=NAME, length=copied, rows=written, copied_bytes=copied))
    # one of another directory, of the same name
    files.append(SimpleNamespace(directory="delta_9", name=NAME, length=1))
    plan = SimpleNamespace(inputs=INPUTS, outputs=[SimpleNamespace(name=DIRECTORY, joins=[join])])
    return SimpleNamespace(plan=plan, files=files, checked=checked)


GOOD, WRONG = (Checked(DIRECTORY, NAME),), (Checked(DIRECTORY, NAME, wrong="row 2 differs"),)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"rows": 6, "checked": GOOD}, None),
        ({"rows": 5, "checked": GOOD}, "6 rows go in, 5 were written"),
        ({"rows": 6, "copied": 59, "checked": GOOD}, "60 bytes go in, 59 were copied"),
        ({"rows": 6, "copied": 59, "checked": GOOD, "kind": "avro"}, "60 bytes go in, 59 were copied"),
        ({"rows": 6, "copied": 0, "checked": GOOD, "kind": "orc"}, None),
        ({"rows": 6}, "wasn't compared with its inputs"),
        ({"rows": 6, "checked": None}, "wasn't compared with its inputs"),
        ({"rows": 6, "checked": (Checked("delta_9", NAME),)}, "wasn't compared with its inputs"),
        ({"rows": 6, "checked": WRONG}, "row 2 differs"),
        ({"rows": 4, "copied": 40, "alone": [2], "checked": GOOD}, None),
        ({"rows": 6, "copied": 60, "alone": [2], "checked": GOOD}, "4 rows go in, 6 were written"),
        ({"rows": 4, "copied": 40, "alone": [2], "shorter": 1, "checked": GOOD}, "delta_2/.* wasn't carried over"),
        ({"alone": [1, 2, 3]}, None),
        ({"alone": [1, 2, 3], "checked": None}, None),
        ({"alone": [1, 2, 3], "shorter": 1}, "delta_1/.* wasn't carried over"),
        ({"alone": [1, 3]}, "is missing, and delta_2/.* wasn't carried over"),
        ({}, "is missing, and delta_1/.* wasn't carried over"),
    ],
)
def test_each_input_is_in_the_joined_file_or_beside_it(result, said):
    """Where all of them lie beside it there is no joined file; otherwise it was compared, and holds all the others."""
    if said is None:
        check_joins(staged(**result))
    else:
        with pytest.raises(VerificationError, match=said):
            check_joins(staged(**result))
