"""What is peculiar to MySQL and MariaDB: collations, character sets, counts of rows, waits, settings of the server."""

import contextlib
import socketserver
import threading
import time

import pymysql
import pytest
from sqlalchemy import event, func, insert, select, text, update

from compactor.acid.compaction import CompactionKind
from compactor.control.judge import Judge
from compactor.control.records import Holds, Pause
from compactor.control.scope import Scope
from compactor.coordination.sql.table import StateTable
from compactor.errors import CompactorError, MutexHeldError, RefusedError, RetryableError, UnreachableError
from compactor.metastore.candidates import Initiating
from compactor.metastore.catalog import Catalog
from compactor.metastore.clean.aborts import Aborts
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.compaction_queue.requests import Request
from compactor.metastore.compaction_queue.retention import Retention
from compactor.metastore.db.database import Database
from compactor.metastore.housekeeping import Housekeeping
from compactor.metastore.model import Entity, QueueState
from compactor.metastore.txn.transactions import Transactions
from tests.metastore.actor import Hive
from tests.metastore.connections import message_of
from tests.metastore.databases import kinds, metastore, require_schema, server_of
from tests.metastore.mysql_server import MySQLServer
from tests.metastore.proofs import proof
from tests.metastore.servers import GUARDED, PASSWORD, USER

LOWER, UPPER = Entity("db", "t", "p=a"), Entity("db", "t", "p=A")


@pytest.fixture(params=kinds(["mariadb-4", "mariadb-3", "mysql5-4", "mysql5-3"]))
def shared_database(request, tmp_path):
    """Both products and both generations of Hive."""
    with metastore(request.param, request, tmp_path) as found:
        yield found


@pytest.fixture(params=kinds(["mariadb-4", "mysql5-4"]))
def database_4(request, tmp_path):
    """Both products, with the lock table of Hive 4."""
    with metastore(request.param, request, tmp_path) as found:
        yield found


@pytest.fixture
def server(request, shared_database):
    return server_of(request, shared_database)


@pytest.fixture
def hive(shared_database):
    """A client without Hive's own statements, which take the two names for one."""
    hive = Hive(shared_database)
    hive.add_partitions(hive.create_table(keys=(("p", "string"),)), ["p=a", "p=A"])
    return hive


def test_requests_for_names_that_differ_by_case(shared_database, hive):
    """Both partitions are queued, found, and ended by themselves, though the queue's collation takes them for one."""
    queue = Queue(shared_database)
    assert all(queue.enqueue(entity, CompactionKind.MAJOR).accepted for entity in (LOWER, UPPER))
    for entity in (LOWER, UPPER):
        (entry,) = queue.entries(entity=entity)
        assert entry.entity == entity
    first = queue.claim("w", "1")
    queue.mark_failed(first, "no")
    (failed,) = queue.history(entity=first.entity)
    assert failed.entity == first.entity
    assert queue.history(entity=UPPER if first.entity == LOWER else LOWER) == []


def test_candidates_whose_names_differ_by_case(shared_database):
    """The writes of each count by themselves, committed and aborted; names aren't looked up in the empty catalog."""
    hive = Hive(shared_database)
    for _ in range(2):
        hive.write("db.t", "p=a")
    hive.write("db.t", "p=A")
    hive.fail_write("db.t", "p=a")
    found = Initiating(shared_database).candidates()
    assert {one.entity: (one.commits, one.aborted_count) for one in found} == {LOWER: (2, 1), UPPER: (1, 0)}
    hive.fail_write("db.t", "p=A")
    assert {group.entity: group.count for group in Aborts(shared_database).groups(0, -1)} == {LOWER: 1, UPPER: 1}


def test_what_is_forgotten_is_of_one_name(shared_database, hive):
    """Aborted writes of a partition are forgotten, those of the other remembered."""
    hive.fail_write("db.t", "p=a")
    _, kept = hive.fail_write("db.t", "p=A")
    aborts = Aborts(shared_database)
    tbl_id = shared_database.read(lambda connection: connection.scalar(select(shared_database.schema.tbls.c.tbl_id)))
    covers_one = proof(shared_database, tbl_id=tbl_id, held=(kept,))
    groups = [group for group in aborts.groups(0, -1) if group.entity == LOWER]
    aborts.forget(groups, covers_one)
    left = {group.entity for group in aborts.groups(0, -1)}
    assert UPPER in left
    assert LOWER not in left


