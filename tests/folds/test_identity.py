"""A broker's data have one name for good, known to clients before anything can depend on it."""

import pytest

from journal.folds.table import client_folds
from journal.recovery.start import recover
from tests.client.rig import Rig
from tests.client.scripted_broker import ScriptedBroker
from tests.support.broker_room import Room
from txbroker import errors
from txbroker.broker.broker import Broker
from txbroker.client.core.phase import Phase
from txbroker.wire import messages


def told(room: Room) -> str:
    peer = room.peer(hello=False)
    peer.tell(messages.Hello, messages.MAGIC, list(messages.VERSIONS), "tester")
    return peer.ask(messages.Login, "ANONYMOUS").identity


def test_two_brokers_have_two_identities():
    first, second = told(Room()), told(Room())
    assert first != second
    assert {len(first), len(second)} == {32}


def test_the_identity_outlives_restarts_with_and_without_a_checkpoint():
    room = Room()
    identity = told(room)
    room.restart()
    assert told(room) == identity
    for _ in range(3):  # until no journal file has the record any more
        room.topic(f"t{room.engine.next_lsn}")
        room.engine.housekeeping.checkpoint_inline()
        room.restart()
    assert told(room) == identity


def test_nobody_is_told_an_identity_that_a_crash_could_take_back():
    room = Room()
    engine = recover(type(room.filesystem)(), room.clock, room.journal, folds=client_folds())
    room.engine, room.broker = engine, Broker(engine, room.settings)
    peer = room.peer(hello=False)
    peer.tell(messages.Hello, messages.MAGIC, list(messages.VERSIONS), "tester")
    login = peer.tell(messages.Login, "ANONYMOUS")
    assert peer.answer(login) is None
    engine.sync()
    assert len(peer.answer(login).identity) == 32


@pytest.fixture
def scripted():
    broker = ScriptedBroker()
    broker.identity = "a" * 32
    broker.before = lambda request, data: (
        messages.Welcome(request.correlation, broker.session, 1 << 20, 1 << 20, broker.identity)
        if type(request) is messages.Login
        else None
    )
    return broker


def test_a_client_goes_on_with_the_broker_it_knows(scripted):
    rig = Rig(scripted)
    rig.cut()
    rig.connect()
    assert (rig.core.phase, rig.core.identity) == (Phase.OPEN, "a" * 32)


def test_a_client_says_nothing_to_another_broker_behind_the_same_address(scripted):
    rig = Rig(scripted)
    transaction = rig.transaction()
    rig.run(transaction.send("t", b"a", None, None, None))
    rig.cut()
    waiting = rig.start(rig.operations.topics(None))
    scripted.identity = "b" * 32
    seen = len(scripted.requests)
    rig.connect()
    assert [type(request) for request in scripted.requests[seen:]] == [messages.Hello, messages.Login]
    with pytest.raises(errors.BrokerReplaced, match=f"{'b' * 32}.*{'a' * 32}.*Open a new connection"):
        waiting.result()
    assert rig.core.phase is Phase.CLOSED
    assert rig.core.abort


def test_a_read_whose_answer_was_on_its_way_when_the_broker_was_replaced_says_so(scripted):
    """It said that it could be tried again, which it could not."""
    welcome = scripted.before
    scripted.before = lambda request, data: (
        scripted.SWALLOW if type(request) is messages.DescribeTopics else welcome(request, data)
    )
    rig = Rig(scripted)
    asked = rig.start(rig.operations.topics(None))
    rig.cut()
    scripted.identity = "b" * 32
    rig.connect()
    with pytest.raises(errors.BrokerReplaced, match="Open a new connection"):
        asked.result()
