"""Histories of an engine with the broker's folds, drawn from seeds, and the state after each: live, and after a start.

A deed of a history is a name and fields. Partitions go by their topic's name, so a history says nothing of numbers,
bytes or positions in files; what the deed is refused with belongs to what is seen. :func:`seen` tells of an engine's
logs, transactions, outcomes, positions and producers, on the level of what they mean: its digest is recorded when the
history ends, and again after the next start, which has nothing but the files.
``python -m tests.corpus.histories`` records all anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from crc32c import crc32c

from journal.constants import KIB, MIB
from journal.engine.engine import Engine
from journal.engine.settings import JournalSettings
from journal.errors import TxBrokerError
from journal.folds.table import client_folds
from journal.formats import frame
from journal.parties import Actor, Owner
from journal.records import outcome_entry
from journal.records.group_entries import GroupPositions, PartitionOffset
from journal.records.outcome_entry import OUTCOMES_TOPIC
from journal.records.record import (
    GroupDeleted,
    LogStartMoved,
    OffsetsCommitted,
    PartitionsClaimed,
    ProducerOpened,
    ProducersExpired,
    TopicCreated,
    TopicDeleted,
)
from journal.recovery.start import recover
from journal.settings import TopicSettings
from journal.testing import ManualClock, MemoryFilesystem
from journal.transaction_states import Cause, State, Totals, TransactionNumber
from journal.xid import Xid

FILE = Path(__file__).parent / "histories.txt"
COUNT = 3_500
SETTINGS = JournalSettings(
    pool_bytes=4 * MIB, file_bytes=128 * KIB, checkpoint_bytes=1 << 40, checkpoint_interval=1 << 50,
    low_water_bytes=0, open_files=8,
)  # fmt: skip
ME = Actor("me", "anonymous")
WHOSE = Owner("anonymous", "", "c")
OWNER = b"owner".ljust(16, b".")
TOPICS, GROUPS, SESSIONS = ("t1", "t2", "t3"), ("g1", "g2"), (1, 2, 3)


class History:
    """An engine, and the deeds that are done to it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        archive = self.random.random() < 0.3
        self.settings = JournalSettings(
            **{name: getattr(SETTINGS, name) for name in SETTINGS.__struct_fields__}
            | {"outcome_archive": archive}
        )
        self.filesystem = MemoryFilesystem()
        self.clock = ManualClock(monotonic=1_000_000)
        self.values = 0
        self.sent: dict[TransactionNumber, Totals] = {}
        self.refused: list[str] = []
        self.start()

    def start(self) -> None:
        self.folds = client_folds()
        self.engine: Engine = recover(self.filesystem, self.clock, self.settings, folds=self.folds)
        self.producers, self.groups = self.folds[0], self.folds[1]
        transactions = self.engine.transactions
        transactions.table.application.small_bytes, transactions.table.application.slice_bytes = (
            16 * KIB,
            64 * KIB,
        )
        self.serials: dict[int, int] = {}

    def run(self) -> None:
        """Make a topic and do some deeds, in groups that are forced together."""
        self.create()
        for _ in range(self.random.choice((10, 20, 40))):
            [deed] = self.random.choices(list(DEEDS), list(DEEDS.values()))
            try:
                deed(self)
            except TxBrokerError as error:
                self.refused.append(f"{deed.__name__} {type(error).__name__}")
            while self.engine.busy:
                self.engine.sync()
            if self.random.random() < 0.4:
                self.engine.sync()
        self.engine.sync()

    # -- choices ----------------------------------------------------------------------------------

    def partition(self) -> int:
        numbers = sorted(n for n, store in self.engine.catalog.stores.items() if not store.internal)
        return self.random.choice(numbers) if numbers and self.random.random() < 0.97 else 999

    def frames(self) -> tuple[bytes, int]:
        made = []
        for _ in range(self.random.choice((1, 1, 2, 3))):
            self.values += 1
            size = self.random.choice((0, 10, 10, 300, 6_000))
            made.append(frame.encode(b"%d " % self.values + b"v" * size, 1, self.random.choice((None, b"k"))))
        return b"".join(made), len(made)

    def some(self, state: State) -> TransactionNumber | None:
        found = sorted(n for n, each in self.engine.transactions.live.items() if each.state is state)
        return self.random.choice(found) if found else None

    def offsets(self) -> list[PartitionOffset]:
        return [
            PartitionOffset(self.partition(), self.random.randint(0, 9), 0, self.random.choice(("", "m")))
        ]

    def group_id(self, group: str) -> bytes:
        return b"" if group in self.groups.groups else group.encode().ljust(16, b".")

    # -- deeds ------------------------------------------------------------------------------------

    def create(self) -> None:
        missing = [name for name in TOPICS if name not in self.engine.catalog.topics]
        if missing:
            name, count = self.random.choice(missing), self.random.randint(1, 3)
            keep = self.random.choice(({}, {"retention_bytes": 0}))
            made = TopicSettings(segment_bytes=64 * KIB, **keep)
            catalog, at = self.engine.catalog, self.engine.now()
            self.engine.accept(TopicCreated(name, catalog.next_partition, count, made, at, name.encode() * 8))

    def delete(self) -> None:
        transactions = self.engine.transactions
        for name, topic in sorted(self.engine.catalog.topics.items()):
            held = any(transactions.holds_partition(store.number) for store in topic.partitions)
            if name in TOPICS and not held:
                self.engine.accept(TopicDeleted(name, self.engine.now()))
                return

    def send(self) -> None:
        store = self.engine.catalog.store(self.partition())
        self.engine.append(store, *self.frames())

    def open_producer(self) -> None:
        name = self.random.choice(("p1", "p2", "p3"))
        known = self.producers.names.get(name)
        epoch = 0 if known is None else self.producers.producers[known].epoch + 1
        number = self.producers.next_id if known is None else known
        self.engine.accept(ProducerOpened(number, epoch, name, self.engine.now(), OWNER))

    def produce(self) -> None:
        if not self.producers.producers:
            self.open_producer()
        producer = self.producers.producers[self.random.choice(sorted(self.producers.producers))]
        store = self.engine.catalog.store(self.partition())
        known = producer.partitions.get(store.number)
        frames, count = self.frames()
        self.engine.append(store, frames, count, producer.id, producer.epoch, known.next if known else 0)

    def expire_producer(self) -> None:
        if self.producers.producers:
            number = self.random.choice(sorted(self.producers.producers))
            self.engine.accept(ProducersExpired([number], self.engine.now()))

    def begin(self) -> TransactionNumber:
        session = self.random.choice(SESSIONS)
        serial = self.serials[session] = self.serials.get(session, 0) + 1
        number = TransactionNumber(self.engine.start_number << 32 | session, serial)
        self.sent[number] = Totals(0, 0, 0)
        for _ in range(self.random.choice((1, 1, 1, 2, 4))):
            self.add_to(number)
        return number

    def add_to(self, number: TransactionNumber) -> None:
        frames, count = b"", 0
        if self.random.random() < 0.15:
            group = self.random.choice(GROUPS)
            named = group.encode().ljust(16, b".")
            self.engine.transactions.add_offsets(number, group, self.offsets(), owner=WHOSE, group_id=named)
        else:
            frames, count = self.frames()
            self.engine.transactions.add(number, self.partition(), frames, count, owner=WHOSE)
        sent = self.sent[number]
        checksum = crc32c(frames, sent.checksum)
        self.sent[number] = Totals(sent.messages + count, sent.requests + 1, checksum)

    def add_more(self) -> None:
        if number := self.some(State.ACTIVE):
            self.add_to(number)

    def commit_new(self) -> None:
        number = self.begin()
        seen = number.serial - 1 if self.random.random() < 0.2 else 0
        self.engine.transactions.commit(number, Cause.CLIENT, self.sent[number], seen)

    def prepare_new(self) -> None:
        number = self.begin()
        self.engine.transactions.prepare(number, self.xid(number), self.sent[number], owner=WHOSE)
        if self.random.random() < 0.3:
            self.engine.transactions.commit(number, Cause.CLIENT)

    def xid(self, number: TransactionNumber) -> Xid:
        return Xid(1, f"{number}".encode(), b"b")

    def prepare(self) -> None:
        if number := self.some(State.ACTIVE):
            self.engine.transactions.prepare(number, self.xid(number), self.sent[number], owner=WHOSE)

    def commit(self) -> None:
        if number := self.some(State.ACTIVE):
            wrong = self.random.random() < 0.1
            sent = self.sent[number]
            totals = Totals(sent.messages + wrong, sent.requests, sent.checksum)
            self.engine.transactions.commit(number, Cause.CLIENT, totals)

    def decide(self) -> None:
        if number := self.some(State.PREPARED):
            cause = self.random.choice((Cause.CLIENT, Cause.CLIENT, Cause.OPERATOR, Cause.ORPHAN_POLICY))
            if self.random.random() < 0.6:
                self.engine.transactions.commit(number, cause, by=ME, why="because")
            else:
                self.engine.transactions.rollback(number, cause, ME, "because")

    def roll_back(self) -> None:
        if number := self.some(State.ACTIVE):
            self.engine.transactions.rollback(number, Cause.CLIENT)

    def doom(self) -> None:
        if number := self.some(State.ACTIVE):
            self.engine.transactions.doom(number)

    def end_again(self) -> None:
        """Of one that has ended: repeated, contradicted, told, forgotten."""
        transactions = self.engine.transactions
        if not transactions.outcomes.by_number:
            return
        number = self.random.choice(sorted(transactions.outcomes.by_number))
        what = self.random.choice(("commit", "roll back", "tell", "forget"))
        if what == "commit":
            transactions.commit(number, Cause.CLIENT)
        elif what == "roll back":
            transactions.rollback(number, Cause.CLIENT)
        elif what == "tell":
            transactions.tell(number, self.random.choice((State.COMMITTED, State.ROLLED_BACK)), Actor("c"))
        else:
            transactions.forget(number, ME, "because")

    def disconnect(self) -> None:
        session = self.random.choice(SESSIONS)
        self.engine.transactions.disconnect(self.engine.start_number << 32 | session)

    def expire(self) -> None:
        self.clock.advance(2_000_000)
        self.engine.transactions.expire(self.engine.now(), 3_000_000)

    def commit_offsets(self) -> None:
        group, offsets = self.random.choice(GROUPS), self.offsets()
        self.engine.catalog.store(offsets[0].partition)
        self.engine.transactions.check_unheld([GroupPositions(group, b"", offsets)])
        self.engine.accept(OffsetsCommitted(group, offsets, self.engine.now(), self.group_id(group)))

    def claim(self) -> None:
        group, partition = self.random.choice(GROUPS), self.partition()
        self.engine.catalog.store(partition)
        claims = [(partition, self.groups.last_generation + 1)]
        self.engine.accept(PartitionsClaimed(group, "m", claims, self.engine.now(), self.group_id(group)))

    def delete_group(self) -> None:
        free = [name for name in sorted(self.groups.groups) if not self.groups.holders(name)]
        if free:
            self.engine.accept(GroupDeleted(free[0], self.engine.now()))

    def move_start(self) -> None:
        store = self.engine.catalog.store(self.partition())
        if store.high_watermark > store.start_offset and store.high_watermark == store.end_offset:
            offset = self.random.randint(store.start_offset + 1, store.high_watermark)
            self.engine.accept(LogStartMoved(store.number, offset, self.engine.now()))

    def flush(self) -> None:
        self.engine.sync()
        self.engine.want_flush()
        self.engine.housekeeping.run_inline()

    def checkpoint(self) -> None:
        self.engine.sync()
        self.engine.housekeeping.checkpoint_inline()

    def stop(self) -> None:
        self.engine.sync()
        self.engine.close()
        self.start()

    def kill(self) -> None:
        self.engine.sync()
        seed = self.random.randrange(2)
        self.filesystem = self.filesystem.crash_clone(seed) if seed else self.filesystem.kill_clone()
        self.start()


