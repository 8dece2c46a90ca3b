"""Test what operators are told of sessions, and that they can end one."""

import pytest

from journal.xid import Xid
from tests.support.broker_room import Room, frames, refused
from txbroker.wire import messages

XID = Xid(7, b"global", b"branch")


@pytest.fixture
def room():
    return Room()


def listed(peer, after=0):
    """The sessions that the peer is told of, and whether there may be more."""
    correlation = peer.tell(messages.ListSessions, after)
    answer = peer.answer(correlation)
    assert isinstance(answer, messages.Sessions), answer
    return answer.sessions, answer.more


def test_who_is_connected_is_told_with_what_each_has_waiting(room):
    [partition] = room.topic()
    operator, producer = room.peer("10.0.0.9:1"), room.peer("10.0.0.1:5")
    room.clock.advance(3_000_000)
    producer.tell(messages.Send, partition, data=frames(b"x" * 9000))
    producer.tell(messages.Fetch, [(partition, 0, 0)], max_wait=60_000_000)
    producer.session.unsent = lambda: 77
    mine, others = listed(operator)[0][-2:]
    assert (mine.session, mine.address) == (operator.session.number, "10.0.0.9:1")
    assert (others.session, others.client, others.address) == (
        producer.session.number,
        "tester",
        "10.0.0.1:5",
    )
    assert (others.principal, others.age, others.unsent, others.fetches) == ("anonymous", 3_000_000, 77, 1)
    assert others.held == producer.session.held


def test_it_is_told_while_the_disk_hangs(room):
    [partition] = room.topic()
    operator, producer = room.peer(), room.peer()
    producer.tell(messages.Send, partition, data=frames(b"x"))  # nothing is forced from here on
    assert listed(operator)
    closed = operator.tell(messages.CloseSession, producer.session.number, "ann", "it hangs")
    assert isinstance(operator.answer(closed), messages.Done)
    assert producer.closed


def test_a_session_that_has_not_said_hello_or_has_ended_is_none(room):
    operator, stranger, gone = room.peer(), room.peer(hello=False), room.peer()
    gone.leave()
    assert [each.session for each in listed(operator)[0]] == [operator.session.number]
    for number in (stranger.session.number, gone.session.number, 1):
        refused(operator.ask(messages.CloseSession, number), "UnknownSession")
    assert not stranger.closed


def test_thousands_come_in_pages(room):
    operator = room.peer()
    for _ in range(messages.MAX_SESSIONS_LISTED + 5):
        room.peer()
    first, more = listed(operator)
    assert (len(first), more) == (messages.MAX_SESSIONS_LISTED, True)
    rest, more = listed(operator, first[-1].session)
    assert (len(rest), more) == (6, False)
    numbers = [each.session for each in first + rest]
    assert numbers == sorted(set(numbers))


def test_the_client_of_a_closed_session_is_told_why_and_its_active_transactions_end(room):
    [partition] = room.topic()
    operator, peer = room.peer(), room.peer()
    peer.tell(messages.Add, 1, partition, data=frames(b"x"))
    room.engine.sync()
    assert len(room.engine.transactions.live) == 1
    assert isinstance(
        operator.ask(messages.CloseSession, peer.session.number, "ann", "it hangs"), messages.Done
    )
    assert peer.answers[-1] == messages.GoingAway(0, "the session was closed by ann: it hangs", 1_000_000)
    assert peer.closed == ["the session was closed by ann: it hangs"]
    room.engine.sync()
    assert not room.engine.transactions.live
    refused(operator.ask(messages.CloseSession, peer.session.number), "UnknownSession")
    again = peer.again()
    assert again.ask(messages.Ping) is not None, "its client may come again"


def test_what_is_prepared_stays(room):
    [partition] = room.topic()
    operator, peer = room.peer(), room.peer()
    prepared = peer.ask(messages.Prepare, 1, XID, runs=[(partition, len(frames(b"x")))], data=frames(b"x"))
    assert isinstance(prepared, messages.Done), prepared
    operator.ask(messages.CloseSession, peer.session.number)
    room.engine.sync()
    assert len(room.engine.transactions.prepared) == 1


def test_nobody_closes_his_own_session_or_says_what_cannot_be_logged(room):
    operator, peer = room.peer(), room.peer()
    refused(operator.ask(messages.CloseSession, operator.session.number), "InvalidSetting")
    refused(operator.ask(messages.CloseSession, peer.session.number, "a\nb"), "InvalidName")
    refused(operator.ask(messages.CloseSession, peer.session.number, "ann", "x" * 10_000), "InvalidName")
    assert not operator.closed
    assert not peer.closed
