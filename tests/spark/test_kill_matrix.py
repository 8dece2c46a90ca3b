"""Test exactly-once copies of a topic through Spark, whatever is killed, set back or deleted.

The judge is a plain client that reads the topic ``out``: it holds what ``in`` held, each message once, or it lacks just
what an error told.
"""

import os
import shutil
import signal
import subprocess
from collections import Counter
from contextlib import suppress

import pytest
from pyspark.errors import StreamingQueryException

import txbroker
from journal.folds.table import client_folds
from journal.records.record import LogStartMoved
from journal.recovery.start import recover
from journal.vfs.clock import SystemClock
from journal.vfs.filesystem import OSFilesystem
from tests.spark.sink.writes import seen
from tests.spark.source.stream_program import Copying
from tests.spark.source.test_streaming import Application, batches
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


class Pipe:
    """A stream from the topics ``in`` and ``also`` of a broker to its topic ``out``, in the session of all tests."""

    def __init__(self, spark, folder, broker):
        self.spark, self.folder, self.broker = spark, folder, broker
        where = {"broker": broker.address, "subscribe": "in,also", "startingOffsets": "earliest"}
        self.options = {**where, "group": "pipe"}
        self.sent = []
        with txbroker.connect(broker.address) as connection:
            connection.create_topic("in", 1)
            connection.create_topic("also", 1)
            connection.create_topic("out", 2)

    def send(self, count, topic="in"):
        """In transactions of twenty; return what was sent."""
        values = [b"%s-%06d" % (topic.encode(), len(self.sent) + number) for number in range(count)]
        with txbroker.connect(self.broker.address, timeout=60.0) as connection:
            for start in range(0, count, 20):
                with connection.transaction() as tx:
                    for value in values[start : start + 20]:
                        tx.send(topic, value, partition=0)
        self.sent += values
        return values

    def run(self, **options):
        """To the end of what there is; return how many rows that were."""
        query = (
            self.spark.readStream.format("txbroker")
            .options(**{**self.options, **options})
            .load()
            .select("value")
            .writeStream.format("txbroker")
            .options(broker=self.broker.address, topic="out")
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return sum(progress["numInputRows"] for progress in query.recentProgress)

    def refused(self, told, **options):
        """Run it; it must fail with an error that tells that."""
        with pytest.raises(StreamingQueryException, match=told):
            self.run(**options)

    def shown(self):
        """Where the group of the stream is, by topic: a batch behind."""
        with txbroker.connect(self.broker.address) as connection:
            return {each.topic: each.offset for each in connection.group_offsets("pipe")}

    @property
    def checkpoint(self):
        return self.folder / "checkpoint"

    def judge(self, but=()):
        """``out`` against what was sent, but for what an error told."""
        found = Counter(seen(self.broker.address, "out"))
        assert found == Counter(self.sent) - Counter(but)


@pytest.fixture
def pipe(spark, tmp_path):
    with BrokerProcess(tmp_path / "data") as broker:
        pipe = Pipe(spark, tmp_path, broker)
        pipe.send(100)
        pipe.send(50, "also")
        yield pipe


@pytest.mark.deep  # test_streaming.py loses data between runs, too
def test_what_is_set_back_taken_or_deleted_comes_once_or_is_told(pipe):
    """One stream meets all of it, one after another: a start of a query is what takes the time."""
    assert pipe.run() == 150
    unread = restored_checkpoint(pipe)
    unread = restored_broker(pipe, unread)
    taken_and_deleted(pipe, unread)


def restored_checkpoint(pipe):
    """A batch is written again with the same rows, which is no batch; or with others, which is refused."""
    shutil.copytree(pipe.checkpoint, pipe.folder / "older")
    pipe.send(100)
    assert pipe.run() == 100
    pipe.judge()
    assert pipe.shown() == {"in": 100, "also": 50}
    shutil.copytree(pipe.checkpoint, pipe.folder / "newest")
    restore(pipe.folder / "older", pipe.checkpoint)
    assert pipe.run() == 100, "read again"
    pipe.judge()
    restore(pipe.folder / "older", pipe.checkpoint)
    unread = pipe.send(30)
    pipe.refused("is written already, with 100 rows, and this time it has 130")
    pipe.judge(but=unread)
    restore(pipe.folder / "newest", pipe.checkpoint)
    return unread


def restored_broker(pipe, unread):
    """It was set back behind what the stream had read, and has grown past that again."""
    pipe.broker.stop()
    shutil.copytree(pipe.broker.data_dir, pipe.folder / "copy")
    pipe.broker.start()
    sent = list(pipe.sent)
    pipe.send(100)
    assert pipe.run() == 130
    pipe.judge()
    pipe.broker.kill()
    restore(pipe.folder / "copy", pipe.broker.data_dir)
    pipe.broker.start()
    pipe.sent = sent
    pipe.judge(but=unread)
    later = pipe.send(150)
    pipe.refused("also-0: which messages are below offset 50, and of 1 other .*set back to an older copy")
    pipe.judge(but=unread + later)
    assert pipe.run(failOnDataLoss="false") == 50
    pipe.judge(but=unread + later[:100])
    return unread + later[:100]


def taken_and_deleted(pipe, unread):
    """What retention took and a topic that was deleted with messages; a topic of that name is another one."""
    later = pipe.send(200)
    pipe.broker.stop()
    trim(pipe.broker.data_dir, "in", 500)
    pipe.broker.start()
    pipe.refused(r"in-0: offsets 380 to 499 cannot be read: retention has taken .*new checkpointLocation")
    lost = unread + later[:120]
    pipe.judge(but=unread + later)
    assert pipe.run(failOnDataLoss="false") == 80
    pipe.judge(but=lost)
    lost += pipe.send(5, "also")
    with txbroker.connect(pipe.broker.address) as connection:
        connection.delete_topic("also")
    later = pipe.send(10)
    pipe.refused("also-0: offset 50 cannot be read: its topic has been deleted")
    pipe.judge(but=lost + later)
    assert pipe.run(failOnDataLoss="false") == 10
    with txbroker.connect(pipe.broker.address) as connection:
        connection.create_topic("also", 1)
    pipe.send(5, "also")
    pipe.send(10)
    assert pipe.run() == 15, "what was told is told once"
    pipe.judge(but=lost)


def test_each_message_comes_once_though_a_worker_the_broker_and_the_driver_are_killed_and_one_comes_back(
    pipe,
):
    """The last driver is stopped in its work; another one ends that, and then it comes back to itself."""
    options = {**pipe.options, "maxOffsetsPerTrigger": "40"}
    to = {"broker": pipe.broker.address, "topic": "out", "timeout": "60s"}
    program = Application(Copying(str(pipe.folder), options, "local[2,4]", to=to))
    try:
        program.start()
        at_work(pipe, program)
        kill_workers(program)
        at_work(pipe, program)
        pipe.broker.kill()
        pipe.broker.start()
        at_work(pipe, program)
        program.kill()
        program.start()
        at_work(pipe, program)
        os.killpg(program.process.pid, signal.SIGSTOP)
        pipe.send(100)
        pipe.run()
        pipe.judge()
        os.killpg(program.process.pid, signal.SIGCONT)
        assert program.process.wait(180) == 1, "it has found that another driver has done its work"
    finally:
        program.kill()
    pipe.send(20)
    assert pipe.run() == 20
    pipe.judge()


def at_work(pipe, program):
    """Have it do some batches of what it has to do."""
    pipe.send(200)
    program.wait_for_batches(batches(pipe.folder) + 2)


def kill_workers(program):
    """Those that run tasks: the children of a process with the same command, in the session but not in the group. One
    may end by itself just then; at least one is killed.
    """
    command = ["pgrep", "-s", str(program.process.pid), "-f", "pyspark.daemon pyspark.worker"]

    def killed():
        found = subprocess.run(command, capture_output=True, check=False)
        daemons, count = {int(pid) for pid in found.stdout.split()}, 0
        for pid in daemons:
            with suppress(ProcessLookupError, FileNotFoundError):
                if parent(pid) in daemons:
                    os.kill(pid, signal.SIGKILL)
                    count += 1
        return count

    eventually(killed)


def parent(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def restore(copy, place):
    shutil.rmtree(place)
    shutil.copytree(copy, place)


def trim(path, topic, offset):
    """As retention does, and just there."""
    engine = recover(OSFilesystem(str(path)), SystemClock(), folds=client_folds())
    number = engine.catalog.topic(topic).partitions[0].number
    engine.accept(LogStartMoved(number, offset, engine.now()))
    engine.sync()
    engine.close()
