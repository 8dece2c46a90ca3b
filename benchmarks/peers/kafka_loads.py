"""The loads of Kafka, by its own load programs, forced and with its defaults; and the parsing of their output."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.peers.contender import Contender, Measure, Measures, Run
from benchmarks.peers.kafka import FORCED, KafkaServer
from benchmarks.peers.programs import JAVA_WARM_UP, java, output_of, run_java
from benchmarks.peers.python_clients import run_python
from benchmarks.peers.server import PATIENCE, PeerFailed

CLIENTS = 64
TOOL = "org.apache.kafka.tools.ProducerPerformance"
PRODUCER = {
    "acks": "all",
    "batch.size": "1000000",
    "linger.ms": "10",
    "buffer.memory": "67108864",
    "enable.metrics.push": "false",
}
"""The batch sizes. Each batch is forced by itself, so the largest are fastest (docs/benchmarks.md has others)."""

FIRST_GUESS = 20e6
"""Bytes a second, assumed before any have been counted."""

SIZES = {"batches": 100, "large-batches": 1024}
TRANSACTIONS = {"one-phase": 1, "one-phase-10": 10}


class Kafka(Contender):
    """Topics of one server; loaded by ProducerPerformance, by KafkaLoad.java and by confluent-kafka."""

    peer = "kafka"
    warm_up = JAVA_WARM_UP

    def __init__(self, forced: bool) -> None:
        self.forced = forced
        self.name = "Kafka, flush.messages=1" if forced else "Kafka, default"
        self.durability = (
            "every append forced before the answer (flush.messages=1)" if forced else "NOT forced: page cache"
        )
        self._server = KafkaServer(Path())
        self._topics = 0
        self._guess: dict[str, float] = {}

    def version(self) -> str:
        return self._server.version()

    def open(self, folder: Path) -> AbstractContextManager[object]:
        self._server = KafkaServer(folder, FORCED if self.forced else {})
        return self._server

    def runs(self) -> Mapping[str, Run]:
        loads = [*SIZES, "depth-1", "python"]
        if self.forced:
            loads += TRANSACTIONS
        return {load: functools.partial(self._run, load) for load in loads}

    def processes(self) -> list[int]:
        return self._server.processes()

    def settings(self) -> list[str]:
        return (self._server.folder / "server.properties").read_text().splitlines()

    def clients(self) -> list[str]:
        producer = " ".join(f"{name}={value}" for name, value in PRODUCER.items())
        return [
            f"batches: ProducerPerformance, one producer: {producer}",
            "depth 1: the Java producer, acks=all linger.ms=0, send().get() (KafkaLoad.java)",
            f"transactions: {CLIENTS} Java producers with a transactional.id each, acks=all linger.ms=0",
            "Python: confluent-kafka, acks=all linger.ms=5 batch.size=262144, a callback for each; consume(1000)",
        ]

    def _run(self, load: str, warm_up: float, seconds: float) -> Measures:
        self._topics += 1
        topic = f"topic{self._topics}"
        admin = AdminClient({"bootstrap.servers": self._server.bootstrap, "log_level": 4})
        [made] = admin.create_topics([NewTopic(topic, 4 if load in TRANSACTIONS else 1, 1)]).values()
        made.result(PATIENCE)
        try:
            if load == "python":
                return run_python("kafka", f"{self._server.bootstrap}/{topic}", warm_up, seconds)
            return {load: self._measured(load, topic, warm_up, seconds)}
        finally:
            [gone] = admin.delete_topics([topic]).values()
            gone.result(PATIENCE)

    def _measured(self, load: str, topic: str, warm_up: float, seconds: float) -> Measure:
        if load in SIZES:
            measure = self._performance(load, topic, warm_up, seconds)
            messages = measure.acknowledged
        else:
            mode = "transactions" if load in TRANSACTIONS else "depth-1"
            clients, each = (CLIENTS, TRANSACTIONS[load]) if load in TRANSACTIONS else (1, 1)
            arguments = (self._server.bootstrap, topic, mode, clients, each)
            measure = run_java("kafka", "KafkaLoad", arguments, warm_up, seconds)
            messages = measure.acknowledged * each
        if load not in TRANSACTIONS and (held := self._held(topic)) != messages:  # markers have offsets, too
            raise PeerFailed(f"Kafka acknowledged {messages} messages, the topic has {held}")
        return measure

    def _performance(self, load: str, topic: str, warm_up: float, seconds: float) -> Measure:
        """Run the tool, which takes no time: the last rate tells how many messages take about that many seconds."""
        guess = self._guess.get(load)
        if guess is None:
            before = int(FIRST_GUESS / SIZES[load] * (warm_up + seconds))
            guess = self._tool(load, topic, 0, before).rate
        else:
            before = 0
        found = self._tool(load, topic, int(guess * warm_up), int(guess * seconds))
        self._guess[load] = found.rate
        return found._replace(acknowledged=found.acknowledged + before)

    def _tool(self, load: str, topic: str, warm_up: int, messages: int) -> Measure:
        command = java("kafka", TOOL, ["-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"])
        command += ["--bootstrap-server", self._server.bootstrap, "--topic", topic, "--throughput", "-1"]
        command += ["--num-records", str(warm_up + messages), "--record-size", str(SIZES[load])]
        command += ["--warmup-records", str(warm_up)] if warm_up else []
        command += ["--command-property", *(f"{name}={value}" for name, value in PRODUCER.items())]
        told = parsed(output_of(command, PATIENCE))
        if told.sent != warm_up + messages:
            raise PeerFailed(f"ProducerPerformance sent {told.sent} messages instead of {warm_up + messages}")
        return Measure(told.rate, told.p50, told.p99, told.sent)

    def _held(self, topic: str) -> int:
        """Return the offset after the last message."""
        consumer = Consumer({"bootstrap.servers": self._server.bootstrap, "group.id": "count"})
        deadline = time.monotonic() + PATIENCE
        try:
            _, after = consumer.get_watermark_offsets(
                TopicPartition(topic, 0), timeout=deadline - time.monotonic()
            )
        finally:
            consumer.close()
        return int(after)


class Told(NamedTuple):
    """The final output of ProducerPerformance: all that was sent; rate and latencies (s) without the warm-up."""

    sent: int
    rate: float
    p50: float
    p99: float


_SUMMARY = re.compile(
    r"^(?P<sent>\d+) (?P<steady>steady state )?records sent, (?P<rate>[\d.]+) records/sec .*"
    r" (?P<p50>\d+) ms 50th, \d+ ms 95th, (?P<p99>\d+) ms 99th",
    re.MULTILINE,
)


def parsed(output: str) -> Told:
    """Return the summary; with a warm-up there are two, of everything and of the steady state after it."""
    found = list(_SUMMARY.finditer(output))
    if not found:
        raise PeerFailed(f"ProducerPerformance told no summary:\n{output}")
    last = found[-1]
    sent = max(int(one["sent"]) for one in found)
    return Told(sent, float(last["rate"]), int(last["p50"]) / 1000, int(last["p99"]) / 1000)
