"""The runs of the benchmarks: each measures its figures once, with a broker of its own on an empty directory."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import txbroker
from benchmarks import figures, reads
from benchmarks.figures import Figure
from benchmarks.harness import machine_limits, processes
from benchmarks.harness.frames import BATCH, BATCH_BYTES, BODY, KIB_BATCH, KIB_BATCH_BYTES, KIB_BODY, SINGLE
from benchmarks.harness.load import (
    FIRST_CORRELATION,
    Dialogue,
    Pipeline,
    SendDialogue,
    Tally,
    converse,
    send_chunks,
)
from benchmarks.harness.peer import Peer, UnexpectedAnswer
from benchmarks.harness.process_memory import memory_of, processor_seconds
from benchmarks.harness.transactions import OnePhase, TwoPhase
from journal.constants import MIB
from txbroker.drill.broker.broker_process import BrokerProcess
from txbroker.wire.codec import encode
from txbroker.wire.messages import Send

CLIENTS = 64
TOPIC = "benchmark"
WARM_UP = 0.2
"""The warm-up, as a share of the time for measuring."""


class Usage(NamedTuple):
    """Processors that were busy while measuring: those of the broker (all threads) and of the generator.

    ``cost`` is the broker's processor time in µs for each counted unit (a request, a transaction, a byte fetched). It
    shows which rate would be possible where other processes use a part of the machine.
    """

    broker: float
    generator: float
    cost: float


Sample = dict[Figure, float]
Measured = tuple[Sample, Usage | None]


@contextlib.contextmanager
def fresh_broker(folder: Path, sample: Sample) -> Iterator[BrokerProcess]:
    """Run a broker on an empty directory, which is removed with it; its start and its memory are figures, too."""
    data = folder / "data"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(data, ignore_errors=True)
    try:
        with processes.broker(data) as broker:
            sample[figures.READY] = broker.started_in
            yield broker
            sample[figures.MEMORY] = memory_of(broker.pid).peak / MIB
    finally:
        shutil.rmtree(data, ignore_errors=True)


def timed(broker: BrokerProcess, run: Callable[[], Tally]) -> tuple[Tally, Usage]:
    """Run the load, and return how busy both sides were meanwhile."""
    before, own_before, began = processor_seconds(broker.pid), time.process_time(), time.perf_counter()
    tally = run()
    elapsed = time.perf_counter() - began
    used, own = processor_seconds(broker.pid) - before, time.process_time() - own_before
    return tally, Usage(used / elapsed, own / elapsed, used * 1e6 / max(1, tally.completed))


def check(peer: Peer, messages: int) -> None:
    """Check that readers see exactly what was acknowledged."""
    visible = peer.messages(TOPIC)
    if visible != messages:
        raise UnexpectedAnswer(f"{messages} messages were acknowledged, {visible} are to be read")


# -- sending ---------------------------------------------------------------------------------------


def pipelined(
    folder: Path, seconds: float, frames: bytes, count: int, window: int, together: int, partitions: int = 1
) -> tuple[Tally, Usage, Sample]:
    """Measure the same request pipelined on one connection; ``count`` messages in each."""
    sample: Sample = {}
    with fresh_broker(folder, sample) as broker, Peer(broker.port) as peer:
        numbers = peer.create_topic(TOPIC, partitions)
        chunks = send_chunks(numbers, frames, 2 * window, together)
        warm = Pipeline(peer, chunks, window).run(WARM_UP * seconds)
        tally, usage = timed(broker, lambda: Pipeline(peer, chunks, window).run(seconds))
        check(peer, (warm.completed + tally.completed) * count)
        return tally, usage, sample


def singles(folder: Path, seconds: float) -> Measured:
    tally, usage, sample = pipelined(folder, seconds, SINGLE, 1, 8192, 128)
    return sample | {figures.SINGLES: tally.rate}, usage


def thousand_partitions(folder: Path, seconds: float) -> Measured:
    tally, usage, sample = pipelined(folder, seconds, SINGLE, 1, 8192, 128, 1000)
    return sample | {figures.PARTITIONS: tally.rate}, usage


def batches(folder: Path, seconds: float) -> Measured:
    tally, usage, sample = pipelined(folder, seconds, BATCH_BYTES, BATCH, 256, 8)
    return sample | {figures.BATCHES: tally.rate * BATCH}, usage


def large_batches(folder: Path, seconds: float) -> Measured:
    tally, usage, sample = pipelined(folder, seconds, KIB_BATCH_BYTES, KIB_BATCH, 128, 4)
    return sample | {figures.LARGE: tally.rate * KIB_BATCH * len(KIB_BODY) / 1e6}, usage


def conversations(
    folder: Path, seconds: float, clients: int, dialogue: Callable[[Peer, int], Dialogue]
) -> tuple[Tally, Usage, Sample]:
    """Measure clients that each do one thing at a time, over four partitions."""
    sample: Sample = {}
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(fresh_broker(folder, sample))
        peers = [stack.enter_context(Peer(broker.port)) for _ in range(clients)]
        numbers = peers[0].create_topic(TOPIC, 4)
        dialogues = [dialogue(peer, numbers[place % 4]) for place, peer in enumerate(peers)]
        warm = converse(dialogues, WARM_UP * seconds)
        tally, usage = timed(broker, lambda: converse(dialogues, seconds))
        check(peers[0], warm.completed + tally.completed)
        return tally, usage, sample


def sends(peer: Peer, partition: int) -> Dialogue:
    return SendDialogue(peer.socket, peer.decoder, encode(Send(FIRST_CORRELATION, partition), SINGLE))


def depth_1(folder: Path, seconds: float) -> Measured:
    tally, usage, sample = conversations(folder, seconds, 1, sends)
    latencies = {figures.DEPTH_1: tally.quantile(0.5) * 1e6, figures.DEPTH_1_P99: tally.quantile(0.99) * 1e6}
    return sample | latencies, usage


def clients(folder: Path, seconds: float) -> Measured:
    tally, usage, sample = conversations(folder, seconds, CLIENTS, sends)
    return sample | {figures.CLIENTS: tally.rate, figures.CLIENTS_P99: tally.quantile(0.99) * 1e6}, usage


def one_phase(folder: Path, seconds: float) -> Measured:
    tally, usage, sample = conversations(folder, seconds, CLIENTS, lambda p, n: OnePhase(p, n, SINGLE))
    return sample | {figures.ONE_PHASE: tally.rate}, usage


def two_phase(folder: Path, seconds: float) -> Measured:
    tally, usage, sample = conversations(folder, seconds, CLIENTS, lambda p, n: TwoPhase(p, n, SINGLE))
    return sample | {figures.TWO_PHASE: tally.rate}, usage


# -- reading ---------------------------------------------------------------------------------------


def fill(peer: Peer, partitions: Sequence[int], frames: bytes, seconds: float) -> None:
    """Fill the partitions with messages to read, about the same amount each."""
    Pipeline(peer, send_chunks(partitions, frames, 1024, 32), 256).run(seconds)


def read_back(
    folder: Path, seconds: float, frames: bytes, run: Callable[[Peer, list[int], float], Tally]
) -> tuple[Tally, Usage, Sample]:
    sample: Sample = {}
    with fresh_broker(folder, sample) as broker, Peer(broker.port) as peer:
        numbers = peer.create_topic(TOPIC, 4)
        fill(peer, numbers, frames, min(1.0, seconds))
        run(peer, numbers, WARM_UP * seconds)
        tally, usage = timed(broker, lambda: run(peer, numbers, seconds))
        return tally, usage, sample


def served(folder: Path, seconds: float) -> Measured:
    def run(peer: Peer, numbers: list[int], seconds: float) -> Tally:
        return reads.serve(peer, numbers, (len(BATCH_BYTES), BATCH), seconds)

    tally, usage, sample = read_back(folder, seconds, BATCH_BYTES, run)
    return sample | {figures.SERVED: tally.rate / 1e6}, usage


def _decode(peer: Peer, numbers: list[int], seconds: float) -> Tally:
    return reads.decode(peer, numbers, BODY, seconds)


def decoded(folder: Path, seconds: float) -> Measured:
    tally, usage, sample = read_back(folder, seconds, BATCH_BYTES, _decode)
    return sample | {figures.DECODED: tally.rate}, usage


def decoded_singles(folder: Path, seconds: float) -> Measured:
    tally, usage, sample = read_back(folder, seconds, SINGLE, _decode)
    return sample | {figures.DECODED_SINGLES: tally.rate}, usage


# -- the Python client -----------------------------------------------------------------------------


def python_client(folder: Path, seconds: float) -> Measured:
    """Measure the blocking client: one send after the other, many at once, and reading everything back."""
    sample: Sample = {}
    with (
        fresh_broker(folder, sample) as server,
        txbroker.connect(f"tcp:127.0.0.1:{server.port}") as client,
        Peer(server.port) as peer,
    ):
        peer.create_topic(TOPIC)
        single = _one_by_one(client, seconds / 3)
        many = _all_at_once(client, seconds / 3)
        check(peer, single.completed + many.completed)
        began = time.perf_counter()
        read = sum(message.value == BODY for message in client.consume(TOPIC, follow=False))
        elapsed = time.perf_counter() - began
        if read != single.completed + many.completed:
            raise UnexpectedAnswer(f"{read} messages were read, {single.completed + many.completed} sent")
    sample |= {
        figures.CLIENT_SEND: single.quantile(0.5) * 1e6,
        figures.CLIENT_ASYNC: many.rate,
        figures.CLIENT_CONSUME: read / elapsed,
    }
    return sample, None


def _one_by_one(client: txbroker.Connection, seconds: float) -> Tally:
    tally, clock = Tally(), time.perf_counter
    began = now = clock()
    while now - began < seconds:
        client.send(TOPIC, BODY)
        before, now = now, clock()
        tally.latencies.append(now - before)
        tally.completed += 1
    tally.seconds = now - began
    return tally


def _all_at_once(client: txbroker.Connection, seconds: float) -> Tally:
    tally = Tally()
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        for _ in range(1000):
            client.send_async(TOPIC, BODY)
        tally.completed += 1000
    client.flush()
    tally.seconds = time.perf_counter() - began
    return tally


# -- the machine -----------------------------------------------------------------------------------


def disk(folder: Path, seconds: float) -> Measured:
    forced = machine_limits.forces(folder, seconds / 2)
    large = machine_limits.sequential(folder, seconds / 2)
    return {
        figures.FORCE_RATE: forced.rate,
        figures.FORCE_P50: forced.quantile(0.5) * 1e6,
        figures.FORCE_P99: forced.quantile(0.99) * 1e6,
        figures.SEQUENTIAL: large.rate / 1e6,
    }, None


def sockets(folder: Path, seconds: float) -> Measured:  # noqa: ARG001
    many = machine_limits.echo(CLIENTS, SINGLE, seconds)
    one = machine_limits.echo(1, SINGLE, seconds / 3)
    return {
        figures.ECHO: many.rate,
        figures.ECHO_P50: one.quantile(0.5) * 1e6,
        figures.LOOPBACK: machine_limits.loopback(seconds / 3).rate / 1e6,
    }, None


def interpreter(folder: Path, seconds: float) -> Measured:  # noqa: ARG001
    return {
        figures.INTERPRETER: machine_limits.seconds_of(machine_limits.INTERPRETER),
        figures.IMPORTS: machine_limits.seconds_of(machine_limits.IMPORTS),
    }, None


MACHINE: dict[str, Callable[[Path, float], Measured]] = {
    "disk": disk, "sockets": sockets, "interpreter": interpreter,
}  # fmt: skip
BROKER: dict[str, Callable[[Path, float], Measured]] = {
    "singles": singles, "partitions": thousand_partitions, "depth-1": depth_1, "clients": clients,
    "batches": batches, "large-batches": large_batches, "one-phase": one_phase, "two-phase": two_phase,
    "served": served, "decoded": decoded, "decoded-singles": decoded_singles, "python-client": python_client,
}  # fmt: skip
