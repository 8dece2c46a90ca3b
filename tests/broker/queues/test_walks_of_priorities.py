"""Random walks over a queue with priorities: clients send, take, acknowledge, return, wait, cancel and leave, while
messages expire, are read from the disk, and are forced. Nothing is lost, given twice, or waits beside who waits for it.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

import pytest

from journal.formats import frame
from journal.formats.offset_set_bytes import encode_offsets
from journal.offset_set import OffsetSet
from journal.records.group_entries import Retried
from journal.records.queue_entries import QUEUE_GROUP, Overflow
from journal.testing import MemoryFile
from tests.broker.queues.scene import SECOND, SELF, ReadingRoom, Scene, framed, offsets, settled, values_of
from tests.support.broker_room import Peer
from txbroker.queues.delivery_ages import GENERATIONS
from txbroker.queues.expiry import EXPIRATION
from txbroker.queues.measurement import catch_up
from txbroker.queues.queue_deliveries import QueueDeliveries
from txbroker.wire import messages
from txbroker.wire.queues import PRIORITY

MOST_PASSED = SECOND + 300_000
"""µs that pass at most between two looks."""
REFUSALS = {"UnknownQueue", "LimitExceeded", "InvalidSetting", "QueueFull", "DeliveryLost", "QueueInUse"}
"""What a request may be refused for here."""


class Held(NamedTuple):
    """A message that a client has, since a journal time."""

    partition: int
    offset: int
    since: int


class Walker:
    """A client: what it has asked and has not been told, and the messages that it has, by their values."""

    def __init__(self, peer: Peer) -> None:
        self.peer, self.seen = peer, 0
        self.asked: set[int] = set()
        self.held: dict[bytes, Held] = {}
        self.consumes = False

    def take(self, queue: int, random: Random) -> None:
        consumer = int(self.consumes and random.random() < 0.5)
        most, wait = random.choice((1, 1, 3, 100)), random.choice((0, 0, SECOND, 30 * SECOND))
        self.asked.add(self.peer.tell(messages.TakeMessages, queue, most, max_wait=wait, consumer=consumer))


class Walk:
    """One walk."""

    def __init__(self, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.random = random = Random(seed)
        if random.random() < 0.5:
            patch.setattr(MemoryFile, "read_now", lambda *_: None)
        self.room = ReadingRoom()
        self.scene = Scene(self.room)
        self.most = random.choice((0, 1, 2, 5, 20))
        self.settings = self._settings()
        self.queue = self.scene.queue(max_priority=self.most, **self.settings)
        self.walkers = [Walker(self.room.peer(f"10.0.1.{number}:1")) for number in range(3)]
        self.sent: dict[bytes, bool] = {}
        """Whether a message must be there until it is acknowledged, by its value."""
        self.acknowledged: set[bytes] = set()

    def _settings(self) -> dict[str, Any]:
        random, found = self.random, dict[str, Any]()
        if random.random() < 0.3:
            found["message_ttl"] = random.choice((1000, SECOND))
        if random.random() < 0.2:
            found["max_length"] = random.choice((3, 10))
        if random.random() < 0.4:
            found["max_length_bytes"] = random.choice((0, 5, 12, 1000))
            found["overflow"] = random.choice(list(Overflow))
        if random.random() < 0.2:
            found["single_active"] = True
        if random.random() < 0.3:
            found["consumer_timeout"] = random.choice((50_000, SECOND, 2 * SECOND))
        if random.random() < 0.3:
            self.scene.queue("dead")
            found |= {"dead_letter_exchange": "", "dead_letter_key": "dead"}
        if random.random() < 0.2:
            found["delivery_limit"] = 2
        return found

    # -- steps -------------------------------------------------------------------------------------

    def step(self) -> None:
        self.lose()
        weights = {
            self.publish: 20, self.take: 25, self.acknowledge: 8, self.give_back: 6, self.return_one: 3, self.force: 15,
            self.read: 15, self.flush: 5, self.pass_time: 8, self.leave: 2, self.cancel: 3, self.consume: 2,
            self.stop: 1, self.purge: 0.5,
        }  # fmt: skip
        [chosen] = self.random.choices(list(weights), list(weights.values()))
        chosen(self.random.choice(self.walkers))
        self.collect()

    def publish(self, walker: Walker) -> None:
        random, data = self.random, b""
        for _ in range(random.randint(1, 5)):
            value, headers = b"%d" % len(self.sent), {PRIORITY: b"%d" % random.randint(0, self.most)}
            if random.random() < 0.4:
                headers[EXPIRATION] = b"%d" % random.choice((0, 1000, 100_000))
            ends = self.settings.keys() & {"message_ttl", "max_length", "max_length_bytes", "delivery_limit"}
            self.sent[value] = EXPIRATION not in headers and not ends
            data += framed("q", value, headers=headers)
        walker.peer.tell(messages.Send, SELF, data=data)

    def take(self, walker: Walker) -> None:
        for _ in range(self.random.choice((1, 1, 1, 18))):
            walker.take(self.queue, self.random)

    def _held(self, walker: Walker) -> tuple[bytes, Held] | None:
        if not walker.held:
            return None
        value = self.random.choice(list(walker.held))
        return value, walker.held.pop(value)

    def acknowledge(self, walker: Walker) -> None:
        if (found := self._held(walker)) is not None:
            value, held = found
            self.acknowledged.add(value)
            walker.peer.tell(
                messages.CommitOffsets, QUEUE_GROUP, [], settled=[settled(held.partition, held.offset)]
            )

    def give_back(self, walker: Walker) -> None:
        if (found := self._held(walker)) is not None:
            _, (partition, offset, _) = found
            is_counted = self.random.random() < 0.3
            encoded = encode_offsets(offsets(offset), offset)
            walker.peer.tell(messages.GiveBack, partition, encoded, offset, is_counted)

    def return_one(self, walker: Walker) -> None:
        if (found := self._held(walker)) is not None:
            _, (partition, offset, _) = found
            state = self.room.broker.queues.takes.deliveries.at(partition)
            after = self.random.choice((0, 1000, SECOND))
            retried = (Retried(offset, state.attempts(offset), after, "why", False),)
            walker.peer.tell(
                messages.CommitOffsets, QUEUE_GROUP, [], settled=[settled(partition, retried=retried)]
            )

    def force(self, walker: Walker) -> None:
        self.room.engine.sync()

    def read(self, walker: Walker) -> None:
        for _ in range(self.random.randint(1, 3)):
            if self.room.reads:
                work, done, _ = self.room.reads.pop(self.random.randrange(len(self.room.reads)))
                done(work())

    def flush(self, walker: Walker) -> None:
        self.room.engine.sync()
        self.room.flush()

    def pass_time(self, walker: Walker) -> None:
        self._pass(self.random.choice((100, 2000, 60_000, SECOND)))

    def _pass(self, micros: int) -> None:
        self.room.clock.advance(micros)
        self.room.timers.advance(micros / 1e6)

    def leave(self, walker: Walker) -> None:
        self.collect()
        walker.peer.leave()
        address = f"10.0.2.{self.random.randint(1, 250)}:{len(self.sent) + 1}"
        self.walkers[self.walkers.index(walker)] = Walker(self.room.peer(address))

    def cancel(self, walker: Walker) -> None:
        if walker.asked:
            walker.peer.tell(messages.Cancel, self.random.choice(sorted(walker.asked)))

    def consume(self, walker: Walker) -> None:
        if not walker.consumes:
            walker.consumes = True
            walker.peer.tell(messages.Consume, self.queue, 1, False, self.random.choice((0, 0, 5)))

    def stop(self, walker: Walker) -> None:
        if walker.consumes:
            walker.consumes = False
            walker.peer.tell(messages.StopConsuming, 1)

    def purge(self, walker: Walker) -> None:
        self.sent = dict.fromkeys(self.sent, False)
        walker.peer.tell(messages.PurgeQueue, "q")

    # -- what must be so -----------------------------------------------------------------------------

    def collect(self) -> None:
        """Look at what was told: each request once, each message to one."""
        self.lose()
        for walker in self.walkers:
            peer = walker.peer
            for answer, data in zip(peer.answers[walker.seen :], peer.data[walker.seen :], strict=True):
                walker.seen += 1
                if isinstance(answer, messages.Refused):
                    assert answer.error in REFUSALS, answer
                walker.asked.discard(answer.correlation)
                if isinstance(answer, messages.Taken):
                    assert self.queue <= answer.partition <= self.queue + self.most
                    for piece, _ in frame.decode_pieces(data, 0):
                        for each in piece:
                            self._given(walker, answer.partition, each)

    def _given(self, walker: Walker, partition: int, message: frame.Message) -> None:
        value = message.value or b""
        if "consumer_timeout" in self.settings:
            walker.held.pop(value, None)  # it was lost, and given anew
            if message.offset not in self._has(walker, partition):
                return  # it was lost before it was read
        assert value not in self.acknowledged, f"{value!r} was acknowledged, and comes again"
        assert not any(value in each.held for each in self.walkers), f"two have {value!r}"
        walker.held[value] = Held(partition, message.offset, self.room.engine.now())

    def lose(self) -> None:
        """Forget what clients have lost because they have not acknowledged it in time."""
        timeout = self.settings.get("consumer_timeout")
        if timeout is None:
            return
        for walker in self.walkers:
            for value, held in list(walker.held.items()):
                if held.offset not in self._has(walker, held.partition):
                    del walker.held[value]
                elif not walker.asked:  # else it may have been given to the same client anew
                    age = self.room.engine.now() - held.since
                    assert age <= timeout + timeout // GENERATIONS + MOST_PASSED, "it is returned in time"

    def _has(self, walker: Walker, partition: int) -> OffsetSet:
        state = self.room.broker.queues.takes.deliveries.at(partition)
        return state.delivered.get(walker.peer.session.number, OffsetSet())

    def settle(self) -> None:
        """Let all come to rest. What is late meanwhile goes to who waits, each of whom gets some once; and those know
        of it when the record is forced that returned it.
        """
        rounds = 0
        while rounds < 9 or (self._is_moving() and rounds < 500):
            rounds += 1
            self.room.engine.sync()
            self.room.read()
            self._pass(2000)
            self.collect()

    def _is_moving(self) -> bool:
        """Whether messages are being read, or answers may wait for a force."""
        engine = self.room.engine
        return bool(self.room.reads) or engine.forced_lsn < engine.last_lsn

    def check(self) -> None:
        """Compare what the broker has with what the clients know, once it has come to rest."""
        self.settle()
        takes = self.room.broker.queues.takes
        whole, now = takes.deliveries.at(self.queue).whole, self.room.engine.now()
        assert not any(each.peer.closed for each in self.walkers)
        assert not takes._giving
        assert not takes._serving
        assert not any(each.peer.session.making for each in self.walkers)
        waiting = [each for each in takes._lines.get(self.queue, ()) if takes.consumers.gets(each.consumer)]
        ready = [each.ready_run(now) for each in whole.levels if each.ready_run(now)]
        assert not (waiting and ready), "messages wait beside who waits for them"
        in_line = {
            (each.session.number, each.command.correlation) for line in takes._lines.values() for each in line
        }
        asked = {(each.peer.session.number, number) for each in self.walkers for number in each.asked}
        assert in_line == asked, "all that is not answered waits"
        for walker in self.walkers:
            for level in whole.levels:
                has = level.delivered.get(walker.peer.session.number)
                known = sorted(
                    each.offset for each in walker.held.values() if each.partition == level.store.number
                )
                found = [] if has is None else [n for first, end in has.runs() for n in range(first, end)]
                assert found == known

        if whole.queue.settings.max_length_bytes is not None:
            self.check_sizes(whole, now)

    def check_sizes(self, whole: QueueDeliveries, now: int) -> None:
        """Compare the bytes that are counted with those in the log of what can be got."""
        for level in whole.levels:
            level.release_due(now)
            assert catch_up(level, level.store.end_offset), "what comes is measured before it is flushed"
            later = {offset for due, offset in level._later if due > now}
            elsewhere = [level._held, level.damaged, level.finished, *level.delivered.values()]
            size, offset, end = 0, max(level.position, level.store.start_offset), level.store.high_watermark
            while offset < end:
                for each in frame.decode_run(level.store.read(offset, 1 << 20)):
                    is_due = each.offset not in later and level._due(each.offset) <= now
                    if offset <= each.offset and is_due and not any(each.offset in of for of in elsewhere):
                        size += len(each.value or b"")
                offset = each.offset + 1
            assert level.ready_size == size, f"of priority {level.store.number - self.queue}"
        if whole.queue.settings.overflow is Overflow.DROP_HEAD:
            most = whole.queue.settings.max_length_bytes
            assert most is None or whole.ready_size <= most or self._is_full(whole)

    def _is_full(self, whole: QueueDeliveries) -> bool:
        """Whether so many dead letters wait that no more may."""
        return any(self.room.broker.queues.takes.removals.most_at_once(each) == 0 for each in whole.levels)

    def end(self) -> None:
        """Let all leave; what must be there is there, the highest priorities first."""
        self.check()
        self._pass(40 * SECOND)
        self.settle()
        assert not any(each.asked for each in self.walkers)
        for walker in list(self.walkers):
            walker.peer.leave()
        self.settle()
        self._pass(2 * SECOND)
        self.settle()
        last, left, reader = self.queue + self.most, set[bytes](), self.room.peer("10.9.9.9:1")
        while (answer := self._read_on(reader)).runs:
            assert answer.partition <= last
            last = answer.partition
            left.update(values_of(answer, reader))
        assert not left & self.acknowledged
        assert {value for value, must in self.sent.items() if must} <= left | self.acknowledged

    def _read_on(self, reader: Peer) -> Any:
        asked = reader.tell(messages.TakeMessages, self.queue, 100)
        for _ in range(5):
            self.room.engine.sync()
            self.room.read()
        return reader.answer(asked)


def walk(seed: int, patch: pytest.MonkeyPatch) -> None:
    walk = Walk(seed, patch)
    for number in range(walk.random.randint(20, 150)):
        walk.step()
        if number % 25 == 24:
            walk.check()
    walk.end()


@pytest.mark.sampled
@pytest.mark.parametrize("first", range(0, 200, 10))
def test_nothing_is_lost_given_twice_or_left_to_wait(first):
    for seed in range(first, first + 10):
        with pytest.MonkeyPatch.context() as patch:
            walk(seed, patch)


@pytest.mark.parametrize("seed", [5164, 8050])
def test_what_is_late_in_the_last_round_of_a_rest_is_told_of_before_it_is_judged(seed):
    with pytest.MonkeyPatch.context() as patch:
        walk(seed, patch)


@pytest.mark.deep
@pytest.mark.parametrize("first", range(1000, 11_000, 1000))
def test_thousands_of_walks_find_nothing_else(first):
    for seed in range(first, first + 1000):
        with pytest.MonkeyPatch.context() as patch:
            walk(seed, patch)
