"""Test that an answer is of one moment and names its rest, so that a reader of both sees every transaction whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal.constants import MIB
from tests.broker.fetches.fetch_scene import values
from tests.broker.transactions.transaction_scene import add, commit
from tests.support.broker_room import Room
from tests.support.manual_worker import ManualWorker
from txbroker.wire import messages

MOST = 16 * MIB
PAD = b" " * 3_000


@pytest.fixture
def room():
    return Room()


def transact(peer, serial, *partitions):
    """A transaction with one message in each of these."""
    value = b"%d" % serial + PAD
    for partition in partitions:
        add(peer, serial, partition, value)
    commit(peer, serial, *([value] for _ in partitions))


def test_half_of_a_transaction_is_given_with_where_the_other_half_is(room):
    """A segment of one partition ends before it."""
    one, two = room.topic(partitions=2)
    peer = room.peer()
    peer.send(one, b"0")
    room.flush()
    transact(peer, 1, one, two)
    answer = peer.ask(messages.Fetch, [(one, 0, 0), (two, 0, 0)], MOST)
    assert values(peer, answer) == {one: [b"0"], two: [b"1" + PAD]}
    assert [(part.next_offset, part.high_watermark) for part in answer.partitions] == [(1, 2), (1, 1)]
    transact(peer, 2, one, two)
    rest = peer.ask(messages.Fetch, [(one, 1, 2)], MOST)
    assert values(peer, rest) == {one: [b"1" + PAD]}, "and nothing of the second"
    assert rest.partitions[0].next_offset == 2


def test_a_partition_of_which_all_has_been_given_gives_no_more(room):
    one, two = room.topic(partitions=2)
    peer = room.peer()
    peer.send(one, b"0", b"1")
    peer.send(two, b"0")
    answer = peer.ask(messages.Fetch, [(one, 1, 1), (two, 0, 1)], MOST)
    assert values(peer, answer) == {one: [], two: [b"0"]}
    assert [part.next_offset for part in answer.partitions] == [1, 1]


def test_a_frame_that_begins_below_the_bound_is_given_though_more_were_appended_with_it(room):
    """The bound is any number; who asks goes on always."""
    [partition] = room.topic()
    peer = room.peer()
    peer.send(partition, b"0", b"1", b"2")
    for flushed in (False, True):
        answer = peer.ask(messages.Fetch, [(partition, 0, 2)], MOST)
        assert values(peer, answer) == {partition: [b"0", b"1"][: answer.partitions[0].next_offset]}
        assert answer.partitions[0].next_offset == (2 if flushed else 1)
        room.flush()


def test_what_is_published_while_the_disk_is_waited_for_is_of_a_later_moment(room, monkeypatch):
    one, two = room.topic(partitions=2)
    peer = room.peer()
    transact(peer, 1, one, two)
    room.flush()
    pool = ManualWorker()
    room.broker.fetching._run_blocking = pool.submit
    monkeypatch.setattr("journal.testing.MemoryFile.read_now", lambda *_: None)
    asked = peer.tell(messages.Fetch, [(one, 0, 0), (two, 0, 0)], MOST)
    transact(room.peer(), 1, one, two)
    pool.step()
    assert [part.high_watermark for part in peer.answer(asked).partitions] == [1, 1]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("transaction"), st.sets(st.integers(0, 3), min_size=1)),
        st.tuples(st.just("flush"), st.none()),
        st.tuples(st.just("fetch"), st.sampled_from((1, 4_000, 50_000, MOST))),
        st.tuples(st.just("cold"), st.booleans()),
    ),
    min_size=4,
    max_size=40,
)


@pytest.mark.slow
@given(steps=STEPS)
def test_who_reads_the_rest_of_each_moment_sees_every_transaction_whole(steps):
    reader = _Reader()
    for what, how in [*steps, *[("fetch", MOST)] * 4]:
        if what == "transaction":
            reader.transact(how)
        elif what == "flush":
            reader.room.flush()
        elif what == "cold":
            reader.broker.fetching._run_blocking = reader.pool.submit if how else reader.at_once
            reader.cold = how
        else:
            reader.fetch(how)
    assert reader.moments


class _Reader:
    """Reads moment after moment, as :mod:`txbroker.client.consumer.moments` does without an end to a moment."""

    def __init__(self):
        self.room = Room()
        self.broker = self.room.broker
        self.peer, self.writer = self.room.peer(), self.room.peer()
        self.pool, self.at_once = ManualWorker(), self.broker.fetching._run_blocking
        self.cold = False
        self.places = dict.fromkeys(self.room.topic(partitions=4), 0)
        self.ends = {}
        self.seen = {number: [] for number in self.places}
        self.transactions = {}
        self.moments = 0

    def transact(self, indexes):
        serial, numbers = len(self.transactions) + 1, list(self.places)
        self.transactions[serial] = {numbers[index] for index in indexes}
        transact(self.writer, serial, *sorted(self.transactions[serial]))

    def fetch(self, most):
        rest = [(n, at, self.ends[n]) for n, at in self.places.items() if at < self.ends.get(n, 0)]
        positions = rest or [(number, at, 0) for number, at in self.places.items()]
        with pytest.MonkeyPatch.context() as patch:
            if self.cold:
                patch.setattr("journal.testing.MemoryFile.read_now", lambda *_: None)
            asked = self.peer.tell(messages.Fetch, positions, most)
            if self.pool.work:
                self.transact({0, 1, 2, 3})  # while the disk is waited for
                self.pool.step()
        answer = self.peer.answer(asked)
        for number, found in values(self.peer, answer).items():
            self.seen[number] += [int(value) for value in found]
        for part in answer.partitions:
            assert part.next_offset == len(self.seen[part.partition])
            self.places[part.partition] = part.next_offset
            if not rest:
                self.ends[part.partition] = part.high_watermark
        if self.places == self.ends:
            self._whole()

    def _whole(self):
        self.moments += 1
        shown = {serial: set() for serial in self.transactions}
        for number, serials in self.seen.items():
            assert serials == sorted(set(serials))
            for serial in serials:
                shown[serial].add(number)
        for serial, partitions in self.transactions.items():
            assert shown[serial] in (set(), partitions), serial