def test_the_history_of_names_that_differ_by_case(shared_database, hive):
    """The newest few of each are kept."""
    for _ in range(3):
        for name in ("p=a", "p=A"):
            hive.finished(state="f", partition=name)
    Housekeeping(shared_database).purge_history(Retention(failed=2))
    kept = [entry.entity for entry in Queue(shared_database).history(QueueState.FAILED)]
    assert sorted(map(str, kept)) == sorted(map(str, [LOWER, LOWER, UPPER, UPPER]))


def test_a_row_that_is_as_wanted_counts_as_changed(shared_database):
    """An update counts the rows that it finds: one that changes nothing isn't taken for a lost guard."""
    counter = shared_database.schema.next_lock_id
    same = update(counter).values(nl_next=counter.c.nl_next)
    assert shared_database.write(lambda connection: connection.execute(same).rowcount) == 1


def test_characters_that_a_column_cannot_hold(shared_database, hive):
    """In a message they become question marks; a name with them is refused in one line, and nothing is queued."""
    queue = Queue(shared_database)
    queue.enqueue(LOWER, CompactionKind.MAJOR)
    queue.mark_failed(queue.claim("w", "1"), "file:/w/zażółć/→ is gone … été")
    (failed,) = queue.history()
    if shared_database.schema.generation.layout == "hive-4":
        assert failed.error_message == "file:/w/za?ó??/? is gone … été"
    line = message_of(lambda: queue.enqueue(Entity("db", "t", "p=zażółć"), CompactionKind.MAJOR), CompactorError)
    assert "Incorrect string value" in line
    assert queue.entries() == queue.entries(entity=Entity("db", "t", "p=zażółć")) == []
    assert queue.enqueue(Entity("db", "t", "p=été"), CompactionKind.MAJOR).accepted


def test_a_pool_that_a_column_cannot_hold_is_no_others_trouble(shared_database, hive):
    """It is a table's property, which may be wider: all of a cycle's requests are one transaction."""
    queue, other = Queue(shared_database), Entity("db", "t", "p=b")
    requests = [Request(LOWER, CompactionKind.MAJOR, pool="池", run_as="żaneta"), Request(other, CompactionKind.MAJOR)]
    assert [answer.accepted for answer in queue.enqueue_all(requests)] == [True, True]
    if shared_database.schema.generation.layout == "hive-4":
        assert [entry.pool for entry in queue.entries()] == ["?", None]
        assert queue.claim("w", "1", "池").entity == LOWER
    assert queue.claim("w", "1").entity == (other if shared_database.schema.generation.layout == "hive-4" else LOWER)


def test_pools_that_differ_by_case_are_one(database_4):
    """To the database, so to workers; a blackout of either name holds both."""
    queue = Queue(database_4)
    queue.enqueue(LOWER, CompactionKind.MAJOR, pool="ETL")
    queue.enqueue(Entity("db", "u"), CompactionKind.MAJOR, pool="etl")
    for held in ("etl", "ETL"):
        holds = Holds((Pause(Scope.parse(f"pool:{held}"), "x", "ann", 0),))
        gate = Judge(now_ms=1, holds=holds).gate()
        assert [queue.claim("w", "1", pool, gate=gate) for pool in ("etl", "ETL")] == [None, None]
    free = Judge(now_ms=1, holds=Holds(())).gate()
    assert [queue.claim("w", "1", "Etl", gate=free).id for _ in range(2)] == [1, 2]


def test_an_empty_text_is_not_null(shared_database):
    """It comes back as it was stored."""
    aux = shared_database.schema.aux_table
    shared_database.write(
        lambda connection: connection.execute(insert(aux).values(mt_key1="x", mt_key2=0, mt_comment=""))
    )
    assert shared_database.read(lambda connection: connection.scalar(select(aux.c.mt_comment))) == ""


def test_a_short_wait_is_not_the_next_ones(shared_database):
    """A transaction may wait for a short time; the next on its connection waits as long as usual."""
    query = text("SELECT @@innodb_lock_wait_timeout")

    def short(connection):
        shared_database.dialect.limit_waiting(connection, 1500)
        return connection.scalar(query), connection.scalar(text("SELECT connection_id()"))

    def usual(connection):
        return connection.scalar(query), connection.scalar(text("SELECT connection_id()"))

    (limited, one), (full, other) = shared_database.write(short), shared_database.write(usual)
    assert (limited, full) == (2, 60)
    assert one == other


