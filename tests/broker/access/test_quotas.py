"""Test quotas: what is refused and what waits, for whom, and that others do neither.

Seen to fail: with each judgement taken out, with waits of others' sessions, with a bucket that forgets what it owes,
and with quotas that a session keeps after they were changed.
"""

import pytest
from twisted.internet.testing import StringTransport

from journal.records.access_entries import Quotas as Q
from journal.records.access_entries import User
from journal.settings import TopicSettings
from journal.xid import Xid
from tests.broker.door import Door
from tests.support.broker_room import Room, frames, opening
from txbroker.client.login.verifier import verifier_of
from txbroker.errors import LimitExceeded
from txbroker.server.connections.factory import BrokerFactory
from txbroker.server.connections.read_limits import Pause
from txbroker.wire import messages as m
from txbroker.wire.codec import encode

VERIFIER = verifier_of("a", 4_096)


@pytest.fixture
def room():
    made = Room()
    made.topic("orders")
    return made


def grant(room, quotas, name="alice"):
    """Give a user quotas; it is made if it is not there."""
    there = name in room.broker.access.users
    user = User(name, VERIFIER, quotas=quotas)
    names, existing = (["quotas"], m.Existing.YES) if there else ([], m.Existing.NO)
    done = room.peer().ask(m.AlterUser, user, names, existing)
    assert isinstance(done, m.Done), done


def enter(room, name="alice", host="10.0.0.1:5"):
    """A peer that has logged in as a user."""
    peer = room.peer(host)
    peer.session.begin(peer.session.number, name, None)
    room.broker.quotas.begin(peer.session)
    return peer


def make_topic(peer, name):
    return peer.ask(m.CreateTopic, name, 1, TopicSettings(), name.encode().ljust(16, b"-"))


def prepare(peer, serial):
    data = frames(b"1")
    xid = Xid(1, b"%d-%d" % (peer.session.number, serial), b"")
    return peer.ask(m.Prepare, serial, xid, None, 0, [(1, len(data))], [], data=data)


def checkpoint(room):
    room.engine.housekeeping.request_checkpoint()
    while jobs := room.engine.jobs(room.engine.now()):
        for job in jobs:
            job.run()
            room.engine.finish(job)


def is_over(room, answer, name, limit):
    assert isinstance(answer, m.Refused), answer
    assert answer.error == "LimitExceeded"
    assert f"the quota {name} of alice is {limit}, and there are {limit}" in answer.message
    assert room.broker.quotas.exceeded[name]
    return True


def test_who_has_no_quotas_has_no_allowance(room):
    grant(room, Q())
    assert enter(room).session.allowance is None
    assert room.peer().session.allowance is None


# -- what is made -----------------------------------------------------------------------------------


def test_topics_that_a_principal_has_made_are_limited_and_others_are_not(room):
    grant(room, Q(topics=2))
    alice, again, other = enter(room), enter(room), enter(room, "bob")
    assert isinstance(make_topic(alice, "a1"), m.Topics)
    assert isinstance(make_topic(again, "a2"), m.Topics)
    assert is_over(room, make_topic(alice, "a3"), "topics", 2)
    assert isinstance(make_topic(other, "b1"), m.Topics)
    other.ask(m.DeleteTopic, "a1", b"a1".ljust(16, b"-"))
    assert isinstance(make_topic(alice, "a3"), m.Topics)


def test_topics_are_counted_over_restarts_and_checkpoints(room):
    grant(room, Q(topics=1))
    make_topic(enter(room), "a1")
    checkpoint(room)
    for _ in range(2):
        room.restart()
        assert is_over(room, make_topic(enter(room), "a2"), "topics", 1)


def test_producers_of_a_principal_are_limited_over_all_its_clients_and_restarts(room):
    grant(room, Q(producers=2))
    assert isinstance(enter(room).ask(m.OpenProducer, ""), m.ProducerOpened)
    assert isinstance(enter(room).ask(m.OpenProducer, "named"), m.ProducerOpened)
    assert is_over(room, enter(room).ask(m.OpenProducer, ""), "producers", 2)
    assert isinstance(enter(room).ask(m.OpenProducer, "named"), m.ProducerOpened), "it is there already"
    assert isinstance(enter(room, "bob").ask(m.OpenProducer, ""), m.ProducerOpened)
    for _ in range(2):
        room.restart()
        assert is_over(room, enter(room).ask(m.OpenProducer, ""), "producers", 2)
        checkpoint(room)
    bob = enter(room, "bob")
    bob.ask(m.OpenProducer, "named")
    assert isinstance(enter(room).ask(m.OpenProducer, ""), m.ProducerOpened), "the name is bob's now"


def test_prepared_transactions_are_limited_until_some_are_decided(room):
    grant(room, Q(prepared=2))
    alice, bob = enter(room), enter(room, "bob")
    for serial in (1, 2, 3):
        assert isinstance(prepare(bob, serial), m.Done)
    assert isinstance(prepare(alice, 1), m.Done)
    assert isinstance(prepare(alice, 2), m.Done)
    assert is_over(room, prepare(alice, 3), "prepared", 2)
    assert isinstance(prepare(alice, 2), m.Done), "what is prepared stays so"
    alice.ask(m.Commit, 0, 1)
    assert isinstance(prepare(alice, 4), m.Done)


def test_a_transaction_that_may_not_be_prepared_is_rolled_back(room):
    grant(room, Q(prepared=0))
    alice = enter(room)
    alice.ask(m.Add, 1, 1, None, 0, data=frames(b"1"))
    assert is_over(room, prepare(alice, 1), "prepared", 0)
    assert not room.engine.transactions.live


