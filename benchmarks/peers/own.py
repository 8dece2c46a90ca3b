"""The broker of this project, under the generator of the other benchmarks and under the blocking Python client."""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path

import txbroker
from benchmarks.harness.frames import BATCH, BATCH_BYTES, KIB_BATCH, KIB_BATCH_BYTES, SINGLE
from benchmarks.harness.load import (
    FIRST_CORRELATION,
    Chunk,
    Dialogue,
    Pipeline,
    SendDialogue,
    converse,
    send_chunks,
)
from benchmarks.harness.peer import Peer, UnexpectedAnswer
from benchmarks.harness.processes import broker
from benchmarks.harness.transactions import OnePhase, TwoPhase
from benchmarks.peers.contender import Contender, Measure, Measures, Run
from benchmarks.peers.python_clients import run_python
from txbroker.drill.broker.broker_process import BrokerProcess
from txbroker.wire.codec import encode
from txbroker.wire.messages import Send

CLIENTS = 64
PARTITIONS = 4
"""Partitions of the topics to which many clients write, as in the other benchmarks."""

PIPELINES = {
    "batches": (BATCH_BYTES, BATCH, 128, 4),
    "large-batches": (KIB_BATCH_BYTES, KIB_BATCH, 64, 2),
    "singles": (SINGLE, 1, 8192, 128),
}
"""By load: the frames of a request, messages in it, requests unanswered at a time, requests in a write."""


class TimedPipeline(Pipeline):
    """A pipeline that also takes the latencies of requests, by the first of each chunk: one partition answers in
    order.
    """

    def __init__(self, peer: Peer, chunks: Sequence[Chunk], window: int) -> None:
        super().__init__(peer, chunks, window)
        self._begun: deque[tuple[int, float]] = deque()

    def _send(self, going: bool) -> None:
        while True:
            before = self.tally.begun
            self._send_one(going)
            if self.tally.begun == before:
                return
            self._begun.append((before, time.perf_counter()))

    def _send_one(self, going: bool) -> None:
        """Send one chunk at most, and then stop as if the window were full."""
        whole, self._window = self._window, min(self._window, self.tally.begun - self.tally.completed + 1)
        try:
            super()._send(going)
        finally:
            self._window = whole

    def _receive(self) -> None:
        super()._receive()
        now = time.perf_counter()
        while self._begun and self._begun[0][0] < self.tally.completed:
            self.tally.latencies.append(now - self._begun.popleft()[1])


class Txbroker(Contender):
    """The broker with its default settings."""

    name = "txbroker"
    peer = "txbroker"
    durability = "journal forced before the answer, as always"

    def __init__(self) -> None:
        self._server: BrokerProcess | None = None
        self._topics = 0

    def version(self) -> str:
        return f"txbroker {version('txbroker')}"

    def open(self, folder: Path) -> AbstractContextManager[object]:
        return self._open(folder)

    @contextmanager
    def _open(self, folder: Path) -> Iterator[None]:
        folder.mkdir(parents=True, exist_ok=True)
        with broker(folder / "data") as self._server:
            yield

    def runs(self) -> Mapping[str, Run]:
        dialogues: Mapping[str, tuple[int, int, Callable[[Peer, int], Dialogue]]] = {
            "depth-1": (1, 1, send),
            "one-phase": (CLIENTS, 1, lambda peer, partition: OnePhase(peer, partition, SINGLE)),
            "one-phase-10": (CLIENTS, 10, lambda peer, partition: OnePhase(peer, partition, SINGLE * 10)),
            "two-phase": (CLIENTS, 1, lambda peer, partition: TwoPhase(peer, partition, SINGLE)),
        }
        return {
            **{load: functools.partial(self._pipelined, load) for load in PIPELINES},
            **{
                load: functools.partial(self._conversation, load, *shape) for load, shape in dialogues.items()
            },
            "python": self._python,
        }

    def processes(self) -> list[int]:
        return [self._running.pid]

    def settings(self) -> list[str]:
        return ["twistd -n txbroker --data … --listen tcp:0:interface=127.0.0.1 (default settings)"]

    def clients(self) -> list[str]:
        shapes = (
            f"{load}: one connection, requests of {count}, at most {window * count} messages unanswered"
            for load, (_, count, window, _) in PIPELINES.items()
        )
        return [
            "all but Python: the broker's codec over plain sockets (benchmarks/harness/load.py)",
            *shapes,
            f"transactions: {CLIENTS} connections, one Commit (or Prepare, then Commit); {PARTITIONS} partitions",
            "Python: the blocking client with default settings: send_async and flush; consume",
        ]

    @property
    def _running(self) -> BrokerProcess:
        assert self._server is not None, "the broker does not run"
        return self._server

    def _topic(self) -> str:
        self._topics += 1
        return f"topic{self._topics}"

    def _pipelined(self, load: str, warm_up: float, seconds: float) -> Measures:
        frames, count, window, together = PIPELINES[load]
        topic = self._topic()
        with Peer(self._running.port) as peer:
            chunks = send_chunks(peer.create_topic(topic), frames, 2 * window, together)
            warm = Pipeline(peer, chunks, window).run(warm_up)
            tally = TimedPipeline(peer, chunks, window).run(seconds)
            acknowledged = warm.completed + tally.completed
            self._verify(topic, peer, acknowledged * count)
        latencies = tally.quantile(0.5), tally.quantile(0.99)
        return {load: Measure(tally.rate * count, *latencies, acknowledged)}

    def _conversation(
        self, load: str, clients: int, count: int, dialogue: Callable[[Peer, int], Dialogue],
        warm_up: float, seconds: float,
    ) -> Measures:  # fmt: skip
        topic = self._topic()
        with ExitStack() as stack:
            peers = [stack.enter_context(Peer(self._running.port)) for _ in range(clients)]
            numbers = peers[0].create_topic(topic, PARTITIONS)
            dialogues = [dialogue(peer, numbers[place % PARTITIONS]) for place, peer in enumerate(peers)]
            warm = converse(dialogues, warm_up)
            tally = converse(dialogues, seconds)
            acknowledged = warm.completed + tally.completed
            self._verify(topic, peers[0], acknowledged * count)
        latencies = tally.quantile(0.5), tally.quantile(0.99)
        return {load: Measure(tally.rate, *latencies, acknowledged)}

    def _python(self, warm_up: float, seconds: float) -> Measures:
        topic = self._topic()
        with txbroker.connect(f"tcp:127.0.0.1:{self._running.port}") as client:
            client.create_topic(topic)
            measures = run_python("txbroker", f"tcp:127.0.0.1:{self._running.port}/{topic}", warm_up, seconds)
            client.delete_topic(topic)
        return measures

    def _verify(self, topic: str, peer: Peer, messages: int) -> None:
        """Check that readers see what was answered; then make room for the next load."""
        visible = peer.messages(topic)
        if visible != messages:
            raise UnexpectedAnswer(f"{messages} messages were acknowledged, {visible} are to be read")
        with txbroker.connect(f"tcp:127.0.0.1:{self._running.port}") as client:
            client.delete_topic(topic)


def send(peer: Peer, partition: int) -> Dialogue:
    return SendDialogue(peer.socket, peer.decoder, encode(Send(FIRST_CORRELATION, partition), SINGLE))