def test_a_wait_for_a_row_ends(shared_database):
    """Who waits for a row in vain is told so after the time that it gave."""
    counter = shared_database.schema.next_lock_id
    locked = select(counter.c.nl_next).with_for_update()
    with shared_database.transaction() as holder:
        holder.execute(locked)
        began = time.monotonic()
        with pytest.raises(RetryableError, match="Lock wait"), shared_database.transaction() as waiting:  # noqa: PT012
            shared_database.dialect.limit_waiting(waiting, 200)
            waiting.execute(locked)
        assert time.monotonic() - began < 10


def test_one_statement_is_one_round_trip(shared_database, server):
    """A glance sends its statement, and neither a commit nor a rollback."""
    sent = "SHOW GLOBAL STATUS LIKE 'Questions'"

    def questions():
        with server.connection("mysql") as connection, connection.cursor() as cursor:
            cursor.execute(sent)
            return int(cursor.fetchone()[1])

    shared_database.glance(shared_database.now_ms)
    quiet = [questions(), questions()]
    for _ in range(10):
        shared_database.glance(shared_database.now_ms)
    assert questions() - quiet[1] <= 10 + 4 * (quiet[1] - quiet[0])


def test_the_session_is_as_we_want_it(shared_database):
    """Isolation, time zone and mode don't depend on the server's settings."""
    query = text("SELECT @@session.time_zone, @@session.sql_mode")
    zone, mode = shared_database.read(lambda connection: connection.execute(query).one())
    assert zone == "+00:00"
    assert mode == "STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION"
    assert shared_database.read(lambda connection: connection.get_isolation_level()) == "READ COMMITTED"
    skew = time.time() * 1000 - shared_database.read(shared_database.now_ms)
    assert abs(skew) < 60_000


def test_the_table_of_our_own(shared_database):
    """Keys are told apart by every character; a value may be long."""
    state = StateTable(shared_database)
    assert state.below("members")[1] == []  # no daemon has run yet
    state.make()
    state.put("members/a", {"text": "x" * 100_000})
    state.put("members/A", {"text": ""})
    assert len(state.read("members/a").data["text"]) == 100_000
    assert [key for key, _, _ in state.below("members")[1]] == ["members/A", "members/a"]
    state.remove_silent("member", -1_000_000)
    assert state.read("members/a") is not None
    with shared_database.transaction() as connection:
        connection.execute(text("DROP TABLE COMPACTOR_STATE"))


MEGABYTE = 1_048_576


@pytest.fixture
def small_packets(request, database_4):
    """The server takes a megabyte at once, less than any product does as delivered; connections know it anew."""
    server = server_of(request, database_4)
    with server.connection("mysql") as connection, connection.cursor() as cursor:
        cursor.execute("SELECT @@GLOBAL.max_allowed_packet")
        (before,) = cursor.fetchone()
    server.sql("mysql", f"SET GLOBAL max_allowed_packet = {MEGABYTE}")
    database_4.close()
    yield
    server.sql("mysql", f"SET GLOBAL max_allowed_packet = {before}")
    database_4.close()


@pytest.mark.usefixtures("small_packets")
def test_the_longest_lists_fit_into_small_packets(database_4):
    """A list of as many names as a statement may hold, each as long as a column takes, many requests among them."""
    hive = Hive(database_4)
    dialect = database_4.dialect
    tables = [f"t{number}".ljust(128, "x") for number in range(20)]
    each = dialect.pairs_at_once // len(tables)
    ids = [hive.create_table(f"db.{table}", keys=(("p", "string"),)) for table in tables]
    long = [Entity("db", tables[0], f"p={number:0765}") for number in range(dialect.at_once)]
    pairs = [Entity("db", table, one.partition) for table in tables for one in long[:each]]
    for tbl_id in ids:
        hive.add_partitions(tbl_id, [long[0].partition])
    hive.add_partitions(ids[0], [long[-1].partition])
    sent = []

    @event.listens_for(database_4.engine, "before_cursor_execute")
    def note(_connection, cursor, statement, parameters, _context, many):
        sent.append(0 if many else len(cursor.mogrify(statement, parameters or None).encode()))

    catalog = Catalog(database_4)
    assert set(catalog.facts_for(long)) == {long[0], long[-1]}
    assert max(sent) > MEGABYTE // 2
    assert len(catalog.facts_for(pairs)) == len(tables)
    hive.write(f"db.{tables[1]}", long[0].partition)
    initiating = Initiating(database_4)
    reached = initiating.look(None).reached
    found = initiating.look(reached, also=pairs).whole().candidates
    assert [candidate.entity for candidate in found] == [Entity("db", tables[1], long[0].partition)]
    queue = Queue(database_4)
    assert all(one.accepted for one in queue.enqueue_all([Request(one, CompactionKind.MAJOR) for one in long]))
    assert len(queue.entries()) == len(long)