DEEDS: dict[Callable[[History], object], int] = {
    History.create: 6,
    History.delete: 1,
    History.send: 10,
    History.open_producer: 2,
    History.produce: 8,
    History.expire_producer: 1,
    History.begin: 8,
    History.add_more: 4,
    History.commit_new: 10,
    History.prepare_new: 6,
    History.prepare: 4,
    History.commit: 6,
    History.decide: 6,
    History.roll_back: 2,
    History.doom: 1,
    History.end_again: 3,
    History.disconnect: 1,
    History.expire: 1,
    History.commit_offsets: 4,
    History.claim: 3,
    History.delete_group: 1,
    History.move_start: 1,
    History.flush: 3,
    History.checkpoint: 4,
    History.stop: 1,
    History.kill: 2,
}


# -- what is to be seen ---------------------------------------------------------------------------


def seen(history: History) -> dict[str, Any]:
    """All that the engine and its folds hold, by what it means."""
    engine = history.engine
    return {
        "topics": {
            name: [topic.id.hex(), [[s.number, s.start_offset, s.high_watermark] for s in topic.partitions]]
            for name, topic in sorted(engine.catalog.topics.items())
        },
        "next": engine.catalog.next_partition,
        "logs": {n: _messages(s) for n, s in sorted(engine.catalog.stores.items()) if not s.internal},
        "live": [_live(engine, number) for number in sorted(engine.transactions.live)],
        "outcomes": [_outcome(each) for _, each in sorted(engine.transactions.outcomes.by_number.items())],
        "forgotten": sorted(engine.transactions.outcomes.forgotten_through.items()),
        "archive": _archive(engine),
        "producers": _producers(history.producers),
        "groups": _groups(history.groups),
    }


