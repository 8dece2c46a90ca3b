"""Test producers, and their pairs with partitions, at the limit: which are dropped, and which are refused."""

import pytest

from tests.support.broker_room import Room, refused
from txbroker.wire import messages


def producer(peer, name=""):
    opened = peer.ask(messages.OpenProducer, name)
    return {"producer_id": opened.producer_id, "epoch": opened.epoch}


def known(room):
    return set(room.broker.producers.producers)


def test_at_the_limit_idle_producers_go_before_new_ones_are_refused():
    room = Room(max_producers=2, producer_idle=1_000_000)
    peer = room.peer()
    first, second = producer(peer, "a"), producer(peer, "b")
    refused(peer.ask(messages.OpenProducer, "c"), "LimitExceeded")
    room.clock.advance(500_000)
    assert producer(peer, "b")["producer_id"] == second["producer_id"]
    room.clock.advance(500_001)
    assert producer(peer, "c")["producer_id"] > second["producer_id"]
    assert first["producer_id"] not in room.broker.producers.producers


class TestRoomForProducers:
    """Who is gone makes room at once; who is there or has a name stays, as long as he has no more than others."""

    def test_the_nameless_without_a_session_go_the_longest_idle_first(self):
        room = Room(max_producers=4)
        [partition] = room.topic()
        gone, present = room.peer(), room.peer()
        first, _ = producer(gone), producer(gone)
        named, mine = producer(gone, "billing"), producer(present)
        room.clock.advance(1)
        gone.send(partition, b"a", **first)
        gone.leave()
        third = producer(room.peer())
        ids = [each["producer_id"] for each in (first, named, mine, third)]
        assert known(room) == set(ids)
        fourth = producer(room.peer())
        assert known(room) == {*ids[1:], fourth["producer_id"]}
        said = refused(room.peer().ask(messages.OpenProducer), "LimitExceeded")
        assert "4 producers (max_producers), each with a name or a client that is connected" in said
        assert isinstance(present.send(partition, b"a", **mine), messages.Sent)
        refused(gone.again().send(partition, b"b", sequence=1, **first), "UnknownProducer")

    def test_a_client_that_has_come_back_keeps_its_own(self):
        room = Room(max_producers=2)
        [partition] = room.topic()
        peer, other = room.peer(), room.peer()
        mine, theirs = producer(peer), producer(other)
        room.restart()
        peer = peer.again()
        producer(room.peer())
        assert isinstance(peer.send(partition, b"a", **mine), messages.Sent)
        refused(other.again().send(partition, b"a", **theirs), "UnknownProducer")

    @pytest.mark.parametrize("has_checkpoint", [False, True])
    def test_what_made_room_is_the_same_after_a_restart(self, has_checkpoint):
        room = Room(max_producers=3)
        for _ in range(5):
            peer = room.peer()
            producer(peer)
            peer.leave()
        before = known(room)
        assert len(before) == 3
        if has_checkpoint:
            room.engine.housekeeping.request_checkpoint()
            room.engine.housekeeping.run_inline()
        room.restart()
        assert known(room) == before
        assert sum(room.broker.producers.owned.values()) == 3

    def test_many_clients_that_come_and_go_keep_nobody_from_sending(self):
        room = Room(max_producers=100)
        [partition] = room.topic()
        for _ in range(300):
            peer = room.peer()
            assert isinstance(peer.send(partition, b"a", **producer(peer)), messages.Sent)
            peer.leave()
        assert len(known(room)) <= 100

    def test_a_clients_own_are_bounded_over_its_sessions_and_the_idle_make_room(self):
        room = Room(max_producers_per_session=2, producer_idle=1_000_000)
        peer, other = room.peer(), room.peer()
        theirs = producer(other)
        producer(peer)
        peer = peer.again()
        second = producer(peer)
        room.clock.advance(600_000)
        said = refused(peer.ask(messages.OpenProducer), "LimitExceeded")
        assert "2 producers (max_producers_per_session)" in said
        [partition] = room.topic()
        peer.send(partition, b"a", **second)
        room.clock.advance(600_000)
        third = producer(peer)
        assert known(room) == {each["producer_id"] for each in (theirs, second, third)}

    def test_what_is_expired_or_taken_by_name_counts_no_more(self):
        room = Room(max_producers_per_session=1, producer_age=1_000_000)
        peer, other = room.peer(), room.peer()
        producer(peer, "billing")
        refused(peer.ask(messages.OpenProducer), "LimitExceeded")
        producer(other, "billing")
        producer(peer)
        refused(other.ask(messages.OpenProducer), "LimitExceeded")
        room.clock.advance(2_000_000)
        room.broker.sending.room.expire(room.engine.now())
        producer(peer)
        producer(other)
        assert len(known(room)) == 2


