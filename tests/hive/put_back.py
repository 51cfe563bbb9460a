"""
Two defects of the Cleaner on Hive 3.1 that were mended, put back, so that a test sees random histories find them.

Both took files from an open reader: a result that appeared after the first observation of an earlier entry counted as
if each later reader had found it. Instead of keeping what lay there when it observed an entry, the Cleaner merged the
observations of the entries that were ready, and waited while one was worked on. The rule that lets a compaction wait
for an earlier entry of its place to be cleaned came later, and is taken away with them: it keeps such a result from
appearing.
"""

from dataclasses import replace

from compactor.errors import RetryableError
from compactor.metastore.clean.may_clean import Blocker
from compactor.metastore.clean.ready import Cleaning
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.model import QueueState
from compactor.reasons import Reason
from compactor.roles.cleaner import partition

_OF_READERS = {Reason.OPEN_TRANSACTION, Reason.HELD_LOCK}
_ACTIVE = {QueueState.WORKING, QueueState.READY_FOR_CLEANING}


def seen_after_death(patch, lane):
    """
    Nothing tells of a result whose worker died before it marked its entry: given back, the entry is neither worked on
    nor ready.
    """
    _put_back(patch, lane, lambda entry: entry.state in _ACTIVE, by_ids=False)


def seen_after_empty(patch, lane):
    """
    A later entry's result counts as one above the earlier entry's range when a higher write id was committed: a
    statement without a file has an id, too.
    """
    _put_back(patch, lane, lambda entry: entry.state in _ACTIVE or entry.highest_write_id is not None, by_ids=True)


def _put_back(patch, lane, may_have_published, *, by_ids):
    """
    Replace the rule of kept listings by the one of merged observations.

    Args:
        may_have_published: whether an entry tells that its result may appear, or has appeared.
        by_ids: whether write ids tell that a later entry's result lies above; otherwise each counts.
    """
    queue, ready, alone = lane.world.services.queue, Cleaning.ready_for_cleaning, Cleaning.check_alone
    commits = lane.hive.schema.completed_txn_components
    known = {}

    def others(entry):
        of_place = [other for other in queue.entries() if other.entity == entry.entity and other.id != entry.id]
        return [other for other in of_place if may_have_published(other)]

    def merging(cleaning, *args, **options):
        judged = ready(cleaning, *args, **options)
        newest = max((number for (number,) in lane.hive.rows(commits, "ctc_writeid")), default=0)
        merged = []
        for item in judged:
            entry, covered, blockers = item.entry, item.entry.highest_write_id or 0, list(item.blockers)
            for later in judged:
                within = not by_ids or min(later.entry.highest_write_id or 0, newest) <= covered
                if later.entry.entity == entry.entity and later.entry.id > entry.id and within:
                    blockers += [blocker for blocker in later.blockers if blocker.reason in _OF_READERS]
            known[entry.id] = {other.id for other in others(entry)}
            for other in others(entry):
                if other.state is not QueueState.READY_FOR_CLEANING:
                    blockers.append(Blocker(Reason.AT_WORK, f"compaction {other.id} is at work there"))
            merged.append(replace(item, blockers=tuple(blockers)))
        return merged

    def check_alone(cleaning, item):
        alone(cleaning, item)
        if {other.id for other in others(item.entry)} - known[item.entry.id]:
            raise RetryableError("another compaction began while it was cleaned; everything was put back")

    def replaced_now(state, _):
        return frozenset(listed.name for listed in state.obsolete), frozenset(state.obsolete_originals)

    patch.setattr(Queue, "require_turn", lambda *_: None)
    patch.setattr(Cleaning, "ready_for_cleaning", merging)
    patch.setattr(Cleaning, "check_alone", check_alone)
    patch.setattr(partition, "replaced_then", replaced_now)
