import math

import pytest
from msgspec import structs

from journal.constants import SEGMENT_BYTES
from journal.settings import TopicSettings
from tests.client.rig import Rig
from txbroker import commands, errors
from txbroker.client.core import Core, Phase, error_of
from txbroker.client.retry import RULES, Backoff, Options
from txbroker.codec import encode
from txbroker.commands import Hello, Refused, Welcome


def test_every_request_has_a_rule_for_a_lost_answer():
    assert set(RULES) == set(commands.AnyRequest.__args__)


def test_a_session_opens_with_the_brokers_limits(rig):
    assert (rig.core.phase, rig.core.session, rig.core.max_frame) == (Phase.OPEN, rig.session, 1 << 20)


def test_a_new_connection_names_the_session_before(rig, broker):
    first = rig.session
    rig.cut()
    rig.connect()
    assert [request.after for request in broker.requests if type(request) is Hello] == [0, first]


def test_nothing_is_sent_before_the_welcome(broker):
    core = Core(Options(), lambda: 0.0, lambda: 0.5, lambda: 0)
    core.connecting()
    core.connected()
    core.take_output()
    core.request(commands.Ping(core.correlation()), commands.Done)
    assert core.take_output() == []
    core.received(encode(Welcome(1, 1, 5, "s", 100, 100)))
    assert len(core.take_output()) == 1


def test_a_read_whose_answer_was_lost_is_sent_again(rig, broker):
    broker.before = lambda request, data: broker.SWALLOW if type(request) is commands.DescribeTopics else None
    topics = rig.start(rig.operations.topics(None))
    rig.cut()
    broker.before = lambda request, data: None
    rig.connect()
    assert [topic.name for topic in topics.result()] == ["t", "t2"]


def test_a_read_without_an_answer_times_out_and_says_that_it_changed_nothing(rig, broker):
    broker.before = lambda request, data: broker.SWALLOW
    topics = rig.start(rig.operations.topics(None))
    rig.wait(29)
    assert not topics.done
    rig.wait(2)
    with pytest.raises(errors.RequestTimedOut, match="changes nothing"):
        topics.result()
    assert rig.core.abort, "a broker that says nothing for the whole time is given up"


def test_a_request_that_was_never_sent_fails_as_that(rig):
    rig.cut("pulled")
    topics = rig.start(rig.operations.topics(None))
    rig.wait(31)
    with pytest.raises(errors.ConnectionUnavailable, match=r"pulled.*not sent"):
        topics.result()


def test_a_late_answer_to_a_request_given_up_is_ignored(rig, broker):
    late = []

    def before(request, data):
        late.append(request)
        return broker.SWALLOW

    broker.before = before
    rig.start(rig.core.ping())
    rig.wait(31)
    rig.core.abort = ""
    rig.core.received(encode(commands.Done(late[-1].correlation)))
    assert rig.core.abort == ""


def test_an_answer_of_the_wrong_kind_ends_the_connection_and_the_request_is_made_again(rig, broker):
    broker.before = lambda request, data: commands.Sent(request.correlation, 0)
    ping = rig.start(rig.core.ping())
    assert "Ping was answered by Sent" in rig.core.abort
    broker.before = lambda request, data: None
    rig.cut(rig.core.abort)
    rig.connect()
    assert ping.done
    assert ping.error is None


def test_bytes_that_are_not_the_protocol_end_the_connection(rig):
    rig.core.received(b"HTTP/1.1 400 Bad Request\r\n")
    assert rig.core.abort


def test_an_unknown_version_is_final(broker):
    broker.before = lambda request, data: Refused(request.correlation, "VersionRefused", "only 9")
    rig = Rig(broker)
    assert rig.core.phase is Phase.CLOSED
    with pytest.raises(errors.VersionRefused, match="only 9"):
        rig.run(rig.core.ping())


def test_a_name_that_the_broker_refuses_is_final(broker):
    broker.before = lambda request, data: Refused(request.correlation, "InvalidName", "a client name")
    assert Rig(broker).core.phase is Phase.CLOSED


def test_a_lost_connection_is_told_once_and_its_return_too(rig, caplog):
    rig.cut("pulled")
    rig.core.connecting()
    rig.core.lost("cannot connect: refused")
    rig.connect()
    assert [record.getMessage() for record in caplog.records] == [
        "no connection to the broker (pulled); trying again",
        "there is a connection to the broker again",
    ]


def test_a_refusal_carries_its_extras():
    error = error_of(Refused(1, "OffsetOutOfRange", "gone", {"start": 3, "end": 9}))
    assert type(error) is errors.OffsetOutOfRange
    assert (str(error), error.start, error.end) == ("gone", 3, 9)


def test_a_refusal_of_an_unknown_kind_is_still_a_refusal():
    assert type(error_of(Refused(1, "FromTheFuture", "no"))) is errors.RequestRefused
    assert type(error_of(Refused(1, "CorruptSegment", "bad", {"first_offset": 1}))) is errors.CorruptSegment


