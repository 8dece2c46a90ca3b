"""From a topic to another through Spark, exactly once: whatever is set back, taken or deleted meanwhile.

The judge is a plain client that reads the topic ``out``: it holds what ``in`` held, each message once, or it lacks just
what an error told.
"""

import shutil
from collections import Counter

import pytest
from pyspark.errors import StreamingQueryException

import txbroker
from journal.clock import SystemClock
from journal.filesystem import OSFilesystem
from journal.record import LogStartMoved
from journal.recovery import recover
from tests.broker_process import BrokerProcess
from tests.spark.writes import seen
from txbroker.broker import folds

pytestmark = pytest.mark.slow


class Pipe:
    """A broker with the topics ``in`` and ``out``, and a stream between them in the session of all tests."""

    def __init__(self, spark, folder, broker, **options):
        self.spark, self.folder, self.broker = spark, folder, broker
        self.options = {"broker": broker.address, "subscribe": "in", "startingOffsets": "earliest", **options}
        self.sent = []
        with txbroker.connect(broker.address) as connection:
            connection.create_topic("in", 1)
            connection.create_topic("out", 2)

    def send(self, count, topic="in"):
        values = [b"%s-%06d" % (topic.encode(), len(self.sent) + number) for number in range(count)]
        with txbroker.connect(self.broker.address, timeout=60.0) as connection:
            for start in range(0, count, 20):
                with connection.transaction() as tx:
                    for value in values[start : start + 20]:
                        tx.send(topic, value, partition=0)
        self.sent += values

    def run(self, **options):
        """To the end of what there is."""
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
        pipe.send(200)
        yield pipe


class TestOnABrokerOfItsOwn:
    def test_a_checkpoint_that_was_restored_writes_nothing_twice_and_nothing_is_left_out_in_silence(
        self, pipe
    ):
        assert pipe.run() == 200
        shutil.copytree(pipe.checkpoint, pipe.folder / "copy")
        pipe.send(100)
        assert pipe.run() == 100
        pipe.judge()
        self.restore(pipe)
        pipe.run()
        pipe.judge()
        self.restore(pipe)
        pipe.send(30)
        pipe.refused("is written already, with 100 rows, and this time it has 130")
        pipe.judge(but=pipe.sent[-30:])

    def restore(self, pipe):
        shutil.rmtree(pipe.checkpoint)
        shutil.copytree(pipe.folder / "copy", pipe.checkpoint)

    def test_a_broker_that_was_restored_is_named_and_what_is_not_read_is_what_was_told(self, pipe):
        """It was set back behind what the stream had read, and has grown past that again."""
        pipe.run()
        pipe.broker.stop()
        shutil.copytree(pipe.broker.data_dir, pipe.folder / "copy")
        pipe.broker.start()
        pipe.send(100)
        pipe.run()
        pipe.judge()
        pipe.broker.kill()
        shutil.rmtree(pipe.broker.data_dir)
        (pipe.folder / "copy").rename(pipe.broker.data_dir)
        pipe.broker.start()
        pipe.sent = pipe.sent[:200]
        pipe.judge()
        pipe.send(300)
        told = "in-0: which messages are below offset 300 .*set back to an older copy"
        for _ in range(2):
            pipe.refused(told)
        pipe.judge(but=pipe.sent[200:])
        assert pipe.run(failOnDataLoss="false") == 200
        pipe.judge(but=pipe.sent[200:300])
        pipe.send(10)
        assert pipe.run() == 10, "it was told once"
        pipe.judge(but=pipe.sent[200:300])

    def test_what_retention_took_is_told_and_everything_else_comes_once(self, pipe):
        pipe.run()
        pipe.send(500)
        pipe.broker.stop()
        trim(pipe.broker.data_dir, "in", 350)
        pipe.broker.start()
        pipe.refused(r"in-0: offsets 200 to 349 cannot be read: retention has taken .*new checkpointLocation")
        pipe.judge(but=pipe.sent[200:])
        assert pipe.run(failOnDataLoss="false") == 350
        pipe.send(10)
        assert pipe.run() == 10
        pipe.judge(but=pipe.sent[200:350])

    def test_a_topic_that_is_deleted_is_told_and_the_others_go_on(self, pipe):
        with txbroker.connect(pipe.broker.address) as connection:
            connection.create_topic("also", 1)
        pipe.options["subscribe"] = "in,also"
        pipe.send(50, "also")
        assert pipe.run() == 250
        with txbroker.connect(pipe.broker.address) as connection:
            connection.delete_topic("also")
        pipe.send(20)
        pipe.refused("also-0: offset 50 cannot be read: its topic has been deleted")
        pipe.judge(but=pipe.sent[250:])
        assert pipe.run(failOnDataLoss="false") == 20
        for count in (30, 40):
            pipe.send(count)
            assert pipe.run() == count, "it was told"
        pipe.judge()
        with txbroker.connect(pipe.broker.address) as connection:
            connection.create_topic("also", 1)
        pipe.send(5, "also")
        assert pipe.run() == 5
        pipe.judge()


def trim(path, topic, offset):
    """As retention does, and just there."""
    engine = recover(OSFilesystem(str(path)), SystemClock(), folds=folds())
    number = engine.catalog.topic(topic).partitions[0].number
    engine.accept(LogStartMoved(number, offset, engine.now()))
    engine.sync()
    engine.close()
