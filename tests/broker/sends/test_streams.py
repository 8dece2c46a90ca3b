"""Test streams: what is delivered once, who may deliver, what crashes leave (docs/decisions/0048-outbox-streams.md)."""

import random

import pytest

from journal.records.record import StreamClaimed, StreamReleased, TransactionCommitted
from journal.transaction_states import Totals
from journal.xid import Xid
from tests.broker.fetches.fetch_scene import values
from tests.support.broker_room import Room, frames, recorded, refused
from txbroker.wire import messages

pytestmark = pytest.mark.slow

STREAM, OTHER = b"s" * 16, b"t" * 16
TABLE = "0123456789abcdef"


@pytest.fixture
def room():
    return Room()


@pytest.fixture
def partition(room):
    return room.topic()[0]


@pytest.fixture
def peer(room):
    return room.peer()


class Holder:
    """A client that holds a stream."""

    def __init__(self, room, stream=STREAM, generation=1, peer=None):
        self.peer, self.stream = peer or room.peer(), stream
        self.held = self.peer.ask(messages.ClaimStream, stream, TABLE, generation)
        assert isinstance(self.held, messages.StreamHeld), self.held
        self.serial = 0

    def tell(self, partition, number, after, *values, **named):
        """Deliver; by default the value is the number."""
        data = frames(*(values or (b"%d" % number,)))
        self.serial += 1
        named.setdefault("runs", [(partition, len(data))])
        named.setdefault("delivery", messages.Delivery(self.stream, self.held.epoch, number, after))
        return self.peer.tell(messages.Commit, 0, self.serial, data=data, **named)

    def deliver(self, partition, number, after, *values, **named):
        """Deliver; return the answer."""
        asked = self.tell(partition, number, after, *values, **named)
        self.peer._room.engine.sync()
        return self.peer.answer(asked)

    def release(self, generation=1, last=None):
        """Release it; by default behind all that is delivered."""
        known = self.peer._room.broker.delivering.fold.streams.get(self.stream)
        last = last if last is not None else 0 if known is None else known.last
        return self.peer.ask(messages.ReleaseStream, self.stream, self.held.epoch, last, generation)


def crash(room):
    """Cut the power: what was not forced is gone."""
    room.filesystem = room.filesystem.crash_clone(0, 0.0)
    room.start()


def count(room, partition):
    """How many messages are there."""
    return room.engine.catalog.stores[partition].high_watermark


def last_of(room, stream=STREAM):
    """The highest delivered number; None if the stream is not known."""
    found = room.broker.delivering.fold.streams.get(stream)
    return None if found is None else found.last


def is_delivered(answer):
    assert isinstance(answer, messages.Committed), answer
    return bool(answer.placements)


