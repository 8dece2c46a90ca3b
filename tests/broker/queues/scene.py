"""A broker with queues, and a peer that publishes, takes and acknowledges, over requests alone."""

from __future__ import annotations

from typing import Any

from journal.formats import frame
from journal.formats.offset_set_bytes import encode_offsets
from journal.offset_set import OffsetSet
from journal.records.group_entries import GroupPositions, Retried, Settled
from journal.records.queue_entries import (
    DEFAULT_EXCHANGE,
    QUEUE_GROUP,
    Binding,
    ExchangeKind,
    ExchangeSettings,
    QueueSettings,
    address_of,
)
from tests.support.broker_room import Peer, Room
from txbroker.broker.broker import Broker
from txbroker.queues.expiry import EXPIRATION
from txbroker.wire import messages

SECOND = 1_000_000
SELF = address_of(DEFAULT_EXCHANGE, mandatory=True)
"""The address that sends a message to the queue that its key names."""
SELF_OR_NOWHERE = address_of(DEFAULT_EXCHANGE, mandatory=False)


def framed(key: str, *values: bytes, headers: Any = None) -> bytes:
    return b"".join(frame.encode(value, 1, key.encode(), headers) for value in values)


def expiring(key: str, after: int, *values: bytes) -> bytes:
    return framed(key, *values, headers={EXPIRATION: b"%d" % after})


def pass_time(scene: Scene, micros: int) -> None:
    """Let time pass, and passes that are due then take all their turns."""
    scene.room.clock.advance(micros)
    scene.room.timers.advance(micros / 1e6)
    for _ in range(20):
        scene.room.engine.sync()
        scene.room.timers.advance(0.0001)


def offsets(*each: int) -> OffsetSet:
    found = OffsetSet()
    for offset in each:
        found.add(offset)
    return found


def settled(partition: int, *finished: int, retried: tuple[Retried, ...] = ()) -> Settled:
    base = min([*finished, *(each.offset for each in retried)])
    return Settled(partition, 0, base, encode_offsets(offsets(*finished), base), retried=list(retried))


def acknowledged(partition: int, *finished: int) -> list[GroupPositions]:
    """What a transaction carries that acknowledges these."""
    return [GroupPositions(QUEUE_GROUP, b"", [], [settled(partition, *finished)])]


class ReadingRoom(Room):
    """A room whose reads of the disk end when they are told to."""

    def made_broker(self) -> Broker:
        self.reads: list[Any] = []
        return Broker(
            self.engine,
            self.settings,
            lambda *read: self.reads.append(read),
            call_later=self.timers.callLater,
        )

    def read(self) -> None:
        while self.reads:
            work, done, _ = self.reads.pop(0)
            done(work())
            self.engine.sync()


class Scene:
    """A room with queues. ``peer`` asks, ``other`` is a second client."""

    def __init__(self, room: Room | None = None, **settings: Any) -> None:
        self.room = room or Room(**settings)
        self.peer, self.other = self.room.peer(), self.room.peer("10.0.0.2:6")

    def restart(self) -> None:
        self.room.restart()
        self.peer, self.other = self.room.peer(), self.room.peer("10.0.0.2:6")

    def queue(self, name: str = "q", **settings: Any) -> int:
        made = self.peer.ask(messages.DeclareQueue, name, QueueSettings(**settings))
        assert isinstance(made, messages.QueueDeclared), made
        return made.partition

    def exchange(self, name: str, kind: ExchangeKind, mandatory: bool = True, **settings: Any) -> int:
        made = self.peer.ask(messages.DeclareExchange, name, ExchangeSettings(kind, **settings))
        assert isinstance(made, messages.ExchangeDeclared), made
        return address_of(made.number, mandatory)

    def bind(self, exchange: str, key: str, queue: str, **more: Any) -> None:
        answer = self.peer.ask(messages.Bind, Binding(exchange, key, queue, **more))
        assert isinstance(answer, messages.Done), answer

    def publish(self, key: str, *values: bytes, to: int = SELF, **more: Any) -> Any:
        return self.peer.ask(messages.Send, to, data=framed(key, *values), **more)

    def take(self, partition: int, most: int = 100, peer: Peer | None = None, **more: Any) -> messages.Taken:
        peer = peer or self.peer
        answer = peer.ask(messages.TakeMessages, partition, most, **more)
        assert isinstance(answer, messages.Taken), answer
        return answer

    def taken(self, partition: int, most: int = 100, peer: Peer | None = None, **more: Any) -> list[bytes]:
        """Take messages; return their values, once their offsets are those that the answer says."""
        peer = peer or self.peer
        answer = self.take(partition, most, peer, **more)
        return values_of(answer, peer)

    def acknowledge(self, partition: int, *finished: int, peer: Peer | None = None) -> Any:
        what = [settled(partition, *finished)]
        return (peer or self.peer).ask(messages.CommitOffsets, QUEUE_GROUP, [], settled=what)

    def give_up(
        self, partition: int, *each: int, peer: Peer | None = None, after: int = 0, dead: bool = False
    ) -> Any:
        """Return messages, with an attempt counted for each."""
        tries = self.room.broker.groups.groups[QUEUE_GROUP].settlements.get(partition)
        known = {} if tries is None else {n: one.attempts for n, one in tries.unfinished.items()}
        retried = tuple(Retried(n, known.get(n, 0), after, "why", dead) for n in each)
        what = [settled(partition, retried=retried)]
        return (peer or self.peer).ask(messages.CommitOffsets, QUEUE_GROUP, [], settled=what)

    def info(self, name: str = "q") -> messages.QueueInfo:
        """Return what a list says of a queue; if reads end when they are told to, what is known without any."""
        if isinstance(self.room, ReadingRoom):
            listing = self.room.broker.queues.listing
            queue = listing.known(name)
            assert queue is not None, name
            return listing.info(queue)
        answer = self.peer.ask(messages.ListQueues, [name])
        assert isinstance(answer, messages.Queues), answer
        return answer.queues[0]

    def counts(self, name: str = "q") -> tuple[int, int, int, int]:
        """Messages of a queue: all, ready, unacknowledged, held."""
        found = self.info(name)
        return found.messages, found.ready, found.unacknowledged, found.held


def values_of(answer: messages.Taken, peer: Peer) -> list[bytes]:
    data = peer.data[peer.answers.index(answer)]
    found = [each for piece, _ in frame.decode_pieces(data, 0) for each in piece]
    told = [offset for first, count in answer.runs for offset in range(first, first + count)]
    assert [each.offset for each in found] == told, answer
    return [each.value or b"" for each in found]
