"""
One compaction of a built or restored directory through the engine, with whatever submitter; no metastore, no queue.

What the worker does around the engine is done here in the plainest way: a transaction of its own that is open while it
runs and committed after.
"""

import shutil
from dataclasses import dataclass

from compactor.acid.columns import column_rule
from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.acid.snapshot import resolve
from compactor.acid.write_ids import CompactorWriteIdList, ValidTxnList, ValidWriteIdList
from compactor.engine.compaction import Compaction
from compactor.engine.request import CompactionRequest
from compactor.errors import RefusedError
from compactor.metastore.model import Entity, QueueEntry, QueueState
from compactor.reasons import Reason
from compactor.settings import Settings
from compactor.storage.local_fs.driver import LocalStorage
from tests import compacting

NOT_WORTH_IT = {Reason.NOT_ENOUGH, Reason.NO_FIXED_POINT, Reason.DUPLICATE_RANGE, Reason.LIMIT_EXCEEDED}
"""Refusals that a random request may meet."""


def settings(**sections):
    """Settings for tests; stripes of any size are copied unless told otherwise."""
    return compacting.settings(**({"splice": {"min_stripe_bytes": 1}, "spark": {"master": "local[2]"}} | sections))


@dataclass
class Engine:
    """Compacts with one submitter; entry ids count up."""

    submitter: object
    settings: Settings
    entries: int = 0

    def compact(self, facts, partition, location, kind, *, layout, write_ids, txns, txn):
        """
        Run one compaction to its publication.

        Args:
            write_ids: a reader's list as text.
            txns: a reader's transactions as text, the compaction's own open in it; None on 3.1.

        Raises:
            RefusedError: nothing was left behind.
        """
        self.entries += 1
        request = CompactionRequest(
            entry=QueueEntry(
                self.entries,
                Entity(facts.database, facts.name, partition),
                CompactionKind(kind),
                QueueState.WORKING,
            ),
            attempt="1",
            table=facts,
            location=f"file:{location}",
            layout=layout,
            write_ids=CompactorWriteIdList.from_reader(ValidWriteIdList.parse(write_ids)),
            txns=ValidTxnList.parse(txns) if txns is not None else None,
            visibility_txn=txn,
            host="test",
            columns_by=column_rule(self.settings.readers.orc_columns, layout, {}),
            stored=compacting.stored_as(facts),
        )
        compaction = Compaction(request, LocalStorage(), self.submitter, self.settings)
        try:
            published = compacting.go_through(compaction)
        finally:
            compaction.discard()
        left = [path.name for path in location.iterdir() if path.name.startswith(".compactor-")]
        assert not left, f"staging left behind: {left}"
        return published

    def hook(self, history, name, kind):
        """For a `History`: compact a directory now; says what it did."""
        warehouse, table = history.warehouse, history.table
        ledger = warehouse.ledger
        hive_4 = ledger.layout is LayoutVersion.HIVE_4
        txn = ledger.open() if hive_4 else None
        snapshot = warehouse.snapshot(table)
        try:
            published = self.compact(
                compacting.facts_of(table),
                name,
                table.directories[name].location,
                kind,
                layout=ledger.layout,
                write_ids=snapshot.write_ids,
                txns=snapshot.txns,
                txn=txn,
            )
        except RefusedError as error:
            if txn:
                ledger.abort(txn)
            hive_3_minor = (
                table.insert_only and kind == "minor" and not hive_4 and error.reason is Reason.UNSUPPORTED_KIND
            )
            # the base of an INSERT OVERWRITE without rows has no file: Hive 4 reads on what lies below
            emptied = table.insert_only and error.reason is Reason.READERS_DISAGREE
            if error.reason not in NOT_WORTH_IT and not hive_3_minor and not emptied:
                raise AssertionError(f"{history}: {error.reason}: {error}\n{history.tale()}") from error
            return f"{kind} of {name}: refused, {error.reason.value}"
        if txn:
            ledger.commit(txn)
        return f"{kind} of {name}: published {', '.join(published.directories)}"

    def clean(self, history):
        """
        For a `History`: delete what the snapshot of now calls obsolete or wholly aborted; whoever had an older one
        has gone.
        """
        gone = []
        snapshot = history.warehouse.snapshot(history.table)
        for directory in history.table.directories.values():
            txns = ValidTxnList.parse(snapshot.txns) if snapshot.txns is not None else None
            listing = LocalStorage().list_tree(f"file:{directory.location}")
            state = resolve(listing, ValidWriteIdList.parse(snapshot.write_ids), txns, history.warehouse.ledger.layout)
            for one in (*state.obsolete, *state.aborted):
                shutil.rmtree(directory.location / one.acid.name)
                gone.append(one.acid.name)
            for file in state.obsolete_originals:
                (directory.location / file.path).unlink()
                gone.append(file.path)
        return f"cleaned {', '.join(gone) or 'nothing'}"
