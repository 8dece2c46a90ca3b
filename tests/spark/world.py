"""A small data directory with one of everything, made by the engine; the journal of its first half is gone."""

from __future__ import annotations

from pathlib import Path

from crc32c import crc32c

from journal.engine.settings import JournalSettings
from journal.formats import frame
from journal.formats.frame_check import check_run
from journal.log.message_store import MessageStore
from journal.records.record import TopicDeleted
from journal.transaction_states import Cause, Totals, TransactionNumber
from journal.xid import Xid
from tests.spark.audit.audited import SETTINGS, Making

SEGMENT = 64 * 1024
NEVER: dict[bytes, bytes] = {}
"""Frames of transactions that were rolled back, by their value: nothing in the directory has them."""


class World(Making):
    """Fills several topics through the engine."""

    def __init__(self, path: Path, settings: JournalSettings = SETTINGS) -> None:
        super().__init__(path, settings, segment_bytes=SEGMENT)
        self.topic("orders", 3)
        self.topic("quiet")
        self.topic("old", retention_bytes=SEGMENT)
        self.topic("again")

    def topic(self, name: str, partitions: int = 1, **settings: int) -> None:
        self.log.create_topic(name, partitions, **{"segment_bytes": SEGMENT} | settings)

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic so many partitions in all."""
        engine = self.engine
        engine.accept(
            engine.catalog.judge_alteration(engine.catalog.topics[topic], {}, engine.now(), partitions)
        )
        engine.sync()

    def store(self, topic: str, index: int = 0) -> MessageStore:
        return self.engine.catalog.topic(topic).partitions[index]

    def put(self, topic: str, index: int, *values: bytes, key: bytes | None = None) -> bytes:
        """A send; what was sent."""
        frames = self.frames(*values, key=key)
        self.resend(topic, index, frames, len(values))
        return frames

    def resend(self, topic: str, index: int, frames: bytes, count: int) -> None:
        self.engine.append(self.store(topic, index), frames, count)
        self.engine.sync()

    def wrapped(self, topic: str, index: int, *values: bytes) -> None:
        self.time += 1_000_000
        inner = b"".join(frame.encode_inner(n, value, self.time) for n, value in enumerate(values))
        self.resend(topic, index, frame.encode_wrapper(inner, len(values), self.time), len(values))

    def among(self, *adds: tuple[str, int, bytes], end: str = "commit", xid: str = "") -> TransactionNumber:
        """A transaction over any topics; ``end`` as in :meth:`Making.transaction`, or nothing: it stays active."""
        made = [(topic, index, self.frames(value)) for topic, index, value in adds]
        return self.of_frames(*made, end=end, xid=xid)

    def of_frames(
        self, *adds: tuple[str, int, bytes], end: str = "commit", xid: str = ""
    ) -> TransactionNumber:
        """A transaction of frames that are there already."""
        self._serial += 1
        number = TransactionNumber(self.engine.start_number << 32 | 9, self._serial)
        totals, transactions = Totals(0, 0, 0), self.engine.transactions
        for topic, index, frames in adds:
            count = check_run(frames)
            transactions.add(number, self.store(topic, index).number, frames, count)
            totals = Totals(totals.messages + count, totals.requests + 1, crc32c(frames, totals.checksum))
        if end in ("prepare", "two"):
            transactions.prepare(number, Xid(1, xid.encode() or b"x%d" % self._serial, b"b"), totals)
        if end == "commit":
            transactions.commit(number, Cause.CLIENT, totals)
        elif end == "two":
            transactions.commit(number, Cause.CLIENT)
        elif end == "rollback":
            transactions.rollback(number, Cause.CLIENT)
        self.engine.sync()
        return number

    def turn_over(self) -> None:
        """Let the journal below go: three checkpoints, with a file's worth before each."""
        for _ in range(3):
            for _ in range(3):
                self.put("again", 0, b"g" * 400_000)
            self.checkpoint()

    def kill(self) -> Path:
        """No checkpoint, no word: the files are let go as they are."""
        self.engine.close()
        return self.path


def everything(path: Path, settings: JournalSettings = SETTINGS) -> Path:
    """Sends, batches, transactions of every end over several topics; retention, and a topic that was made again."""
    made = World(path, settings)
    made.put("again", 0, b"of the first one of this name")
    made.among(("again", 0, b"in the first one"), ("a", 0, b"beside it"))
    accept_deletion(made, "again")
    made.topic("again")
    for number in range(20):
        made.put("quiet", 0, b"quiet %02d" % number, b"v" * 5_000)
    made.wrapped("quiet", 0, b"w0", b"w1", b"w2")
    never = made.frames(b"quiet and never")
    NEVER[b"quiet and never"] = never
    made.of_frames(("quiet", 0, never), end="rollback")
    made.among(("quiet", 0, b"quiet, once"), ("orders", 1, b"order"))
    for number in range(14):
        made.put("a", number % 2, b"plain %02d" % number, b"v" * 12_000)
        made.wrapped("a", 1, b"one", b"two %02d" % number, b"x" * 100)
        made.among(("a", 0, b"a%02d" % number), ("a", 1, b"b"), ("orders", number % 3, b"c" * 9_000))
        made.among(("orders", 0, b"two phases %02d" % number), ("a", 0, b"too"), end="two")
        made.among(("orders", 1, b"never %02d" % number), ("a", 1, b"never"), end="rollback")
        made.put("old", 0, b"o" * 30_000)
        if number == 7:
            made.turn_over()
        if number == 10:
            made.engine.housekeeping.retain(made.engine.now())
            made.engine.sync()
    made.among(("orders", 2, b"in doubt"), ("a", 1, b"in doubt"), end="prepare", xid="doubt")
    made.engine.housekeeping.retain(made.engine.now())
    made.engine.sync()
    return made.close()


def accept_deletion(made: World, topic: str) -> None:
    engine = made.engine
    engine.accept(TopicDeleted(topic, engine.now()))
    engine.sync()
    made.checkpoint()
