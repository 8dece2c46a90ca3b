"""Test that requests wait while a large commit is applied and while memory is short: none is lost or overtakes."""

import pytest
from crc32c import crc32c

from journal.constants import MIB
from journal.formats.frame import decode_run
from journal.records.group_entries import GroupPositions, PartitionOffset, Settled
from journal.transaction_states import State, Totals
from journal.xid import Xid
from tests.support.broker_room import Room, frames, refused
from tests.support.builders import small_files
from txbroker.broker.parked_requests import PASSING, SMALL, TRIES
from txbroker.broker.sessions.scheduler import STINT
from txbroker.errors import MemoryExhausted
from txbroker.wire import messages as commands

BIG = frames(*[b"x" * MIB] * 9)


def values(room, partition):
    store = room.engine.catalog.stores[partition]
    found, offset = [], 0
    while run := store.read(offset, MIB):
        found += (messages := decode_run(run, offset))
        offset = messages[-1].offset + 1
    return [message.value[:1] for message in found]


class Busy:
    """A room in which a large commit has been accepted and waits to be applied.

    It moves a group, and settles offsets of another one.
    """

    def __init__(self):
        self.room = Room(small_files(pool_bytes=128 * MIB))
        self.partition, self.other = self.room.topic(partitions=2)
        self.peer = self.room.peer()
        for _ in range(2):
            self.peer.ask(commands.Add, 1, self.partition, data=BIG)
        self.peer.ask(commands.AddOffsets, 1, "moved", [PartitionOffset(self.other, 0)])
        [number] = self.room.engine.transactions.live
        settled = [Settled(self.other, 0, 0)]
        self.room.engine.transactions.add_offsets(number, "settled", [], group_id=bytes(16), settled=settled)
        self.committed = self.peer.tell(
            commands.Commit, serial=1, totals=Totals(18, 4, crc32c(BIG, crc32c(BIG)))
        )
        assert self.room.engine.busy


@pytest.fixture
def busy():
    return Busy()


def test_what_decides_waits_until_the_commit_is_applied_and_is_then_carried_out_in_order(busy):
    room = busy.room
    first, second = room.peer(), room.peer()
    asked = [
        first.tell(commands.Send, busy.partition, data=frames(b"1")),
        second.tell(commands.Send, busy.partition, data=frames(b"2")),
        first.tell(commands.Send, busy.partition, data=frames(b"3")),
    ]
    created = second.tell(commands.CreateTopic, "new", 1, commands.TopicSettings())
    assert "new" not in room.engine.catalog.topics
    assert (
        room.broker.accounts.held
        == room.broker.parked_requests.bytes
        == first.session.held + second.session.held
    )
    room.engine.sync()
    assert [first.answer(asked[0]).base_offset, second.answer(asked[1]).base_offset] == [18, 19]
    assert values(room, busy.partition) == [b"x"] * 18 + [b"1", b"2", b"3"]
    assert isinstance(second.answer(created), commands.Topics)
    assert isinstance(busy.peer.answer(busy.committed), commands.Committed)
    assert (
        room.broker.parked_requests.bytes,
        len(room.broker.parked_requests.line),
        room.broker.accounts.held,
    ) == (0, 0, 0)
    assert first.session.parked == second.session.parked == 0


def test_heads_that_wait_count_as_what_they_take_when_decoded(busy):
    offsets = [PartitionOffset(busy.partition, 0, metadata="m" * 4000)] * 100
    peer = busy.room.peer()
    peer.tell(commands.CommitOffsets, "moved", offsets)
    assert peer.session.held == busy.room.broker.accounts.held > 400_000
    busy.room.engine.sync()
    assert peer.session.held == busy.room.broker.accounts.held == 0


def test_reading_goes_on_meanwhile_but_not_past_a_request_that_waits(busy):
    room = busy.room
    reader, mixed = room.peer(), room.peer()
    assert reader.answer(reader.tell(commands.Ping)) is not None
    assert reader.answer(reader.tell(commands.Fetch, [(busy.other, 0, 0)])) is not None
    mixed.tell(commands.Send, busy.partition, data=frames(b"1"))
    ping = mixed.tell(commands.Ping)
    assert mixed.answer(ping) is None
    room.engine.sync()
    assert mixed.answer(ping) is not None


