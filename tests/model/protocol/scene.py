"""
What a search lets happen, and the switches that take one rule of the protocol away.

A `Scene` keeps the space of states small: how many write ids, who may do what, what is there at the beginning. Readers
and compactions are bounded only in how many there are at once.
"""

from dataclasses import dataclass, replace

from tests.model.protocol.values import Directory, State, upto


@dataclass(frozen=True, slots=True)
class Scene:
    """
    One space of states.

    Args:
        hive: 3 or 4.
        writes: write ids that writers may take, besides those of the base.
        readers, entries: at once.
        places: partitions; one: a table without.
        kinds: of writers.
        everywhere: a writer may write to all partitions at once.
        shared_overwrites: an INSERT OVERWRITE runs beside inserts, readers and compactions (Hive 4 with
            `hive.txn.xlock.iow` false).
        base: write ids that a base holds at the beginning.
        compactions: kinds that are asked for.
        zombies: a task may write after its transaction was aborted, or by a batch that goes on.
        empty: a statement may commit without a file.
        late_ids: the write id is taken later than the transaction.
        deaths: a worker may die, or fall asleep, at any step.
        hives_worker: Hive's own worker takes entries, too; our recovery may take its claim back, and it may go on.
        hives_revokes: Hive may take back that claim, too, and ends no transaction; that may time out, or be committed.
        hives_cleaner: Hive 3.1's own Cleaner cleans entries, too.
        twice: Hive may queue a second entry of a place that is worked on.
        sweeps: aborted writes are swept and forgotten apart from compactions.
        late_readers: a reader may list later than it took its snapshot (Hive 3.1).
        steps: last look and renames are steps of their own.
        opens: so is the opening of a compaction's transaction, before its lists are taken (Hive 4).
        begins: words with which the first actions of each history begin.
        switches: rules that are taken away.
    """

    hive: int
    writes: int = 3
    readers: int = 1
    entries: int = 1
    places: int = 1
    kinds: tuple[str, ...] = ("insert",)
    everywhere: bool = False
    shared_overwrites: bool = False
    base: int = 0
    compactions: tuple[str, ...] = ("major", "minor")
    zombies: bool = False
    empty: bool = False
    late_ids: bool = False
    deaths: bool = False
    hives_worker: bool = False
    hives_revokes: bool = False
    hives_cleaner: bool = False
    twice: bool = False
    sweeps: bool = False
    late_readers: bool = False
    steps: bool = False
    opens: bool = False
    begins: tuple[str, ...] = ()
    switches: frozenset[str] = frozenset()

    def without(self, *switches: str) -> "Scene":
        """The scene under a protocol that lacks these rules."""
        unknown = set(switches) - SWITCHES.keys()
        assert not unknown, unknown
        return replace(self, switches=frozenset(switches))

    def lacks(self, switch: str) -> bool:
        """Whether the rule of this switch is taken away."""
        return switch in self.switches

    def first(self) -> State:
        """The state at the beginning."""
        if not self.base:
            return State(rows=(0,) * self.places)
        bases = frozenset(Directory(place, "base", 0, self.base, rows=upto(self.base)) for place in range(self.places))
        rows = upto(self.base)
        return State(next_txn=self.base + 1, next_write_id=self.base + 1, directories=bases, rows=(rows,) * self.places)

    @property
    def last_write_id(self) -> int:
        return self.base + self.writes


@dataclass(frozen=True, slots=True)
class Switch:
    """
    A rule that can be taken away.

    Args:
        without: what happens then, in words.
        scene: where a search finds what goes wrong.
        known_as: the report of the same defect in Hive.
        beside: rules that guard against the same; nothing goes wrong while one of them is there.
    """

    without: str
    scene: Scene
    known_as: str = ""
    beside: tuple[str, ...] = ()


_INSERTED = ("begin insert", "write", "commit")
_MINOR_BESIDE_A_READER = (*_INSERTED, *_INSERTED, "ask minor", "read", "plan", "publish", "commit-compaction")
_BOTH_BEGUN = ("begin insert", "begin overwrite")
_TWO_ASKED = (*_INSERTED, *_INSERTED, "ask minor", "ask major")
_TWO_ASKED_MAJOR = (*_INSERTED, *_INSERTED, "ask major", "ask minor")

