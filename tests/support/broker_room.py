"""A broker over a real engine on a memory file system, with peers whose answers are decoded: no socket, no thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from twisted.internet.task import Clock

from journal.engine.engine import Engine
from journal.engine.settings import JournalSettings
from journal.folds.table import client_folds
from journal.formats import frame
from journal.recovery.start import recover
from journal.settings import TopicSettings
from journal.testing import ManualClock, MemoryFilesystem
from tests.support.builders import small_files
from txbroker.broker.broker import Broker
from txbroker.broker.sessions.settings import BrokerSettings
from txbroker.login.facts import ConnectionFacts
from txbroker.wire import messages
from txbroker.wire.codec import answer_decoder, encode

NOTHING = memoryview(b"")


def opening(client: str = "tester", after: messages.FormerSession | None = None) -> bytes:
    """Return the bytes of a hello, and of the login of who need not log in, which may come with it."""
    hello = messages.Hello(1, messages.MAGIC, list(messages.VERSIONS), client)
    return encode(hello) + encode(messages.Login(2, "ANONYMOUS", b"", after))


def frames(*values: bytes) -> bytes:
    return b"".join(frame.encode(value, 1) for value in values)


class Peer:
    """One connection. ``answers`` are the answers that it was sent, oldest first, each with its data."""

    def __init__(
        self,
        room: Room,
        name: str = "10.0.0.1:5",
        hello: bool = True,
        after: messages.FormerSession | None = None,
        facts: ConnectionFacts | None = None,
    ) -> None:
        self._room = room
        self._decoder = answer_decoder(1 << 26)
        self.answers: list[Any] = []
        self.data: list[bytes] = []
        self.closed: list[str] = []
        learn = None if facts is None else lambda: facts
        self.session = room.broker.opened(name, self._deliver, self.closed.append, learn)
        self._correlation = 0
        if hello:
            self.tell(messages.Hello, messages.MAGIC, list(messages.VERSIONS), "tester")
            self.tell(messages.Login, "ANONYMOUS", b"", after)
            _, welcome = self.answers or [None, None]
            if isinstance(welcome, messages.Welcome):
                self.former = messages.FormerSession(welcome.session, welcome.start, welcome.secret)
            self.answers.clear()
            self.data.clear()

    def _deliver(self, data: bytes) -> None:
        for answer, part in self._decoder.feed(data):
            self.answers.append(answer)
            self.data.append(bytes(part))

    def tell(self, kind: Callable[..., Any], *fields: Any, data: bytes = b"", **named: Any) -> int:
        """Send a request; return its correlation. Nothing is forced."""
        self._correlation += 1
        command = kind(self._correlation, *fields, **named)
        self._room.broker.received(self.session, command, memoryview(data))
        return self._correlation

    def ask(self, kind: Callable[..., Any], *fields: Any, data: bytes = b"", **named: Any) -> Any:
        """Send a request and process everything; return the answer, None if there is none."""
        correlation = self.tell(kind, *fields, data=data, **named)
        self._room.engine.sync()
        return self.answer(correlation)

    def answer(self, correlation: int) -> Any:
        found = [answer for answer in self.answers if answer.correlation == correlation]
        assert len(found) <= 1, f"answered twice: {found}"
        return found[0] if found else None

    def send(self, partition: int, *values: bytes, **named: Any) -> Any:
        return self.ask(messages.Send, partition, data=frames(*values), **named)

    def again(self) -> Peer:
        """Return the same client on a new connection."""
        return Peer(self._room, after=self.former)

    def leave(self) -> None:
        self._room.broker.closed(self.session)


class Room:
    """A data directory, its engine and broker; :meth:`restart` begins again from what was forced."""

    def __init__(self, journal: JournalSettings | None = None, **settings: Any) -> None:
        self.filesystem = MemoryFilesystem()
        self.clock = ManualClock(monotonic=1_000_000)
        self.timers = Clock()
        self.journal = journal or small_files()
        self.settings = BrokerSettings(**settings)
        self.topics = 0
        self.start()

    def start(self) -> None:
        self.engine: Engine = recover(self.filesystem, self.clock, self.journal, folds=client_folds())
        self.engine.on_flush_wanted = lambda: None  # as in the service, flushing is not done in the same turn
        self.broker = self.made_broker()
        self.engine.sync()

    def made_broker(self) -> Broker:
        return Broker(self.engine, self.settings, call_later=self.timers.callLater)

    def restart(self) -> None:
        self.engine.sync()
        self.engine.close()
        self.start()

    def peer(self, name: str = "10.0.0.1:5", hello: bool = True) -> Peer:
        return Peer(self, name, hello)

    def topic(self, name: str = "orders", partitions: int = 1, **settings: Any) -> list[int]:
        """Create a topic; return its partitions' numbers. Its id is the same in each room that does the same."""
        self.topics += 1
        topic_id = self.topics.to_bytes(16)
        made = self.peer().ask(messages.CreateTopic, name, partitions, TopicSettings(**settings), topic_id)
        assert isinstance(made, messages.Topics), made
        return [each.number for each in made.topics[0].partitions]

    def topic_id(self, name: str = "orders") -> bytes:
        return self.engine.catalog.topics[name].id

    def group_id(self, name: str = "g") -> bytes:
        return self.broker.groups.groups[name].id

    def flush(self) -> None:
        """Write all tails to their segments."""
        self.engine.want_flush()
        while jobs := self.engine.jobs(self.engine.now()):
            for job in jobs:
                job.run()
                self.engine.finish(job)
            if not any(store.unflushed_messages for store in self.engine.catalog.stores.values()):
                break


def refused(answer: Any, error: str) -> str:
    """Assert that an answer is that refusal; return its message."""
    assert isinstance(answer, messages.Refused), answer
    assert answer.error == error, answer
    return str(answer.message)


def recorded(room: Room) -> list[Any]:
    """Return the list to which the records are added that the room journals from now on."""
    records: list[Any] = []
    accept = room.engine._accept

    def note(record: Any, *more: Any) -> Any:
        records.append(record)
        return accept(record, *more)

    room.engine._accept = note  # type: ignore[method-assign]
    return records


__all__ = ["NOTHING", "Iterator", "Peer", "Room", "frames", "opening", "recorded", "refused"]
