"""Test transactions of channels: what is published and acknowledged in one is one record, or has not happened."""

from __future__ import annotations

import tracemalloc

import pytest

from journal.constants import MIB
from journal.transactions.limits import TransactionLimits
from tests.channels.talk import House, Talker, published
from tests.support.broker_room import recorded
from tests.support.builders import small_files
from txbroker.amqp import connection_methods as c
from txbroker.amqp import methods as m
from txbroker.amqp import properties as props
from txbroker.amqp.framing import method_frame
from txbroker.amqp.reply_codes import Reply


@pytest.fixture
def house() -> House:
    return House()


@pytest.fixture
def talker(house) -> Talker:
    talker = house.talker()
    talker.queue()
    talker.queue("p")
    return talker


@pytest.fixture
def worker(house, talker) -> Talker:
    """A client with a transactional channel, and messages 0 to 3 of q with tags 1 to 4."""
    talker.publish("q", b"0", b"1", b"2", b"3")
    worker = house.talker()
    assert worker.ask(m.TxSelect()) == m.TxSelectOk()
    worker.consume()
    assert worker.bodies() == [b"0", b"1", b"2", b"3"]
    return worker


def commit(talker: Talker) -> None:
    assert talker.ask(m.TxCommit()) == m.TxCommitOk()


def test_what_is_published_and_acknowledged_is_one_record_at_the_commit(house, talker, worker):
    records = recorded(house)
    worker.publish("p", b"a", b"b")
    worker.publish("x", b"c", exchange="amq.fanout")
    worker.say(m.BasicAck(2, True), m.BasicAck(4, False))
    assert worker.taken() == []
    assert house.counts("p") == (0, 0)
    assert house.counts("q") == (0, 4)
    assert records == []
    commit(worker)
    assert [type(each).__name__ for each in records] == ["Committed"] or len(records) == 1, records
    assert house.counts("q") == (0, 1)
    assert talker.all_of("p") == [b"a", b"b"]


def test_a_commit_is_forced_before_it_is_answered(house, talker, worker):
    worker.publish("p", b"a")
    worker.say(m.BasicAck(1, False), m.TxCommit())
    assert worker.heard == []
    house.engine.sync()
    assert [each.method for each in worker.heard] == [m.TxCommitOk()]
    house.kill()
    other = house.talker()
    assert other.all_of("p") == [b"a"]
    assert other.all_of("q") == [b"1", b"2", b"3"]


def test_before_the_commit_a_kill_takes_all_of_it_back(house, talker, worker):
    worker.publish("p", b"a")
    worker.say(m.BasicAck(0, True))
    house.settle()
    house.kill()
    assert house.counts("p") == (0, 0)
    assert house.counts("q") == (4, 0)


def test_a_rollback_leaves_the_deliveries_with_their_tags(house, talker, worker):
    worker.publish("p", b"a")
    worker.say(m.BasicAck(2, False), m.BasicNack(3, False, True), m.BasicReject(1, False))
    assert worker.ask(m.TxRollback()) == m.TxRollbackOk()
    assert house.counts("q") == (0, 4)
    commit(worker)
    assert house.counts("p") == (0, 0)
    worker.say(m.BasicAck(3, True))
    commit(worker)
    assert house.counts("q") == (0, 1)
    worker.say(m.BasicAck(4, False))
    commit(worker)
    assert house.counts("q") == (0, 0)
    assert house.attempts("q") == {}


def test_what_is_said_of_a_delivery_in_a_transaction_is_said_once(house, talker, worker):
    worker.say(m.BasicAck(2, False))
    worker.refused(m.BasicAck(2, False), Reply.PRECONDITION_FAILED)
    house.settle()
    assert house.counts("q") == (4, 0), "all are back"
    assert house.attempts("q") == dict.fromkeys(range(4), 1)


def test_what_is_returned_and_rejected_is_so_from_the_commit_on(house, talker, worker):
    worker.say(m.BasicNack(1, False, True), m.BasicReject(2, False))
    assert worker.taken() == []
    worker.say(m.TxCommit())
    told = worker.taken()
    assert {type(each.method) for each in told} == {m.TxCommitOk, m.BasicDeliver}
    [again] = [each for each in told if each.body]
    assert (again.body, again.headers) == (b"0", {"x-delivery-count": 1})
    assert house.counts("q") == (0, 3)


def test_a_transaction_of_nothing_is_committed(house, talker):
    talker.say(m.TxSelect(), m.TxSelect(), m.TxCommit(), m.TxRollback(), m.TxCommit())
    told = [m.TxSelectOk(), m.TxSelectOk(), m.TxCommitOk(), m.TxRollbackOk(), m.TxCommitOk()]
    assert talker.methods() == told


def test_only_a_transactional_channel_has_transactions_and_no_confirms(talker):
    talker.refused(m.TxCommit(), Reply.PRECONDITION_FAILED)
    talker.refused(m.TxRollback(), Reply.PRECONDITION_FAILED)
    talker.ask(m.TxSelect())
    talker.refused(m.ConfirmSelect(False), Reply.PRECONDITION_FAILED)