@pytest.mark.usefixtures("small_packets")
def test_a_message_longer_than_a_packet(database_4):
    """An entry fails with as much of its error message as fits, and isn't left working."""
    queue = Queue(database_4)
    queue.enqueue(LOWER, CompactionKind.MAJOR)
    queue.mark_failed(queue.claim("w", "1"), "€'" * MEGABYTE)
    (failed,) = queue.history()
    assert failed.state is QueueState.FAILED
    assert failed.error_message == ("€'" * MEGABYTE)[:100_000]
    assert queue.entries() == []


@pytest.mark.usefixtures("small_packets")
@pytest.mark.parametrize("size", [MEGABYTE, 2 * MEGABYTE, 20 * MEGABYTE])
def test_a_statement_larger_than_a_packet(database_4, size):
    """It is refused in one line that names the setting, and isn't repeated; nothing of its transaction stays."""
    aux = database_4.schema.aux_table
    tried = []

    def change(connection):
        tried.append(connection.execute(insert(aux).values(mt_key1="x", mt_key2=0)))
        connection.execute(update(aux).values(mt_key2=0).where(aux.c.mt_key1 == "x" * size))

    with pytest.raises(CompactorError, match="larger than the server's max_allowed_packet") as caught:
        database_4.write(change)
    assert type(caught.value) is CompactorError
    assert len(tried) == 1
    assert database_4.read(lambda connection: connection.execute(select(aux.c.mt_key1)).all()) == []
    fits = select(func.length("x" * (MEGABYTE - 200)))
    assert database_4.glance(lambda connection: connection.scalar(fits)) == MEGABYTE - 200


def test_openers_exclude_who_takes_the_table_alone(database_4):
    """Openers share the lock; a snapshot waits for them, and they for it."""
    transactions, dialect = Transactions(database_4), database_4.dialect
    table = database_4.schema.txn_lock_table
    results = []
    with database_4.transaction() as opener:
        dialect.share_openers_lock(opener, table)
        opened = transactions.open_compaction("ann", "edge")  # shared
        thread = threading.Thread(target=lambda: results.append(transactions.snapshot()))
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()
    thread.join()
    assert results[0].open == (opened,)


@pytest.fixture
def at_hives_mutexes(database_4, request):
    """
    Connections that ask for mutexes as Hive's TxnStoreMutex does, at the server's own REPEATABLE READ: a key that isn't
    there locks the gap in which it would be, for others too (HIVE-28669).
    """
    server, name = server_of(request, database_4), database_4.engine.url.database
    server.sql(name, "TRUNCATE TABLE AUX_TABLE")  # what only was deleted would part the gap
    with contextlib.ExitStack() as stack:

        def ask(key):
            connection = stack.enter_context(server.connection(name))
            cursor = connection.cursor()
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.begin()
            found = cursor.execute("SELECT MT_KEY1 FROM AUX_TABLE WHERE MT_KEY1 = %s AND MT_KEY2 = 0 FOR UPDATE", [key])
            assert found == 0
            return connection

        yield ask