class TestDelivering:
    def test_messages_and_number_are_one_record(self, room, partition):
        holder = Holder(room)
        records = recorded(room)
        assert is_delivered(holder.deliver(partition, 1, 0))
        [record] = records
        assert isinstance(record, TransactionCommitted)
        assert (record.delivered.stream, record.delivered.number) == (STREAM, 1)
        assert (last_of(room), count(room, partition)) == (1, 1)

    def test_a_block_may_send_to_several_partitions(self, room):
        holder, numbers = Holder(room), room.topic(partitions=2)
        half = len(frames(b"a"))
        answer = holder.deliver(numbers[0], 1, 0, b"a", b"b", runs=[(each, half) for each in numbers])
        assert [each.partition for each in answer.placements] == numbers
        assert [count(room, each) for each in numbers] == [1, 1]

    def test_numbers_may_be_missing(self, room, partition):
        holder = Holder(room)
        assert is_delivered(holder.deliver(partition, 3, 0))
        assert is_delivered(holder.deliver(partition, 9, 3))
        assert last_of(room) == 9

    def test_streams_do_not_know_of_each_other(self, room, partition):
        one, other = Holder(room), Holder(room, OTHER)
        one.deliver(partition, 5, 0)
        assert is_delivered(other.deliver(partition, 1, 0))
        assert (last_of(room), last_of(room, OTHER)) == (5, 1)

    def test_what_is_delivered_already_is_answered_as_done_and_not_stored(self, room, partition):
        holder = Holder(room)
        for number in (1, 2, 3):
            holder.deliver(partition, number, number - 1)
        for number, after in ((3, 2), (2, 1), (1, 0), (2, 0), (3, 0)):
            assert not is_delivered(holder.deliver(partition, number, after))
        assert (last_of(room), count(room, partition)) == (3, 3)

    def test_the_answer_of_a_repetition_waits_for_the_force_of_the_first(self, room, partition):
        holder = Holder(room)
        first, second = holder.tell(partition, 1, 0), holder.tell(partition, 1, 0)
        assert holder.peer.answer(first) is holder.peer.answer(second) is None
        room.engine.sync()
        assert is_delivered(holder.peer.answer(first))
        assert not is_delivered(holder.peer.answer(second))

    @pytest.mark.parametrize("after", [0, 1, 3])
    def test_what_does_not_continue_the_stream_is_refused_with_the_last_number(self, room, partition, after):
        holder = Holder(room)
        for number in (1, 2):
            holder.deliver(partition, number, number - 1)
        answer = holder.deliver(partition, 5, after)
        assert f"number 5 of stream {STREAM.hex()} is said to come after {after}, 2 was the last" in refused(
            answer, "StreamOutOfOrder"
        )
        assert answer.numbers == {"last": 2}
        assert count(room, partition) == 2

    def test_behind_one_that_is_refused_the_next_is_refused_too_and_comes_after_the_one_before(
        self, room, partition
    ):
        holder = Holder(room)
        asked = [holder.tell(partition, 1, 0), holder.tell(77, 2, 1), holder.tell(partition, 3, 2)]
        room.engine.sync()
        first, second, third = map(holder.peer.answer, asked)
        assert is_delivered(first)
        refused(second, "UnknownPartition")
        refused(third, "StreamOutOfOrder")
        assert is_delivered(holder.deliver(partition, 3, 1))
        assert (last_of(room), count(room, partition)) == (3, 2)

    @pytest.mark.parametrize(
        ("named", "text"),
        [
            ({"runs": []}, "has messages, all in this request"),
            ({"totals": Totals(0, 0, 0)}, "totals"),
            ({"xid": Xid(1, b"x", b"")}, "xid"),
        ],
    )
    def test_a_delivery_is_a_transaction_of_its_own(self, room, partition, named, text):
        holder = Holder(room)
        answer = holder.deliver(partition, 1, 0, **named)
        assert text in refused(answer, "InvalidSetting")
        assert (last_of(room), count(room, partition)) == (0, 0)

    @pytest.mark.parametrize("prepares", [False, True])
    def test_nothing_that_has_begun_ends_with_a_delivery(self, room, partition, prepares):
        """Else the number of a delivery could be lost: what was prepared says nothing of a stream."""
        holder, data = Holder(room), frames(b"v")
        said = {"runs": [(partition, len(data))], "data": data}
        if prepares:
            holder.peer.ask(messages.Prepare, 1, Xid(1, b"x", b""), None, **said)
        else:
            holder.peer.tell(messages.Add, 1, partition, data=data)
        answer = holder.deliver(partition, 1, 0, b"v")
        assert "a delivery is a transaction of its own" in refused(answer, "InvalidSetting")
        assert (last_of(room), count(room, partition)) == (0, 0)

    def test_the_number_of_a_transaction_that_has_ended_is_not_used_for_another_delivery(
        self, room, partition
    ):
        holder = Holder(room)
        holder.deliver(partition, 1, 0, b"v")
        holder.serial -= 1
        answer = holder.deliver(partition, 2, 1, b"v")
        assert "a delivery is a transaction of its own" in refused(answer, "InvalidSetting")
        assert (last_of(room), count(room, partition)) == (1, 1)

    @pytest.mark.parametrize(("number", "after"), [(0, 0), (1, 1), (1, 2), (-1, -2), (1, -1), (1 << 63, 0)])
    def test_numbers_grow_from_one_on(self, room, partition, number, after):
        holder = Holder(room)
        answer = holder.deliver(partition, number, after, b"v")
        assert f"{number} cannot come after {after}" in refused(answer, "InvalidSetting")
        assert last_of(room) == 0

    def test_on_a_full_disk_nothing_is_delivered_and_it_goes_on_later(self, room, partition, monkeypatch):
        holder = Holder(room)
        monkeypatch.setattr(type(room.engine), "full", True)
        refused(holder.deliver(partition, 1, 0), "DiskFull")
        refused(holder.peer.ask(messages.ClaimStream, STREAM, TABLE, 1), "DiskFull")
        monkeypatch.undo()
        assert is_delivered(holder.deliver(partition, 1, 0))