def test_without_reconnecting_a_lost_connection_ends_everything(broker):
    rig = Rig(broker, reconnect=False)
    broker.before = lambda request, data: broker.SWALLOW
    unsent_change = rig.start(rig.operations.delete_topic("t"))
    rig.cut()
    with pytest.raises(errors.OutcomeUnknown):
        unsent_change.result()
    with pytest.raises(errors.ConnectionUnavailable):
        rig.run(rig.core.ping())


def test_waiting_times_double_up_to_a_bound_with_jitter():
    waits = Backoff(lambda: 1.0, 0.05, 2.0)
    assert [waits.next() for _ in range(8)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    waits.reset()
    assert waits.next() == 0.05
    assert Backoff(lambda: 0.0, 0.05).next() == 0.025


def test_waiting_for_a_session_ends_at_its_deadline(rig):
    rig.cut("down")
    opened = rig.start(rig.core.opened(rig.now + 1.0))
    rig.wait(0.9)
    assert not opened.done
    rig.wait(0.2)
    with pytest.raises(errors.ConnectionUnavailable, match="down"):
        opened.result()


def test_an_idle_core_has_nothing_to_wake_up_for(rig):
    rig.run(rig.core.ping())
    rig.wait(31)
    assert rig.core.wakeup() == math.inf


class TestTopicsOverALostAnswer:
    def test_a_topic_created_before_the_answer_was_lost_counts_as_created(self, rig, broker):
        broker.before = lambda request, data: (
            broker.SWALLOW if type(request) is commands.CreateTopic else None
        )
        broker.on_createtopic = lambda session, request, data: None
        created = rig.start(rig.operations.create_topic("t", 1, {}))
        rig.cut()
        broker.before = lambda request, data: (
            Refused(request.correlation, "TopicExists", "there")
            if type(request) is commands.CreateTopic
            else None
        )
        rig.connect()
        assert created.result().name == "t"

    def test_a_different_topic_of_that_name_leaves_it_open(self, rig, broker):
        broker.on_createtopic = lambda session, request, data: None
        created = rig.start(rig.operations.create_topic("t", 7, {}))
        rig.cut()
        broker.on_createtopic = lambda session, request, data: Refused(
            request.correlation, "TopicExists", "there"
        )
        rig.connect()
        with pytest.raises(errors.OutcomeUnknown, match="describe it"):
            created.result()

    def test_a_first_refusal_is_plain(self, rig, broker):
        broker.on_createtopic = lambda session, request, data: Refused(
            request.correlation, "TopicExists", "there"
        )
        with pytest.raises(errors.TopicExists):
            rig.run(rig.operations.create_topic("t", 1, {}))

    def test_a_topic_that_may_exist_is_described_as_it_is(self, rig, broker, caplog):
        [there] = rig.run(rig.operations.topics(["t"]))
        broker.on_createtopic = lambda session, request, data: Refused(
            request.correlation, "TopicExists", "there"
        )
        assert rig.run(rig.operations.create_topic("t", 1, {"segment_bytes": SEGMENT_BYTES}, True)) == there
        assert rig.run(rig.operations.create_topic("t", None, {}, True)) == there
        assert not caplog.records

    def test_in_what_a_topic_that_is_there_is_not_as_wanted_is_warned_of(self, rig, broker, caplog):
        broker.on_createtopic = lambda session, request, data: Refused(
            request.correlation, "TopicExists", "there"
        )
        rig.run(rig.operations.create_topic("t2", 3, {"segment_bytes": 1 << 20, "retention_age": 3600}, True))
        [record] = caplog.records
        assert (record.name, record.levelname) == ("txbroker.client", "WARNING")
        assert record.getMessage() == (
            "topic t2 is there already and stays as it is: it has 2 partitions, not 3; "
            "its segment_bytes is 256MiB, not 1MiB; its retention_age is None, not 1h"
        )

    def test_a_topic_that_goes_between_refusal_and_description_is_created_after_all(self, rig, broker):
        made = commands.TopicInfo("new", [commands.PartitionInfo(0, 9, 0, 0)], TopicSettings())
        answers = [commands.Topics(0, [made]), Refused(0, "TopicExists", "there")]
        broker.on_createtopic = lambda session, request, data: structs.replace(
            answers.pop(), correlation=request.correlation
        )
        assert rig.run(rig.operations.create_topic("new", 1, {}, True)) == made
        assert answers == []

    def test_a_topic_gone_when_the_deletion_is_repeated_counts_as_deleted(self, rig, broker):
        broker.on_deletetopic = lambda session, request, data: None
        deleted = rig.start(rig.operations.delete_topic("t"))
        rig.cut()
        broker.on_deletetopic = lambda session, request, data: Refused(
            request.correlation, "UnknownTopic", "no"
        )
        rig.connect()
        assert deleted.done
        assert deleted.error is None
