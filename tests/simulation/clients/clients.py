"""A client of the simulation: its connection, its requests, and sends, plain and idempotent. Choices are arguments."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from journal.formats import frame
from tests.simulation.model.log_model import require
from tests.simulation.model.model import DONE, Intent
from tests.simulation.world.wire import Connection
from txbroker.login.facts import ConnectionFacts
from txbroker.wire import messages as commands
from txbroker.wire.codec import answer_decoder, encode

if TYPE_CHECKING:
    from tests.simulation.world.world import World

Then = Callable[[Any, bytes, int], None]
"""Takes an answer, its data, and the time of the request."""

SIZES = {"small": (0, 0, 10, 100), "middle": (0, 50, 700, 3000), "large": (0, 200, 6000, 20_000, 45_000)}


class Producer:
    """An idempotent producer: what it has sent and not been answered must be sent again, in order."""

    def __init__(self, number: int, epoch: int) -> None:
        self.id = number
        self.epoch = epoch
        self.next: dict[int, int] = {}
        self.unanswered: dict[int, deque[tuple[int, Intent, bytes]]] = {}
        self.stale = False
        self.foreign = False
        """Whether its client has connected since without showing whose it is."""


class Client:
    """One client: a connection at a time, a producer, the transactions that it has begun on this session.

    It logs in by ``mechanism``; of its connections the broker finds out ``facts`` (None: what it does by itself).
    """

    mechanism = "ANONYMOUS"
    facts: ConnectionFacts | None = None

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.model = world.model
        self.name = f"client {number}"
        self.number = number
        self.connection: Connection | None = None
        self.session = 0
        self.former: commands.FormerSession | None = None
        """What the last welcome told, to be shown by the next login."""
        self.producer: Producer | None = None
        self._correlation = 0
        self._pending: dict[int, tuple[Any, Then | None, int]] = {}
        self._cancelled: set[int] = set()
        self._decoder = answer_decoder(1 << 26)
        self._sends = 0
        self.asked_at = 0
        """When it asked to log in, as time that has passed."""
        self._stream = ""
        self.serial = 0
        self.active: list[Any] = []

    # -- the connection -------------------------------------------------------------------------------

    def connect(self, after: commands.FormerSession | None = None) -> None:
        """Connect, and log in. Nothing that is still on its way from the session before may come after that."""
        self.connection = self.world.connect(self.facts)
        self._decoder = answer_decoder(1 << 26)
        self._pending.clear()
        self._cancelled.clear()
        self.session, self.serial, self.former = 0, 0, after
        if after is None:
            self._stream = f"{self.name} from {self.model.now} on"
        self.active = []
        if self.producer is not None:
            self.producer.stale = True
            self.producer.foreign = self.producer.foreign or after is None
        self.ask(
            commands.Hello, commands.MAGIC, list(commands.VERSIONS), f"c{self.number}", then=self._offered
        )
        self.asked_at = self.world.passed()
        self.ask(commands.Login, self.mechanism, b"", after, then=self._welcomed)

    def _offered(self, answer: Any, data: bytes, since: int) -> None:
        require(isinstance(answer, commands.Offered), "a hello is answered with what is offered", answer)

    def _welcomed(self, answer: Any, data: bytes, since: int) -> None:
        if isinstance(answer, commands.Welcome):
            self.model.fresh("session", answer.session)
            self.world.identity = self.world.identity or answer.identity
            require(answer.identity == self.world.identity, self.world.identity, answer.identity)
            self.session = answer.session
            self.told_time(answer.schedule_time)
            self.former = commands.FormerSession(answer.session, answer.start, answer.secret)
        else:
            require(answer.error != "BrokerReplaced", "a client is known by its former session", answer)

    def told_time(self, now: int) -> None:
        """Hear from an answer what schedule time it is."""
        self.world.schedule.clock.told(now, self.asked_at)

    def lost(self, kept: int) -> None:
        """The connection breaks; of what was sent the first ``kept`` bytes still arrive."""
        if self.connection is not None:
            self.connection.leave(kept)
            self.connection = None

    @property
    def ready(self) -> bool:
        """Whether requests may be sent."""
        return self.connection is not None and bool(self.session)

    def ask(
        self,
        kind: Callable[..., Any],
        *fields: Any,
        then: Then | None = None,
        data: bytes = b"",
        **named: Any,
    ) -> None:
        """Send a request; ``then`` is told of its answer, if one comes."""
        assert self.connection is not None
        self._correlation += 1
        request = kind(self._correlation, *fields, **named)
        self._pending[self._correlation] = (request, then, self.model.tick())
        self.world.count(kind.__name__)
        self._tell(request, data)

    def cancel(self, random: Random) -> None:
        """Wait no longer for one of the fetches; or say so of whatever it is."""
        fetches = [
            number for number, pending in self._pending.items() if isinstance(pending[0], commands.Fetch)
        ]
        if fetches and self.connection is not None:
            number = random.choice(fetches)
            if random.random() < 0.9:
                self._cancelled.add(number)
            else:
                number = self._correlation + random.choice((-1, 0, 1, 1 << 40))
            self.world.count("cancelled fetches")
            self._tell(commands.Cancel(0, number))

    def check_cancelled(self) -> None:
        """Now that all has come to rest and no time has passed: what was given up is answered."""
        waits = self._cancelled & self._pending.keys()
        require(self.connection is None or not waits, f"{self.name} waits for nothing it gave up", waits)

    def _tell(self, request: Any, data: bytes = b"") -> None:
        assert self.connection is not None
        if self.world.trace is not None:
            self.world.say(f"{self.name}: {_short(request)}{f' with {len(data)} bytes' if data else ''}")
        self.connection.to_broker += encode(request, data)

    def take(self, size: int) -> bool:
        """Read what has come; says whether there was anything."""
        connection = self.connection
        if connection is None:
            return False
        data = connection.take(size)
        for answer, part in self._decoder.feed(data) if data else ():
            self._answered(answer, bytes(part))
        if connection.broker_gone and not connection.to_client:
            self.connection = None
        return bool(data)

    def _answered(self, answer: Any, data: bytes) -> None:
        self.model.tick()
        if self.world.trace is not None:
            self.world.say(
                f"    {self.name} is told: {_short(answer)}{f' with {len(data)} bytes' if data else ''}"
            )
        self.world.count(f"{type(answer).__name__} {getattr(answer, 'error', '')}".strip())
        if not answer.correlation:
            self.told_goodbye(answer)
            return
        pending = self._pending.pop(answer.correlation, None)
        require(pending, "every request is answered once", _short(answer))
        assert pending is not None
        self.judge(pending[0], answer, pending[2])
        if pending[1] is not None:
            pending[1](answer, data, pending[2])

    def told_goodbye(self, answer: Any) -> None:
        """Hear that the connection is about to be closed."""

    def judge(self, request: Any, answer: Any, since: int) -> None:
        """Whether a request may have been answered so, before what it means is looked at."""

    # -- sends ----------------------------------------------------------------------------------------

    def send(self, random: Random, partition: int | None = None) -> None:
        """One request of one to three messages, to any partition if none is given."""
        if partition is None:
            partition = self.world.some_partition(random)
        if partition is None:
            return
        values, data = self.world.messages(random)
        self._sends += 1
        intent = Intent(f"send {self.world.name_intent()} to {partition}", self._stream, self._sends)
        self.model.put_into(intent, partition, values)
        self._send(intent, partition, data)

    def send_many(self, random: Random) -> None:
        """As a busy producer does: many alike, to few partitions."""
        known = [p for p in (self.world.some_partition(random) for _ in range(3)) if p is not None]
        for _ in range(random.choice((5, 20)) if known else 0):
            self._sends += 1
            intent = Intent(f"send {self.world.name_intent()}", self._stream, self._sends)
            value = b"%06d" % self.world.name_intent()
            partition = random.choice(known)
            self.model.put_into(intent, partition, [value])
            self._send(intent, partition, frame.encode(value, 1))

    def _send(self, intent: Intent, partition: int, data: bytes, *producer: int) -> None:
        then = partial(self._sent, intent, partition, self.producer if producer else None)
        self.ask(commands.Send, partition, *producer, data=data, then=then)
        self.model.ask(intent)

    def send_once(self, random: Random) -> None:
        """An idempotent send; first all again that is unanswered, if the connection is another."""
        producer = self.producer
        if producer is None:
            name = self.world.producer_name(random)
            self.ask(commands.OpenProducer, name, then=self._opened)
            return
        partition = self.world.some_partition(random)
        if producer.stale or partition is None:
            self.send_again(random)
            return
        values, data = self.world.messages(random)
        sequence = producer.next.setdefault(partition, 0)
        producer.next[partition] += len(values)
        intent = Intent(
            f"send {self.world.name_intent()} to {partition}",
            f"producer {producer.id}.{producer.epoch}",
            sequence,
        )
        self.model.put_into(intent, partition, values)
        producer.unanswered.setdefault(partition, deque()).append((sequence, intent, data))
        self._send(intent, partition, data, producer.id, producer.epoch, sequence)

    def _opened(self, answer: Any, data: bytes, since: int) -> None:
        if isinstance(answer, commands.ProducerOpened):
            self.model.fresh("producer", (answer.producer_id, answer.epoch))
            self.producer = Producer(answer.producer_id, answer.epoch)

    def send_again(self, random: Random) -> None:
        """All that is unanswered once more, in order, answered or not meanwhile."""
        producer = self.producer
        if producer is not None:
            producer.stale = False
            for partition, unanswered in list(producer.unanswered.items()):
                for sequence, intent, data in unanswered:
                    self.world.count("retried sends")
                    self._send(intent, partition, data, producer.id, producer.epoch, sequence)

    def _sent(
        self, intent: Intent, partition: int, producer: Producer | None, answer: Any, data: bytes, since: int
    ) -> None:
        model = self.model
        if isinstance(answer, commands.Sent):
            require(producer is None or not producer.foreign, "a producer is its client's", answer)
            if intent.state == DONE:
                self.world.count("sends answered again")
            model.done(intent, {partition: answer.base_offset})
        elif answer.error == "SequenceOutOfOrder" and answer.numbers[
            "expected"
        ] >= intent.place + self._count(intent):
            model.done(intent)
        else:
            model.refused(intent)
            if (
                answer.error in ("UnknownProducer", "ProducerFenced", "LimitExceeded", "TransactionTooLarge")
                and producer is self.producer
            ):
                self.producer = None
            if answer.error != "UnknownPartition":
                return
        if producer is not None:
            left = [each for each in producer.unanswered.get(partition, ()) if each[1] is not intent]
            producer.unanswered[partition] = deque(left)

    @staticmethod
    def _count(intent: Intent) -> int:
        return sum(map(len, intent.values.values()))


def _short(message: Any) -> str:
    text = repr(message)
    return text if len(text) < 300 else text[:297] + "..."
