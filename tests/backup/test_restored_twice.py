"""Test clients that meet first one restored broker, and then another one that is restored from the same backup.

Both begin with the same numbers. So what clients of the first know has the very numbers of what others have in the
second: of sessions, claims, streams of outboxes, scheduled messages, transactions. Nothing of it may be taken for that.
"""

import contextlib
from datetime import timedelta

import pytest

import txbroker
from journal.backup.creation import make_backup
from journal.backup.restoring import restore
from journal.transaction_states import TransactionNumber
from journal.vfs.clock import SystemClock
from journal.vfs.filesystem import OSFilesystem
from spark.source.live import Broker
from spark.source.logs import Start
from tests.support.broker_process import BrokerProcess
from txbroker import State, errors
from txbroker.cli.directory.broker_hold import BrokerHold
from txbroker.client.operations.streams import claim_stream, list_streams, release_stream

pytestmark = pytest.mark.slow

STREAM, TABLE = b"s" * 16, "7" * 32


class Line:
    """What a client does first on a restored broker, and what it knows then; ``who`` makes its messages its own."""

    def __init__(self, address, who):
        self.who = who
        self.broker = txbroker.connect(address, client="worker", timeout=60.0)
        broker = self.broker
        self.start = Start(broker.core.former.session >> 32, broker.core.former.start)
        self.session = broker.core.session
        self.consumer = broker.consume("tasks", "group")
        [self.message] = self.consumer.poll(30.0)
        self.stream = broker.run(claim_stream(broker.core, STREAM, TABLE, 0))
        self.scheduled = broker.send("tasks", who, after=timedelta(days=1)).scheduled
        self.xid = broker.xid(1, f"of {who.decode()}", "b")
        broker.tpc_begin(self.xid)
        broker.send("tasks", who)
        broker.tpc_prepare()
        [info] = [each for each in broker.transactions([State.PREPARED]) if not each.restored]
        self.number = TransactionNumber(info.session, info.serial)


@pytest.fixture
def scene(tmp_path):
    """The process, and what has it restored once more, from the one backup, at the same address."""
    process, backups = BrokerProcess(tmp_path / "data"), OSFilesystem(tmp_path / "backups", 0o700)
    with process, txbroker.connect(process.address) as broker:
        broker.create_topic("tasks")
        broker.send("tasks", b"task")
        make_backup(OSFilesystem(process.data_dir), backups, BrokerHold(broker), SystemClock())

        def restored_again(name):
            process.kill()
            process.data_dir = tmp_path / name
            restore(backups, OSFilesystem(process.data_dir), SystemClock())
            process.start()

        restored_again("first")
        yield process, restored_again


def test_what_a_client_knows_of_the_first_means_nothing_in_the_second(scene):
    process, restored_again = scene
    first = Line(process.address, b"first")
    restored_again("second")
    second = Line(process.address, b"second")
    with contextlib.closing(second.broker):
        # The numbers are the same: else this would show nothing.
        assert second.session == first.session
        assert second.start.number == first.start.number
        assert second.message.generation == first.message.generation
        assert second.number == first.number
        assert second.scheduled.number == first.scheduled.number
        check_that_its_connection_is_refused(first)
        check_that_its_knowledge_is_refused(first, process.address)
        check_that_all_is_as_it_was(second)


def check_that_its_connection_is_refused(first):
    broker = first.broker
    for call in (
        broker.ping,
        broker.tpc_commit,
        broker.tpc_rollback,
        lambda: first.consumer.poll(30.0),
        lambda: broker.commit_transaction(first.number, by="ann", why="late"),
    ):
        with pytest.raises(errors.BrokerReplaced):
            call()


def check_that_its_knowledge_is_refused(first, address):
    """A new connection is let in, and may show what is known of the first."""
    with txbroker.connect(address, client="worker", timeout=60.0) as broker:
        with pytest.raises(errors.NotScheduled):
            broker.cancel(first.scheduled)
        with pytest.raises(errors.StreamFenced):
            broker.run(release_stream(broker.core, STREAM, first.stream.epoch, 0, 0))
        for end in (broker.tpc_commit, broker.tpc_rollback):
            with pytest.raises(errors.UnknownTransaction):
                end(first.xid)
    with contextlib.closing(Broker(address, 60.0)) as reader:
        assert not reader.knows(first.start), "a stream of Spark goes on only where it was"


def check_that_all_is_as_it_was(second):
    broker = second.broker
    assert [each.id for each in broker.list_scheduled("tasks")] == [second.scheduled]
    assert broker.tpc_recover() == [second.xid]
    [stream] = broker.run(list_streams(broker.core, TABLE))
    assert (stream.stream, stream.last) == (STREAM, 0), "it is not forgotten"
    broker.tpc_commit()
    second.consumer.commit(second.message)
    assert [message.value for message in broker.read("tasks", 0, 0)] == [b"task", b"second"]
    broker.cancel(second.scheduled)