class TestClaims:
    def test_a_stream_that_is_not_known_begins_at_nothing(self, room):
        held = Holder(room).held
        assert (held.last, held.born) == (0, held.epoch)

    def test_a_claim_fences_the_one_before_and_goes_on_behind_it(self, room, partition):
        first = Holder(room)
        first.deliver(partition, 1, 0)
        second = Holder(room)
        assert (second.held.last, second.held.born) == (1, first.held.epoch)
        assert second.held.epoch != first.held.epoch
        answer = first.deliver(partition, 2, 1)
        assert "has been claimed by 'tester' since" in refused(answer, "StreamFenced")
        refused(first.release(), "StreamFenced")
        assert is_delivered(second.deliver(partition, 2, 1))
        assert count(room, partition) == 2

    def test_a_fenced_holder_hears_so_of_what_is_delivered_too(self, room, partition):
        first = Holder(room)
        first.deliver(partition, 1, 0)
        Holder(room)
        refused(first.deliver(partition, 1, 0), "StreamFenced")

    def test_another_session_may_deliver_with_the_epoch(self, room, partition):
        holder = Holder(room)
        holder.peer.leave()
        holder.peer, holder.serial = room.peer(), 0
        assert is_delivered(holder.deliver(partition, 1, 0))

    def test_there_are_so_many_and_none_makes_room(self):
        room = Room(max_streams=2)
        one, _ = Holder(room), Holder(room, OTHER)
        answer = room.peer().ask(messages.ClaimStream, b"u" * 16, TABLE, 1)
        assert "there are 2 streams, the limit" in refused(answer, "LimitExceeded")
        Holder(room)  # one that is known is claimed again
        refused(one.release(), "StreamFenced")
        Holder(room).release()
        Holder(room, b"u" * 16)

    def test_tables_are_known_for_ever_so_there_are_only_so_many(self):
        room = Room(max_streams=2)
        for table in ("t", "u"):
            held = room.peer().ask(messages.ClaimStream, STREAM, table, 1)
            room.peer().ask(messages.ReleaseStream, STREAM, held.epoch, 0, 1)
        answer = room.peer().ask(messages.ClaimStream, STREAM, "v", 1)
        assert "streams of 2 decision tables have been claimed here" in refused(answer, "LimitExceeded")
        assert isinstance(room.peer().ask(messages.ClaimStream, STREAM, "u", 1), messages.StreamHeld)

    @pytest.mark.parametrize("stream", [b"", b"s" * 15, b"s" * 17])
    def test_a_stream_is_sixteen_bytes(self, room, peer, stream):
        for asked in (
            peer.ask(messages.ClaimStream, stream, TABLE, 1),
            peer.ask(messages.ReleaseStream, stream, b"", 0, 1),
        ):
            assert f"16 random bytes, not {len(stream)}" in refused(asked, "InvalidSetting")

    @pytest.mark.parametrize("table", ["", "x" * 65, "a\nb"])
    def test_a_table_has_a_name(self, room, peer, table):
        refused(peer.ask(messages.ClaimStream, STREAM, table, 1), "InvalidSetting")
        assert last_of(room) is None

    def test_a_stream_stays_with_its_table(self, room, peer):
        Holder(room)
        answer = peer.ask(messages.ClaimStream, STREAM, "another", 1)
        assert f"belongs to the decision table {TABLE}, not to another" in refused(answer, "StreamFenced")