class TestConnectedClients:
    """They are many and stay: who has most makes room for who has little."""

    @pytest.mark.parametrize("name", ["", "n"])
    def test_a_few_that_have_all_there_are_keep_nobody_from_sending(self, name):
        room = Room(max_producers=20, max_producers_per_session=10)
        [partition] = room.topic()
        greedy = [room.peer() for _ in range(2)]
        theirs = [
            [producer(peer, name and f"{name}{i}{j}") for j in range(10)] for i, peer in enumerate(greedy)
        ]
        late = room.peer()
        mine = producer(late)
        assert isinstance(late.send(partition, b"a", **mine), messages.Sent)
        gone = {each["producer_id"] for own in theirs for each in own} - known(room)
        assert gone == {theirs[0][0]["producer_id"]}, "one of him who has most, the longest idle"
        refused(greedy[0].send(partition, b"a", **theirs[0][0]), "UnknownProducer")
        assert isinstance(greedy[0].send(partition, b"a", **theirs[0][1]), messages.Sent)

    def test_who_has_most_gets_nothing_from_others_and_who_has_one_keeps_it(self):
        room = Room(max_producers=12, max_producers_per_session=10)
        [partition] = room.topic()
        modest = [room.peer() for _ in range(2)]
        theirs = [producer(peer) for peer in modest]
        greedy = room.peer()
        for _ in range(10):
            producer(greedy)
        for _ in range(3):
            said = refused(greedy.again().ask(messages.OpenProducer), "LimitExceeded")
        assert "max_producers_per_session" in said
        for _ in range(30):
            peer = room.peer()
            producer(peer, "named")
        for peer, own in zip(modest, theirs, strict=True):
            assert isinstance(peer.send(partition, b"a", **own), messages.Sent)

    def test_of_who_has_most_those_without_a_name_go_first(self):
        room = Room(max_producers=5)
        greedy = room.peer()
        named, nameless = [producer(greedy, name) for name in "abc"], [producer(greedy) for _ in range(2)]
        for count in (1, 2):
            peer = room.peer()
            producer(peer)
            assert {each["producer_id"] for each in nameless[count:]} <= known(room)
            assert {each["producer_id"] for each in named} <= known(room)
            assert not {each["producer_id"] for each in nameless[:count]} & known(room)

    def test_twice_as_many_is_not_enough_or_two_would_take_it_from_each_other_with_every_send(self):
        room = Room(max_producers=4)
        clients = [room.peer(), room.peer()]
        for peer in clients:
            producer(peer), producer(peer)
        said = refused(room.peer().ask(messages.OpenProducer), "LimitExceeded")
        assert "no client has more than twice as many as this one would have, 1" in said
        assert "none was opened" in said


