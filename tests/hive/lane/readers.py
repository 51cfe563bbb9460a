"""Readers in the fast lane: each has its snapshot and locks, and lists and reads by Hive's own classes."""

from tests.counts import count
from tests.hive.lane.model import Reader, difference
from tests.hive.lane.table import NAME, LaneTable
from tests.hive.party import HiveError

QUERIES = (
    "",
    "hive.transactional.events.mem=0",
    "hive.txn.filter.delete.events=false",
)
"""Settings of those who read: delete events that don't fit into memory, or of other files, too."""


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
        places = [place for place in places if self.directory(place).is_dir()]
        if not all(self._is_listable(place) for place in places):
            return False
        self._look([self._request(reader, place, lists=True) for place in places])
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

    def _request(self, reader, place, *, lists, reads=False, done=False):
        """What a reader does there: see `Lane.look`."""
        about = {"name": f"{reader.name}/{place}", "read": reads, "done": done}
        if lists:
            about |= {
                "directory": str(self.directory(place)),
                "write_ids": reader.write_ids,
                "insert_only": self.insert_only,
                "vector": self.steps % 2 == 0,
                "query": QUERIES[self.steps // 2 % len(QUERIES)],
                "txns": reader.txns if self.party.hive_4 else "",
            }
        return reader, place, about

    def _look(self, requests):
        """
        The rows that each finds, in one call of Hive's. None, on Hive 3.1: its snapshot is older than a first base that
        waited for it, and in vain; Hive can't read what is there.
        """
        answers = self.party.call("Lane.look", [about for *_, about in requests]) if requests else []
        return [self._found(*request, answer) for request, answer in zip(requests, answers, strict=True)]

    def _found(self, reader, place, about, answer):
        if isinstance(answer, dict):
            error = HiveError(answer["error"], answer.get("message"), answer["trace"])
            if place not in reader.outlived or "Not enough history available" not in str(error):
                raise error
            del reader.expected[place]
            reader.listed.discard(place)
            count("readers of Hive 3.1 in the fast lane older than a first base that waited five minutes for them")
            return None
        if "directory" in about:
            reader.listed.add(place)
        return answer and sorted(
            (self._key(write_id, bucket, row), (int(values[0]), values[1])) for write_id, bucket, row, values in answer
        )

    def check_readers(self):
        """Every reader sees its rows; so does one that begins now."""
        self.steps += 1
        there = {place: self._there(place) for place in self.catalogued}
        fresh = self._snapshot()
        # a new reader waits for an INSERT OVERWRITE's exclusive lock; without one Hive 4 would take a base for valid
        # whose write id is the lowest open one
        for place in {place for one in self.open if one.overwrites for place in one.partitions if place in there}:
            self._is_listable(place)
            del fresh.expected[place]
        looks = [
            (reader, place)
            for reader in self.readers
            for place in reader.expected
            if not reader.late and reader.checked.get(place) != there[place]
        ]
        # what is there, the lists and the mode decide what Hive reads
        asked = {place: (place, there[place], fresh.write_ids, fresh.txns, self.steps % 2) for place in fresh.expected}
        looks += [(fresh, place) for place in fresh.expected if asked[place] not in self.found]
        found = self._see(looks, fresh)
        for place, known in asked.items():
            rows = self.found.setdefault(known, found.get((fresh.name, place)))
            expected = fresh.expected[place]
            assert rows in (expected, None), (
                f"a new reader of {place or 'the table'} sees {difference(rows, expected)}; {self.told}"
            )
        for reader, place in looks:
            if reader is not fresh:
                self._compare(reader, place, found[reader.name, place])
                reader.checked[place] = there[place]

    def _see(self, looks, fresh):
        """What readers see who look at their places: rows, or None for a new one that Hive doesn't let list."""
        found: dict[tuple[str, str | None], list | None] = {}
        requests = []
        for reader, place in looks:
            lists = reader is fresh or self.party.hive_4
            if lists:
                reader.listed.discard(place)
            found[reader.name, place] = []
            if lists and not self.directory(place).is_dir():
                continue
            if lists and not self._is_listable(place):
                found[reader.name, place] = None
            elif lists or place in reader.listed:
                requests.append(self._request(reader, place, lists=lists, reads=True, done=reader is fresh))
        for (reader, place, _), rows in zip(requests, self._look(requests), strict=True):
            found[reader.name, place] = rows
        return found

    def _compare(self, reader, place, found):
        if place not in reader.expected:
            return
        rows = reader.expected[place]
        if found != rows and place in reader.robbed:
            del reader.expected[place]
            count("readers whose files the abort cleanup of Hive 4's Cleaner removed in the fast lane")
            return
        assert found == rows, (
            f"reader {reader.txn} of {place or 'the table'} sees {difference(found, rows)}; {self.told}"
        )