class TestReleases:
    def test_a_released_stream_is_not_known(self, room, partition):
        holder = Holder(room)
        holder.deliver(partition, 1, 0)
        assert isinstance(holder.release(2), messages.Done)
        assert last_of(room) is None
        assert isinstance(holder.release(2), messages.Done)  # again: it is released
        assert "has been released, or was never claimed" in refused(
            holder.deliver(partition, 2, 1), "StreamFenced"
        )

    @pytest.mark.parametrize("last", [0, 1, 3])
    def test_a_release_that_was_under_way_while_more_was_delivered_is_refused(self, room, partition, last):
        holder = Holder(room)
        for number in (1, 2):
            holder.deliver(partition, number, number - 1)
        answer = holder.release(2, last)
        assert f"is to be released after number {last}, 2 was the last" in refused(answer, "StreamOutOfOrder")
        assert answer.numbers == {"last": 2}
        assert last_of(room) == 2

    def test_what_comes_after_the_release_delivers_nothing(self, room, partition):
        """A claim and a delivery of a former life."""
        former, holder = Holder(room), Holder(room)
        holder.deliver(partition, 1, 0)
        holder.release(2)
        refused(former.deliver(partition, 1, 0), "StreamFenced")
        late = Holder(room, generation=2)
        assert (late.held.last, late.held.born) == (0, late.held.epoch)
        assert late.held.born != holder.held.born  # so its client knows that it has been released
        refused(holder.deliver(partition, 2, 1), "StreamFenced")
        refused(former.deliver(partition, 1, 0), "StreamFenced")
        assert count(room, partition) == 1

    def test_an_entry_that_is_left_is_claimed_and_released(self, room, partition):
        holder = Holder(room)
        holder.deliver(partition, 1, 0)
        holder.peer.leave()
        [found] = room.peer().ask(messages.ListStreams, TABLE).streams
        assert (found.stream, found.last, found.client) == (STREAM, 1, "tester")
        Holder(room, found.stream).release(2)
        assert room.peer().ask(messages.ListStreams).streams == []


class TestGenerations:
    def test_a_lower_generation_is_refused(self, room, peer):
        holder = Holder(room, generation=4)
        for answer in (
            peer.ask(messages.ClaimStream, STREAM, TABLE, 3),
            peer.ask(messages.ClaimStream, OTHER, TABLE, 3),
            holder.release(3),
        ):
            assert "says generation 3, and has told 4 before" in refused(answer, "OutboxSetBack")
            assert answer.numbers == {"generation": 4}
        assert last_of(room) == 0
        assert last_of(room, OTHER) is None

    def test_a_release_tells_the_next_one(self, room, peer):
        Holder(room, generation=4).release(5)
        refused(peer.ask(messages.ClaimStream, STREAM, TABLE, 4), "OutboxSetBack")
        Holder(room, generation=5)

    def test_they_are_those_of_their_table(self, room, peer):
        Holder(room, generation=4)
        assert isinstance(peer.ask(messages.ClaimStream, OTHER, "another", 1), messages.StreamHeld)

    def test_they_are_known_after_a_restart_and_a_checkpoint(self, room, peer):
        Holder(room, generation=4).release(5)
        room.restart()
        room.engine.housekeeping.checkpoint_inline()
        room.restart()
        refused(room.peer().ask(messages.ClaimStream, STREAM, TABLE, 4), "OutboxSetBack")

    @pytest.mark.parametrize("generation", [-1, 1 << 63])
    def test_it_is_a_number(self, room, peer, generation):
        refused(peer.ask(messages.ClaimStream, STREAM, TABLE, generation), "InvalidSetting")


