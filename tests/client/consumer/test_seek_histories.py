"""Test random histories of consumers that pause, resume and seek, with a broker in memory, against simple models.

Of a group the model knows which messages are in hand, finished or failed; of a reading without a group it knows where
each partition goes on. Fetches and seeks are under way at any moment, connections are lost, calls are cancelled.
"""

import random

import pytest

from journal.formats import frame
from tests.client.consumer.test_retry_histories import MESSAGES, History, RoomBroker, RoomRig
from txbroker import errors
from txbroker.client.consumer.consumer import ConsumerCore
from txbroker.client.consumer.options import consumer_options
from txbroker.client.consumer.seek import seek
from txbroker.client.core.promise import Cancelled, start
from txbroker.wire import messages

SIZES = [(1, 1), (1, 8 << 20), (300, 300), (1 << 20, 8 << 20)]
"""Of ``max_bytes`` and ``prefetch``."""


class SeekingHistory(History):
    def __init__(self, seed, order):
        super().__init__(seed, order)
        max_bytes, prefetch = self.draw.choice(SIZES)
        options = consumer_options(
            "t", "g", order=order, partitions=[0], max_bytes=max_bytes, prefetch=prefetch
        )
        self.consumer = ConsumerCore(self.rig.shared_fetch, options, "me")
        self.moved = 0

    @property
    def position(self):
        """The position of the consumer; None before it reads."""
        return self.consumer.positions.get(self.partition)

    @property
    def is_paused(self):
        return self.position is not None and self.position.paused

    def glance(self):
        """Have a fetch under way, and take nothing."""
        found = self.consumer.look()
        assert not self.is_paused or found is None

    def take(self):
        has_taken = super().take()
        assert not (has_taken and self.is_paused), "a paused partition gives something"
        return has_taken

    def seek(self):
        offset = self.draw.randrange(MESSAGES + 2)
        task = start(seek(self.consumer, "t", 0, offset, None))
        if self.draw.random() < 0.5:
            assert self.consumer.look() is None, "it is not known yet where to go on"
        match self.draw.choice(["answered", "answered", "cancelled", "lost"]):
            case "cancelled":
                task.cancel()
                self.rig.pump()
            case "lost":
                self.rig.lose(restart=self.draw.random() < 0.3)
            case _:
                self.rig.pump()
                assert task.done
        if offset > MESSAGES:
            assert isinstance(task.error, (errors.OffsetOutOfRange, Cancelled))
        else:
            self.has_moved(offset)

    def has_moved(self, offset):
        self.moved += 1
        before = min(set(range(MESSAGES)) - self.finished, default=MESSAGES)
        self.hand.clear()
        if offset < before:
            self.finished = set(range(offset))
            self.parked = {each for each in self.parked if each < offset}
            self.failed.update(dict.fromkeys(range(offset, MESSAGES), 0))
        else:
            self.finished |= set(range(offset))
        self.parked -= self.finished

    def step(self):
        action = self.draw.choice(["", "", "", "glance", "pause", "resume", "resume", "seek"])
        if self.position is None or not action:
            super().step()
        elif action == "glance":
            self.glance()
        elif action == "pause":
            self.consumer.pause(self.position)
        elif action == "resume":
            self.consumer.resume(self.position)
        else:
            self.seek()

    def end(self):
        if self.is_paused:
            while self.take():
                pass
            assert not self.consumer.finished
            self.consumer.resume(self.position)
        super().end()


@pytest.mark.sampled(15)
@pytest.mark.parametrize("order", ["partition", "key", None])
@pytest.mark.parametrize("seed", range(25))
def test_of_a_group_all_that_is_unfinished_comes_once_wherever_it_was_moved(seed, order):
    history = SeekingHistory(seed, order)
    for _ in range(150):
        history.step()
    history.end()
    assert history.moved


class Reading:
    """A consumer without a group, of two partitions, each with where it goes on."""

    def __init__(self, seed, follow):
        self.draw = random.Random(f"{seed} {follow}")
        self.broker = RoomBroker()
        self.numbers = self.broker.room.topic("t", 2)
        self.rig = RoomRig(self.broker, client="me")
        self.ends = [0, 0]
        for index in range(2):
            self.send(index, MESSAGES)
        max_bytes, prefetch = self.draw.choice(SIZES)
        options = consumer_options("t", None, follow=follow, max_bytes=max_bytes, prefetch=prefetch)
        self.consumer = ConsumerCore(self.rig.shared_fetch, options, "me")
        self.following = [0, 0]
        self.paused = set()

    def send(self, index, count):
        """Append to a partition. A fetch that waits for it is answered, and the answer not received yet."""
        frames = b"".join(frame.encode(b"x", 1) for _ in range(count))
        self.broker.room.peer().ask(messages.Send, self.numbers[index], data=frames)
        self.ends[index] += count

    def take(self):
        delivery = self.consumer.look()
        self.rig.pump()
        delivery = delivery or self.consumer.look()
        if delivery is None:
            return False
        for message in delivery.some(self.draw.choice([1, 2, 5])):
            assert message.partition not in self.paused
            assert message.offset == self.following[message.partition]
            self.following[message.partition] += 1
        return True

    def step(self):
        index = self.draw.randrange(2)
        position = self.consumer.positions.get(self.numbers[index])
        match self.draw.choice(["take", "take", "take", "glance", "send", "pause", "resume", "seek", "lose"]):
            case "take":
                self.take()
            case "glance":
                self.consumer.look()
            case "send" if self.consumer.options.follow:
                self.send(index, 2)
            case "pause" if position:
                self.consumer.pause(position)
                self.paused.add(index)
            case "resume" if position:
                self.consumer.resume(position)
                self.paused.discard(index)
            case "seek" if position:
                offset = self.draw.randrange(MESSAGES + 1)
                start(seek(self.consumer, "t", index, offset, None)).result()
                self.following[index] = offset
            case "lose":
                self.rig.lose()

    def end(self):
        while self.take():
            pass
        is_read = all(self.following[index] == self.ends[index] for index in self.paused)
        assert self.consumer.finished == (is_read and not self.consumer.options.follow)
        for index in self.paused:
            self.consumer.resume(self.consumer.positions[self.numbers[index]])
        self.paused.clear()
        while self.take():
            pass
        assert self.following == self.ends
        assert self.consumer.finished != self.consumer.options.follow


@pytest.mark.sampled(15)
@pytest.mark.parametrize("follow", [True, False])
@pytest.mark.parametrize("seed", range(25))
def test_without_a_group_each_partition_goes_on_where_it_was_or_where_it_was_told_to(seed, follow):
    reading = Reading(seed, follow)
    for _ in range(100):
        reading.step()
    reading.end()
