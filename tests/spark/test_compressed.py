"""Test logs with compressed batches, read, written and audited by Spark: the same messages as from logs without.

Seen to fail: with places of what was opened taken for places in the file, reading went on amid a frame; with an audit
that takes a wrapper for one message, windows counted less than producers had reported.
"""

import pytest
from crc32c import crc32c
from pyspark.sql import functions as F

import journal
import txbroker
from journal.formats import frame
from journal.formats.compression import CODECS
from journal.formats.frame import COMPRESSION, HEADER
from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from spark.audit.claims.facts import What
from spark.source.logs import MessagesLost
from tests.spark.audit.audited import Making, audited, log_of, violations
from tests.spark.damages.forger import write as rewrite
from tests.spark.directories import START, append, fill, flip, numbers_in, segments, value_of
from tests.spark.source.test_planning import options_of, read
from tests.support.broker_process import BrokerProcess
from tests.support.builders import small_files

NAMES = [codec.name for codec in CODECS.values()]
by_name = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(params=NAMES)
def path(request, tmp_path):
    """5,000 messages, in small segments."""
    fill(tmp_path / "d", 5000, segment_bytes=64 << 10, per_frame=200, codec=request.param)
    return tmp_path / "d"


def is_compressed(segment):
    file = segment[SEGMENT_HEADER_BYTES:]
    flags = [HEADER.unpack_from(file, at)[6] for at, _, _, _ in frame.walk(file)]
    return all(flag & COMPRESSION for flag in flags)


@pytest.mark.sampled
def test_files_are_read_whole_and_from_the_middle_of_a_batch(path):
    assert all(is_compressed(file.read_bytes()) for file in segments(path))
    rows = read(options_of(path))
    assert [(row["offset"], bytes(row["value"])) for row in rows] == [(n, value_of(n)) for n in range(5000)]
    assert rows[77]["timestamp"].timestamp() == START / 1e6 + 77
    some = options_of(
        path, startingOffsets='{"t": {"0": 1234}}', endingOffsets='{"t": {"0": 2345}}', minPartitions="3"
    )
    assert sorted(row["offset"] for row in read(some)) == list(range(1234, 2345))


def test_a_log_of_both_kinds_is_read_in_order(tmp_path):
    fill(tmp_path / "d", 500, codec="zstd")
    with journal.open(tmp_path / "d", small_files()) as log:
        append(log, range(500, 900), wrapped=False)
        append(log, range(900, 1300), codec="lz4")
        append(log, range(1300, 1500))
    values = [row["value"] for row in read(options_of(tmp_path / "d"))]
    assert numbers_in(values) == list(range(1500))


@pytest.mark.slow
def test_of_a_damaged_batch_all_is_lost_and_nothing_else(path):
    first = segments(path)[0]
    places = [
        (SEGMENT_HEADER_BYTES + at, offset, count)
        for at, _, offset, count in frame.walk(first.read_bytes()[SEGMENT_HEADER_BYTES:])
    ]
    at, offset, count = places[2]
    flip(first, at + 60)
    with pytest.raises(MessagesLost) as caught:
        read(options_of(path))
    assert (caught.value.first, caught.value.last) == (offset, offset + count - 1)
    assert f"is damaged at byte {at}: the frame of offset {offset} fails its checksum" in str(caught.value)
    kept = [row["offset"] for row in read(options_of(path, failOnDataLoss="false"))]
    assert kept == [n for n in range(5000) if not offset <= n < offset + count]


# -- audits ------------------------------------------------------------------------------------------


def made(path, codec, **damage):
    making = Making(path, segment_bytes=64 << 10)
    for number in range(6):
        making.batch(number % 2, *[b"line %d " % n + b"v" * 50 for n in range(40)], codec=codec)
        making.send(0, b"plain %d" % number)
        making.transaction((0, b"a%d" % number), (1, b"b"))
    return making.close()


@by_name
def test_an_audit_counts_what_is_in_the_batches(tmp_path, name):
    found = {codec: audited(made(tmp_path / str(codec), codec)) for codec in (None, name)}
    assert violations(tmp_path / name) == []
    counted = {
        codec: sorted(
            (f.partition, f.messages, f.bytes) for f in facts if (f.what, f.topic) == (What.WINDOW, "a")
        )
        for codec, facts in found.items()
    }
    assert counted[None] == counted[name]
    logs = [sum(f.bytes for f in facts if f.what == What.LOG) for facts in found.values()]
    assert logs[1] < logs[0] / 2, "and they are compressed"