def test_a_login_anew_does_not_wait_behind_the_requests_of_its_session(busy):
    """Or a session whose token ends meanwhile would end, though its client has shown another one in time."""
    peer = busy.room.peer()
    waiting = peer.tell(commands.Send, busy.partition, data=frames(b"1"))
    begun = []
    busy.room.broker.entrance.take = lambda session, command, data: begun.append(type(command))
    busy.room.broker._handlers[commands.Login] = busy.room.broker.entrance.take
    peer.tell(commands.Login, "OAUTHBEARER", b"token")
    assert begun == [commands.Login]
    assert peer.session.parked
    busy.room.engine.sync()
    assert peer.answer(waiting).base_offset == 18


def test_nobody_sees_part_of_the_commit(busy):
    reader = busy.room.peer()
    asked = reader.tell(commands.Fetch, [(busy.partition, 0, 0)])
    assert reader.answer(asked).partitions[0].length == 0


def test_a_session_that_ends_meanwhile_has_its_requests_carried_out_and_then_ends(busy):
    room = busy.room
    leaving, asking = room.peer(), room.peer()
    leaving.tell(commands.Send, busy.other, data=frames(b"1"))
    leaving.tell(commands.Add, 1, busy.other, data=frames(b"2"))
    leaving.leave()
    assert leaving.session.number in room.broker.sessions
    outcome = asking.tell(commands.AskOutcome, leaving.session.number, 1)
    room.engine.sync()
    assert leaving.session.number not in room.broker.sessions
    assert values(room, busy.other) == [b"1"]
    assert asking.answer(outcome).state is State.ROLLED_BACK
    assert room.engine.transactions.live == {}


def test_an_idle_session_that_ends_meanwhile_ends_afterwards(busy):
    leaving = busy.room.peer()
    leaving.leave()
    busy.room.engine.sync()
    assert leaving.session.number not in busy.room.broker.sessions


def test_expiry_waits_too(busy):
    busy.room.clock.advance(10**12)
    busy.room.broker.expire_transactions(busy.room.engine.now())
    busy.room.broker.sending.room.expire(busy.room.engine.now())
    busy.room.engine.sync()
    assert isinstance(busy.peer.answer(busy.committed), commands.Committed)


@pytest.mark.slow
def test_the_line_stops_again_at_the_next_large_commit(busy):
    room = busy.room
    peer = room.peer()
    for _ in range(2):
        peer.tell(commands.Add, 1, busy.other, data=BIG)
    committed = peer.tell(commands.Commit, serial=1, totals=Totals(18, 2, crc32c(BIG, crc32c(BIG))))
    sent = room.peer()
    asked = sent.tell(commands.Send, busy.partition, data=frames(b"1"))
    behind = sent.tell(commands.Send, busy.other, data=frames(b"1"))
    room.engine.sync()
    assert peer.answer(committed).placements[0].base_offset == 0
    assert (sent.answer(asked).base_offset, sent.answer(behind).base_offset) == (18, 18)


