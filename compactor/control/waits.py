"""
Why an initiated entry isn't claimed now: the one answer for the command line, the metrics and the pages.

Pure: all facts are given. The first that applies is the answer: left to Hive's workers, what `Judge.waits` denies, what
the entry waits for since an attempt, no worker that serves its pool, workers on drained hosts only.
Source: docs/control.md.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from compactor.acid.compaction import SUPPORTED, CompactionKind
from compactor.control.judge import Denial, Judge
from compactor.control.scope import DEFAULT_POOL, Scope, ScopeKind, Subject
from compactor.reasons import Reason

TIME: Final = "time"


@dataclass(frozen=True, slots=True)
class Wait:
    """
    Why something isn't done now. Equal for all that wait for the same.

    Args:
        reason: code of a `Reason`; of a later version's daemon it may be one that isn't known here.
        remedy: what ends it: a command, or what to wait for.
        until_ms: when it may end by itself; None: unknown.
    """

    reason: str
    sentence: str
    remedy: str
    until_ms: int | None = None

    @classmethod
    def of(cls, denial: Denial) -> "Wait":
        """What a judge denies, and the command that ends it."""
        remedy = TIME
        if denial.scope is not None:
            remedy = _resume(denial.scope)
        elif denial.host is not None:
            remedy = f"compactor drain {shlex.quote(denial.host)} --undo"
        elif denial.reason is Reason.UNSUPPORTED_KIND:
            remedy = "Hive's own workers"
        elif denial.reason is Reason.NOT_INCLUDED:
            remedy = "a pattern for it in control.only, and HUP; or Hive's own compactor"
        return cls(denial.reason.value, denial.sentence, remedy, denial.until_ms)


@dataclass(frozen=True, slots=True)
class Workers:
    """
    The workers of one daemon that is alive.

    Args:
        pools: those that they serve; None: a daemon of an older version doesn't say.
        held: why they compact nothing now, as the daemon itself says; empty: nothing holds them.
    """

    host: str
    pools: frozenset[str] | None
    held: str = ""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """
    All that the answer depends on besides the entry.

    Args:
        judge: of no host in particular.
        working: what is being worked on, on any host; needed only if `judge.counts`.
        since_attempt: what entries wait for since an attempt, by id: code and sentence.
        workers: of all daemons that are alive; None: they aren't known.
    """

    judge: Judge
    working: Sequence[Subject] = ()
    since_attempt: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    workers: tuple[Workers, ...] | None = None

    def wait(self, subject: Subject, kind: CompactionKind, entry_id: int | None = None) -> Wait | None:
        """
        Why no worker claims an entry of that table and pool now; None: the next free worker does.

        Args:
            entry_id: None: of an entry that would be queued now.
        """
        if kind not in SUPPORTED:
            return Wait.of(
                Denial(
                    Reason.UNSUPPORTED_KIND,
                    f"a {kind.value} isn't done by this daemon: it is left to Hive's own workers",
                )
            )
        if (denial := self.judge.waits(subject, self.working)) is not None:
            return Wait.of(denial)
        if entry_id is not None and (attempted := self.since_attempt.get(entry_id)) is not None:
            return Wait(*attempted, "its next attempt; see compactor queue")
        return self._unserved(subject.pool or DEFAULT_POOL)

    def _unserved(self, pool: str) -> Wait | None:
        if self.workers is None:
            return None
        if not self.workers:
            return Wait(Reason.NO_WORKER.value, "no daemon has workers", "compactor run, with worker.threads")
        serving = sorted(
            (one for one in self.workers if one.pools is None or pool in one.pools), key=lambda one: one.host
        )
        if not serving:
            remedy = f"worker.pools: {{{pool}: 1}}; after twelve hours workers without a pool take it"
            return Wait(Reason.NO_WORKER.value, f"no worker serves pool {pool}", remedy)
        drained = {one.host: denial for one in serving if (denial := self.judge.drained(one.host)) is not None}
        left = [one for one in serving if one.host not in drained]
        if not left:
            return Wait.of(drained[serving[0].host])
        if all(one.held for one in left):
            first = left[0]
            return Wait(Reason.NOT_READY.value, f"{first.host}: {first.held}", "what it names; the daemon tries again")
        return None


def _resume(scope: Scope) -> str:
    """The command that ends a pause of this scope; a scope of a newer version has no option of its own."""
    match scope.kind:
        case ScopeKind.ALL:
            return "compactor resume --all"
        case ScopeKind.UNKNOWN:
            return "compactor resume --every, which ends all pauses"
        case kind:
            return f"compactor resume --{kind.value} {shlex.quote(scope.name)}"
