"""Scenes of scale: each is a broker with a number of things of one kind, under the same load."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.harness import processes
from benchmarks.harness.crowd import burst
from benchmarks.harness.frames import SINGLE
from benchmarks.harness.load import FIRST_CORRELATION, Pipeline, SendDialogue, Tally, converse, send_chunks
from benchmarks.harness.peer import Peer, UnexpectedAnswer
from benchmarks.harness.process_memory import Memory, memory_of
from benchmarks.scale.large_transaction import one_large_transaction
from benchmarks.scale.many_transactions import commit_all, open_many, prepare_many
from txbroker.drill.broker.broker_process import BrokerProcess
from txbroker.wire.codec import encode
from txbroker.wire.messages import Send

TOPIC: Final = "scale"
WINDOW: Final = 8192
TOGETHER: Final = 128
PROBES: Final = 16
"""Connections that each have one unanswered send while latencies are taken."""

WARM_UP: Final = 0.2


class Scene(NamedTuple):
    """A scene: a number of things of one kind. ``seconds`` is how long each of throughput and latency is measured."""

    kind: str
    number: int
    seconds: float


class Measured(NamedTuple):
    """The measurements of a scene: rates a second, latencies in ms, memory from ``/proc``.

    ``setting_up`` is how long making the things took, ``start`` is that of an empty broker, ``stop`` is with all
    things, ``restart`` a start on what was left. ``notes`` are figures that only this kind of scene has. ``rates`` are
    those of all turns.
    """

    scene: Scene
    start: float
    setting_up: float
    rate: float
    p50: float
    p99: float
    memory: Memory
    stop: float
    restart: float
    notes: dict[str, float]
    rates: tuple[float, ...]


class Ground(NamedTuple):
    """The broker that a scene works on, and a connection to it."""

    broker: BrokerProcess
    peer: Peer
    scene: Scene


Work = Callable[[Ground, contextlib.ExitStack], tuple[float, Tally, Tally, dict[str, float]]]
"""A function that makes the things and measures; it returns how long making took, the tallies of throughput and of
latency, and notes.
"""


def measure(scene: Scene, data: Path) -> Measured:
    """Measure a scene, from an empty directory to a start on what it left."""
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(_broker(scene, data))
        peer = stack.enter_context(Peer(broker.port))
        setting_up, throughput, latency, notes = WORK[scene.kind](Ground(broker, peer, scene), stack)
        memory = memory_of(broker.pid)
        start = broker.started_in
        pending = stack.pop_all()
        began = time.perf_counter()
        pending.close()
    stop = time.perf_counter() - began
    with _broker(scene, data) as broker:
        restart = broker.started_in
        broker.kill()
    return Measured(
        scene, start, setting_up, throughput.rate, latency.quantile(0.5) * 1e3, latency.quantile(0.99) * 1e3,
        memory, stop, restart, notes, (throughput.rate,),
    )  # fmt: skip


def typical(turns: Sequence[Measured]) -> Measured:
    """Return the medians of a scene's turns, the most memory of all turns, and the rates of each."""

    def middle(figure: str) -> float:
        return float(statistics.median(map(attrgetter(figure), turns)))

    return Measured(
        turns[0].scene, middle("start"), middle("setting_up"), middle("rate"), middle("p50"), middle("p99"),
        Memory(max(each.memory.resident for each in turns), max(each.memory.peak for each in turns)),
        middle("stop"), middle("restart"),
        {name: statistics.median(each.notes[name] for each in turns) for name in turns[0].notes},
        tuple(each.rate for each in turns),
    )  # fmt: skip


def _broker(scene: Scene, data: Path) -> contextlib.AbstractContextManager[BrokerProcess]:
    return processes.broker(data, *SETTINGS.get(scene.kind, ()), descriptors=DESCRIPTORS.get(scene.kind))


# -- the load ---------------------------------------------------------------------------------------


def throughput(ground: Ground, numbers: Sequence[int]) -> Tally:
    """Measure 100 B singles, pipelined on one connection, to each partition in turn; all of them are warm before."""
    requests = max(2 * WINDOW, len(numbers))
    chunks = send_chunks(numbers, SINGLE, requests, TOGETHER)
    Pipeline(ground.peer, chunks, WINDOW).run(max(WARM_UP * ground.scene.seconds, len(numbers) / 20_000))
    return Pipeline(ground.peer, chunks, WINDOW).run(ground.scene.seconds)


def latency(ground: Ground, numbers: Sequence[int], connections: int = PROBES) -> Tally:
    """Measure that many connections, each with one send after the other."""
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(Peer(ground.broker.port)) for _ in range(connections)]
        dialogues = [
            SendDialogue(
                each.socket,
                each.decoder,
                encode(Send(FIRST_CORRELATION, numbers[place % len(numbers)]), SINGLE),
            )
            for place, each in enumerate(peers)
        ]
        converse(dialogues, WARM_UP * ground.scene.seconds)
        return converse(dialogues, ground.scene.seconds)


def both(ground: Ground, numbers: Sequence[int]) -> tuple[Tally, Tally]:
    """Measure throughput, then latency; readers must see exactly what was acknowledged."""
    before = ground.peer.messages(TOPIC)
    first, second = throughput(ground, numbers), latency(ground, numbers)
    if ground.peer.messages(TOPIC) < before + first.completed + second.completed:
        raise UnexpectedAnswer("readers do not see all that was acknowledged")
    return first, second


