"""
What Hive's merge compaction (`hive.compaction.merge.enabled`) leaves: the rows of its inputs one file after the other,
whatever became of their write ids.

No key index, no ACID statistics, no `_orc_acid_version`. Source: Hive's MergeCompactor, OrcFileMerger.
"""

from collections.abc import Sequence
from pathlib import Path

import pyorc

from compactor.orc.reading.converters import CONVERTERS


def join_files(inputs: Sequence[Path], target: Path) -> bool:
    """
    Write the joined file; False, and nothing written, where the columns differ: Hive falls back to another compaction
    then.
    """
    rows, schemas = [], set()
    for path in (one for one in inputs if one.stat().st_size):
        with path.open("rb") as file:
            reader = pyorc.Reader(file, converters=CONVERTERS)
            schemas.add(str(reader.schema))
            rows += list(reader)
    if len(schemas) != 1:
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as file:
        writer = pyorc.Writer(file, schemas.pop(), converters=CONVERTERS)
        writer.writerows(rows)
        writer.close()
    return True
