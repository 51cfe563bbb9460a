"""Readers in the fast lane: each has its snapshot and locks, and lists and reads by Hive's own classes."""

from tests.counts import count
from tests.hive.lane.model import Reader, difference
from tests.hive.lane.table import NAME, LaneTable
from tests.hive.party import HiveError

QUERIES = (
    "",
    "hive.transactional.events.mem=0",
    "hive.txn.filter.delete.events=false",
    "mapreduce.input.fileinputformat.split.maxsize=1\nhive.exec.orc.split.strategy=ETL",
    "hive.exec.orc.split.strategy=BI",
)
"""Settings of those who read: delete events that don't fit into memory, or of other files, too; a split a stripe."""


class Readers(LaneTable):
    """Begins and ends readers, and compares what each sees with what it must see."""

    def read(self, late=False):
        """A statement begins to read: at once, or (Hive 3.1) it only has its snapshot and its locks."""
        txn = self.hive.begin(age=0, user="reader", kind=2 if self.party.hive_4 else 0)
        _, held = self.hive.ask(
            txn, self.hive.component(NAME), *(self.hive.component(NAME, place) for place in self.catalogued if place)
        )
        if not held:
            self.hive.abort(txn)
            return
        self.readers.append(self._snapshot(txn))
        self.readers[-1].late = not self.party.hive_4
        if not late:
            self.list(-1)

    def list(self, which):
        """A reader of Hive 3.1 that has only its snapshot lists now, once for all."""
        if not self.readers or not self.readers[which % len(self.readers)].late:
            return
        reader = self.readers[which % len(self.readers)]
        reader.late = False
        if not self._list(reader, [place for place in self.catalogued if place in reader.expected]):
            self.readers.remove(reader)
            self.hive.commit(reader.txn)

    def read_no_more(self, which):
        if self.readers:
            self.hive.commit(self.readers.pop(which % len(self.readers)).txn)

    def _snapshot(self, txn=0):
        txns, (write_ids,) = self.hive.snapshot(NAME, txn_id=txn)
        return Reader(
            f"r{next(self.names)}", txn, txns, write_ids, {place: self.visible(place) for place in self.catalogued}
        )

    def _list(self, reader, places):
        """Whether Hive lists them."""
        for place in places:
            if self.directory(place).is_dir():
                if not self._is_listable(place):
                    return False
                about = {
                    "name": f"{reader.name}/{place}",
                    "directory": str(self.directory(place)),
                    "write_ids": reader.write_ids,
                    "insert_only": self.insert_only,
                    "vector": self.steps % 2 == 0,
                    "query": QUERIES[self.steps // 2 % len(QUERIES)],
                }
                if self._reads(reader, place, "Lane.list", about | {"txns": reader.txns if self.party.hive_4 else ""}):
                    reader.listed.add(place)
        return True

    def _is_listable(self, place):
        """Hive 3.1 can't list where the only base is that of an INSERT OVERWRITE that didn't commit."""
        bases = (
            {(place, int(path.name[5:])) for path in self.directory(place).glob("base_*")}
            if not self.party.hive_4
            else set()
        )
        if not bases or not bases <= self._rolled_back_bases():
            return True
        self.unlistable.add(place)
        return False

    def _sees(self, reader, place, *, done):
        if place not in reader.listed:
            return []
        found = self._reads(reader, place, "Lane.read", f"{reader.name}/{place}", done)
        return found and sorted(
            (self._key(write_id, bucket, row), (int(values[0]), values[1]))
            for write_id, bucket, row, values in found[0]
        )

    def _reads(self, reader, place, *call):
        """
        Hive's answer, in a list; None, on Hive 3.1: its snapshot is older than a first base that waited for it, and in
        vain; Hive can't read what is there.
        """
        try:
            return [self.party.call(*call)]
        except HiveError as error:
            if place not in reader.outlived or "Not enough history available" not in str(error):
                raise
        del reader.expected[place]
        reader.listed.discard(place)
        count("readers of Hive 3.1 in the fast lane older than a first base that waited five minutes for them")
        return None

    def _check(self, reader, place, rows):
        there = self._there(place)
        if reader.late or reader.checked.get(place) == there:
            return
        if self.party.hive_4:
            reader.listed.discard(place)
            self._list(reader, [place])
        found = self._sees(reader, place, done=False)
        if found != rows and place in reader.robbed:
            del reader.expected[place]
            count("readers whose files the abort cleanup of Hive 4's Cleaner removed in the fast lane")
            return
        assert found == rows or place not in reader.expected, (
            f"reader {reader.txn} of {place or 'the table'} sees {difference(found, rows)}; {self.told}"
        )
        reader.checked[place] = there