class TestPairs:
    """What is remembered of a producer in a partition is bounded over all; who fills that keeps nobody from sending."""

    @pytest.fixture
    def room(self):
        return Room(max_producer_partitions=40, producer_idle=1_000_000)

    def fill(self, room, peer, producers=4):
        """All pairs that there may be, of one client."""
        opened = [producer(peer) for _ in range(producers)]
        for each in opened:
            for partition in self.partitions[: 40 // producers]:
                assert isinstance(peer.send(partition, b"x", **each), messages.Sent)
        assert room.broker.producers.pairs == 40
        return opened

    @pytest.fixture(autouse=True)
    def make_partitions(self, room):
        self.partitions = room.topic(partitions=41)

    def send(self, peer, **own):
        return peer.send(self.partitions[0], b"a", **own)

    def test_those_of_a_client_that_has_gone_make_room_the_longest_idle_first(self, room):
        hog, late = room.peer(), room.peer()
        filled = self.fill(room, hog)
        room.clock.advance(1)
        hog.send(self.partitions[0], b"y", sequence=1, **filled[0])
        hog.leave()
        assert isinstance(self.send(late, **producer(late)), messages.Sent)
        assert filled[1]["producer_id"] not in known(room)
        assert {filled[i]["producer_id"] for i in (0, 2, 3)} <= known(room)

    def test_those_of_a_client_that_stays_make_room_too(self, room):
        hog, late = room.peer(), room.peer()
        filled = self.fill(room, hog)
        mine = producer(late)
        assert isinstance(self.send(late, **mine), messages.Sent)
        assert {each["producer_id"] for each in filled} - known(room) == {filled[0]["producer_id"]}
        refused(hog.send(self.partitions[0], b"y", sequence=1, **filled[0]), "UnknownProducer")
        assert isinstance(hog.send(self.partitions[0], b"y", sequence=1, **filled[1]), messages.Sent)

    def test_who_has_most_is_refused_and_goes_on_where_it_sends_already(self, room):
        hog = room.peer()
        filled = self.fill(room, hog)
        said = refused(hog.send(self.partitions[40], b"y", **filled[0]), "LimitExceeded")
        assert "40 pairs of producer and partition are remembered, the limit is 40" in said
        assert "twice as many as this one would have, 41; nothing was stored" in said
        for each in filled:
            assert isinstance(hog.send(self.partitions[0], b"y", sequence=1, **each), messages.Sent)

    def test_the_producer_that_sends_is_not_the_one_that_goes_for_being_idle(self, room):
        hog = room.peer()
        [mine] = self.fill(room, hog, 1)
        room.clock.advance(2_000_000)
        refused(hog.send(self.partitions[40], b"y", **mine), "LimitExceeded")
        assert isinstance(hog.send(self.partitions[0], b"y", sequence=1, **mine), messages.Sent)

    def test_the_idle_go_also_with_a_name_and_those_that_have_sent_nothing_stay(self, room):
        peer, late = room.peer(), room.peer()
        silent, billing = producer(peer), producer(peer, "billing")
        for partition in self.partitions[:40]:
            peer.send(partition, b"x", **billing)
        room.clock.advance(2_000_000)
        mine = producer(late)
        assert isinstance(self.send(late, **mine), messages.Sent)
        assert known(room) == {silent["producer_id"], mine["producer_id"]}

    def test_a_repetition_and_a_refused_send_make_no_room(self, room):
        hog, late = room.peer(), room.peer()
        filled = self.fill(room, hog)
        assert hog.send(self.partitions[0], b"x", **filled[0]).base_offset == 0
        refused(late.send(self.partitions[0], b"a", sequence=1, **producer(late)), "SequenceOutOfOrder")
        room.engine.full_at = -1
        refused(self.send(late, producer_id=known(room).pop(), epoch=0), "UnknownProducer")
        assert room.broker.producers.pairs == 40

    @pytest.mark.parametrize("has_checkpoint", [False, True])
    def test_what_made_room_is_the_same_after_a_restart_with_other_limits(self, room, has_checkpoint):
        hog, late = room.peer(), room.peer()
        self.fill(room, hog)
        self.send(late, **producer(late))
        if has_checkpoint:
            room.engine.housekeeping.request_checkpoint()
            room.engine.housekeeping.run_inline()
        rows = list(room.broker.producers.snapshot())
        room.settings = type(room.settings)(max_producer_partitions=1)
        room.restart()
        assert list(room.broker.producers.snapshot()) == rows
        assert room.broker.producers.pairs == 31

    def test_two_of_the_same_size_do_not_take_it_from_each_other(self, room):
        peers = [room.peer(), room.peer()]
        own = [producer(peer) for peer in peers]
        for partition in self.partitions[:20]:
            for peer, each in zip(peers, own, strict=True):
                peer.send(partition, b"x", **each)
        for peer, each in zip(peers, own, strict=True):
            refused(peer.send(self.partitions[20], b"y", **each), "LimitExceeded")
            assert isinstance(peer.send(self.partitions[0], b"y", sequence=1, **each), messages.Sent)

    def test_looking_for_who_may_go_counts_as_work_of_its_turn(self, room):
        hog = room.peer()
        filled = self.fill(room, hog)
        before = hog.session.work
        refused(hog.send(self.partitions[40], b"y", **filled[0]), "LimitExceeded")
        assert hog.session.work > before
