"""Test random histories of a consumer whose group filters by tags, with a broker in memory.

Each message that matches is handed out as without a filter, none that does not is handed out at all, and in the end the
group stands behind all of them. What does not match counts as finished from the beginning.
"""

from functools import partial

import pytest

from journal.formats import compression, frame
from journal.formats.offset_set_bytes import encode_offsets
from journal.message_headers import TAG_HEADER
from journal.offset_set import OffsetSet
from journal.records.group_entries import GroupPositions, GroupSettings, Settled
from journal.xid import Xid
from tests.client.consumer import test_retry_histories
from tests.client.consumer.test_retry_histories import History, Transactions
from tests.support.broker_room import Room
from tests.support.thoroughness import examples
from txbroker.broker.fetches import filtered_fetches
from txbroker.wire import messages

XID = Xid(1, b"held", b"")
AHEAD = 12
"""So far ahead may be finished: less than most histories read."""


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """What is examined at once is a few messages, so that answers end anywhere."""
    monkeypatch.setattr(filtered_fetches, "IN_MEMORY", 400)
    monkeypatch.setattr(filtered_fetches, "IN_A_PART", 400)
    monkeypatch.setattr(filtered_fetches, "LEAST", 200)
    monkeypatch.setattr(filtered_fetches, "IN_AN_ANSWER", 2_000)


class Filtered:
    """What a filter adds to a history."""

    def make_filter(self):
        self.holds = False
        settings = GroupSettings(tags=["eu"])
        self.broker.room.peer().ask(messages.AlterGroup, "g", settings, ["tags"])

    def send(self, count):
        """Send messages, each by itself or together with others; of those that match about one in four."""
        room = self.broker.room
        while count:
            together = min(count, self.draw.choice([1, 1, 2, 5]))
            inner = []
            for place in range(together):
                key = self.draw.choice([None, b"a", b"b", b"c"])
                tag = self.draw.choice([b"eu", b"us", b"us", None])
                headers = [(TAG_HEADER, tag)] if tag else []
                if tag != b"eu":
                    self.finished.add(len(self.keys))
                self.failed[len(self.keys)] = 0
                self.keys.append(key)
                inner.append(frame.encode_inner(place, bytes(60), 1, key, headers))
            if together == 1:
                data = frame.encode_alone(inner[0])
            else:
                made = compression.compressor("zstd")
                packed = made.pack(b"".join(inner)) if self.draw.random() < 0.5 else None
                number = 0 if packed is None else made.number
                data = frame.encode_wrapper(packed or b"".join(inner), together, 1, number)
            room.peer().ask(messages.Send, self.partition, data=data)
            count -= together
            if self.draw.random() < 0.3:
                room.flush()

    def beside(self):
        """Do something that has nothing to do with the consumer; return whether something was done."""
        match self.draw.choice(["send", "hold", "release", "", "", "", ""]):
            case "send":
                self.send(self.draw.randrange(1, 8))
            case "hold" if not self.holds:
                self.hold()
            case "release" if self.holds:
                self.release()
            case _:
                return False
        self.rig.pump()
        return True

    def hold(self):
        """Let a transaction prepare to finish an offset that does not match and was not examined yet."""
        group = self.broker.room.broker.groups.find("g")
        position = group.position(self.partition)
        if position is None:
            return
        kept = group.settlements.get(self.partition)
        settled = OffsetSet() if kept is None else kept.finished
        free = [each for each in self.finished if each >= position and each not in settled]
        if not free:
            return
        offset = self.draw.choice(sorted(free))
        one = OffsetSet()
        one.add(offset)
        generation = group.generation(self.partition)
        settled = Settled(self.partition, generation, position, encode_offsets(one, position))
        positions = [GroupPositions("g", group.id, [], [settled])]
        prepared = self.broker.room.peer().ask(messages.Prepare, 1, XID, None, positions=positions)
        self.holds = isinstance(prepared, messages.Done)

    def release(self):
        kind = self.draw.choice([messages.Commit, messages.Rollback])
        self.broker.room.peer().ask(kind, 0, 0, XID)
        self.holds = False

    def step(self):
        if not self.beside():
            super().step()

    def end(self):
        if self.holds:
            self.release()
        super().end()

    def is_behind_all(self):
        for _ in range(3):  # what does not match is finished when the fetch that waits is answered
            self.rig.pass_time(6)
            assert self.consumer.look() is None
        super().is_behind_all()


class FilteredHistory(Filtered, History):
    def __init__(self, seed, order):
        self.finished = set()
        super().__init__(seed, order)
        self.make_filter()


class FarAhead(FilteredHistory):
    """The consumer goes farther ahead than may be finished, and finishes the lowest first."""

    def step(self):
        if self.draw.random() < 0.2:
            self.send(self.draw.randrange(1, 20))
        elif not self.hand or self.draw.random() < 0.5:
            self.take()
        elif self.draw.random() < 0.6:
            self.done()
        else:
            self.rig.pass_time(self.draw.choice([0.5, 6]))
            if self.draw.random() < 0.3:
                self.rig.lose()

    def some(self):
        return [self.hand[min(self.hand)]]


class FilteredTransactions(Filtered, Transactions):
    def __init__(self, seed, order):
        super().__init__(seed, order)
        self.make_filter()


@pytest.mark.parametrize("order", ["partition", "key", None])
@pytest.mark.parametrize("seed", range(examples(40)))
def test_what_matches_comes_once_and_in_order_and_the_group_gets_behind_all(seed, order):
    history = FilteredHistory(seed, order)
    for _ in range(120):
        history.step()
    history.end()


@pytest.mark.parametrize("order", ["partition", "key", None])
@pytest.mark.parametrize("seed", range(examples(40)))
def test_so_it_is_if_the_reader_goes_farther_ahead_than_may_be_finished(seed, order, monkeypatch):
    monkeypatch.setattr(test_retry_histories, "Room", partial(Room, max_ahead=AHEAD))
    history = FarAhead(seed, order)
    for _ in range(80):
        history.step()
    history.end()


@pytest.mark.parametrize("order", ["partition", "key", None])
@pytest.mark.parametrize("seed", range(examples(40)))
def test_so_it_is_in_transactions_that_receive(seed, order):
    history = FilteredTransactions(seed, order)
    for _ in range(25):
        history.step()
    history.end()