def test_a_mandatory_message_comes_back_at_the_commit_and_the_others_are_there(house, talker):
    talker.ask(m.TxSelect())
    properties = props.made_of({props.TYPE: "t"}, {})
    talker.publish("none", b"a", mandatory=True, properties=properties)
    talker.publish("none", b"dropped")
    talker.publish("q", b"b", mandatory=True)
    assert talker.taken() == []
    talker.say(m.TxCommit())
    returned, committed = talker.taken()
    assert returned.method == m.BasicReturn(312, "NO_ROUTE", "", "none")
    assert (returned.body, returned.properties) == (b"a", properties)
    assert committed.method == m.TxCommitOk()
    assert talker.all_of() == [b"b"]


def test_a_transaction_goes_through_several_exchanges_in_its_order(house, talker):
    talker.bind("q", "amq.fanout")
    talker.ask(m.TxSelect())
    said = [("q", "", b"0"), ("x", "amq.fanout", b"1"), ("q", "", b"2"), ("y", "amq.fanout", b"3")]
    talker.feed(b"".join(published(1, key, body, exchange) for key, exchange, body in said))
    commit(talker)
    assert [(each.body, each.method.exchange, each.method.routing_key) for each in iter(talker.get, None)] == [
        (b"0", "", "q"), (b"1", "amq.fanout", "x"), (b"2", "", "q"), (b"3", "amq.fanout", "y")
    ]  # fmt: skip


