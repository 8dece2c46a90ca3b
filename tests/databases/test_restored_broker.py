"""Test what becomes of transactions with a database when the broker's data are restored from a backup.

Programs are at every step of a block, some of which go on and end while others die. A backup is made at that moment;
the broker goes on, is lost, and the backup takes its place. The databases, SQLite's and PostgreSQL's, are not set back.
"""

import contextlib
import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest

import txbroker
from journal.backup.creation import make_backup
from journal.backup.restoring import restore
from journal.vfs.clock import SystemClock
from journal.vfs.filesystem import OSFilesystem
from tests.databases.orders import execute
from tests.databases.outbox.left_rows import leave, packed, stream
from tests.databases.outbox.scene import rows_of
from tests.databases.resolver.step_scene import PROGRAM, Program
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import eventually
from txbroker import State, errors
from txbroker.cli.directory.broker_hold import BrokerHold
from txbroker.databases.tables import xids

pytestmark = pytest.mark.slow

ENDINGS = ("goes on", "dies")


class Scene:
    """A broker, which can be restored, and databases, one for each program."""

    def __init__(self, folder, server=None):
        self.folder = folder
        self._server = server
        self._databases = {}
        self.process = BrokerProcess(folder / "data")
        self.backups = OSFilesystem(folder / "backups", 0o700)

    def connect(self):
        return txbroker.connect(self.process.address, timeout=60.0)

    def database(self, name):
        """Return a new connection to the database of that name, made with its tables at first."""
        if name not in self._databases:
            self._databases[name] = self._server.create_database() if self._server else None
            with contextlib.closing(self._opened(name)) as database:
                execute(database, "CREATE TABLE numbers (number INTEGER)")
                database.commit()
                txbroker.create_decision_table(database)
        return self._opened(name)

    def _opened(self, name):
        if self._server:
            return self._databases[name].connect()
        return sqlite3.connect(self.folder / f"{name}.sqlite", timeout=10.0)

    def drop(self):
        """Remove PostgreSQL's databases."""
        for database in filter(None, self._databases.values()):
            database.drop()

    def back_up(self, broker):
        return make_backup(
            OSFilesystem(self.process.data_dir), self.backups, BrokerHold(broker), SystemClock()
        )

    def be_restored(self, **said):
        """Lose the broker; what the newest backup holds is at its address from now on."""
        self.process.kill()
        self.process.data_dir = self.folder / "restored"
        restore(self.backups, OSFilesystem(self.process.data_dir), SystemClock(), **said)
        self.process.start()

    def numbers(self, name):
        with contextlib.closing(self.database(name)) as database:
            return [number for (number,) in execute(database, "SELECT number FROM numbers")]

    def resolved(self, name, broker):
        with txbroker.Resolver(lambda: self.database(name), broker) as resolver:
            return resolver.resolve()


@pytest.fixture(params=["sqlite", "postgresql"])
def scene(request):
    folder = Path(tempfile.mkdtemp(prefix="txbroker-restored-", dir="/dev/shm"))
    server = None if request.param == "sqlite" else request.getfixturevalue("postgresql_server")
    made = Scene(folder, server)
    try:
        made.process.start()
        yield made
    finally:
        made.process.kill()
        made.drop()
        shutil.rmtree(folder)


on_sqlite = pytest.mark.parametrize("scene", ["sqlite"], indirect=True)
"""For what has nothing to do with the kind of database."""


def messages(broker, topic):
    return [int(message.value) for message in broker.read(topic, 0, 0)]


class Blocks:
    """Programs by number: each has taken some steps when the backup is made; then it goes on to its end, or dies."""

    def __init__(self, scene, broker):
        self.scene = scene
        self.plans = [(steps, ending) for steps in range(len(PROGRAM) + 1) for ending in ENDINGS]
        self.connections = [scene.connect() for _ in self.plans]
        self.programs = [
            Program(scene.database(number), connection, "numbers", number)
            for number, connection in enumerate(self.connections)
        ]
        for program, (steps, _) in zip(self.programs, self.plans, strict=True):
            self.take(program, PROGRAM[:steps])

    def take(self, program, steps):
        for step in steps:
            program.step(step)
        assert not program.failed

    def end(self, broker):
        for number, (program, (steps, ending)) in enumerate(zip(self.programs, self.plans, strict=True)):
            if ending == "dies":
                program.die()
                self.connections[number].close()
                continue
            self.take(program, PROGRAM[steps:])
            with txbroker.Resolver(lambda number=number: self.scene.database(number), broker) as resolver:
                resolver.remove([xids.row_key(program.deciding.xid)])
            program.end()
            program.connection.close()

    def is_in_doubt(self, number):
        """Whether a person has to find out after a restore: it was prepared at the cut, and there is no row."""
        (steps, ending), told = self.plans[number], PROGRAM.index("commit") + 1
        if steps <= PROGRAM.index("prepare"):
            return False
        return steps < told or (steps == told and ending == "goes on")


