"""Test what becomes of transactions with a database when the broker's data are restored from a backup.

Programs are at every step of a block, some of which go on and end while others die. A backup is made at that moment;
the broker goes on, is lost, and the backup takes its place. The databases are not set back.
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
from tests.databases.resolver.step_scene import PROGRAM, Program
from tests.support.broker_process import BrokerProcess
from txbroker import State, errors
from txbroker.cli.directory.broker_hold import BrokerHold
from txbroker.databases.tables import xids

pytestmark = pytest.mark.slow

ENDINGS = ("goes on", "dies")


class Scene:
    """A broker, which can be restored, and databases, one for each program."""

    def __init__(self, folder):
        self.folder = folder
        self.process = BrokerProcess(folder / "data")
        self.backups = OSFilesystem(folder / "backups", 0o700)

    def connect(self):
        return txbroker.connect(self.process.address, timeout=60.0)

    def database(self, name):
        path = self.folder / f"{name}.sqlite"
        if not path.exists():
            with contextlib.closing(sqlite3.connect(path)) as database:
                database.execute("CREATE TABLE numbers (number INTEGER)")
                database.commit()
                txbroker.create_decision_table(database)
        return sqlite3.connect(path, timeout=10.0)

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


@pytest.fixture
def scene():
    folder = Path(tempfile.mkdtemp(prefix="txbroker-restored-", dir="/dev/shm"))
    made = Scene(folder)
    try:
        made.process.start()
        yield made
    finally:
        made.process.kill()
        shutil.rmtree(folder)


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
    for number, (steps, _) in enumerate(blocks.plans):
        if steps > PROGRAM.index("prepare"):
            assert (number in there) == bool(scene.numbers(number)), blocks.plans[number]
        else:
            assert number not in there, "what came after the backup is missing, and only that"


def send_in_a_block(scene, broker, name, number):
    with contextlib.closing(scene.database(name)) as database, txbroker.atomic(database, broker) as tx:
        execute(database, f"INSERT INTO numbers VALUES ({number})")
        tx.send("numbers", b"%d" % number)


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