SWITCHES: dict[str, Switch] = {
    "commit-order": Switch(
        "CQ_NEXT_TXN_ID is taken when the compaction begins, not at its commit", Scene(4, writes=2), "HIVE-24291"
    ),
    "strictly-below": Switch(
        "an entry is cleaned while the transaction that is its CQ_NEXT_TXN_ID is open", Scene(4, writes=2), "HIVE-24291"
    ),
    "noted": Switch(
        "a writer has no row in TXN_COMPONENTS when it is aborted, and the purge takes it for empty",
        Scene(3, writes=2, readers=0, entries=0),
        "HIVE-21052",
    ),
    "own-transaction": Switch(
        "a compaction makes its directory before it lists, and takes its own transaction for committed",
        Scene(4, writes=2, readers=0),
        "HIVE-29567",
    ),
    "every-row": Switch(
        "a result that lacks the rows of one input is published: nothing compares",
        Scene(4, writes=2, readers=0),
        "HIVE-23703",
    ),
    "later-results": Switch(
        "an entry is cleaned of what a later compaction replaced, whose transaction was opened before this one's commit",
        Scene(4, base=1, writes=2, readers=1, entries=2, twice=True, opens=True, begins=_TWO_ASKED),
    ),
    "aborted-only": Switch(
        "the cleaning of aborted writes also removes what was replaced, whatever readers there are",
        Scene(4, writes=3, sweeps=True, begins=(*_INSERTED, *_INSERTED)),
        "HIVE-25502",
    ),
    "late-after-sweep": Switch(
        "a sweep that finds nothing of an aborted write id forgets it while its tasks may still write",
        Scene(4, writes=2, readers=0, zombies=True, sweeps=True),
    ),
    "late-after-cleaning": Switch(
        "the cleaning of an entry that finds nothing of an aborted write id forgets it while its tasks may still write",
        Scene(4, writes=3, readers=0, zombies=True),
    ),
    "late-covered": Switch(
        "an aborted write id is forgotten, though its tasks may still write, when the range of a result covers it",
        Scene(4, writes=3, readers=0, zombies=True, kinds=("insert", "overwrite")),
    ),
    "all-places": Switch(
        "an aborted write id is forgotten after a look at one partition of the table",
        Scene(4, writes=1, readers=0, entries=0, places=2, everywhere=True, sweeps=True),
    ),
    "held-inside": Switch(
        "an aborted write id is forgotten though its rows lie in a directory among committed ones",
        Scene(4, writes=2, readers=0, entries=0, kinds=("batch",), sweeps=True),
    ),
    "first-commit": Switch(
        "two compactions of one place are committed, of which neither saw the other's result",
        Scene(4, writes=3, readers=0, entries=2, twice=True, steps=True),
    ),
    "beside": Switch(
        "a result is renamed beside one of another compaction whose range lies across its own (Hive 3.1)",
        Scene(3, writes=3, readers=0, entries=2, twice=True),
    ),
    "other-staging": Switch(
        "a worker leaves the staging directory of another one, which stands between its last look and its rename (Hive "
        "3.1)",
        Scene(3, writes=3, readers=0, entries=2, twice=True, steps=True),
    ),
    "seen-after-death": Switch(
        "a first observation counts for what a worker renamed later, which died before it marked its entry (Hive 3.1)",
        Scene(3, base=2, writes=2, readers=1, entries=2, deaths=True, twice=True, steps=True, begins=_TWO_ASKED_MAJOR),
    ),
    "at-work": Switch(
        "the Cleaner removes files while a compaction is at work on the same place (Hive 3.1)",
        Scene(3, base=2, writes=2, readers=1, entries=2, twice=True, steps=True, begins=_TWO_ASKED_MAJOR),
        beside=("seen-after-death",),
    ),
    "revoked-ended": Switch(
        "the claim of Hive's worker is given back while its transaction is open",
        Scene(4, writes=2, readers=0, hives_worker=True),
        beside=("revoked-counts",),
    ),
    "revoked-counts": Switch(
        "a compaction is committed beside the open transaction of a worker whose claim Hive has taken back",
        Scene(4, writes=2, readers=0, hives_worker=True, hives_revokes=True),
    ),
    "attempt-marked": Switch(
        "the mark of an aborted attempt of Hive's worker is deleted while its job may still publish",
        Scene(4, writes=2, readers=0, hives_worker=True, sweeps=True),
    ),
    "fence": Switch(
        "a claim is given back while the staging directory of its worker is still there",
        Scene(4, writes=2, readers=0, deaths=True),
    ),
    "one-rename": Switch(
        "a minor compaction of Hive 3.1 publishes inserts and deletes by two renames",
        Scene(3, writes=3, readers=1, kinds=("insert", "delete"), compactions=("minor",), steps=True),
    ),
    "both-renames": Switch(
        "a compaction is committed after the first of two renames",
        Scene(4, writes=3, readers=0, kinds=("insert", "delete"), compactions=("minor",), steps=True),
    ),
    "below-the-open": Switch(
        "a base is named after the highest write id that was handed out, though a lower one is open",
        Scene(4, writes=3, readers=0),
    ),
    "ends-below-aborted": Switch(
        "an entry without a result ends above an aborted write id of which no directory is there yet, and Hive 3.1's "
        "own Cleaner forgets that id",
        Scene(
            3,
            writes=3,
            readers=0,
            zombies=True,
            hives_cleaner=True,
            kinds=("insert", "overwrite"),
            compactions=("major",),
        ),
    ),
    "cleaned-first": Switch(
        "a result appears that ends where an entry of its place does that isn't cleaned, and Hive 3.1's own Cleaner "
        "takes for that entry what it replaces",
        Scene(3, base=2, writes=2, readers=1, entries=2, hives_cleaner=True),
    ),
    "no-stream-across": Switch(
        "a base is named up to what the compaction's lists decide, though a stream lies across that id",
        Scene(4, writes=4, readers=0, kinds=("insert", "batch"), compactions=("major",)),
        beside=("beside",),
    ),
}
"""Each rule of the protocol that a search shows to be needed; docs/protocol.md says what it is for."""