def test_at_every_step_of_a_block_nothing_is_doubled_nor_decided_otherwise_than_in_the_database(scene):
    with scene.connect() as broker:
        broker.create_topic("numbers")
        blocks = Blocks(scene, broker)
        cut = scene.back_up(broker).manifest.cut
        blocks.end(broker)
        assert broker.status()["last_lsn"] > cut
    scene.be_restored()
    with scene.connect() as broker:
        found = [scene.resolved(number, broker) for number in range(len(blocks.plans))]
        assert [each.rolled_back + each.contradicted for each in found] == [[] for _ in found]
        assert [bool(each.restored) for each in found] == [blocks.is_in_doubt(n) for n in range(len(found))]
        assert [scene.resolved(n, broker).restored for n in range(len(found))] == [e.restored for e in found]
        listed = broker.transactions([State.PREPARED])
        assert [info.restored for info in listed] == [True] * sum(len(each.restored) for each in found)
        assert len(listed) == broker.status()["transactions_restored"] == 3
        for number, each in enumerate(found):
            for xid in each.restored:
                be_decided_by_a_person(scene, broker, number, xid)
        for number in range(len(found)):
            assert scene.resolved(number, broker).is_quiet, "what the person did contradicts no database"
        check(scene, blocks, messages(broker, "numbers"))
    for connection in blocks.connections:
        connection.close()


def be_decided_by_a_person(scene, broker, number, xid):
    with pytest.raises(errors.RestoredTransaction, match="only from a person"):
        broker.end_prepared(xid, False)
    end = broker.commit_transaction if scene.numbers(number) else broker.rollback_transaction
    end(xid, by="ann", why="looked for the row")


def check(scene, blocks, there):
    assert len(there) == len(set(there))
    for number, (steps, ending) in enumerate(blocks.plans):
        is_committed = ending == "goes on" or steps > PROGRAM.index("commit")
        assert scene.numbers(number) == [number] * is_committed, "the databases were not set back"
        if steps > PROGRAM.index("prepare"):
            assert (number in there) == is_committed, blocks.plans[number]
        else:
            assert number not in there, "what came after the backup is missing, and only that"


CUTS = ("open", "committed", "delivered")
"""The steps of a block that only sends: it is open; its row is committed; the broker has its messages."""


@pytest.mark.parametrize("cut", CUTS)
def test_at_every_step_of_a_block_that_only_sends_its_messages_come_once_or_are_missing(scene, cut):
    """Of what was delivered after the cut, and deleted in the database, nothing is left: it is missing."""
    with scene.connect() as broker:
        broker.create_topic("numbers")
        if cut == "open":
            with block(scene, broker, "goes on", 0):
                scene.back_up(broker)
            leave_row(scene, broker, "dies", 1)
        else:
            for number, name in enumerate(ENDINGS):
                leave_row(scene, broker, name, number)
                if cut == "delivered":
                    scene.resolved(name, broker)
            scene.back_up(broker)
        scene.resolved("goes on", broker)
        eventually(lambda: not rows_of(lambda: scene.database("goes on")))
        assert messages(broker, "numbers").count(0) == 1
        if cut == "delivered":
            leave_row(scene, broker, "dies", 1)  # as if the program had died before it deleted the row
        assert len(rows_of(lambda: scene.database("dies"))) == 1
        assert messages(broker, "numbers").count(1) == (cut == "delivered")
    scene.be_restored()
    with scene.connect() as broker:
        for name in ENDINGS:
            scene.resolved(name, broker)
            eventually(lambda name=name: not rows_of(lambda: scene.database(name)))
        assert sorted(messages(broker, "numbers")) == ([0, 1] if cut == "delivered" else [1])
        for name, number in (("goes on", 10), ("dies", 11)):
            send_in_a_block(scene, broker, name, number)
        eventually(lambda: {10, 11} <= set(messages(broker, "numbers")))


def leave_row(scene, broker, name, number):
    leave(lambda: scene.database(name), broker, stream(number + 1), 1, packed("numbers", b"%d" % number))


@contextlib.contextmanager
def block(scene, broker, name, number):
    with contextlib.closing(scene.database(name)) as database, txbroker.atomic(database, broker) as tx:
        execute(database, f"INSERT INTO numbers VALUES ({number})")
        tx.send("numbers", b"%d" % number)
        yield


