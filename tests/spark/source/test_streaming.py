"""Test streams of real Spark into files: each message once, whatever is killed and started again."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

import txbroker
from journal.records.record import TopicDeleted
from tests.spark.directories import append, fill, numbers_in
from tests.spark.source.stream_program import Copying
from tests.support.broker_process import BrokerProcess
from tests.support.builders import small_files
from tests.support.repository import PACKAGES, ROOT
from txbroker import errors

pytestmark = pytest.mark.slow


def copied(folder):
    """Places and values of what Spark's file sink says that it has written, as its readers see it."""
    log = folder / "out" / "_spark_metadata"
    names = set()
    for file in log.iterdir() if log.exists() else ():
        if not file.name.startswith("."):
            lines = file.read_text().splitlines()[1:]
            names |= {json.loads(line)["path"].rpartition("/")[2] for line in lines}
    rows = [row for name in sorted(names) for row in pq.read_table(folder / "out" / name).to_pylist()]
    return sorted((row["partition"], row["offset"], row["value"]) for row in rows)


def batches(folder):
    commits = folder / "checkpoint" / "commits"
    return len([name for name in os.listdir(commits) if name.isdigit()]) if commits.exists() else 0


def to_the_end(spark, folder, options):
    """Copy what there is, in the session of all tests; return the query."""
    query = (
        spark.readStream.format("txbroker")
        .options(**options)
        .load()
        .writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return query


class TestAvailableNow:
    """In the session of all tests: streams over a data directory."""

    def run(self, spark, path, folder, **options):
        given = {"subscribe": "t", "startingOffsets": "earliest", "path": str(path), **options}
        return to_the_end(spark, folder, given)

    def test_each_run_goes_on_where_the_last_one_ended(self, spark, tmp_path):
        import journal

        path = tmp_path / "d"
        fill(path, 2000, partitions=2)
        query = self.run(spark, path, tmp_path, maxOffsetsPerTrigger="700")
        assert [progress["numInputRows"] for progress in query.recentProgress] == [700, 700, 600]
        assert query.lastProgress["sources"][0]["latestOffset"]
        with journal.open(path, small_files()) as log:
            append(log, range(2000, 2300))
        self.run(spark, path, tmp_path, maxOffsetsPerTrigger="700")
        self.run(spark, path, tmp_path)
        found = copied(tmp_path)
        assert sorted(numbers_in([value for _, _, value in found])) == list(range(2300))
        assert len({(partition, offset) for partition, offset, _ in found}) == 2300

    def test_what_is_lost_between_two_runs_stops_the_stream_by_name(self, spark, tmp_path):
        import journal

        path = tmp_path / "d"
        fill(path, 1000)
        self.run(spark, path, tmp_path)
        with journal.open(path, small_files()) as log:
            append(log, range(1000, 2000))
            log.trim("t", 1500)
        with pytest.raises(
            StreamingQueryException, match=r"t-0: offsets 1000 to 1499 cannot be read: retention has"
        ):
            self.run(spark, path, tmp_path)
        self.run(spark, path, tmp_path, failOnDataLoss="false")
        assert [offset for _, offset, _ in copied(tmp_path)] == [*range(1000), *range(1500, 2000)]

    def test_another_topic_of_the_same_name_is_not_taken_for_the_old_one(self, spark, tmp_path):
        import journal

        path = tmp_path / "d"
        fill(path, 100)
        self.run(spark, path, tmp_path)
        with journal.open(path, small_files()) as log:
            log.engine.accept(TopicDeleted("t", log.engine.now()))
            log.engine.sync()
            log.create_topic("t")
            append(log, range(500))
        with pytest.raises(StreamingQueryException, match=r"deleted and made anew \(log 1 is now log 2\)"):
            self.run(spark, path, tmp_path)


class Sender:
    """Sends numbered messages, some in transactions of which every third is rolled back, until it is told to stop."""

    def __init__(self, address):
        self.address = address
        self.sent = []
        self.done = threading.Event()

    def run(self):
        with txbroker.connect(self.address, timeout=60.0) as broker:
            while not self.done.wait(0.05):
                self._some(broker)

    def _some(self, broker):
        numbers = range(len(self.sent), len(self.sent) + 30)
        if numbers.start % 90 == 0:
            with contextlib.suppress(ZeroDivisionError), broker.transaction() as tx:
                tx.send("t", b"undone", partition=0)
                raise ZeroDivisionError
            for number in numbers:
                broker.send_async("t", b"%08d" % number, partition=number % 3)
            broker.flush()
        else:
            while not self._committed(broker, numbers):
                pass
        self.sent += numbers

    def _committed(self, broker, numbers):
        """Whether they were sent in one transaction; not if a start of the broker rolled it back before its commit."""
        try:
            with broker.transaction() as tx:
                for number in numbers:
                    tx.send("t", b"%08d" % number, partition=number % 3)
        except errors.TransactionRolledBack:
            return False
        return True


class Application:
    """The program in processes of its own."""

    def __init__(self, job):
        self.job = job
        self.process = None

    def start(self):
        command = [sys.executable, "-m", "tests.spark.source.stream_program", json.dumps(asdict(self.job))]
        log = open(f"{self.job.folder}/log", "ab")  # noqa: SIM115  (it is the process's)
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": PACKAGES},
        )
        log.close()

    def kill(self):
        """The driver, its JVM and what it has started, at once."""
        process, self.process = self.process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def wait_for_batches(self, count, seconds=180):
        folder = Path(self.job.folder)
        deadline = time.monotonic() + seconds
        while batches(folder) < count:
            assert self.process.poll() is None, (folder / "log").read_text()[-5000:]
            assert time.monotonic() < deadline, (
                f"{batches(folder)} batches; " + (folder / "log").read_text()[-5000:]
            )
            time.sleep(0.02)

    def kill_an_executor(self):
        """One of the JVMs that run tasks."""
        found = subprocess.run(
            ["pgrep", "-g", str(self.process.pid), "-f", "CoarseGrainedExecutorBackend"], capture_output=True
        )
        victims = [int(pid) for pid in found.stdout.split()]
        assert victims, "there are no executors"
        os.kill(victims[0], signal.SIGKILL)