class TestCrashes:
    def test_a_claim_that_was_not_forced_is_made_again(self, room, partition):
        peer = room.peer()
        asked = peer.tell(messages.ClaimStream, STREAM, TABLE, 1)
        lost = room.broker.delivering.fold.streams[STREAM].epoch
        assert peer.answer(asked) is None
        crash(room)
        assert last_of(room) is None
        holder = Holder(room)
        assert holder.held.epoch != lost
        answer = holder.deliver(partition, 1, 0, delivery=messages.Delivery(STREAM, lost, 1, 0))
        refused(answer, "StreamFenced")
        assert is_delivered(holder.deliver(partition, 1, 0))

    def test_an_answer_that_was_lost_costs_another_claim(self, room, partition):
        lost = Holder(room)
        holder = Holder(room)
        refused(lost.deliver(partition, 1, 0), "StreamFenced")
        assert is_delivered(holder.deliver(partition, 1, 0))

    def test_with_a_power_cut_the_messages_and_the_number_are_there_or_neither(self, room, partition):
        holder = Holder(room)
        asked = holder.tell(partition, 1, 0)
        crash(room)
        assert holder.peer.answer(asked) is None
        assert (last_of(room), count(room, partition)) == (0, 0)
        holder.peer, holder.serial = room.peer(), 0  # its epoch holds over the restart
        assert is_delivered(holder.deliver(partition, 1, 0))
        crash(room)
        assert (last_of(room), count(room, partition)) == (1, 1)

    def test_a_delivery_whose_answer_was_lost_is_a_repetition(self, room, partition):
        holder = Holder(room)
        holder.tell(partition, 1, 0)
        room.engine.sync()
        crash(room)
        holder.peer, holder.serial = room.peer(), 0
        assert not is_delivered(holder.deliver(partition, 1, 0))
        assert Holder(room).held.last == 1
        assert count(room, partition) == 1

    @pytest.mark.parametrize("claims_first", [False, True])
    def test_a_delivery_comes_before_a_claim_or_is_refused(self, room, partition, claims_first):
        holder, other = Holder(room), room.peer()
        if claims_first:
            claimed = other.tell(messages.ClaimStream, STREAM, TABLE, 1)
            delivered = holder.tell(partition, 1, 0)
        else:
            delivered = holder.tell(partition, 1, 0)
            claimed = other.tell(messages.ClaimStream, STREAM, TABLE, 1)
        room.engine.sync()
        assert other.answer(claimed).last == count(room, partition) == (0 if claims_first else 1)
        if claims_first:
            refused(holder.peer.answer(delivered), "StreamFenced")
        else:
            assert is_delivered(holder.peer.answer(delivered))

    def test_an_epoch_does_not_come_again_when_the_broker_is_set_back(self, room, partition):
        copy = room.filesystem.crash_clone(0, 0.0)
        room.restart()
        before = Holder(room)
        before.deliver(partition, 1, 0)
        room.filesystem = copy
        room.start()
        after = Holder(room)
        assert before.held.epoch[:8] == after.held.epoch[:8]  # the LSN is given again
        assert before.held.epoch != after.held.epoch
        refused(
            after.deliver(partition, 2, 0, delivery=messages.Delivery(STREAM, before.held.epoch, 2, 0)),
            "StreamFenced",
        )

    def test_all_is_the_same_after_a_restart_from_the_journal_or_a_checkpoint(self, room, partition):
        holders = [Holder(room, bytes([number]) * 16, 1 + number) for number in range(5)]
        for number, holder in enumerate(holders):
            for block in range(number):
                holder.deliver(partition, 2 * block + 1, 2 * block - 1 if block else 0)
        holders[4].release(9)
        before = dict(room.broker.delivering.fold.streams), dict(room.broker.delivering.fold.generations)
        room.restart()
        assert (room.broker.delivering.fold.streams, room.broker.delivering.fold.generations) == before
        room.engine.housekeeping.checkpoint_inline()
        room.restart()
        assert (room.broker.delivering.fold.streams, room.broker.delivering.fold.generations) == before
        assert list(room.broker.delivering.fold.streams) == list(before[0])