def _messages(store: Any) -> list[Any]:
    found, offset = [], store.start_offset
    while data := store.read(offset, MIB):
        run = frame.decode_run(data, offset)
        found += [[m.offset, m.key, m.value] for m in run]
        offset = run[-1].offset + 1
    return found


def _live(engine: Engine, number: TransactionNumber) -> list[Any]:
    each = engine.transactions.live[number]
    parts = [
        [partition, [m.value for m in frame.decode_run(data)]]
        for partition, data in engine.transactions.table.preview(number, 64 * MIB, engine.forced_lsn)
    ]
    offsets = [[group, o.partition, o.offset, o.metadata] for group, o in each.offsets]
    return [
        number,
        each.state.name,
        str(each.xid),
        str(each.owner or ""),
        each.messages,
        each.requests,
        parts,
        offsets,
    ]


def _outcome(each: Any) -> list[Any]:
    placements = [[p.partition, p.base_offset, p.count] for p in each.placements]
    told = None if each.told is None else [each.told.decided.name, str(each.told.by)]
    how = [
        each.number,
        each.state.name,
        each.cause.name,
        str(each.xid),
        str(each.by or ""),
        each.heuristic,
        told,
    ]
    return [*how, str(each.owner or ""), each.messages, placements]


def _archive(engine: Engine) -> list[Any]:
    topic = engine.catalog.topics.get(OUTCOMES_TOPIC)
    if topic is None:
        return []
    found = []
    for _, _, value in _messages(topic.partitions[0]):
        e = outcome_entry.unpack(value)
        parts = [[p.topic, p.index, p.number, p.base_offset, p.count] for p in e.parts]
        found.append([e.number, e.state.name, e.cause.name, str(e.xid), e.messages, e.requests, parts])
    return found


