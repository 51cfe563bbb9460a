"""
`compactor verify`: reads a whole partition and compares it with the digests that its compacted files carry, and with
another directory.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import click

from compactor.acid.columns import column_rule
from compactor.cli import units
from compactor.cli.naming.lookup import find
from compactor.cli.naming.target import parse_target
from compactor.cli.options import target_options
from compactor.cli.output import OutputColumn, Record, View
from compactor.cli.session import Code, Command, Session, pass_session
from compactor.engine.comparing import Differences, compare
from compactor.engine.digest_note import Note
from compactor.engine.reading import PartitionReading, highest_write_id
from compactor.engine.request import spec_of
from compactor.errors import RefusedError, UsageError
from compactor.metastore.catalog import Catalog
from compactor.orc.digests.digest import Digest, column_paths, differences
from compactor.planning.document import InputFile
from compactor.reasons import Reason
from compactor.status.judging import look
from compactor.storage.location import split
from compactor.storage.registry import storage_for
from compactor.words import plural

COLUMNS = (
    OutputColumn("column", "COLUMN"),
    OutputColumn("digest", "DIGEST"),
    OutputColumn("against", "AGAINST"),
    OutputColumn("different", "DIFFERENT ROWS", right=True, show=units.number),
    OutputColumn("first", "FIRST"),
)
CHECKSUMS = "checksums"
_KEYS = "ROW__ID"


@dataclass(frozen=True, slots=True)
class FileProof:
    """
    The digests that one file carries for its recoded stripes, compared with the rows that the stripes hold.

    Args:
        stripes: how many stripes the file has.
        kept: how many recoded stripes the file carries a digest or a checksum for.
        wrong: what differs: `rows`, `keys` and columns, or `values`; `checksums`.
    """

    path: str
    stripes: int
    kept: int
    wrong: tuple[str, ...]

    def record(self) -> Record:
        """The result for one file as an output record."""
        verdict = "different" if self.wrong else "proved" if self.kept else "nothing kept"
        return {
            "path": self.path,
            "stripes": self.stripes,
            "recoded": self.kept,
            "verdict": verdict,
            "different": list(self.wrong),
        }


@click.command(cls=Command)
@target_options
@click.option(
    "--against",
    metavar="DIRECTORY",
    help="Compare with another directory of the same table: quarantined inputs, or a copy.",
)
@pass_session
def verify(session: Session, *, target: str, partition: str | None, against: str | None) -> int:
    """
    Read a partition wholly, and prove by digests what compaction made of it.

    Prints rows and a digest of the keys and of each column, and holds recoded stripes against what their files say was
    read from the inputs.
    """
    if against is not None and not against.strip():
        raise UsageError("--against is empty: name a directory of the same table, such as hdfs://namenode/copies/t")
    if against is not None and not ((place := split(against)).names or place.authority):
        raise UsageError(f"--against {against} is all there is: name a directory of the same table")
    database = session.database()
    session.settings  # noqa: B018 - stores are configured by it
    found = find(Catalog(database), parse_target(target, partition))
    snapshot = look(database, found.table, session.settings.readers).snapshot
    if against is not None:
        snapshot = snapshot.up_to(highest_write_id(storage_for(against), against, snapshot.layout))
    rule = column_rule(session.settings.readers.orc_columns, snapshot.layout, found.table.reader_parameters)
    spec = spec_of(found.entity, found.table, rule)
    try:
        with PartitionReading(storage_for(found.location), found.location, spec, snapshot) as here:
            proofs = [_proof(here, *noted) for noted in here.notes()]
            digest, other, apart = here.digest(), None, Differences()
            if against is not None:
                with PartitionReading(storage_for(against), against, spec, snapshot) as there:
                    other = there.digest()
                    apart = compare(here, there) if other != digest else apart
            records = _records(here, digest, other, apart)
    except RefusedError as refusal:
        if against is None or refusal.reason is not Reason.NOT_ENOUGH_HISTORY:
            raise
        reach = f"both are read up to write id {snapshot.write_ids.high_watermark}, the highest in the names of {against}, and a base holds more"
        raise RefusedError(refusal.reason, f"{found.entity} can't be compared: {reach}; {refusal.message}") from None
    document = {
        "table": str(found.entity),
        "location": found.location,
        "write_id": snapshot.write_ids.high_watermark,
        "rows": digest.rows,
        "columns": records,
        "files": [proof.record() for proof in proofs],
        "against": _compared(against, digest, other, apart),
    }
    session.output.show(View(COLUMNS if against is not None else COLUMNS[:2], records, document))
    for sentence in _sentences(proofs, digest, other, apart):
        session.output.say(sentence)
    return Code.FAILED if other not in {None, digest} or any(proof.wrong for proof in proofs) else Code.DONE


def _proof(reading: PartitionReading, file: InputFile, note: Note | None, held: Note | None) -> FileProof:
    if note is None:
        return FileProof(file.path, reading.stripes(file), 0, ())
    wrong: list[str] = []
    if held is None:
        wrong.append("values")
    elif held.digest != note.digest:
        comparable = len(note.digest.columns) == reading.row.columns
        wrong += (differences(reading.row, note.digest, held.digest) if comparable else ()) or ("values",)
    if held is not None and held.checksums != note.checksums:
        wrong.append(CHECKSUMS)
    return FileProof(file.path, reading.stripes(file), len(note.stripes) + len(note.checksums), tuple(wrong))


def _records(reading: PartitionReading, digest: Digest, other: Digest | None, apart: Differences) -> list[Record]:
    theirs = other or digest
    names = (_KEYS, *column_paths(reading.row))
    records: list[Record] = []
    for name, one, two in zip(names, (digest.keys, *digest.columns), (theirs.keys, *theirs.columns), strict=True):
        if not name:  # the row itself
            continue
        record: dict[str, object] = {"column": name, "digest": f"{one:016x}"}
        if other is not None:
            different = apart.missing + apart.extra if name == _KEYS else apart.columns.get(name, 0)
            key = apart.first.get("missing", apart.first.get("extra")) if name == _KEYS else apart.first.get(name)
            record |= {"against": f"{two:016x}", "different": different, "first": None if key is None else list(key)}
        records.append(record)
    return records


def _compared(directory: str | None, digest: Digest, other: Digest | None, apart: Differences) -> Record | None:
    """How another directory differs; None: there is none."""
    if other is None:
        return None
    return {
        "directory": directory,
        "rows": other.rows,
        "equal": other == digest,
        "missing": apart.missing,
        "extra": apart.extra,
    }


def _sentences(proofs: Sequence[FileProof], digest: Digest, other: Digest | None, apart: Differences) -> list[str]:
    said = [f"{plural(digest.rows, 'row')}"]
    kept = [proof for proof in proofs if proof.kept]
    for proof in kept:
        if values := [one for one in proof.wrong if one != CHECKSUMS]:
            said.append(f"{proof.path} holds other values than were read from its inputs, in {', '.join(values)}")
        if CHECKSUMS in proof.wrong:
            said.append(f"{proof.path} holds other bytes than its stripes had when rows were cut out of them")
    stripes, recoded = sum(proof.stripes for proof in proofs), sum(proof.kept for proof in kept)
    if kept and not any(proof.wrong for proof in kept):
        of = f"{recoded} of {plural(stripes, 'stripe')} {'holds' if recoded == 1 else 'hold'} what was read from the inputs"
        said.append(of if recoded == stripes else f"{of}; of the others, copied or written by Hive, nothing was kept")
    if not kept:
        said.append("no file tells a digest of its inputs: nothing was recoded here, or recode.verify_values is false")
    if other is not None and other == digest:
        said.append("both directories hold the same rows")
    elif other is not None:
        only = f"{plural(apart.missing, 'row')} only in the table, {plural(apart.extra, 'row')} only in the other directory"
        said.append(f"the directories differ: {only}, values in {plural(len(apart.columns), 'column')}")
    return said