def compressed_in(path):
    """One that is not the first of its segment, which has a name of its own for damage."""
    return [found for found in log_of(path) if found[1].flag & COMPRESSION][1]


@by_name
def test_an_audit_finds_a_flipped_bit_in_a_batch(tmp_path, name):
    path = made(tmp_path / "d", name)
    segment, entry = compressed_in(path)
    rewrite(path, segment, entry.position + 78, bytes([entry.frame[78] ^ 1]))
    found = violations(path)
    assert [(each.first, each.last) for each in found if each.kind == "damaged frame"] == [
        (entry.offset, entry.offset + 39)
    ]


@by_name
@pytest.mark.parametrize(
    ("count", "problem"),
    [(40, "the wrapper cannot be opened by"), (39, "")],
    ids=["another content", "another count"],
)
def test_an_audit_finds_a_batch_that_was_changed_under_a_right_checksum(tmp_path, name, count, problem):
    path = made(tmp_path / "d", name)
    segment, entry = compressed_in(path)
    payload = bytearray(entry.frame[frame.HEADER_BYTES :])
    if count == 40:
        payload[20:] = b"?" * (len(payload) - 20)
    head = HEADER.pack(entry.length, 0, entry.offset, entry.appended, entry.timestamp, count, entry.flag, 0)
    forged = head + payload
    forged = forged[:4] + crc32c(forged[frame.CRC_START :]).to_bytes(4, "big") + forged[8:]
    rewrite(path, segment, entry.position, forged)
    found = [each for each in violations(path) if each.path == segment]
    assert entry.offset in {each.first for each in found}
    assert any(problem in each.text for each in found)


# -- with Spark and a broker -------------------------------------------------------------------------


@pytest.mark.slow
class TestAtABroker:
    @pytest.fixture(params=NAMES)
    def sent(self, request, tmp_path):
        """A broker with 20,000 compressed messages, a stopped one's directory and the codec's name."""
        with BrokerProcess(tmp_path / "data") as process:
            with txbroker.connect(process.address, compression=request.param) as broker:
                broker.create_topic("t", 2)
                for number in range(20_000):
                    broker.send_async("t", value_of(number), key=b"%d" % number)
                broker.flush()
            yield process, request.param

    def table(self, spark, **options):
        return spark.read.format("txbroker").options(subscribe="t", **options)

    def test_a_live_log_its_files_and_a_stream_give_the_same_rows(self, spark, sent, tmp_path):
        process, _ = sent
        live = self.table(spark, broker=process.address).load()
        expected = [20_000, sum(range(20_000))]
        summed = (F.count("*"), F.sum(F.substring(F.col("value").cast("string"), 1, 8).cast("int")))
        assert list(live.agg(*summed).first()) == expected
        source = spark.readStream.format("txbroker").options(
            subscribe="t", broker=process.address, startingOffsets="earliest", maxOffsetsPerTrigger="7777"
        )
        query = (
            source.load()
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert list(spark.read.parquet(str(tmp_path / "out")).agg(*summed).first()) == expected
        process.stop()
        at_rest = self.table(spark).load(str(tmp_path / "data"))
        assert list(at_rest.agg(*summed).first()) == expected
        sizes = [file.stat().st_size for index in (0, 1) for file in segments(tmp_path / "data", "t", index)]
        assert sum(sizes) < 20_000 * 50 / 2

    def test_a_frame_is_written_compressed_exactly_once(self, spark, sent, tmp_path):
        process, name = sent
        with txbroker.connect(process.address) as broker:
            broker.create_topic("written")
        rows = spark.range(5000).selectExpr("concat('a row of Spark, number ', id) AS value")
        rows.write.format("txbroker").mode("append").options(
            broker=process.address, topic="written", compression=name, compressionLevel="1"
        ).save()
        with txbroker.connect(process.address) as broker:
            found = [message.value for message in broker.consume("written", follow=False)]
        assert sorted(found) == sorted(b"a row of Spark, number %d" % n for n in range(5000))
        process.stop()
        [segment] = segments(tmp_path / "data", "written")
        assert is_compressed(segment.read_bytes())
        assert segment.stat().st_size < sum(map(len, found)) / 2