def test_a_transaction_that_is_too_large_ends_the_channel_and_nothing_of_it_is_there(house, talker, worker):
    worker.say(m.BasicAck(0, True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("txbroker.channels.pending.MAX_REQUEST_DATA", MIB)
        worker.publish("p", b"x" * 400_000, b"x" * 400_000)
        worker.refused(published(1, "p", b"x" * 400_000), Reply.RESOURCE_ERROR)
    assert house.counts("p") == (0, 0)
    assert house.counts("q") == (4, 0)


def test_the_transactions_of_a_connection_have_so_many_bytes_together(house, talker, monkeypatch):
    monkeypatch.setattr("txbroker.channels.pending.MOST_UNCOMMITTED", MIB)
    talker.open(2, 3)
    for each in (1, 2, 3):
        talker.ask(m.TxSelect(), on=each)
    held = talker.connection.uncommitted
    for _ in range(3):  # what was committed, rolled back, or ended with its channel does not count
        for each in (1, 2, 3):
            talker.publish("q", b"x" * 300_000, on=each, mandatory=each == 1)
        assert 900_000 < held.held < 902_000
        talker.ask(m.TxCommit(), on=1)
        talker.ask(m.TxRollback(), on=2)
        talker.ask(c.ChannelClose(200, "", 0, 0), on=3)
        assert held.held == 0
        talker.open(3)
        talker.ask(m.TxSelect(), on=3)
    talker.publish("q", *[b""] * 1000, on=2)
    assert held.held > 200_000, "a message has more than its bytes"
    talker.ask(m.TxRollback(), on=2)
    for each in (1, 2):
        talker.publish("q", b"x" * 300_000, on=each)
    other = house.talker()
    other.ask(m.TxSelect())
    other.publish("q", b"y" * 900_000)
    talker.publish("q", b"x" * 300_000, on=3)
    words = talker.refused(published(3, "q", b"x" * 300_000), Reply.RESOURCE_ERROR, on=3)
    assert "the transactions of a connection with more than 1048576 bytes together" in words
    assert 600_000 < held.held < 602_000, "those of the other channels go on"
    talker.ask(m.TxCommit(), on=1)
    commit(other)
    assert house.counts("q") == (5, 0)
    talker.lose()
    assert held.held == 0


def test_a_mandatory_message_is_kept_once(house, talker):
    talker.ask(m.TxSelect())
    tracemalloc.start()
    try:
        for mandatory in (True, False):
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(10):
                talker.publish("none", b"x" * 100_000, mandatory=mandatory)
            assert tracemalloc.get_traced_memory()[0] - before < 1_100_000
    finally:
        tracemalloc.stop()
    talker.say(m.TxCommit())
    assert len(talker.told(m.BasicReturn)) == 10


def test_a_transaction_has_so_many_messages(house, talker, monkeypatch):
    monkeypatch.setattr("txbroker.channels.pending.MAX_REQUEST_MESSAGES", 2)
    talker.ask(m.TxSelect())
    talker.publish("q", b"a", b"b")
    talker.refused(published(1, "q", b"c"), Reply.RESOURCE_ERROR)
    assert house.counts("q") == (0, 0)


def test_a_commit_above_the_limits_of_the_broker_ends_the_connection_for_want_of_room():
    house = House(small_files(limits=TransactionLimits(bytes=1000)))
    talker = house.talker()
    talker.queue()
    talker.ask(m.TxSelect())
    talker.publish("q", b"x" * 2000)
    talker.refused(m.TxCommit(), Reply.RESOURCE_ERROR)
    assert house.counts("q") == (0, 0)


def test_a_transaction_that_has_begun_is_not_begun_anew(house, talker):
    talker.ask(m.TxSelect())
    talker.publish("q", b"a")
    talker.ask(m.TxSelect())
    commit(talker)
    assert house.counts("q") == (1, 0)


def test_a_mandatory_message_for_a_full_queue_is_refused_with_its_transaction(house, talker):
    talker.queue("few", {"x-max-length": 0, "x-overflow": "reject-publish"})
    talker.ask(m.TxSelect())
    talker.publish("few", b"a", mandatory=True)
    assert talker.taken() == []
    talker.refused(m.TxCommit(), Reply.PRECONDITION_FAILED)


def test_a_mandatory_message_on_a_full_disk_is_refused_with_its_transaction():
    house = House(small_files(low_water_bytes=MIB))
    talker = house.talker()
    for name in ("a", "b"):
        talker.queue(name)
        talker.bind(name, "amq.fanout")
    talker.ask(m.TxSelect())
    talker.publish("", b"a", exchange="amq.fanout", mandatory=True)
    house.filesystem.free_bytes = lambda: 0
    house.engine.housekeeping.watch_space()
    talker.refused(m.TxCommit(), Reply.RESOURCE_ERROR)
    assert house.counts("a") == (0, 0)


def test_a_commit_that_is_refused_ends_the_channel_and_the_deliveries_are_back(house, talker, worker):
    talker.queue("few", {"x-max-length": 1, "x-overflow": "reject-publish"})
    worker.publish("p", b"a")
    worker.publish("few", b"b", b"c")
    worker.say(m.BasicAck(2, True), m.BasicNack(3, False, True))
    worker.refused(m.TxCommit(), Reply.PRECONDITION_FAILED)
    house.settle()
    assert house.counts("p") == house.counts("few") == (0, 0)
    assert house.counts("q") == (4, 0)


def test_a_commit_of_what_was_deleted_meanwhile_ends_the_channel(house, talker, worker):
    talker.publish("p", b"kept")
    worker.consume("p", "d")
    worker.taken()
    worker.say(m.BasicAck(1, False), m.BasicAck(5, False))
    worker.publish("p", b"a")
    talker.ask(m.QueueDelete(0, "q", False, False, False))
    worker.taken()
    worker.refused(m.TxCommit(), Reply.PRECONDITION_FAILED)
    house.settle()
    assert house.counts("p") == (1, 0), "what was acknowledged with it is back, and nothing was published"


def test_the_prefetch_counts_what_is_acknowledged_until_the_commit(house, talker):
    talker.publish("q", b"0", b"1", b"2")
    talker.ask(m.TxSelect())
    talker.qos(1)
    talker.taken()
    talker.consume()
    assert talker.bodies() == [b"0"]
    talker.say(m.BasicAck(1, False))
    assert talker.taken() == []
    talker.say(m.TxCommit())
    assert talker.bodies() == [b"1"]


def test_a_channel_that_ends_takes_its_transaction_back(house, talker, worker):
    worker.publish("p", b"a")
    worker.say(m.BasicAck(2, True), m.BasicReject(3, False))
    worker.ask(c.ChannelClose(200, "", 0, 0))
    house.settle()
    assert house.counts("p") == (0, 0)
    assert house.counts("q") == (4, 0)


def test_a_channel_that_ends_behind_its_commit_has_committed_all_of_it(house, talker, worker):
    worker.feed(
        published(1, "p", b"a")
        + b"".join(
            method_frame(1, each)
            for each in (
                m.BasicAck(1, False), m.BasicNack(2, False, True), m.BasicReject(3, False), m.TxCommit(),
                c.ChannelClose(200, "", 0, 0),
            )
        )
    )  # fmt: skip
    told = worker.methods()
    assert told[-1] == c.ChannelCloseOk() or m.TxCommitOk() in told
    house.settle()
    assert house.counts("p") == (1, 0)
    assert house.counts("q") == (2, 0)
    assert talker.all_of() == [b"1", b"3"]


def test_commits_of_several_channels_of_a_connection_do_not_mix(house, talker):
    talker.open(2)
    for each in (1, 2):
        talker.ask(m.TxSelect(), on=each)
    talker.publish("q", b"1", on=1)
    talker.publish("q", b"2", on=2)
    talker.feed(method_frame(2, m.TxCommit()) + method_frame(1, m.TxCommit()))
    assert [(each.channel, each.method) for each in talker.taken()] == [
        (2, m.TxCommitOk()),
        (1, m.TxCommitOk()),
    ]
    assert house.counts("q") == (2, 0)
    assert [talker.get(on=2).body for _ in range(2)] == [b"2", b"1"]
