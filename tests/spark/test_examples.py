"""Run the examples in docs/spark.md and docs/decisions/0020-filters-are-an-option.md, and check what is said there."""

import pytest

import txbroker
from tests.docs.blocks import blocks_of
from tests.support.broker_process import BrokerProcess
from tests.support.repository import DOCS

pytestmark = pytest.mark.slow


def examples(page):
    return [block for block in blocks_of(DOCS / page) if block.language == "python"]


@pytest.fixture
def broker_process(tmp_path):
    with BrokerProcess(tmp_path / "data") as process:
        yield process


def checkpoint(broker_process):
    """The files are read as of the newest checkpoint: a broker writes one a minute, and when it stops."""
    broker_process.stop()
    broker_process.start()


def test_the_examples_of_the_page_read_and_write(spark, broker_process, tmp_path):
    def run(block, **names):
        text = block.text
        for old, new in (
            ("/var/lib/txbroker", str(tmp_path / "data")),
            ("tcp:broker:7654", broker_process.address),
            ("tcp:127.0.0.1:7654", broker_process.address),
            ("/lake", str(tmp_path / "lake")),
            ("/checkpoints", str(tmp_path / "checkpoints")),
        ):
            text = text.replace(old, new)
        exec(text, names)
        return names

    reading, writing = examples("spark.md")
    with txbroker.connect(broker_process.address) as broker:
        for topic in ("orders", "payments"):
            broker.create_topic(topic)
            broker.send(topic, b"one", key=b"42")
        checkpoint(broker_process)
        read = run(reading, spark=spark)
        [query] = spark.streams.active
        assert query.awaitTermination(120)
        assert [row.value for row in read["orders"].collect()] == [b"one"]
        assert sorted(row.topic for row in read["live"].collect()) == ["orders", "payments"]
        assert [row.value for row in spark.read.parquet(str(tmp_path / "lake/orders")).collect()] == [b"one"]

        frame = spark.createDataFrame([(b"7", b"two")], "key binary, value binary")
        stream = spark.readStream.format("txbroker").option("subscribe", "payments")
        stream = stream.option("broker", broker_process.address).option("startingOffsets", "earliest").load()
        run(writing, frame=frame, stream=stream.select("key", "value"))
        [query] = spark.streams.active
        query.processAllAvailable()
        query.stop()
        found = [message.value for message in broker.consume("orders", follow=False)]
        assert sorted(found) == [b"one", b"one", b"two"]


def test_the_example_of_the_decision_runs(spark, broker_process, tmp_path):
    """What it counted with filters pushed down is told there; with the versions of the tests it may be right."""
    with txbroker.connect(broker_process.address) as broker:
        broker.create_topic("t", partitions=2)
        broker.send("t", b"one")
    checkpoint(broker_process)
    [block] = examples("decisions/0020-filters-are-an-option.md")
    exec(block.text, {"spark": spark, "path": str(tmp_path / "data")})
