"""Test the benchmark of Spark: the figures made of samples, what it builds, and how it watches processes."""

import json
import subprocess
import sys

import pytest

import journal
from benchmarks.spark.audits import ADD, MESSAGES, Audited, Ledger, build
from benchmarks.spark.figures import of_audits, of_reads, of_writes
from benchmarks.spark.reads import count_messages
from benchmarks.spark.rows import SOURCES, Shape
from benchmarks.spark.session import Sample
from benchmarks.spark.tables import document
from benchmarks.spark.watch import Watch, family, memory, processor_seconds
from tests.spark.directories import fill
from tests.support.builders import small_files

SMALL = Shape(100, 1_000_000, 1)


def reads_of(**seconds):
    return {(SMALL, "value", way): [Sample(each, 1.0) for each in taken] for way, taken in seconds.items()}


def line_of(reads, way):
    [found] = [line for line in of_reads(reads) if line.way == way]
    return found


def test_a_rate_is_the_median_of_its_samples_beside_kafka_and_parquet():
    reads = reads_of(directory=[0.5, 0.4, 1.0], broker=[1.0], kafka=[1.0], parquet=[0.8])
    line = line_of(reads, "directory")
    assert (line.value, line.least, line.most) == (2_000_000, 1_000_000, 2_500_000)
    assert (line.kafka, line.parquet, line.megabytes, line.cost) == (2.0, 1.6, 200.0, 1.0)
    assert line.is_met is True


@pytest.mark.parametrize(
    ("directory", "kafka", "parquet"),
    [(0.7, 1.0, 1.0), (0.6, 0.5, 1.0), (0.6, 1.0, 0.2)],
    ids=["below 1.5 million", "behind Kafka", "below half of Parquet"],
)
def test_each_target_of_a_read_can_be_missed(directory, kafka, parquet):
    reads = reads_of(directory=[directory], broker=[1.0], kafka=[kafka], parquet=[parquet])
    assert line_of(reads, "directory").is_met is False
    assert line_of(reads, "kafka").is_met is None


def test_the_targets_of_a_sink_and_of_an_audit():
    writes = {(SMALL, "txbroker"): [Sample(6.0, 1.0)], (SMALL, "kafka"): [Sample(12.0, 1.0)]}
    ours, theirs = of_writes(writes)
    assert (ours.is_met, ours.kafka, theirs.is_met) == (True, 2.0, None)
    slower = {**writes, (SMALL, "txbroker"): [Sample(7.0, 1.0)]}
    assert of_writes(slower)[0].is_met is False
    ledger = Ledger(1000, True)
    audits = {ledger: [Audited(s, s + 5, int(m), 3.0, 9) for s, m in ((50, 1), (70, 3), (55, 2))]}
    [line] = of_audits(audits)
    assert (line.value, line.least, line.most, line.memory, line.is_met) == (55, 50, 70, 3, True)
    [line] = of_audits({ledger: [Audited(61, 70, 1, 3.0, 9)]})
    assert line.is_met is False


def test_the_document_has_every_sample():
    reads = reads_of(**{way: [1.0, 2.0] for way in SOURCES})
    found = json.loads(document(reads, {}, {Ledger(1, False): [Audited(1, 2, 3, 4, 5)]}, {"repeat": 2}))
    assert [each["way"] for each in found["reads"]] == [*SOURCES]
    assert [sample["seconds"] for sample in found["reads"][0]["samples"]] == [1.0, 2.0]
    assert found["audits"][0]["samples"][0]["memory"] == 3
    assert found["writes"] == []


def test_the_plain_walk_counts_what_is_there(tmp_path):
    fill(tmp_path / "d", 5_000, partitions=3)
    assert count_messages(str(tmp_path / "d"), "t") == 5_000
    assert count_messages(str(tmp_path / "d"), "other") == 0


@pytest.mark.slow
@pytest.mark.parametrize("batched", [True, False])
def test_a_ledger_is_whole_transactions_over_all_partitions(tmp_path, batched):
    size = build(Ledger(2, batched), tmp_path / "d")
    assert size > 2 * MESSAGES * 136
    with journal.open(tmp_path / "d", small_files()) as log:
        counts = [store.end_offset for store in log.engine.catalog.topic("audited").partitions]
    assert (sum(counts), len(counts)) == (2 * MESSAGES, 4)
    assert all(count >= ADD for count in counts)


CHILD = """
import mmap, sys
held = mmap.mmap(-1, 64 << 20)
held.write(bytes(64 << 20))
sum(range(5_000_000))
print("ready", flush=True)
sys.stdin.read()
"""
PARENT = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {CHILD!r}])
print("buried", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_memory_and_processor_time_are_those_of_the_whole_family_also_of_its_dead():
    command = [sys.executable, "-c", PARENT]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent,
        Watch(parent.pid) as watch,
    ):
        assert parent.stdout.readline() == "ready\n"
        assert len(family(parent.pid)) == 2
        assert memory(parent.pid) > 64 << 20
        while watch.memory < 64 << 20:
            pass
        busy = processor_seconds(parent.pid)
        assert busy > 0
        parent.stdin.close()
        assert parent.stdout.readline() == "buried\n"
        assert processor_seconds(parent.pid) >= busy
    assert watch.processor > 0
    assert family(parent.pid) == [parent.pid]
    assert memory(parent.pid) == 0
