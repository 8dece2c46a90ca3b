"""Test that replaying sends run by run gives the same as one by one, and refuses the same."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from journal.constants import KIB, MIB
from journal.errors import CorruptJournal
from journal.folds.producers import ProducersFold
from journal.log.message_run import MessageRun
from journal.records.record import Messages
from journal.recovery.record_batches import BLOCK_RECORDS
from journal.recovery.start import recover
from tests.recovery.replay_scene import PARTITIONS, PRODUCERS, Sender, check_replay_of, logs_of
from tests.support.engine_room import SMALL, Room, run_of
from tests.support.thoroughness import examples

ACTIONS = st.lists(
    st.one_of(
        st.tuples(
            st.just("send"),
            st.integers(1, PARTITIONS),
            st.integers(0, PRODUCERS),
            st.integers(1, 3),
            st.sampled_from([0, 10, 5000]),
        ).map(lambda action: (action, 1)),
        st.tuples(
            st.tuples(
                st.just("send"), st.just(1), st.integers(0, 1), st.just(1), st.sampled_from([10, 3000])
            ),
            st.integers(2, 2 * BLOCK_RECORDS),
        ),
        st.tuples(st.tuples(st.just("spread"), st.integers(1, 2 * BLOCK_RECORDS)), st.just(1)),
        st.tuples(st.tuples(st.just("transact"), st.integers(1, PARTITIONS)), st.just(1)),
        st.tuples(st.tuples(st.just("move_start"), st.integers(1, PARTITIONS)), st.just(1)),
        st.tuples(st.sampled_from([("sync",), ("flush",), ("checkpoint",)]), st.just(1)),
    ),
    max_size=25,
)


@settings(max_examples=examples(60), deadline=None)
@given(ACTIONS)
def test_runs_of_sends_give_what_each_send_alone_gives(actions):
    sender = Sender()
    for (name, *arguments), times in actions:
        for _ in range(times):
            getattr(sender, name)(*arguments)
    check_replay_of(sender)


class Sends:
    """A fold that looks at sends, one by one."""

    name = "sends"
    handles = (Messages,)

    def __init__(self):
        self.bases = []

    def apply(self, lsn, record, data):
        self.bases.append(record.base_offset)

    def snapshot(self):
        return iter(())

    def restore(self, rows):
        assert not list(rows)


@pytest.mark.parametrize("kinds", [[], [Sends]])
@pytest.mark.parametrize("sends", [1, 3, 40])
def test_sends_do_not_pass_the_transactions_before_them(kinds, sends):
    """In one group: what was decided for two partitions waits for more, then one of these is sent to."""
    room = Room()
    room.topic(partitions=2)
    room.engine.sync()
    for number in range(20):
        room.begin((1 + number % 2, b"decided")).commit()
    for _ in range(sends):
        room.accept(b"sent", number=1)
    room.engine.sync()
    folds = [kind() for kind in kinds]
    engine = recover(room.inner.kill_clone(), room.clock, SMALL, folds)
    assert logs_of(engine) == logs_of(room.engine)
    assert engine.catalog.stores[1].end_offset == 10 + sends
    assert all(len(fold.bases) == sends for fold in folds)


def test_transactions_do_not_pass_the_sends_before_them():
    room = Room()
    room.topic(partitions=2)
    room.engine.sync()
    for number in range(40):
        room.accept(b"sent", number=1 + number % 2)
    for _ in range(40):
        room.begin((1, b"decided")).commit()
    room.engine.sync()
    engine = recover(room.inner.kill_clone(), room.clock, SMALL, [])
    assert logs_of(engine) == logs_of(room.engine)
    assert engine.catalog.stores[1].end_offset == 60


@pytest.mark.parametrize("more", [3, 100])
def test_sends_to_one_partition_do_not_pass_those_before_them_that_wait_for_others(more):
    """One group: a block of sends to all partitions, then few, or many that look alike, to one of these."""
    sender = Sender()
    sender.sync()
    sender.spread(BLOCK_RECORDS)
    for _ in range(more):
        sender.send(1, 1, 1, 10)
    sender.sync()
    engine = recover(sender.filesystem.kill_clone(), sender.clock, SMALL, [ProducersFold()])
    assert logs_of(engine) == logs_of(sender.engine)


def test_a_start_that_finds_the_sends_in_a_full_pool_flushes_and_goes_on():
    sender = Sender()
    for _ in range(3000):
        sender.send(1, 1, 1, 1000)
    sender.sync()
    engine = recover(sender.filesystem.kill_clone(), sender.clock, SMALL, [ProducersFold()])
    store = engine.catalog.stores[1]
    assert store.end_offset == 3000
    assert 0 < store.flushed_offset < 3000
    assert logs_of(engine) == logs_of(sender.engine)


def test_a_run_that_is_larger_than_the_pool_is_flushed_as_it_goes():
    sender = Sender(replace(SMALL, pool_bytes=8 * MIB, file_bytes=8 * MIB))
    for _ in range(12):
        sender.send(1, 1, 1, 200 * KIB)
    sender.sync()  # one group
    engine = recover(sender.filesystem.kill_clone(), sender.clock, SMALL, [ProducersFold()])
    assert logs_of(engine) == logs_of(sender.engine)
    assert engine.catalog.stores[1].flushed_offset > 4


def test_room_is_made_until_what_needs_it_fits_and_no_more():
    room = Room()
    room.topic(partitions=14)
    for number in range(1, 15):
        room.send(b"v" * (40 * KIB), number=number)
    room.send(b"large" * (60 * KIB), number=1)
    after = room.killed()
    assert after.values(1) == room.values(1)
    unflushed = [store for store in after.engine.catalog.stores.values() if store.unflushed_messages]
    assert 2 < len(unflushed) < 12


def test_a_hole_between_the_log_and_a_run_is_refused(room):
    store = room.topic()[0]
    run = MessageRun.of_records([Messages(1, base, 1, base) for base in (1, 2, 3)], [run_of(b"x")] * 3)
    with pytest.raises(CorruptJournal, match="ends at offset 0, the journal goes on with offsets 1 to 1"):
        room.engine.catalog.apply_run(run)
    assert store.end_offset == 0


def test_a_hole_inside_a_run_is_refused_after_what_comes_before_it(room):
    store = room.topic()[0]
    run = MessageRun.of_records([Messages(1, base, 1, base) for base in (0, 1, 3)], [run_of(b"x")] * 3)
    with pytest.raises(CorruptJournal, match="ends at offset 2, the journal goes on with offsets 3 to 3"):
        room.engine.catalog.apply_run(run)
    assert store.end_offset == 2


@pytest.fixture
def room():
    return Room()