SCENES: dict[str, Scene] = {
    "two entries": Scene(4, writes=3, readers=1, entries=2, twice=True, steps=True, opens=True),
    "late writers": Scene(4, writes=3, readers=1, zombies=True, sweeps=True, kinds=("insert", "overwrite")),
    "deletes and deaths": Scene(4, writes=3, readers=1, deaths=True, steps=True, kinds=("insert", "delete")),
    "streams": Scene(4, writes=4, readers=1, sweeps=True, kinds=("insert", "batch")),
    "shared overwrites": Scene(
        4, base=1, writes=3, readers=1, shared_overwrites=True, kinds=("insert", "overwrite"), begins=_BOTH_BEGUN
    ),
    "write ids out of order": Scene(4, writes=3, readers=1, late_ids=True, sweeps=True, zombies=True),
    "partitions": Scene(4, writes=2, readers=1, entries=2, places=2, everywhere=True, sweeps=True, zombies=True),
    "beside Hive's worker": Scene(
        4, writes=3, readers=1, entries=2, twice=True, hives_worker=True, hives_revokes=True, sweeps=True
    ),
    "everything": Scene(
        4,
        writes=4,
        readers=2,
        entries=2,
        kinds=("insert", "delete", "overwrite", "batch"),
        zombies=True,
        empty=True,
        late_ids=True,
        deaths=True,
        hives_worker=True,
        hives_revokes=True,
        twice=True,
        sweeps=True,
        steps=True,
    ),
    "two entries (Hive 3.1)": Scene(3, writes=3, readers=1, entries=2, twice=True, steps=True, deaths=True),
    "beside Hive's Cleaner (Hive 3.1)": Scene(
        3, base=2, writes=3, readers=2, entries=2, twice=True, hives_cleaner=True
    ),
    "two minors under two readers (Hive 3.1)": Scene(
        3, base=2, writes=3, readers=2, entries=2, deaths=True, empty=True, begins=_MINOR_BESIDE_A_READER
    ),
    "late readers (Hive 3.1)": Scene(3, writes=3, readers=2, late_readers=True, empty=True),
    "late writers (Hive 3.1)": Scene(3, writes=3, readers=1, zombies=True, sweeps=True, kinds=("insert", "overwrite")),
    "deletes and streams (Hive 3.1)": Scene(
        3, writes=4, readers=1, deaths=True, steps=True, kinds=("insert", "delete", "batch")
    ),
    "everything (Hive 3.1)": Scene(
        3,
        writes=4,
        readers=2,
        entries=2,
        kinds=("insert", "delete", "overwrite", "batch"),
        zombies=True,
        empty=True,
        late_ids=True,
        deaths=True,
        twice=True,
        sweeps=True,
        steps=True,
        late_readers=True,
    ),
}
"""Where the protocol as it is must have no counterexample."""
