"""Clients that speak AMQP 0-9-1 to a real broker in a room: bytes in, bytes out, no socket.

:class:`House` is the room, :class:`Talker` one connection. What a talker says goes through the broker's decoder as one
read; what it is told is decoded again, method by method with its content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from journal.records.queue_entries import QUEUE_GROUP
from tests.support.amqp_hearing import Heard, Hearing, consume, declare, declare_exchange, published
from tests.support.broker_room import Room
from txbroker.amqp import connection_methods as c
from txbroker.amqp import methods as m
from txbroker.amqp.connection_methods import Method
from txbroker.amqp.fields import Table
from txbroker.amqp.framing import PROTOCOL_HEADER, method_frame
from txbroker.amqp.reply_codes import Reply
from txbroker.channels.connection import AmqpConnection
from txbroker.channels.directory import Directory
from txbroker.login.facts import ConnectionFacts

SECOND = 1_000_000
CAPABLE: Table = {"capabilities": {"consumer_cancel_notify": True, "connection.blocked": True}}


class House(Room):
    """A room whose broker speaks AMQP, too, with these virtual hosts beside the one that is always there."""

    hosts: Iterable[str] = ()

    def made_broker(self) -> Any:
        broker = super().made_broker()
        self.directory = Directory(broker, self.hosts)
        return broker

    def settle(self, turns: int = 6) -> None:
        """Force everything, and let everything happen that is due now."""
        for _ in range(turns):
            self.engine.sync()
            self.timers.advance(0)
        self.broker.dead_letters.try_again()
        self.engine.sync()
        self.timers.advance(0)

    def pass_time(self, seconds: float, steps: int = 4) -> None:
        """Let time pass, and what is due by it happen."""
        self.clock.advance(round(seconds * SECOND))
        self.timers.advance(seconds)
        for _ in range(steps):
            self.settle(2)
            self.timers.advance(0.001)
        self.broker.queues.expire(self.engine.now())
        self.settle()

    def kill(self) -> None:
        """Start again from what was forced, as after SIGKILL."""
        self.filesystem = self.filesystem.kill_clone()
        self.start()

    def talker(self, host: str = "/", **more: Any) -> Talker:
        """Return a client whose connection is open."""
        talker = Talker(self, **more)
        talker.enter(host=host)
        return talker

    def counts(self, queue: str) -> tuple[int, int]:
        """Return how many messages of a queue can be got, and how many are with clients."""
        found = self.broker.queues.listing.counts(queue)
        assert found is not None, f"there is no queue {queue}"
        return found

    def attempts(self, queue: str) -> dict[int, int]:
        """Return how often the messages of a queue were returned that were."""
        partition = self.broker.queues.declarations.queue(queue).partition
        settled = self.broker.groups.groups[QUEUE_GROUP].settlements.get(partition)
        return {} if settled is None else {n: one.attempts for n, one in settled.unfinished.items()}


class Talker:
    """A client. ``heard`` is what it was told and has not looked at, oldest first."""

    def __init__(
        self,
        house: House,
        client: Table | None = None,
        facts: ConnectionFacts | None = None,
        name: str = "10.0.0.9:9",
    ) -> None:
        self.house, self.client = house, CAPABLE if client is None else client
        self.heard: list[Heard] = []
        self._hearing = Hearing()
        self.closed: list[str] = []
        self.is_lost = False
        self._left: list[Any] = []
        self._is_held = False
        broker, later = house.broker, house.timers.callLater
        self.connection = AmqpConnection(broker, house.directory, self._came, self.closed.append, later)
        learn = None if facts is None else lambda: facts
        self.session = broker.opened(name, self.connection.answered, self.closed.append, learn)
        self.session.hold = self._hold
        self.connection.begin(self.session)

    # -- what is said ------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Have the broker read these bytes at once. As in the service, nothing is read behind the end."""
        self._left += self.connection.decoder.feed(data)
        self._carry_out()

    def _carry_out(self) -> None:
        while self._left and not self._is_held and not self.closed:
            arrived, body = self._left.pop(0)
            self.connection.received(self.session, arrived, body)
        if not self.closed:
            self.connection.turn_over()

    def _hold(self, held: bool) -> None:
        self._is_held = held
        if not held:
            self.house.timers.callLater(0, self._carry_out)

    def say(self, *methods: Method, on: int = 1) -> None:
        """Say methods in one read."""
        self.feed(b"".join(method_frame(on, each) for each in methods))

    def ask(self, method: Method, on: int = 1) -> Any:
        """Say a method; return what is answered, None if nothing is."""
        before = len(self.heard)
        self.say(method, on=on)
        self.house.settle()
        new = self.heard[before:]
        del self.heard[before:]
        assert len(new) <= 1, f"more than an answer: {new}"
        return new[0].method if new else None

    def publish(self, key: str, *bodies: bytes, on: int = 1, **more: Any) -> None:
        """Publish messages in one read."""
        self.feed(b"".join(published(on, key, body, **more) for body in bodies))

    def enter(
        self, heartbeat: int = 0, frame_max: int = 131_072, channels: Iterable[int] = (1,), host: str = "/"
    ) -> None:
        """Open the connection, and channels."""
        self.feed(PROTOCOL_HEADER)
        self.say(c.ConnectionStartOk(self.client, "PLAIN", b"\0guest\0guest", "en_US"), on=0)
        self.house.settle()
        self.say(c.ConnectionTuneOk(2047, frame_max, heartbeat), c.ConnectionOpen(host), on=0)
        for each in channels:
            self.say(c.ChannelOpen(), on=each)
        kinds = [type(each.method) for each in self.taken()]
        opened = [c.ChannelOpenOk for _ in channels]
        assert kinds == [c.ConnectionStart, c.ConnectionTune, c.ConnectionOpenOk, *opened], kinds

    def open(self, *channels: int) -> None:
        """Open channels."""
        for each in channels:
            assert isinstance(self.ask(c.ChannelOpen(), on=each), c.ChannelOpenOk)

    def lose(self) -> None:
        """Lose the connection."""
        assert not self.is_lost
        self.is_lost = True
        self.connection.lost()
        self.house.broker.closed(self.session)
        self.house.settle()

    # -- what is heard -----------------------------------------------------------------------------

    def _came(self, data: bytes) -> None:
        assert not self.closed, "told something behind the end"
        self.heard += self._hearing.feed(data)

    @property
    def heartbeats(self) -> int:
        """How many it was told."""
        return self._hearing.heartbeats

    def taken(self, on: int | None = None) -> list[Heard]:
        """Return what was heard, of a channel or of all, and forget it."""
        self.house.settle()
        found = [each for each in self.heard if on is None or each.channel == on]
        self.heard = [each for each in self.heard if on is not None and each.channel != on]
        return found

    def methods(self, on: int | None = None) -> list[Any]:
        return [each.method for each in self.taken(on)]

    def told(self, kind: Callable[..., Any]) -> list[Heard]:
        """Return what was heard of a kind, and forget everything."""
        return [each for each in self.taken() if isinstance(each.method, kind)]  # type: ignore[arg-type]

    def bodies(self) -> list[bytes]:
        """Return the bodies of deliveries, and forget everything."""
        return [each.body for each in self.told(m.BasicDeliver)]

    # -- what is mostly wanted ---------------------------------------------------------------------

    def queue(
        self, name: str = "q", arguments: Table | None = None, on: int = 1, **flags: bool
    ) -> m.QueueDeclareOk:
        answer = self.ask(declare(name, arguments, **flags), on)
        assert isinstance(answer, m.QueueDeclareOk), answer
        return answer

    def exchange(
        self, name: str, kind: str = "direct", arguments: Table | None = None, **flags: bool
    ) -> None:
        answer = self.ask(declare_exchange(name, kind, arguments, **flags))
        assert isinstance(answer, m.ExchangeDeclareOk), answer

    def bind(self, queue: str, exchange: str, key: str = "", arguments: Table | None = None) -> None:
        answer = self.ask(m.QueueBind(0, queue, exchange, key, False, arguments or {}))
        assert isinstance(answer, m.QueueBindOk), answer

    def confirm(self, on: int = 1) -> None:
        assert isinstance(self.ask(m.ConfirmSelect(False), on), m.ConfirmSelectOk)

    def qos(self, count: int, is_global: bool = False, on: int = 1) -> None:
        """Set a prefetch, whatever is delivered by that."""
        self.say(m.BasicQos(0, count, is_global), on=on)

    def consume(self, queue: str = "q", tag: str = "c", on: int = 1, **more: Any) -> None:
        """Begin to consume; what is delivered by that is not looked at."""
        self.say(consume(queue, tag, **more), on=on)
        self.house.settle()
        place = next(n for n, each in enumerate(self.heard) if isinstance(each.method, m.BasicConsumeOk))
        del self.heard[place]

    def get(self, queue: str = "q", no_ack: bool = False, on: int = 1) -> Heard | None:
        """Get a message; None if there is none."""
        self.say(m.BasicGet(0, queue, no_ack), on=on)
        [found] = self.taken(on)
        if isinstance(found.method, m.BasicGetEmpty):
            return None
        assert isinstance(found.method, m.BasicGetOk), found
        return found

    def all_of(self, queue: str = "q") -> list[bytes]:
        """Get all messages of a queue, and have them finished."""
        found = []
        while (one := self.get(queue, no_ack=True)) is not None:
            found.append(one.body)
        return found

    def refused(self, method: Method | bytes, reply: Reply, on: int = 1) -> str:
        """Say what is refused with the channel's end or the connection's; return the words."""
        self.taken()
        self.feed(method if isinstance(method, bytes) else method_frame(on, method))
        return self.ended(reply, on)

    def ended(self, reply: Reply, on: int = 1) -> str:
        """Look that the channel has ended for that, or the connection if it is one of those, and answer it."""
        last = self.taken()[-1]
        kind = c.ConnectionClose if reply.ends_connection else c.ChannelClose
        assert isinstance(last.method, kind), last
        assert last.method.reply_code == reply, last
        assert last.method.reply_text.startswith(reply.name), last
        if not reply.ends_connection:
            assert last.channel == on, last
            self.say(c.ChannelCloseOk(), on=on)
            self.open(on)
        return last.method.reply_text