def test_sessions_are_limited(room):
    grant(room, Q(sessions=2))
    quotas = room.broker.quotas
    first, _ = enter(room), enter(room)
    error = quotas.judge_session("alice")
    assert isinstance(error, LimitExceeded)
    assert "the quota sessions of alice is 2, and there are 2" in str(error)
    assert quotas.judge_session("bob") is None
    first.leave()
    assert quotas.judge_session("alice") is None


def test_a_transaction_that_is_prepared_for_too_long_is_told_and_counted_once_and_stays(room):
    grant(room, Q(prepared_age=60_000_000))
    prepare(enter(room), 1)
    prepare(enter(room, "bob"), 1)
    quotas = room.broker.quotas
    for seconds, count in ((59, 0), (2, 1), (100, 1)):
        room.clock.advance(seconds * 1_000_000)
        quotas.look(room.engine.now())
        assert quotas.exceeded["prepared_age"] == count
    assert len(room.engine.transactions.prepared) == 2


def test_quotas_that_are_changed_count_at_once_and_what_there_is_stays(room):
    grant(room, Q(topics=2))
    alice = enter(room)
    make_topic(alice, "a1")
    make_topic(alice, "a2")
    grant(room, Q(topics=1))
    assert "is 1, and there are 2" in make_topic(alice, "a3").message
    grant(room, Q())
    assert alice.session.allowance is None
    assert isinstance(make_topic(alice, "a3"), m.Topics)
    grant(room, Q(topics=3))
    assert is_over(room, make_topic(alice, "a4"), "topics", 3)
    room.peer().ask(m.RemoveUser, "alice")
    assert alice.session.allowance is None


# -- bytes a second ---------------------------------------------------------------------------------


class Sockets:
    """Connections of the real protocol at one door, each logged in as a user."""

    def __init__(self, quotas):
        self.door = Door()
        self.room = self.door.room
        grant(self.room, quotas)

    def enter(self, name):
        door = Door.__new__(Door)
        door.room, door.connections = self.room, self.door.connections
        door.protocol = BrokerFactory(door.connections).buildProtocol(None)
        door.transport = StringTransport()
        door.protocol.makeConnection(door.transport)
        door.protocol.dataReceived(opening())
        door.carry()
        door.transport.clear()
        session = door.protocol.session
        session.begin(session.number, name, None)
        self.room.broker.quotas.begin(session)
        return door

    def pass_time(self, seconds):
        self.room.clock.advance(int(seconds * 1_000_000))
        self.room.timers.advance(seconds)
        self.room.engine.sync()


def is_paused(door):
    return bool(door.protocol._pauses & Pause.QUOTA)


def send(door, size):
    door.read(encode(m.Send(9, 1), frames(b"x" * size)))


def test_who_sends_too_much_is_not_read_for_as_long_as_that_takes_and_others_are():
    sockets = Sockets(Q(bytes_in=10_000))
    one, two, other = sockets.enter("alice"), sockets.enter("alice"), sockets.enter("bob")
    send(one, 9_000)
    assert not is_paused(one)
    send(two, 20_000)
    assert is_paused(one)
    assert is_paused(two)
    send(other, 50_000)
    assert not is_paused(other)
    sockets.pass_time(1.8)
    assert is_paused(one)
    sockets.pass_time(0.4)
    assert not is_paused(one)
    assert not is_paused(two)
    assert sockets.room.broker.quotas.exceeded["bytes_in"] == 1


def test_what_was_sent_in_one_piece_is_stored_however_much_it_is():
    sockets = Sockets(Q(bytes_in=1_000))
    one = sockets.enter("alice")
    answers = one.read(encode(m.Send(9, 1), frames(b"x" * 30_000)))
    assert [type(each) for each in answers] == [m.Sent]
    assert is_paused(one)


def test_a_session_that_comes_later_waits_as_the_others_do_and_a_lifted_quota_ends_it():
    sockets = Sockets(Q(bytes_in=1_000))
    one = sockets.enter("alice")
    send(one, 30_000)
    one.protocol.connectionLost()
    late = sockets.enter("alice")
    assert is_paused(late)
    grant(sockets.room, Q())
    assert not is_paused(late)


def test_a_long_message_comes_to_its_end_before_its_connection_waits():
    sockets = Sockets(Q(bytes_in=1_000))
    one, two = sockets.enter("alice"), sockets.enter("alice")
    long = encode(m.Send(9, 1), frames(b"x" * 600_000))
    two.protocol.dataReceived(long[:400_000])
    send(one, 5_000)
    assert is_paused(one)
    assert not is_paused(two)
    assert [type(each) for each in two.read(long[400_000:])] == [m.Sent]
    assert is_paused(two)


def test_who_reads_too_much_waits_for_messages_and_others_do_not():
    sockets = Sockets(Q(bytes_out=1_000))
    alice, other = sockets.enter("alice"), sockets.enter("bob")
    send(other, 5_000)
    fetch = encode(m.Fetch(1, [(1, 0, 0)], 1 << 20, 0, 1))
    assert len(alice.read(fetch)) == 1
    assert alice.read(fetch) == []
    assert len(other.read(fetch)) == 1
    assert not is_paused(alice)
    sockets.pass_time(3.9)
    assert alice.read() == []
    sockets.pass_time(0.3)
    assert len(alice.read()) == 1
    assert sockets.room.broker.quotas.exceeded["bytes_out"] == 2


def test_an_allowance_is_forgotten_with_its_last_session_unless_it_owes_something():
    sockets = Sockets(Q(bytes_in=1_000))
    quotas = sockets.room.broker.quotas
    one = sockets.enter("alice")
    one.protocol.connectionLost()
    assert quotas._allowances == {}
    one = sockets.enter("alice")
    send(one, 3_000)
    one.protocol.connectionLost()
    assert list(quotas._allowances) == ["alice"]
    sockets.pass_time(3)
    assert quotas._allowances == {}
