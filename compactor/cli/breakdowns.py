"""What is stored of entries that broke down, or for which there is no room, for the commands that show them."""

from collections.abc import Iterable, Mapping

from compactor.cli import holds
from compactor.cli.session import Session
from compactor.control import Denial
from compactor.errors import CompactorError
from compactor.metastore.model import QueueEntry, QueueState
from compactor.reasons import Reason
from compactor.roles.breakdowns import KEY, Told, told

_OPEN = frozenset({QueueState.INITIATED, QueueState.WORKING})


def stored(session: Session, entries: Iterable[QueueEntry], denials: Iterable[Denial | None]) -> Mapping[int, Told]:
    """
    By entry; only of those that may still be tried. Nothing where control state can't be read, which is said.

    Args:
        denials: why entries wait, as far as that was asked: who was told there that control state can't be read isn't kept waiting a second time.
    """
    wanted = {entry.id for entry in entries if entry.state in _OPEN}
    if not wanted or any(denial is not None and denial.reason is Reason.CONTROL_UNKNOWN for denial in denials):
        return {}
    try:
        with holds.coordinator(session) as where:
            value = where.read(KEY)
    except CompactorError as error:
        session.output.say(f"it can't be told what broke down: {error}")
        return {}
    return {entry_id: found for entry_id, found in told(value.data if value is not None else {}).items() if entry_id in wanted}
