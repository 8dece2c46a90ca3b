"""Test that a client which connects again ends the session that it had, and no other: not in a restored copy, not with
a wrong secret.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from journal.constants import STARTS_KEPT
from journal.parties import ANONYMOUS
from journal.records.record import NONCE_BYTES, Started
from journal.transaction_states import State
from tests.broker.transactions.transaction_scene import totals
from tests.client.rig import Rig
from tests.support.broker_room import Peer, Room, frames, refused
from txbroker import errors
from txbroker.broker.broker import Broker
from txbroker.client.core.phase import Phase
from txbroker.wire import messages
from txbroker.wire.codec import answer_decoder, request_decoder
from txbroker.wire.messages import FormerSession
from txbroker.wire.secret import SECRET_BYTES, Secret


@pytest.fixture
def room():
    return Room()


def greeted(
    room: Room, after: FormerSession | None = None
) -> tuple[Peer, messages.Welcome | messages.Refused]:
    peer = room.peer(hello=False)
    peer.tell(messages.Hello, messages.MAGIC, list(messages.VERSIONS), "tester")
    return peer, peer.ask(messages.Login, "ANONYMOUS", b"", after)


def client(room: Room) -> tuple[Peer, FormerSession]:
    """A client at work, with what it will show when it connects again."""
    peer, welcome = greeted(room)
    return peer, FormerSession(welcome.session, welcome.start, welcome.secret)


def begin(peer: Peer, partition: int, value: bytes = b"a") -> None:
    peer.tell(messages.Add, 1, partition, data=frames(value))


def committed(peer: Peer, value: bytes) -> bool:
    answer = peer.ask(messages.Commit, serial=1, totals=totals((value,)))
    return isinstance(answer, messages.Committed)


def restored(room: Room, copy) -> None:
    """The data are lost; the copy takes their place."""
    room.engine.close()
    room.filesystem = copy
    room.start()


class TestWelcome:
    def test_it_tells_the_nonce_of_the_start_and_a_secret_that_no_other_session_has(self, room):
        _, first = client(room)
        _, second = client(room)
        assert first.start == second.start == room.engine.starts.nonce
        assert len(first.start) == NONCE_BYTES
        assert len(first.secret.value) == len(second.secret.value) == SECRET_BYTES
        assert first.secret != second.secret
        room.restart()
        _, third = client(room)
        assert third.start == room.engine.starts.nonce != first.start

    def test_a_start_has_forced_its_nonce_before_it_welcomes_anybody(self, room):
        _, former = client(room)
        room.filesystem = room.filesystem.crash_clone(0, 0.0)
        room.start()
        assert room.engine.starts.knows(former.session >> 32, former.start)

    def test_no_text_shows_a_secret(self, room):
        peer, former = client(room)
        peer.leave()
        welcome = greeted(room, former)[1]
        refusal = room.broker.greeting.judge(replace(former, session=1 << 40), ANONYMOUS)
        for holder, secret in (
            (former.secret, former.secret), (former, former.secret), (refusal, former.secret),
            (messages.Login(1, "ANONYMOUS", b"", former), former.secret), (welcome, welcome.secret),
        ):  # fmt: skip
            for text in (repr(holder), str(holder), f"{holder}"):
                assert repr(secret.value)[2:-1] not in text
                assert secret.value.hex() not in text
        assert "hidden" in repr(welcome)


class TestRestoredCopies:
    def test_a_client_of_a_start_after_the_copy_ends_nobody_and_is_told_that_the_data_are_others(self, room):
        [partition] = room.topic()
        room.restart()
        copy = room.filesystem.crash_clone(1)
        room.restart()
        _, old = client(room)
        restored(room, copy)
        stranger, new = client(room)
        assert new.session == old.session, "the numbers come again"
        begin(stranger, partition)
        peer, answer = greeted(room, old)
        said = refused(answer, "BrokerReplaced")
        assert "set back to an older copy, or are other data" in said
        assert "was not ended" in said
        assert peer.closed == [said]
        assert stranger.closed == []
        assert committed(stranger, b"a")

    def test_one_of_the_second_start_after_the_copy_is_refused_by_the_first_second_and_third(self, room):
        copy = room.filesystem.crash_clone(1)
        room.restart()
        room.restart()
        _, old = client(room)
        restored(room, copy)
        for _ in range(3):
            refused(greeted(room, old)[1], "BrokerReplaced")
            room.restart()

    def test_one_of_the_start_in_which_the_copy_was_taken_cannot_be_told_and_ends_nobody(self, room):
        _, old = client(room)
        copy = room.filesystem.kill_clone()
        client(room)
        restored(room, copy)
        stranger, _ = client(room)
        _, welcome = greeted(room, old)
        assert isinstance(welcome, messages.Welcome)
        assert stranger.closed == []

    def test_one_of_other_data_is_refused(self, room):
        _, old = client(Room())
        stranger, _ = client(room)
        refused(greeted(room, old)[1], "BrokerReplaced")
        assert stranger.closed == []

    def test_a_start_too_long_ago_to_be_known_is_refused_like_one_of_other_data_and_said_so(self, room):
        _, old = client(room)
        starts = room.engine.starts
        for number in range(2, STARTS_KEPT + 2):
            starts.apply(1, Started(number, 0, 0, number.to_bytes(NONCE_BYTES)), b"")
        said = refused(greeted(room, old)[1], "BrokerReplaced")
        assert f"or have been started more than {STARTS_KEPT} times since" in said


class TestFormerSessions:
    def test_the_right_secret_ends_the_session_and_what_it_had_active(self, room):
        [partition] = room.topic()
        peer, former = client(room)
        begin(peer, partition)
        new, welcome = greeted(room, former)
        assert isinstance(welcome, messages.Welcome)
        assert len(peer.closed) == 1
        assert new.ask(messages.AskOutcome, former.session, 1).state is State.ROLLED_BACK

    @pytest.mark.parametrize("secret", [b"", b"x" * SECRET_BYTES, b"x"], ids=["empty", "another", "short"])
    def test_a_wrong_secret_is_refused_and_ends_nobody(self, room, secret):
        [partition] = room.topic()
        peer, former = client(room)
        begin(peer, partition)
        other, answer = greeted(room, replace(former, secret=Secret(secret)))
        assert "no session was ended" in refused(answer, "BrokerReplaced")
        assert (len(other.closed), peer.closed) == (1, [])
        assert committed(peer, b"a")

    def test_the_secret_of_another_session_is_a_wrong_one(self, room):
        peer, former = client(room)
        _, mine = client(room)
        refused(greeted(room, replace(mine, session=former.session))[1], "BrokerReplaced")
        assert peer.closed == []

    def test_a_session_number_that_was_not_given_out_yet_is_refused(self, room):
        _, former = client(room)
        ahead = replace(former, session=former.session + 7)
        refused(greeted(room, ahead)[1], "BrokerReplaced")

    def test_the_nonce_of_another_start_does_not_go_with_the_number(self, room):
        _, old = client(room)
        room.restart()
        peer, former = client(room)
        refused(greeted(room, replace(former, start=old.start))[1], "BrokerReplaced")
        refused(greeted(room, replace(old, start=former.start))[1], "BrokerReplaced")
        assert peer.closed == []

    def test_a_session_that_has_ended_by_itself_needs_no_ending(self, room):
        peer, former = client(room)
        peer.leave()
        assert isinstance(greeted(room, former)[1], messages.Welcome)
        assert isinstance(greeted(room, former)[1], messages.Welcome), (
            "and again, if the first welcome got lost"
        )

    def test_a_client_of_an_earlier_start_is_welcome_and_has_nothing_to_end(self, room):
        _, former = client(room)
        for _ in range(2):
            room.restart()
            stranger, _ = client(room)
            _, welcome = greeted(room, former)
            assert isinstance(welcome, messages.Welcome)
            assert stranger.closed == []

    def test_a_hello_that_is_refused_for_another_reason_ends_nobody(self, room):
        peer, former = client(room)
        other = room.peer(hello=False)
        refused(other.ask(messages.Hello, messages.MAGIC, [99], "tester"), "VersionRefused")
        assert other.ask(messages.Login, "ANONYMOUS", b"", former) is None
        assert peer.closed == []


class Cable:
    """What :class:`Rig` needs of a broker, over a :class:`Room`."""

    def __init__(self, room: Room) -> None:
        self.room = room

    @property
    def session(self) -> int:
        return self.peer.session.number

    def connection(self):
        peer, out = self.room.peer(hello=False), []
        peer.session.deliver = out.append
        self.peer = peer
        decoder = request_decoder(1 << 26)

        def feed(data: bytes) -> bytes:
            for head, body in decoder.feed(data):
                self.room.broker.received(peer.session, head, memoryview(bytes(body)))
            self.room.engine.sync()
            said, out[:] = b"".join(out), []
            return said

        return feed

    def disconnected(self, session: int) -> None:
        self.peer.leave()


class TestClients:
    def test_a_client_goes_on_over_lost_connections_and_restarts(self, room):
        rig = Rig(Cable(room))
        for restart in (False, True, True, False):
            rig.cut()
            if restart:
                room.restart()
            rig.connect()
            assert (rig.core.phase, rig.core.session) == (Phase.OPEN, rig.session)

    @pytest.mark.parametrize("is_forgotten", [False, True])
    def test_a_client_sends_on_under_its_producer_or_if_that_made_room_under_a_new_one(self, is_forgotten):
        room = Room(max_producers=2)
        room.topic("t")
        rig = Rig(Cable(room))
        first, _ = rig.send(b"a")
        rig.pump()
        before = rig.producer.identity
        rig.cut()
        for _ in range(2 if is_forgotten else 1):
            room.peer().ask(messages.OpenProducer)
        room.restart()
        rig.connect()
        second, _ = rig.send(b"b")
        rig.pump()
        assert (first.result().base_offset, second.result().base_offset) == (0, 1)
        assert (rig.producer.identity != before) is is_forgotten

    def test_a_client_whose_broker_was_set_back_stops_for_good_and_says_nothing_but_its_login(self, room):
        copy = room.filesystem.crash_clone(1)
        room.restart()
        room.topic("t")
        rig = Rig(Cable(room))
        rig.cut()
        restored(room, copy)
        stranger, _ = client(room)
        waiting = rig.start(rig.operations.topics(None))
        before = room.engine.next_lsn
        rig.connect()
        assert (rig.core.phase, room.engine.next_lsn) == (Phase.CLOSED, before)
        with pytest.raises(errors.BrokerReplaced, match=r"set back to an older copy.*Open a new connection"):
            waiting.result()
        with pytest.raises(errors.BrokerReplaced):
            rig.run(rig.operations.topics(None))
        assert "older copy" in rig.core.abort
        assert stranger.closed == []

    def test_what_such_a_client_had_sent_without_an_answer_is_unknown(self, room):
        copy = room.filesystem.crash_clone(1)
        room.restart()
        [partition] = room.topic("t")
        rig = Rig(Cable(room))
        request = messages.CommitOffsets(
            rig.core.correlation(), "g", [messages.PartitionOffset(partition, 0)]
        )
        sent = rig.core.request(request, messages.Done)
        rig.core.take_output()
        rig.cut()
        restored(room, copy)
        rig.connect()
        with pytest.raises(errors.OutcomeUnknown, match="older copy"):
            sent.result()


def test_a_brokers_randomness_comes_from_where_it_is_told():
    drawn = []

    def random(count):
        drawn.append(count)
        return bytes([len(drawn)]) * count

    room = Room()
    broker = Broker(room.engine, room.settings, random=random)
    said = []
    session = broker.opened("peer", said.append, said.append)
    for command in (
        messages.Hello(1, messages.MAGIC, list(messages.VERSIONS)),
        messages.Login(2, "ANONYMOUS"),
    ):
        broker.received(session, command, memoryview(b""))
    [_, (welcome, _)] = answer_decoder(1 << 20).feed(b"".join(said))
    *of_logins, of_session = drawn
    assert welcome.secret == Secret(bytes([len(drawn)]) * SECRET_BYTES)
    assert of_session == SECRET_BYTES
    assert len(of_logins) == 2, "of keys that no connection sees"
