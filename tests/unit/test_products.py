"""No module outside of `dialects` names a database product, be it in code, in a message or in a comment."""

import re
from pathlib import Path

from compactor.metastore.db.dialects import DIALECTS

CODE = Path(__file__).resolve().parents[2] / "compactor"
DIALECTS_PACKAGE = CODE / "metastore" / "db" / "dialects"


def test_only_dialects_name_a_product():
    """What differs between products is asked of the dialect; adding one changes no other module."""
    words = {word for dialect in DIALECTS for word in (dialect.name, *dialect.schemes, dialect.driver)}
    product = re.compile("|".join(map(re.escape, words)), re.IGNORECASE)
    naming = {
        str(file.relative_to(CODE))
        for file in CODE.rglob("*.py")
        if DIALECTS_PACKAGE not in file.parents and product.search(file.read_text(encoding="utf-8"))
    }
    assert naming == set()


def test_a_scheme_has_one_dialect():
    """Of two, the later one in the registry would get the other's addresses, without a word."""
    schemes = [scheme for dialect in DIALECTS for scheme in dialect.schemes]
    assert len(schemes) == len(set(schemes))