class TestPassing:
    """What has nothing to do with the partitions of a large commit does not wait for it."""

    @pytest.fixture(autouse=True)
    def forced_but_not_applied(self, busy):
        self.carry(busy)

    def carry(self, busy):
        """Force and answer what can be, without a slice of the commit."""
        for group in iter(busy.room.engine.take, None):
            busy.room.engine.write(group)
            busy.room.engine.publish(group)

    def answered(self, busy, peer, *request, **named):
        asked = peer.tell(*request, **named)
        self.carry(busy)
        return peer.answer(asked)

    def test_sends_to_other_partitions_are_answered_and_read(self, busy):
        peer = busy.room.peer()
        sent = self.answered(busy, peer, commands.Send, busy.other, data=frames(b"1"))
        assert sent.base_offset == 0
        assert values(busy.room, busy.other) == [b"1"]
        assert busy.room.engine.busy
        assert busy.peer.answer(busy.committed) is None

    def test_what_begins_and_ends_with_one_request_on_other_partitions_is_carried_out(self, busy):
        peer, data = busy.room.peer(), frames(b"1")
        runs, moved = (
            [(busy.other, len(data))],
            [GroupPositions("g", bytes(16), [PartitionOffset(busy.other, 0)])],
        )
        done = self.answered(busy, peer, commands.Commit, serial=1, runs=runs, positions=moved, data=data)
        assert isinstance(done, commands.Committed)
        assert values(busy.room, busy.other) == [b"1"]
        assert busy.peer.answer(busy.committed) is None
        runs = [(busy.partition, len(data))]
        done = self.answered(busy, peer, commands.Prepare, 2, Xid(1, b"g", b"b"), runs=runs, data=data)
        assert isinstance(done, commands.Done)
        waits = peer.tell(commands.Commit, serial=3, runs=runs, data=data)
        assert self.answered(busy, peer, commands.Send, busy.other, data=data) is None
        assert peer.answer(waits) is None
        busy.room.engine.sync()
        assert [each.base_offset for each in peer.answer(waits).placements] == [18]

    def test_a_commit_that_moves_the_same_group_waits(self, busy):
        moved = [GroupPositions("moved", bytes(16), [PartitionOffset(busy.other, 0)])]
        peer = busy.room.peer()
        assert self.answered(busy, peer, commands.Commit, serial=1, positions=moved) is None
        busy.room.engine.sync()
        assert isinstance(peer.answers[-1], commands.Committed)

    def test_adds_and_their_commit_on_other_partitions_are_carried_out(self, busy):
        peer, data = busy.room.peer(), frames(b"1")
        peer.tell(commands.Add, 1, busy.other, data=data)
        done = self.answered(busy, peer, commands.Commit, serial=1, totals=Totals(1, 1, crc32c(data)))
        assert isinstance(done, commands.Committed)
        assert values(busy.room, busy.other) == [b"1"]
        peer.tell(commands.Add, 2, busy.partition, data=data)
        xid = Xid(1, b"g", b"b")
        done = self.answered(busy, peer, commands.Prepare, 2, xid, Totals(1, 1, crc32c(data)))
        assert isinstance(done, commands.Done)

    def test_one_that_has_messages_for_them_waits_and_so_does_what_its_session_sends_then(self, busy):
        peer, data = busy.room.peer(), frames(b"1")
        peer.tell(commands.Add, 1, busy.other, data=data)
        peer.tell(commands.Add, 1, busy.partition, data=data)
        run = crc32c(data, crc32c(data))
        committed = peer.tell(commands.Commit, serial=1, totals=Totals(2, 2, run))
        assert self.answered(busy, peer, commands.Send, busy.other, data=frames(b"2")) is None
        assert peer.answer(committed) is None
        busy.room.engine.sync()
        assert [each.base_offset for each in peer.answer(committed).placements] == [0, 18]
        assert values(busy.room, busy.other) == [b"1", b"2"]

    def test_who_decides_about_anything_else_waits(self, busy):
        peer = busy.room.peer()
        for request in (
            (commands.CreateTopic, "new", 1, commands.TopicSettings()),
            (commands.DeleteTopic, "orders", busy.room.topic_id()),
            (commands.DeleteGroup, "other", bytes(16)),
            (commands.ListGroups,),
            (commands.Rollback, 0, 7),
        ):
            assert self.answered(busy, busy.room.peer(), *request) is None
        assert isinstance(self.answered(busy, peer, commands.DescribeTopics), commands.Topics)

    def test_groups_that_it_does_not_move_go_on_and_producers_are_opened(self, busy):
        peer, partition = busy.room.peer(), busy.partition
        claimed = self.answered(busy, peer, commands.ClaimPartitions, "g", "m", [partition])
        [(_, generation)] = claimed.claims
        moved = [PartitionOffset(partition, 0, generation)]
        assert isinstance(self.answered(busy, peer, commands.CommitOffsets, "g", moved), commands.Done)
        asked = self.answered(busy, peer, commands.FetchOffsets, "g", [partition])
        assert [(each.offset, each.generation) for each in asked.offsets] == [(0, generation)]
        beyond = [PartitionOffset(partition, 1, generation)]
        refused(self.answered(busy, peer, commands.CommitOffsets, "g", beyond), "OffsetOutOfRange")
        assert isinstance(self.answered(busy, peer, commands.OpenProducer), commands.ProducerOpened)
        assert busy.room.engine.busy
        busy.room.filesystem = busy.room.filesystem.crash_clone(1)
        busy.room.start()
        assert busy.room.broker.groups.find("g").positions == {partition: (0, "")}
        assert values(busy.room, partition) == [b"x"] * 18

    def test_a_group_that_it_moves_waits_for_its_messages(self, busy):
        waiting = [
            (peer := busy.room.peer(), peer.tell(*request))
            for request in (
                (commands.FetchOffsets, "moved"),
                (commands.FetchOffsets, "settled"),
                (commands.ClaimPartitions, "moved", "m", [busy.other]),
                (commands.CommitOffsets, "moved", [PartitionOffset(busy.other, 0)], bytes(16), [None]),
            )
        ]
        self.carry(busy)
        assert [peer.answer(asked) for peer, asked in waiting] == [None] * 4
        busy.room.engine.sync()
        [asked, settled, claimed, committed] = [peer.answer(asked) for peer, asked in waiting]
        assert [each.offset for each in (*asked.offsets, *settled.offsets)] == [0, 0]
        assert isinstance(claimed, commands.Claimed)
        refused(committed, "GenerationFenced")

    def test_outcomes_are_told_and_what_is_active_ends_but_for_what_waits_itself(self, busy):
        peer, other, data = busy.room.peer(), busy.room.peer(), frames(b"1")
        peer.tell(commands.Add, 1, busy.partition, data=data)
        other.tell(commands.Add, 1, busy.partition, data=data)
        number = peer.session.number
        asked = self.answered(busy, busy.room.peer(), commands.AskOutcome, number, 1)
        assert asked.state is State.ACTIVE
        assert isinstance(self.answered(busy, peer, commands.Rollback, 0, 1), commands.Done)
        assert (
            self.answered(busy, busy.room.peer(), commands.AskOutcome, number, 1).state is State.ROLLED_BACK
        )
        other.tell(commands.Commit, serial=1, totals=Totals(1, 1, crc32c(data)))
        asker, third, fourth = busy.room.peer(), busy.room.peer(), busy.room.peer()
        fourth.tell(commands.Send, busy.partition, data=data)
        fourth.tell(commands.Add, 1, busy.other, Xid(1, b"g", b"b"), data=data)
        of_xid = (coordinator := busy.room.peer()).tell(commands.AskOutcome, xid=Xid(1, b"g", b"b"))
        large = asker.tell(commands.AskOutcome, busy.peer.session.number, 1)
        behind = third.tell(commands.AskOutcome, other.session.number, 1)
        self.carry(busy)
        assert (asker.answer(large), third.answer(behind)) == (None, None)
        busy.room.engine.sync()
        assert coordinator.answer(of_xid).state is State.ACTIVE
        assert (asker.answer(large).state, third.answer(behind).state) == (State.COMMITTED, State.COMMITTED)

    def test_while_memory_is_short_only_small_ones_that_need_some_pass_and_few_of_them(self, busy):
        busy.room.engine.large_commits.current.short_of_memory = True
        for value, passes in [
            (bytes(SMALL), False),
            *[(bytes(SMALL - 100), True)] * (PASSING // SMALL),
            (bytes(SMALL - 100), False),
        ]:
            sent = self.answered(busy, busy.room.peer(), commands.Send, busy.other, data=frames(value))
            assert isinstance(sent, commands.Sent) is passes

    @pytest.mark.slow
    def test_what_passed_is_there_after_a_restart_and_so_is_the_commit(self, busy):
        self.answered(busy, busy.room.peer(), commands.Send, busy.other, data=frames(b"1"))
        busy.room.filesystem = busy.room.filesystem.crash_clone(1)
        busy.room.start()
        assert values(busy.room, busy.other) == [b"1"]
        assert values(busy.room, busy.partition) == [b"x"] * 18


def test_a_long_line_moves_in_slices_so_that_the_reactor_is_not_held_up(busy):
    room = busy.room
    peer = room.peer()
    for _ in range(2500):
        peer.tell(commands.Send, busy.partition, data=frames(b"1"))
    room.engine.sync()
    assert [len(room.broker.parked_requests.line)] == [1500]
    late = peer.tell(commands.Send, busy.partition, data=frames(b"2"))
    while room.timers.getDelayedCalls():
        room.timers.advance(0)
        room.engine.sync()
    assert peer.answer(late).base_offset == 18 + 2500


def test_the_line_moves_no_longer_at_a_time_than_the_reactor_can_be_kept_waiting(busy, monkeypatch):
    room = busy.room
    peer, carry_out = room.peer(), room.broker.parked_requests._carry_out
    asked = [peer.tell(commands.Send, busy.partition, data=frames(b"1")) for _ in range(10)]

    def slowly(*what):
        room.clock.advance(round(STINT * 1_000_000) // 3 + 1)
        carry_out(*what)

    later, left = [], []
    monkeypatch.setattr(room.broker.parked_requests, "_carry_out", slowly)
    monkeypatch.setattr(room.broker.parked_requests, "_call_later", lambda seconds, call: later.append(call))
    room.engine.sync()
    while later:
        left.append(len(room.broker.parked_requests.line))
        later.pop()()
        room.engine.sync()
    left.append(len(room.broker.parked_requests.line))
    assert left == [7, 4, 1, 0]
    assert all(isinstance(peer.answer(each), commands.Sent) for each in asked)


def test_after_a_failure_nothing_that_waits_is_carried_out_or_logged_as_its_cause(busy):
    engine, broken = busy.room.engine, []
    busy.room.broker.on_failure = lambda doing, error: broken.append(doing)
    peer = busy.room.peer()
    asked = [peer.tell(commands.Rollback, serial=7), peer.tell(commands.Send, 99, data=frames(b"1"))]
    engine.fail("running FlushStore")
    for group in iter(engine.take, None):
        engine.publish(group)
    while engine.busy:
        engine.continue_apply()
    assert [peer.answer(each) for each in asked] == [None, None]
    assert broken == []


def test_large_requests_wait_for_the_journal_so_that_others_do_not_wait_for_them():
    room = Room(small_files(pool_bytes=128 * MIB))
    partition, other = room.topic(partitions=2)
    peers = [room.peer() for _ in range(4)]
    asked = [peer.tell(commands.Send, partition, data=BIG) for peer in peers[:2]]
    asked.append(peers[2].tell(commands.Send, other, data=frames(bytes(2 * MIB))))
    small = peers[3].tell(commands.Send, other, data=frames(b"1"))
    assert room.engine.pending_bytes < len(BIG) + MIB
    answered = []
    while group := room.engine.take():
        room.engine.write(group)
        room.engine.publish(group)
        assert room.engine.pending_bytes < len(BIG) + MIB
        answered.append(
            [peer.answer(one) is not None for peer, one in zip(peers, [*asked, small], strict=True)]
        )
    assert answered == [
        [True, False, False, False],
        [True, False, False, True],
        [True, True, False, True],
        [True, True, True, True],
    ]
    assert not room.broker.parked_requests.line


class TestMemory:
    @pytest.fixture
    def room(self):
        return Room(small_files(pool_bytes=2 * MIB))

    def fill(self, room, partition):
        """Send until one waits for memory; return the peer and what it asked last."""
        peer = room.peer()
        while not room.broker.parked_requests.line:
            asked = peer.tell(commands.Send, partition, data=frames(b"x" * 300_000))
            room.engine.sync()
        return peer, asked

    def test_a_send_without_memory_waits_for_a_flush_and_is_then_stored_once(self, room):
        [partition] = room.topic()
        peer, asked = self.fill(room, partition)
        assert peer.answer(asked) is None
        room.flush()
        room.engine.sync()
        assert peer.answer(asked).base_offset == len(peer.answers) - 1
        assert len(values(room, partition)) == len(peer.answers)

    def test_a_flush_that_is_wanted_before_anything_is_forced_is_made_right_after(self, room):
        partitions = room.topic(partitions=64)  # more than memory: all of it is taken before the first force
        peer = room.peer()
        asked = [peer.tell(commands.Send, partition, data=frames(b"x" * 60_000)) for partition in partitions]
        assert room.broker.parked_requests.line
        assert not room.engine.catalog.stores[partitions[0]].high_watermark
        for _ in range(4):  # looks of the flusher, no time passes
            for job in room.engine.jobs(room.engine.now()):
                job.run()
                room.engine.finish(job)
            room.engine.sync()
        assert all(isinstance(peer.answer(each), commands.Sent) for each in asked)

    def test_where_flushing_is_done_in_the_same_turn_nothing_waits(self, room):
        [partition] = room.topic()
        room.engine.on_flush_wanted = room.engine.housekeeping.run_inline
        peer = room.peer()
        for offset in range(12):
            asked = peer.tell(commands.Send, partition, data=frames(b"x" * 300_000))
            room.engine.sync()
            assert peer.answer(asked).base_offset == offset

    def test_others_that_need_as_much_wait_behind_it_and_those_that_need_none_go_on(self, room):
        [partition] = room.topic()
        self.fill(room, partition)
        other, third = room.peer(), room.peer()
        sent = other.tell(commands.Send, partition, data=frames(bytes(SMALL)))
        assert isinstance(third.ask(commands.ClaimPartitions, "g", "m", [partition]), commands.Claimed)
        assert other.answer(sent) is None
        room.flush()
        room.engine.sync()
        assert isinstance(other.answer(sent), commands.Sent)

    def test_small_requests_of_others_find_memory_where_there_is_none_for_much(self, room):
        partition, another = room.topic(partitions=2)
        peer = room.peer()
        asked = peer.tell(commands.Send, partition, data=frames(bytes(2 * MIB - 30_000)))
        behind = peer.tell(commands.Send, another, data=frames(b"mine"))
        sent = room.peer().ask(commands.Send, another, data=frames(b"y"))
        assert sent.base_offset == 0
        assert (peer.answer(asked), peer.answer(behind)) == (None, None), (
            "what a session sends keeps its order"
        )
        for _ in range(TRIES):
            room.engine.on_idle()
        assert peer.answer(asked) is None, "nothing was flushed yet"
        for _ in range(TRIES):
            room.flush()
        room.engine.sync()
        assert isinstance(peer.answer(asked), commands.Sent)
        room.flush()  # of what it took
        room.engine.sync()
        assert peer.answer(behind).base_offset == 1

    def test_no_more_than_a_little_passes_what_waits_from_one_move_to_the_next(self, room, monkeypatch):
        [partition] = room.topic()
        peer, other = room.peer(), room.peer()
        with monkeypatch.context() as starving:
            self.starve(room, starving)
            peer.tell(commands.Send, partition, data=frames(bytes(300_000)))
        small = frames(bytes(60_000))
        asked = [other.tell(commands.Send, partition, data=small) for _ in range(PASSING // len(small) + 1)]
        room.engine.sync()
        assert [bool(other.answer(one)) for one in asked] == [True] * (len(asked) - 1) + [False]

    def test_nobody_overtakes_who_waits_for_memory_with_much(self, room, monkeypatch):
        [partition] = room.topic()
        peer, other = room.peer(), room.peer()
        with monkeypatch.context() as starving:
            self.starve(room, starving)
            first = peer.tell(commands.Send, partition, data=frames(b"1"))
        second = other.tell(commands.Send, partition, data=frames(bytes(SMALL)))
        room.engine.sync()
        assert other.answer(second) is None
        room.engine.on_idle()
        room.engine.sync()
        assert (peer.answer(first).base_offset, other.answer(second).base_offset) == (0, 1)

    def test_every_try_without_memory_asks_for_a_flush(self, room, monkeypatch):
        [partition] = room.topic()
        wanted = []
        room.engine.on_flush_wanted = lambda: wanted.append(1)
        self.starve(room, monkeypatch)
        room.peer().tell(commands.Send, partition, data=frames(b"1"))
        assert len(wanted) == 1
        room.engine.on_idle()
        assert len(wanted) == 2

    def starve(self, room, monkeypatch):
        def nothing(*_, **__):
            raise MemoryExhausted("no memory; nothing has changed")

        monkeypatch.setattr(room.broker.sending, "_append", nothing)
        monkeypatch.setattr(room.engine.transactions, "add", nothing)

    def test_what_finds_no_memory_even_after_flushes_is_refused_and_the_line_moves_on(
        self, room, monkeypatch
    ):
        [partition] = room.topic()
        peer, other = room.peer(), room.peer()
        self.starve(room, monkeypatch)
        sent = peer.tell(commands.Send, partition, data=frames(b"x"))
        pinged = peer.tell(commands.Ping)
        other.tell(commands.Send, partition, data=frames(bytes(SMALL)))
        for _ in range(TRIES - 1):
            assert peer.answers == []
            for _ in range(TRIES):
                room.engine.on_idle()  # the flush that was wanted has not been made
            room.flush()
        refused(peer.answer(sent), "MemoryExhausted")
        assert peer.answer(pinged) is not None
        assert len(room.broker.parked_requests.line) == 1

    def test_who_finds_no_memory_is_refused_also_where_some_log_is_flushed_at_any_time(
        self, room, monkeypatch
    ):
        [partition, another] = room.topic(partitions=2)
        peer, housekeeping = room.peer(), room.engine.housekeeping
        peer.ask(commands.Send, another, data=frames(b"dirty"))
        self.starve(room, monkeypatch)
        sent = peer.tell(commands.Send, partition, data=frames(b"x"))
        monkeypatch.setattr(type(housekeeping), "is_flushing", True)
        for tries in range(1, TRIES):
            room.engine.on_idle()
            assert [each.tries for each in room.broker.parked_requests.line] == [tries]
            housekeeping.flushed += 1  # the one that was dirty
            room.engine.on_idle()
        refused(peer.answer(sent), "MemoryExhausted")

    def test_an_add_refused_for_want_of_memory_leaves_rolling_back_only(self, room, monkeypatch):
        [partition] = room.topic()
        peer = room.peer()
        peer.ask(commands.Add, 1, partition, data=frames(b"x"))
        with monkeypatch.context() as starving:
            self.starve(room, starving)
            added = peer.tell(commands.Add, 1, partition, data=frames(b"y"))
            for _ in range(TRIES - 1):
                room.flush()
        refused(peer.answer(added), "MemoryExhausted")
        answer = peer.ask(commands.Commit, serial=1, totals=Totals(1, 1, crc32c(frames(b"x"))))
        refused(answer, "TransactionRolledBack")

    def test_an_add_that_waits_for_memory_can_still_begin_its_transaction(self, room, monkeypatch):
        [partition] = room.topic()
        peer = room.peer()
        with monkeypatch.context() as starving:
            self.starve(room, starving)
            peer.tell(commands.Add, 1, partition, data=frames(b"x"))
            committed = peer.tell(commands.Commit, serial=1, totals=Totals(1, 1, crc32c(frames(b"x"))))
        room.engine.on_idle()
        room.engine.sync()
        assert isinstance(peer.answer(committed), commands.Committed)