def send_in_a_block(scene, broker, name, number):
    with block(scene, broker, name, number):
        pass


@on_sqlite
def test_blocks_that_only_send_are_delivered_once_or_missing_and_go_on(scene):
    with scene.connect() as broker:
        broker.create_topic("numbers")
        send_in_a_block(scene, broker, "before", 1)
        send_in_a_block(scene, broker, "after", 10)
        for name in ("before", "after"):
            scene.resolved(name, broker)
        scene.back_up(broker)
        send_in_a_block(scene, broker, "after", 11)
        scene.resolved("after", broker)
        assert sorted(messages(broker, "numbers")) == [1, 10, 11]
        scene.process.kill()
        send_in_a_block(scene, broker, "before", 2)  # it commits while there is no broker
    scene.be_restored()
    with scene.connect() as broker:
        for name in ("before", "after"):
            scene.resolved(name, broker)
        assert sorted(messages(broker, "numbers")) == [1, 2, 10], "11 came after the backup: it is missing"
        send_in_a_block(scene, broker, "before", 3)
        send_in_a_block(scene, broker, "after", 12)
        for name in ("before", "after"):
            scene.resolved(name, broker)
        assert sorted(messages(broker, "numbers")) == [1, 2, 3, 10, 12]


@on_sqlite
@pytest.mark.parametrize("decided", [True, False])
def test_what_a_coordinator_of_ones_own_prepared_is_committed_and_never_rolled_back_by_it(scene, decided):
    with scene.connect() as broker:
        broker.create_topic("numbers")
        xid = broker.xid(1, "order-1", "broker")
        broker.tpc_begin(xid)
        broker.send("numbers", b"1")
        broker.tpc_prepare()
        scene.back_up(broker)
        (broker.tpc_commit if decided else broker.tpc_rollback)()
        scene.be_restored()
        with pytest.raises(errors.BrokerReplaced, match="restored from a backup"):
            broker.ping()
        with pytest.raises(errors.BrokerReplaced):
            broker.send("numbers", b"2")
    with scene.connect() as broker:
        assert broker.tpc_recover() == [xid]
        with pytest.raises(errors.RestoredTransaction):
            broker.tpc_rollback(xid)
        assert broker.tpc_recover() == [xid]
        broker.tpc_commit(xid)
        assert messages(broker, "numbers") == [1]
        assert broker.outcome(xid).state is State.COMMITTED


@on_sqlite
@pytest.mark.parametrize("decided", [True, False])
@pytest.mark.parametrize("cut", ["begun", "ended"])
def test_what_a_coordinator_of_ones_own_had_not_prepared_or_had_ended_is_as_it_was(scene, cut, decided):
    with scene.connect() as broker:
        broker.create_topic("numbers")
        xid = broker.xid(1, "order-1", "broker")
        broker.tpc_begin(xid)
        broker.send("numbers", b"1")
        if cut == "begun":
            with scene.connect() as other:
                scene.back_up(other)
        broker.tpc_prepare()
        (broker.tpc_commit if decided else broker.tpc_rollback)()
        if cut == "ended":
            scene.back_up(broker)
    scene.be_restored()
    with scene.connect() as broker:
        assert broker.tpc_recover() == []
        assert messages(broker, "numbers") == [1] * (decided and cut == "ended")
        if cut == "ended":
            assert broker.outcome(xid).state is (State.COMMITTED if decided else State.ROLLED_BACK)
        else:  # its coordinator, told again to end it, hears that there is no such transaction
            for end in (broker.tpc_commit, broker.tpc_rollback):
                with pytest.raises(errors.UnknownTransaction):
                    end(xid)
            assert messages(broker, "numbers") == []


@on_sqlite
def test_a_copy_has_an_identity_of_its_own_and_is_left_alone_by_databases(scene):
    with scene.connect() as broker:
        identity = broker.identity
        broker.create_topic("numbers")
        program = Program(scene.database("one"), broker, "numbers", 1)
        for step in PROGRAM[:4]:
            program.step(step)
        scene.back_up(broker)
        program.die()
    scene.be_restored(as_copy=True)
    with scene.connect() as broker:
        assert broker.identity not in ("", identity)
        found = scene.resolved("one", broker)
        assert (found.committed, found.rolled_back, found.elsewhere) == ([], [], 1)
        [info] = broker.transactions([State.PREPARED])
        for commit in (True, False):
            with pytest.raises(errors.RestoredTransaction, match="are a copy of"):
                broker.end_prepared(info.xid, commit)