@pytest.mark.parametrize("key", ["Cleaner", "Initiator", "HouseKeeper"])
def test_a_mutex_beside_a_deadlock_of_hives(database_4, request, at_hives_mutexes, key):
    """
    Two of Hive's threads that make the rows of their mutexes wait for each other, and one of them is rolled back. Ours,
    which makes a row at that moment, waits for both and holds nothing: it isn't the victim, and gets its mutex.
    """
    asking = {name: at_hives_mutexes(name) for name in ("HouseKeeper", "Initiator")}
    server = server_of(request, database_4)
    taken, lost = [], []

    def ours():
        with database_4.mutex(key) as mutex:
            taken.append(mutex.value)

    def hives(name):
        try:
            asking[name].cursor().execute("INSERT INTO AUX_TABLE (MT_KEY1, MT_KEY2) VALUES (%s, 0)", [name])
            asking[name].commit()
        except pymysql.OperationalError as error:
            lost.append(error.args[0])

    threads = [threading.Thread(target=ours)]
    threads[0].start()
    inserting = f"USER = '{USER}' AND INFO LIKE 'INSERT INTO%AUX_TABLE%'"  # it waits: its row falls into the gap
    with server.connection("information_schema") as connection, connection.cursor() as cursor:
        while not cursor.execute(f"SELECT ID FROM PROCESSLIST WHERE {inserting}") and threads[0].is_alive():
            time.sleep(0.01)
    threads += [threading.Thread(target=hives, args=[name]) for name in asking]
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (taken, lost) == ([0], [1213])


def test_a_mutex_whose_row_cannot_be_made_is_held(database_4, at_hives_mutexes):
    """While one of Hive's locks the gap, ours takes the mutex for held: the cycle is left out, and nothing failed."""
    hives = at_hives_mutexes("Initiator")
    with pytest.raises(MutexHeldError, match="mutex Cleaner is held"), database_4.mutex("Cleaner", wait_seconds=1):
        raise AssertionError
    hives.rollback()
    with database_4.mutex("Cleaner", wait_seconds=1):
        pass


def test_a_lock_table_without_its_row(database_4):
    """Where the row that openers lock is gone, nothing goes on as if it were locked."""
    table = database_4.schema.txn_lock_table
    with database_4.transaction() as connection:
        connection.execute(table.delete())
    with pytest.raises(LookupError, match="TXN_LOCK_TBL has lost its only row"):
        Transactions(database_4).snapshot()


def test_a_password_is_asked_for_at_each_new_connection(mariadb):
    """As one that its file gives: after the server refused one, the next connection uses what is there then."""
    given = ["wrong-password-1"]
    mariadb.sql("mysql", f"GRANT SELECT ON mysql.* TO '{GUARDED}'@'127.0.0.1'")
    database = Database(mariadb.url("mysql", GUARDED), password=lambda: given[-1])
    line = message_of(database.connect, UnreachableError)
    assert ("Access denied" in line, "wrong-password-1" in line) == (True, False)
    given.append(PASSWORD)
    assert "no Hive metastore tables" in message_of(database.connect, RefusedError)


@pytest.mark.parametrize("product", ["mariadb", "mysql5"])
def test_credentials_and_names(request, product):
    """A wrong password and a missing database are one line, without the password."""
    server = request.getfixturevalue(product)
    url = server.url("mysql", GUARDED)
    line = message_of(Database(url, password="wrong-password-1").connect, UnreachableError)
    assert "Access denied" in line
    assert "wrong-password-1" not in line
    server.sql("mysql", f"GRANT SELECT ON mysql.* TO '{GUARDED}'@'127.0.0.1'")
    assert "no Hive metastore tables" in message_of(Database(url, password=PASSWORD).connect, RefusedError)
    assert "nowhere" in message_of(Database(server.url("nowhere")).connect, UnreachableError)
    line = message_of(Database("mysql://hive@127.0.0.1:1/x", password="s3cret").connect, UnreachableError)
    assert "127.0.0.1" in line
    assert "s3cret" not in line
    line = message_of(Database(f"{url}?ssl_ca=/nowhere/ca.pem").connect, UnreachableError)
    assert "No such file" in line