class TestListing:
    def test_they_come_in_the_order_of_their_claims_with_how_long_they_were_idle(self, room, partition):
        one = Holder(room)
        Holder(room, OTHER)
        room.clock.advance(5_000_000)
        one.deliver(partition, 1, 0)
        found = room.peer().ask(messages.ListStreams, TABLE).streams
        assert [each.stream for each in found] == [STREAM, OTHER]
        assert [each.idle >= 5_000_000 for each in found] == [False, True]
        Holder(room)
        assert [each.stream for each in room.peer().ask(messages.ListStreams, TABLE).streams] == [
            OTHER,
            STREAM,
        ]

    def test_those_of_one_table_or_of_all(self, room, peer):
        Holder(room)
        peer.ask(messages.ClaimStream, OTHER, "another", 1)
        assert [each.table for each in peer.ask(messages.ListStreams, "another").streams] == ["another"]
        assert len(peer.ask(messages.ListStreams).streams) == 2
        assert peer.ask(messages.ListStreams, "unknown").streams == []

    def test_page_by_page(self, room, peer, monkeypatch):
        monkeypatch.setattr("txbroker.broker.sends.streams.MAX_STREAMS_LISTED", 3)
        streams = [bytes([number]) * 16 for number in range(7)]
        for stream in streams:
            Holder(room, stream, peer=peer)
        found, after, more = [], 0, True
        while more:
            page = peer.ask(messages.ListStreams, TABLE, after)
            assert len(page.streams) <= 3
            found += page.streams
            after, more = found[-1].claim, page.more
        assert [each.stream for each in found] == streams

    def test_the_status_counts_them(self, room, peer):
        Holder(room)
        assert peer.ask(messages.AskStatus).values["streams"] == 1


def everything(room, partition):
    """The values of all messages."""
    peer, found, offset = room.peer(), [], 0
    while offset < count(room, partition):
        answer = peer.ask(messages.Fetch, [(partition, offset, 0)], 1 << 20)
        found += values(peer, answer)[partition]
        offset = answer.partitions[0].next_offset
    return found


@pytest.mark.parametrize("seed", range(30))
def test_whatever_dies_each_row_is_delivered_once_in_order(seed):
    """Holders deliver rows, are fenced, repeat what was not answered; the power goes. Each row comes once, in order."""
    rng, room = random.Random(seed), Room()
    [partition] = room.topic()
    streams = {bytes([number]) * 16: [] for number in range(3)}  # what was delivered by what was answered
    rows = dict.fromkeys(streams, 0)
    holders = {}
    for _ in range(120):
        stream = rng.choice(list(streams))
        step = rng.random()
        if step < 0.2 or stream not in holders:
            holders[stream] = Holder(room, stream)
        elif step < 0.3:
            room.engine.housekeeping.checkpoint_inline() if rng.random() < 0.5 else room.engine.sync()
        elif step < 0.4:
            crash(room)
            for holder in holders.values():
                holder.peer, holder.serial = room.peer(), 0
        else:
            rows[stream] += rng.randrange(1, 3)
            holder = holders[stream]
            after = holder.held.last
            value = b"%d:%d" % (stream[0], rows[stream])
            asked = holder.tell(partition, rows[stream], after, value)
            if rng.random() < 0.7:
                room.engine.sync()
            else:
                crash(room)
                for each in holders.values():
                    each.peer, each.serial = room.peer(), 0
                asked = holder.tell(partition, rows[stream], after, value)
                room.engine.sync()
            assert isinstance(holder.peer.answer(asked), messages.Committed)
            streams[stream].append(value)
            holder.held = messages.StreamHeld(0, holder.held.epoch, rows[stream], holder.held.born)
    crash(room)
    there = everything(room, partition)
    for stream, delivered in streams.items():
        mine = [value for value in there if value.startswith(b"%d:" % stream[0])]
        assert mine == delivered


def test_every_record_kind_is_made(room, partition):
    records = recorded(room)
    Holder(room).release(2)
    assert [type(each) for each in records] == [StreamClaimed, StreamReleased]