@contextlib.contextmanager
def timed(into: list[float]) -> Iterator[None]:
    began = time.perf_counter()
    yield
    into.append(time.perf_counter() - began)


# -- scenes -----------------------------------------------------------------------------------------


def partitions(ground: Ground, _: contextlib.ExitStack) -> tuple[float, Tally, Tally, dict[str, float]]:
    took: list[float] = []
    with timed(took):
        numbers = ground.peer.create_topic(TOPIC, ground.scene.number)
    return took[0], *both(ground, numbers), {}


def idle_connections(
    ground: Ground, stack: contextlib.ExitStack
) -> tuple[float, Tally, Tally, dict[str, float]]:
    numbers = ground.peer.create_topic(TOPIC, 4)
    before = memory_of(ground.broker.pid).resident
    took: list[float] = []
    with timed(took):
        crowd = stack.enter_context(burst(ground.broker.port, ground.scene.number))
    each = (memory_of(ground.broker.pid).resident - before) / max(ground.scene.number, 1)
    found = both(ground, numbers)
    crowd.check()
    return took[0], *found, {"KiB each": each / 1024, "connections/s": ground.scene.number / took[0]}


def producing_connections(
    ground: Ground, _: contextlib.ExitStack
) -> tuple[float, Tally, Tally, dict[str, float]]:
    numbers = ground.peer.create_topic(TOPIC, 4)
    found = latency(ground, numbers, ground.scene.number)
    return 0.0, found, found, {}


def prepared(ground: Ground, _: contextlib.ExitStack) -> tuple[float, Tally, Tally, dict[str, float]]:
    numbers = ground.peer.create_topic(TOPIC, 4)
    before = memory_of(ground.broker.pid).resident
    took: list[float] = []
    with timed(took):
        prepare_many(ground.peer, numbers, ground.scene.number)
    each = (memory_of(ground.broker.pid).resident - before) / ground.scene.number
    found = both(ground, numbers)
    return took[0], *found, {"KiB each": each / 1024, "prepares/s": ground.scene.number / took[0]}


def open_transactions(
    ground: Ground, stack: contextlib.ExitStack
) -> tuple[float, Tally, Tally, dict[str, float]]:
    numbers = ground.peer.create_topic(TOPIC, 4)
    took: list[float] = []
    other = stack.enter_context(Peer(ground.broker.port))
    with timed(took):
        opened = open_many(other, numbers, ground.scene.number)
    found = both(ground, numbers)
    peak = memory_of(ground.broker.pid).peak
    with timed(took):
        commit_all(other, opened)
    notes = {"staged MiB": sum(opened) / 2**20, "peak MiB with all open": peak / 2**20}
    return took[0], *found, {**notes, "commits/s": ground.scene.number / took[1]}


def large_transaction(
    ground: Ground, _: contextlib.ExitStack
) -> tuple[float, Tally, Tally, dict[str, float]]:
    numbers = ground.peer.create_topic(TOPIC, 4)
    seconds, tally, notes = one_large_transaction(
        ground.broker.port, ground.peer, numbers, ground.scene.number
    )
    return seconds, tally, tally, notes


def too_few_descriptors(
    ground: Ground, stack: contextlib.ExitStack
) -> tuple[float, Tally, Tally, dict[str, float]]:
    """Open more connections than the system allows the broker: the excess is refused, and those before go on."""
    numbers = ground.peer.create_topic(TOPIC, 4)
    took: list[float] = []
    with timed(took):
        crowd = stack.enter_context(burst(ground.broker.port, ground.scene.number))
    strangers = [refusal for refusal in crowd.refusals if refusal.error != "LimitExceeded"]
    if strangers or not crowd.refusals:
        raise UnexpectedAnswer(f"{len(crowd.refusals)} refusals, of them not for the limit: {strangers[:1]}")
    first = throughput(ground, numbers)
    crowd.check()
    notes = {"welcomed": float(len(crowd.sockets)), "refused: LimitExceeded": float(len(crowd.refusals))}
    return took[0], first, _one_by_one(ground, numbers), notes


def _one_by_one(ground: Ground, numbers: Sequence[int]) -> Tally:
    """Measure latency where no further connection can be opened."""
    request = encode(Send(FIRST_CORRELATION, numbers[0]), SINGLE)
    return converse([SendDialogue(ground.peer.socket, ground.peer.decoder, request)], ground.scene.seconds)


WORK: Final[dict[str, Work]] = {
    "partitions": partitions,
    "idle connections": idle_connections,
    "producing connections": producing_connections,
    "prepared transactions": prepared,
    "open transactions": open_transactions,
    "MiB in one transaction": large_transaction,
    "connections at 1,000 descriptors": too_few_descriptors,
}
SETTINGS: Final[dict[str, tuple[str, ...]]] = {
    "partitions": ("max_topic_partitions=10000",),
    # They are measured while open, and on a slow disk a GiB takes longer than the default time-out of a minute.
    "open transactions": ("transaction_timeout=600s",),
    "MiB in one transaction": ("transaction_timeout=600s",),
}
DESCRIPTORS: Final = {"connections at 1,000 descriptors": 1_000}
"""The files that a scene's broker may open, where the system's limit is not used."""
