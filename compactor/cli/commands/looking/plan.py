"""
`compactor plan`: shows what a compaction would do if it started now.

The command opens no transaction, takes no lock, starts no Spark and writes nothing.
"""

from dataclasses import replace

import click

from compactor.acid.columns import column_rule
from compactor.acid.compaction import CompactionKind
from compactor.cli.naming.lookup import find
from compactor.cli.naming.target import parse_target
from compactor.cli.options import request_options
from compactor.cli.session import Code, Command, Session, pass_session
from compactor.cli.views.plan_view import plan_view
from compactor.engine.compaction import Compaction
from compactor.engine.request import CompactionRequest
from compactor.errors import RefusedError
from compactor.metastore.catalog import Catalog
from compactor.metastore.model import QueueEntry, QueueState
from compactor.metastore.txn.transactions import Transactions
from compactor.planning.document import CompactionPlan
from compactor.planning.included import OnlyCleaning, only_cleaning
from compactor.reasons import Reason
from compactor.roles.eligibility import require_eligible
from compactor.spark.factory import submitter_for
from compactor.status.judging import Found
from compactor.storage.registry import storage_for


@click.command(cls=Command)
@request_options
@pass_session
def plan(session: Session, *, target: str, partition: str | None, kind: str, properties: dict[str, str]) -> int:
    """
    Show what a compaction would do, and its cost; changes nothing.

    Stripes are copied as bytes, probed (three key columns are read to see whether a delete hits) or recoded.
    """
    found = find(Catalog(session.database()), parse_target(target, partition))
    try:
        made = make_plan(session, found, CompactionKind(kind), properties)
    except RefusedError as refusal:
        if refusal.reason is not Reason.NOT_ENOUGH:
            raise
        session.output.say(f"nothing to do: {refusal}")
        return Code.NOTHING_TO_DO
    session.output.show(plan_view(made))
    return Code.DONE


class OnlyCleaningError(RefusedError):
    """A compaction that would join nothing, and send the Cleaner: requested, it succeeds."""

    def __init__(self, refusal: RefusedError, left: OnlyCleaning) -> None:
        super().__init__(refusal.reason, f"{refusal.message}; a request would send the Cleaner: {left.sentence}")
        self.refusal, self.left = refusal, left

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.refusal, self.left)


def make_plan(
    session: Session, found: Found, kind: CompactionKind, properties: dict[str, str] | None = None
) -> CompactionPlan:
    """
    The plan of a compaction that would start now; its directory names carry no transaction id.

    Raises:
        OnlyCleaningError: NOT_ENOUGH, and there is something for the Cleaner.
        RefusedError: NOT_ENOUGH, or the reason why the compaction would be refused.
    """
    database, settings = session.database(), session.settings
    require_eligible(session.places, found.place, database.schema.generation.layout, kind)
    transactions = Transactions(database)
    txns = transactions.valid_txns()
    layout = database.schema.generation.layout
    request = CompactionRequest(
        entry=QueueEntry(0, found.entity, kind, QueueState.INITIATED, properties=properties or {}),
        attempt="plan",
        table=found.table,
        location=found.location,
        layout=layout,
        write_ids=transactions.compactor_write_ids(found.table.full_name, txns),
        txns=txns,
        visibility_txn=None,
        host=settings.host_name,
        columns_by=column_rule(settings.readers.orc_columns, layout, found.table.reader_parameters),
        stored=Catalog(database).stored_as(found.table, found.partition),
    )
    compaction = Compaction(
        request, storage_for(found.location, session.places.root_of), submitter_for(settings), settings
    )
    state = compaction.observe()
    try:
        made = compaction.plan(state)
    except RefusedError as refusal:
        left = None
        if refusal.reason is Reason.NOT_ENOUGH:
            left = only_cleaning(state, request.write_ids, layout)
        if left is None:
            raise
        raise OnlyCleaningError(refusal, left) from None
    return made if found.kept is None else replace(made, warnings=(*made.warnings, found.kept))