def test_a_server_with_other_settings():
    """Names of tables in lower case, quotes of ANSI, another time zone and isolation, packets of four megabytes."""
    kind = "mariadb-4"
    version = require_schema(kind)
    options = (
        "--lower-case-table-names=1",
        "--sql-mode=ANSI_QUOTES,ONLY_FULL_GROUP_BY,NO_BACKSLASH_ESCAPES",
        "--default-time-zone=-07:00",
        "--transaction-isolation=SERIALIZABLE",
        "--max-allowed-packet=4M",
        "--character-set-server=utf8mb4",
    )
    server = MySQLServer("mariadb", *options)
    try:
        server.start()
        with Database(server.create(version)) as database:
            assert database.schema.txns.name == "txns"
            queue = Queue(database)
            queue.enqueue(LOWER, CompactionKind.MAJOR, properties={"a": 'it\'s \\ "quoted" %s'})
            entry = queue.claim("w", "1")
            assert entry.properties == {"a": 'it\'s \\ "quoted" %s'}
            assert entry.entity == LOWER
            txn_id = Transactions(database).open_compaction("ann", "edge")
            queue.set_compactor_state(entry, txn_id, 1, "ann")
            queue.mark_compacted_and_commit(entry, "w", txn_id)
            assert queue.entry(entry.id).state is QueueState.READY_FOR_CLEANING
            skew = time.time() * 1000 - database.read(database.now_ms)
            assert abs(skew) < 60_000
            count = select(func.count()).select_from(database.schema.compaction_queue)
            assert database.read(lambda connection: connection.scalar(count)) == 1
    finally:
        server.stop()


@contextlib.contextmanager
def answering(answer):
    """A port at which whoever connects gets these bytes; None: the connection is closed."""
    held = []

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            if answer is not None:
                held.append(self.request.dup())  # stays open
                self.request.sendall(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()
        for one in held:
            one.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        None,
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\0\0\0\0",
        b"\x05\0\0\0\x0a5.7\0",
        b"\x13\0\0\0\xff\x29\x23#HY000no backend",
    ],
    ids=["silent", "closed", "ssh", "empty", "cut off", "a proxy without a server"],
)
def test_what_answers_but_is_no_server_is_unreachable(answer):
    """Within the time for connecting, and in one line."""
    with answering(answer) as port:
        database = Database(f"mysql://hive@127.0.0.1:{port}/x", connect_timeout_seconds=2)
        began = time.monotonic()
        message_of(database.connect, UnreachableError)
        assert time.monotonic() - began < 60


def test_a_statement_may_take_longer_than_connecting(database_4):
    """The time limit ends when the session is there."""
    url = database_4.engine.url.set(drivername="mysql").render_as_string(hide_password=False)
    with Database(url, connect_timeout_seconds=2) as database:
        assert database.read(lambda connection: connection.scalar(text("SELECT SLEEP(3)"))) == 0


def test_the_driver_asks_for_what_it_lacks(monkeypatch):
    """What the driver can't do is one line, too."""

    def lacking(*_):
        raise RuntimeError("'cryptography' package is required")

    monkeypatch.setattr(pymysql.connections.Connection, "connect", lacking)
    assert "cryptography" in message_of(Database("mysql://hive@127.0.0.1:1/x").connect, UnreachableError)


def test_tls(certificates):
    """
    The address says how the server is known: by the authority and its name, by the authority alone, or not at all;
    without a word the connection is encrypted if the server can. One that can't be is refused in one line.
    """
    folder = certificates
    server = MySQLServer("mariadb", f"--ssl-cert={folder}/server.pem", f"--ssl-key={folder}/server.key")
    version = require_schema("mariadb-4")
    cipher = text("SELECT variable_value FROM information_schema.session_status WHERE variable_name = 'Ssl_cipher'")

    def encrypted(url):
        with Database(url) as database:
            return bool(database.read(lambda connection: connection.scalar(cipher)))

    try:
        server.start()
        url = server.create(version)
        server.sql("mysql", f"CREATE USER '{USER}'@'localhost'; GRANT ALL ON *.* TO '{USER}'@'localhost'")
        named = url.replace("127.0.0.1", "localhost")
        assert encrypted(url)
        assert encrypted(f"{url}?ssl_check_hostname=false")
        assert encrypted(f"{url}?ssl_ca={folder}/ca.pem&ssl_check_hostname=false")
        assert encrypted(f"{named}?ssl_ca={folder}/ca.pem")
        line = message_of(Database(f"{url}?ssl_ca={folder}/ca.pem").connect, UnreachableError)
        assert "certificate verify failed" in line
        line = message_of(Database(f"{named}?ssl_ca={folder}/other.pem").connect, UnreachableError)
        assert "certificate verify failed" in line
        assert not encrypted(f"{url}?ssl_disabled=true")
    finally:
        server.stop()


def test_a_server_without_tls(request):
    """It is refused in one line where the address asks for TLS."""
    server = request.getfixturevalue("mariadb")
    line = message_of(Database(f"{server.url('mysql')}?ssl_check_hostname=false").connect, UnreachableError)
    assert "SSL" in line
