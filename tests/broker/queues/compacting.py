"""A queue of small segments, whose log is compacted."""

from __future__ import annotations

from typing import Any

from journal.check import Level, verify
from journal.log.message_store import MessageStore
from journal.records.record import TopicAltered
from journal.settings import TopicSettings
from tests.broker.queues.scene import Scene
from tests.support.broker_room import Peer, Room
from txbroker.wire import messages
from txbroker.wire.messages import MAX_TAKEN

SMALL = TopicSettings(segment_bytes=4096)


def value(number: int) -> bytes:
    return b"%04d" % number + b"." * 100


class Compacting(Scene):
    """A scene with a queue of small segments, of 26 messages each."""

    def __init__(self, room: Room | None = None, **settings: Any) -> None:
        super().__init__(room)
        self.number = self.queue(**settings)
        self.room.engine.accept(TopicAltered(self.store.topic, SMALL, self.room.engine.now()))
        self.sent = 0

    @property
    def store(self) -> MessageStore:
        return self.room.engine.catalog.stores[self.number]

    def fill(self, count: int) -> None:
        """Publish messages, each in a segment soon."""
        for _ in range(count):
            self.publish("q", value(self.sent))
            self.sent += 1
            if self.sent % 10 == 0:
                self.room.flush()
        self.room.flush()

    def acknowledge_but(self, *kept: int) -> None:
        """Take everything, acknowledge all but these, and return these."""
        taken = self.take(self.number, MAX_TAKEN, max_bytes=1 << 30)
        done = [n for first, count in taken.runs for n in range(first, first + count) if n not in kept]
        assert isinstance(self.acknowledge(self.number, *done), messages.Done)
        self.peer.leave()
        for _ in range(5):
            self.room.engine.sync()
            self.room.timers.advance(0.01)
        self.peer = self.room.peer()

    def compact(self) -> None:
        self.room.engine.housekeeping.compactor.look()
        self.room.engine.housekeeping.run_inline()

    def checkpoint(self) -> None:
        self.room.engine.housekeeping.checkpoint_inline()

    def all(self, peer: Peer | None = None) -> list[bytes]:
        return self.taken(self.number, MAX_TAKEN, peer, max_bytes=1 << 30)

    def files(self) -> list[str]:
        names = self.room.filesystem.list_directory(self.store.directory)
        return sorted(name.lstrip("0") or name for name in names if name.endswith(".log"))

    def check_sound(self) -> None:
        found = [str(each) for each in verify(self.room.filesystem.kill_clone(), Level.DEEP)]
        assert found == []
