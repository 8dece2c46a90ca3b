"""A thousand sessions of one process that speaks the wire protocol itself, each a member of the same group: how soon
all have their share of the partitions, and what they cost the broker while nothing happens.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, cast

import txbroker
from benchmarks.figures import Figure
from benchmarks.groups.handovers import LOOK, PATIENCE, at_most, is_even
from benchmarks.groups.processes import BenchmarkFailed
from benchmarks.harness.crowd import HELLO
from benchmarks.harness.peer import MAX_DATA, expected
from benchmarks.harness.process_memory import processor_seconds
from txbroker.client.consumer.options import ConsumerOptions
from txbroker.drill.broker.broker_process import BrokerProcess
from txbroker.wire.codec import answer_decoder, encode
from txbroker.wire.messages import (
    AnyAnswer,
    Attend,
    Attended,
    Cancel,
    Fetch,
    Fetched,
    Joined,
    JoinGroup,
    Offered,
    Reader,
    Request,
    Welcome,
)

TOPIC: Final = "sessions"
"""The topic, and the group that reads it."""
MAX_POSITIONS: Final = 1000
"""Most partitions of one fetch: ``max_fetch_positions``. The first member has all partitions for a moment."""
SETTLED: Final = 2.0
"""Seconds from when all have their share until measuring what they cost."""

EVEN: Final = Figure("1,000 sessions on 10,000 partitions", "s until even", target=at_most(15.0))
IDLE: Final = Figure("their heartbeats and long polls", "% of a core", target=at_most(3.0))


LONG_POLL: Final[float] = ConsumerOptions._field_defaults["max_wait"]


class Scene(NamedTuple):
    """How many sessions share how many partitions, and for how many seconds their cost is measured. ``wait`` is that of
    each long poll, in seconds; it and ``session_timeout`` are those of the client.
    """

    sessions: int = 1_000
    partitions: int = 10_000
    seconds: float = 30.0
    wait: float = LONG_POLL
    session_timeout: float = 45.0


class Measured(NamedTuple):
    """Seconds until all had their share; then the broker's processor time in % of a core, less what it needed without
    them, and how many answers said that nothing was new, in all.
    """

    until_even: float
    idle: float
    heartbeats: int
    polls: int


@dataclass
class Told:
    """How often sessions were told that nothing has changed, that there are no messages, and that something has
    changed.
    """

    heartbeats: int = 0
    polls: int = 0
    changes: int = 0

    @classmethod
    def to(cls, sessions: Iterable[Session]) -> Told:
        """Return the sum for some sessions."""
        each = [session.told for session in sessions]
        return cls(sum(t.heartbeats for t in each), sum(t.polls for t in each), sum(t.changes for t in each))


class Session(asyncio.Protocol):
    """A session and its member: it has one request hanging at the broker that attends, and one that fetches what it
    has, as a consumer of the client. It gives back what is asked back at once, because it never has anything in hand.
    """

    def __init__(self, scene: Scene) -> None:
        self.owned: dict[int, int] = {}
        """What it has, with generations."""
        self.told = Told()
        loop = asyncio.get_running_loop()
        self.welcomed: asyncio.Future[None] = loop.create_future()
        self.lost: asyncio.Future[None] = loop.create_future()
        """It fails when the session has."""
        self._scene = scene
        self._decoder = answer_decoder(MAX_DATA)
        self._correlation = 1
        self._fetching = 0
        self._member: Joined | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say hello, and log in."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(HELLO)

    def data_received(self, data: bytes) -> None:
        """Take answers."""
        try:
            for answer, _ in self._decoder.feed(data):
                self._take(answer)
        except Exception as error:  # noqa: BLE001  (whatever it is, it ends the measurement)
            self._fail(error)

    def connection_lost(self, error: Exception | None) -> None:
        """End the measurement, unless it has ended."""
        self._fail(BenchmarkFailed(f"a connection was lost: {error or 'the broker has closed it'}"))

    def join(self) -> None:
        """Become a member."""
        timeout = round(self._scene.session_timeout * 1e6)
        self._say(JoinGroup(self._next(), TOPIC, secrets.token_bytes(16), [TOPIC], session_timeout=timeout))

    def close(self) -> None:
        """Close the connection."""
        self.lost.cancel()
        self._transport.close()

    def _fail(self, error: Exception) -> None:
        for future in (self.welcomed, self.lost):
            if not future.done():
                future.set_exception(error)

    def _take(self, answer: AnyAnswer) -> None:
        match answer:
            case Offered():
                pass
            case Welcome():
                self.welcomed.set_result(None)
            case Joined():
                self._member = answer
                self._attend(answer)
            case Fetched():
                if answer.correlation == self._fetching:
                    self._polled(answer)
            case _:
                self._attended(expected(answer, Attended))

    def _polled(self, answer: Fetched) -> None:
        wrong = [each.message for each in answer.partitions if each.error]
        if wrong:
            raise BenchmarkFailed(f"what it has cannot be read: {wrong[0]}")
        self.told.polls += 1
        self._fetch()

    def _attended(self, answer: Attended) -> None:
        assert self._member is not None
        for number in (*answer.lost, *answer.revoked):
            self.owned.pop(number, None)
        self.owned.update((each.partition, each.generation) for each in answer.assigned)
        self._attend(self._member)
        if answer.lost or answer.revoked or answer.assigned:
            self.told.changes += 1
            self._say(Cancel(self._next(), self._fetching))
            self._fetch()
        else:
            self.told.heartbeats += 1

    def _attend(self, member: Joined) -> None:
        self._say(Attend(self._next(), TOPIC, member.member, member.secret, list(self.owned.items())))

    def _fetch(self) -> None:
        """Ask for what comes in its partitions, all of which are empty."""
        some = list(self.owned.items())[:MAX_POSITIONS]
        self._fetching = self._next()
        if some:
            reader = Reader(TOPIC, 0, [generation for _, generation in some])
            positions = [(number, 0, 0) for number, _ in some]
            wait = round(self._scene.wait * 1e6)
            self._say(Fetch(self._fetching, positions, max_wait=wait, readers=[reader]))

    def _next(self) -> int:
        self._correlation += 1
        return self._correlation

    def _say(self, request: Request) -> None:
        self._transport.write(encode(request))


def settings_of(scene: Scene) -> tuple[str, ...]:
    """Return the settings of a broker that has so many partitions; it takes so many sessions and members anyway."""
    return (f"max_topic_partitions={scene.partitions}",)


def measured(scene: Scene, broker: BrokerProcess) -> Measured:
    """Measure a scene once, on a new broker.

    Raises BenchmarkFailed if a session fails, or the shares never become even.
    """
    with txbroker.connect(broker.address) as connection:
        connection.create_topic(TOPIC, partitions=scene.partitions)
    with asyncio.Runner() as runner:
        return runner.run(_measured(scene, broker))


def _itself(session: Session) -> Session:
    return session


async def _measured(scene: Scene, broker: BrokerProcess) -> Measured:
    loop = asyncio.get_running_loop()
    without = await _processor_share(broker, scene.seconds / 3)
    sessions = [Session(scene) for _ in range(scene.sessions)]
    try:
        for each in sessions:
            await loop.create_connection(partial(_itself, each), "127.0.0.1", broker.port)
        await asyncio.gather(*(each.welcomed for each in sessions))
        work = asyncio.ensure_future(_joined_and_idle(scene, broker, sessions, without))
        ends: list[asyncio.Future[Any]] = [work, *(each.lost for each in sessions)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for each in sessions:
            if each.lost.done():
                each.lost.result()
        return await work
    finally:
        for each in sessions:
            each.close()


async def _joined_and_idle(
    scene: Scene, broker: BrokerProcess, sessions: list[Session], without: float
) -> Measured:
    until_even = await _until_even(scene, broker, sessions)
    await asyncio.sleep(SETTLED)
    told = Told.to(sessions)
    share = await _processor_share(broker, scene.seconds)
    now = Told.to(sessions)
    if now.changes > told.changes:
        raise BenchmarkFailed("partitions were moved while nothing was to happen")
    return Measured(until_even, share - without, now.heartbeats - told.heartbeats, now.polls - told.polls)


async def _processor_share(broker: BrokerProcess, seconds: float) -> float:
    """Return the broker's processor time for so long, in % of a core."""
    clock = asyncio.get_running_loop().time
    before, began = processor_seconds(broker.pid), clock()
    await asyncio.sleep(seconds)
    return (processor_seconds(broker.pid) - before) / (clock() - began) * 100


async def _until_even(scene: Scene, broker: BrokerProcess, sessions: list[Session]) -> float:
    """Have all join; return the seconds until each has its share, by what it was told and by what the broker says."""
    clock = asyncio.get_running_loop().time
    began = clock()
    for each in sessions:
        each.join()
    with txbroker.connect(broker.address) as connection:
        while clock() - began < PATIENCE:
            sizes = [len(each.owned) for each in sessions]
            took = clock() - began
            looks_even = sum(sizes) == scene.partitions and max(sizes) - min(sizes) <= 1
            if looks_even and is_even(connection.describe_group(TOPIC), len(sessions)):
                return took
            await asyncio.sleep(LOOK)
    raise BenchmarkFailed(f"{len(sessions)} sessions have no even shares after {PATIENCE:g} s")