def _producers(fold: Any) -> list[Any]:
    return [
        [p.id, p.epoch, p.name, p.owner.hex(),
         [[n, s.next, s.end, list(s.starts), list(s.bases)] for n, s in sorted(p.partitions.items())]]
        for _, p in sorted(fold.producers.items())
    ] + [fold.next_id, fold.pairs]  # fmt: skip


def _groups(fold: Any) -> list[Any]:
    groups = [
        [name, each.id.hex(), sorted(each.positions.items()),
         sorted((partition, claim[:2]) for partition, claim in each.claims.items()),
         sorted(fold.holders(name).items())]
        for name, each in sorted(fold.groups.items())
    ]  # fmt: skip
    return [*groups, fold.last_generation, fold.pairs, len(fold.concerned())]


def digest(what: Any) -> str:
    """Eight digits of a hash of what is seen."""
    return hashlib.sha256(json.dumps(what, default=bytes.hex).encode()).hexdigest()[:8]


def digests(seed: int) -> tuple[str, str]:
    """Of the history of that seed: live, with what was refused, and again after the next start."""
    history = History(seed)
    history.run()
    live = digest([history.refused, seen(history)])
    history.kill()
    return live, digest(seen(history))


def recorded() -> list[tuple[str, str]]:
    """What was recorded, by seed."""
    pairs = (line.split() for line in FILE.read_text().splitlines())
    return [(live, again) for live, again in pairs]


if __name__ == "__main__":
    FILE.write_text("".join(f"{live} {again}\n" for live, again in map(digests, range(COUNT))))