@pytest.mark.deep
@pytest.mark.parametrize(
    "victims",
    [("broker", "driver"), ("executor", "executor", "driver")],
)
def test_each_message_is_in_the_files_once_though_things_are_killed_one_after_another(
    spark, tmp_path, victims
):
    """The last driver is the session of all tests: it goes on where the program that was killed has been."""
    folder = tmp_path / "copy"
    folder.mkdir()
    with BrokerProcess(tmp_path / "data") as broker, ThreadPoolExecutor() as threads:
        with txbroker.connect(broker.address) as connection:
            connection.create_topic("t", 3)
        sender = Sender(broker.address)
        sending = threads.submit(sender.run)
        options = {"broker": broker.address, "subscribe": "t", "startingOffsets": "earliest"}
        master = "local-cluster[2,1,1024]" if "executor" in victims else "local[2,4]"
        limited = {**options, "maxOffsetsPerTrigger": "150"}
        application = Application(Copying(str(folder), limited, master))
        try:
            application.start()
            for victim in victims:
                application.wait_for_batches(batches(folder) + 2)
                if victim == "driver":
                    application.kill()
                elif victim == "broker":
                    broker.kill()
                    broker.start()
                else:
                    application.kill_an_executor()
            sender.done.set()
            sending.result(60)
        finally:
            application.kill()
            sender.done.set()
        to_the_end(spark, folder, options)
    found = copied(folder)
    assert len(sender.sent) > 300
    assert sorted(int(value) for _, _, value in found) == sender.sent
    for partition in range(3):
        assert [offset for index, offset, _ in found if index == partition] == list(range(len(found) // 3))
