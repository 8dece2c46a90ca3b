import math

import pytest
from msgspec import structs

from journal.records.queue_entries import DeadLetterStrategy, QueueSettings
from tests.client.rig import Rig
from txbroker import errors
from txbroker.client.core.call import error_of
from txbroker.client.core.core import Core
from txbroker.client.core.options import RULES, Backoff, Options, repetition
from txbroker.client.core.phase import Phase
from txbroker.client.transactions import bulk
from txbroker.wire import messages
from txbroker.wire.codec import encode
from txbroker.wire.messages import Login, Refused, Welcome
from txbroker.wire.secret import Secret


def test_every_request_has_a_rule_for_a_lost_answer():
    assert set(RULES) == set(messages.AnyRequest.__args__)


@pytest.mark.parametrize(
    "first",
    [
        messages.CommitOffsets(1, "g", []),
        messages.ClaimPartitions(1, "g", "m", [1]),
        messages.JoinGroup(1, "g", b"n" * 16, ["t"]),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_repetition_is_the_same_but_for_the_id_of_a_group_that_it_makes(first):
    again = repetition(first)
    assert again.id != first.id
    assert structs.replace(again, id=first.id) == first


def test_a_session_opens_with_the_brokers_limits(rig):
    assert (rig.core.phase, rig.core.session, rig.core.max_frame) == (Phase.OPEN, rig.session, 1 << 20)


def test_a_new_connection_names_the_session_before(rig, broker):
    welcome = messages.Welcome(1, 70, 1 << 20, 1 << 20, "", b"n" * 16, Secret(b"s" * 16))
    broker.before = lambda request, data: (
        structs.replace(welcome, correlation=request.correlation) if type(request) is Login else None
    )
    for _ in range(2):
        rig.cut()
        rig.connect()
    logins = [request.after for request in broker.requests if type(request) is Login]
    assert logins[0] is None
    assert logins[-1] == messages.FormerSession(70, b"n" * 16, Secret(b"s" * 16))


def test_nothing_is_sent_before_the_welcome(broker):
    core = Core(Options(), lambda: 0.0, lambda: 0.5, lambda: 0)
    core.connecting()
    core.connected()
    core.take_output()
    core.request(messages.Ping(core.correlation()), messages.Done)
    assert core.take_output() == []
    core.received(encode(messages.Offered(1, 3, "s", ["ANONYMOUS"])))
    assert core.take_output() == []
    core.received(encode(Welcome(2, 5, 100, 100)))
    assert len(core.take_output()) == 1


@pytest.mark.parametrize(("version", "is_sent"), [(3, False), (4, True)])
@pytest.mark.parametrize("is_early", [False, True])
def test_what_only_a_newer_broker_knows_is_not_sent_to_an_older_one(version, is_sent, is_early):
    """Seen with it sent: a broker of 0.2.0 passes over fields within the settings, and declared another queue."""
    core = Core(Options(), lambda: 0.0, lambda: 0.5, lambda: 0)
    core.connecting()
    core.connected()
    keeping = QueueSettings(dead_letter_strategy=DeadLetterStrategy.AT_LEAST_ONCE)

    def declare(settings):
        return core.request(messages.DeclareQueue(core.correlation(), "q", settings), messages.QueueDeclared)

    early = declare(keeping)
    core.received(encode(messages.Offered(1, version, "txbroker 0.2.0", ["ANONYMOUS"])))
    core.take_output()
    core.received(encode(Welcome(2, 5, 100, 100)))
    core.take_output()
    call = early if is_early else declare(keeping)
    assert core.has(call) == is_sent
    if not is_sent:
        with pytest.raises(
            errors.VersionRefused, match=r"txbroker 0\.2\.0, does not know all that this DeclareQueue"
        ):
            call.result()
    usual = declare(QueueSettings(arguments=b"\x01at\x01"))
    assert core.has(usual), "arguments are passed over, as ever"


def test_a_read_whose_answer_was_lost_is_sent_again(rig, broker):
    broker.before = lambda request, data: broker.SWALLOW if type(request) is messages.DescribeTopics else None
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
    rig.core.received(encode(messages.Done(late[-1].correlation)))
    assert rig.core.abort == ""


def test_an_answer_of_the_wrong_kind_ends_the_connection_and_the_request_is_made_again(rig, broker):
    broker.before = lambda request, data: messages.Sent(request.correlation, 0)
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


@pytest.mark.parametrize(("timeout", "longest"), [(30.0, 2.0), (1.5, 0.375)])
def test_it_tries_to_connect_several_times_within_the_time_that_a_call_has(timeout, longest):
    now = 0.0
    core = Core(Options(timeout=timeout), lambda: now, lambda: 1.0, lambda: 0)
    for _ in range(20):
        now = core.wakeup()
        core.connecting()
        core.lost("refused")
        assert core.wakeup() - now <= longest + 1e-9
    assert core.wakeup() - now == pytest.approx(longest)


def answered_at_once(rig, broker, count, most):
    """The pings that are done, of ``count`` whose answers all came in one read, on a core that may give ``most``."""
    rig.core.answers.most = most
    broker.before = lambda request, data: broker.SWALLOW
    done, pings = [], [rig.start(rig.core.ping()) for _ in range(count)]
    for number, ping in enumerate(pings):
        ping.then(lambda number=number: done.append(number))
    asked = [request for request in broker.requests if type(request) is messages.Ping]
    rig.core.received(b"".join(encode(messages.Done(request.correlation)) for request in asked))
    return done, pings


def test_an_event_loop_is_given_some_answers_a_turn_in_their_order(rig, broker):
    done, _ = answered_at_once(rig, broker, 10, most=6)
    for end in (3, 6, 9, 10):  # an answer counts, and who waits for it
        assert done == list(range(end))
        assert (rig.core.wakeup() <= rig.now) is (end < 10), "the rest is due at once"
        rig.core.tick()


def test_bytes_that_come_meanwhile_wait_behind_the_others(rig, broker):
    done, _ = answered_at_once(rig, broker, 4, most=2)
    late = rig.core.request(messages.Ping(rig.core.correlation()), messages.Done)
    late.then(lambda: done.append("late"))
    rig.core.received(encode(messages.Done(late.request.correlation)))
    for end in (1, 2, 3, 4):
        assert done == list(range(end))
        rig.core.tick()
    assert done == [0, 1, 2, 3, "late"]


@pytest.mark.parametrize("end", ["lost", "stopped", "out of time"])
def test_answers_that_have_come_are_given_before_their_calls_would_fail(rig, broker, end):
    done, pings = answered_at_once(rig, broker, 10, most=2)
    assert len(done) == 1
    if end == "lost":
        rig.cut()
    elif end == "stopped":
        rig.core.stop(errors.ConnectionClosed("closed"))
    else:
        rig.now += 31
        rig.core.tick()
    assert done == list(range(10))
    assert [ping.error for ping in pings] == [None] * 10
    rig.core.tick()


def test_an_answer_that_breaks_the_protocol_in_a_later_turn_ends_the_connection(rig, broker):
    rig.core.answers.most = 1
    broker.before = lambda request, data: broker.SWALLOW
    rig.start(rig.core.ping())
    topics, ping = rig.start(rig.operations.topics(None)), rig.start(rig.core.ping())
    rig.core.received(
        b"".join(encode(messages.Done(request.correlation)) for request in broker.requests[-3:])
    )
    assert not rig.core.abort
    rig.core.tick()
    assert "DescribeTopics was answered by Done" in rig.core.abort
    rig.cut()
    assert not ping.done, "of such a peer nothing more is taken"
    broker.before = lambda request, data: None
    rig.connect()
    assert topics.result()
    assert ping.done


def test_what_a_caller_raises_in_a_later_turn_ends_the_connection_and_comes_to_who_drives(rig, broker):
    def interrupted():
        raise KeyboardInterrupt

    done, pings = answered_at_once(rig, broker, 3, most=1)
    pings[1].then(interrupted)
    with pytest.raises(KeyboardInterrupt):
        rig.core.tick()
    assert "interrupted" in rig.core.abort
    rig.cut()
    assert done == [0, 1], "what was to go on may be torn: the rest is asked for again"
    broker.before = lambda request, data: None
    rig.connect()
    assert done == [0, 1, 2]


def test_an_answer_that_an_interrupt_kept_from_who_waits_is_not_asked_for_again(rig, broker):
    """A claim that was made twice would fence the first one's commits."""
    called = []

    def interrupted():
        called.append(1)
        if len(called) == 1:
            raise KeyboardInterrupt

    call = rig.core.request(messages.ClaimPartitions(rig.core.correlation(), "g", "m", [1]), messages.Claimed)
    call.then(interrupted)
    with pytest.raises(KeyboardInterrupt):
        rig.pump()
    rig.cut()
    assert (call.done, len(called)) == (True, 2)
    rig.connect()
    assert [type(request) for request in broker.requests].count(messages.ClaimPartitions) == 1


class TestGoingAway:
    """What a client does when the broker says that it goes."""

    GOING = encode(messages.GoingAway(0, "it is stopping", 1_500_000))

    def test_what_is_unanswered_is_waited_for_and_what_follows_goes_out_on_the_next_connection(
        self, rig, broker
    ):
        late = []
        broker.before = lambda request, data: late.append(request) or broker.SWALLOW
        before = rig.start(rig.core.ping())
        rig.core.received(self.GOING)
        assert rig.core.phase is Phase.LEFT
        after = rig.start(rig.operations.topics(None))
        assert len(late) == 1
        rig.core.received(encode(messages.Done(late[0].correlation)))
        assert before.done
        assert not after.done
        broker.before = lambda request, data: None
        rig.cut("end of file")
        assert not rig.core.connection_due()
        assert rig.core.wakeup() == pytest.approx(rig.now + 1.5)
        assert rig.core.reason == "the broker said: 'it is stopping'"
        rig.connect()
        assert [topic.name for topic in after.result()] == ["t", "t2"]

    def test_after_that_a_lost_connection_is_one_again(self, rig):
        rig.core.received(self.GOING)
        rig.cut()
        rig.connect()
        rig.cut("pulled")
        assert rig.core.reason == "pulled"
        assert rig.core.wakeup() < rig.now + 0.1

    def test_a_client_with_little_time_tries_again_as_soon_as_it_would_by_itself(self, broker):
        rig = Rig(broker, timeout=1.0)
        assert rig.core.options.longest_pause < 1.5
        rig.core.received(self.GOING)
        rig.cut()
        assert rig.core.wakeup() <= rig.now + rig.core.options.longest_pause

    def test_a_transaction_that_was_begun_before_is_not_decided_on_the_next_connection(self, rig):
        transaction = rig.transaction()
        rig.run(bulk.send_many(transaction, "t", [b"1"]))
        rig.core.received(self.GOING)
        decided = rig.start(transaction.commit())
        with pytest.raises(errors.TransactionRolledBack):
            decided.result()

    def test_the_text_of_a_hostile_broker_is_bounded(self, rig):
        rig.core.received(encode(messages.GoingAway(0, "x" * 100_000, 1 << 62)))
        rig.cut()
        assert len(rig.core.reason) < 300
        assert rig.core.wakeup() <= rig.now + rig.core.options.longest_pause

    def test_a_connection_whose_end_does_not_come_is_given_up(self, rig):
        """As behind a proxy that keeps it, or a machine that was switched off."""
        rig.core.received(self.GOING)
        assert rig.core.reason == "the broker said: 'it is stopping'"
        rig.wait(29)
        assert not rig.core.abort
        rig.wait(2)
        assert rig.core.abort == "the connection that the broker leaves does not end"
        rig.cut(rig.core.abort)
        rig.connect()
        assert rig.core.phase is Phase.OPEN

    def test_as_long_as_answers_come_it_is_not(self, rig, broker):
        late = []
        broker.before = lambda request, data: late.append(request) or broker.SWALLOW
        pings = [rig.start(rig.core.ping()) for _ in range(3)]
        rig.core.received(self.GOING)
        rig.wait(25)
        rig.core.received(encode(messages.Done(late[0].correlation)))
        rig.wait(4)
        assert pings[0].done
        assert not rig.core.abort
        rig.wait(31)
        assert rig.core.abort

    def test_before_a_session_and_on_a_closed_client_it_says_nothing(self, rig):
        rig.core.stop(errors.ConnectionClosed("closed"))
        rig.core.received(self.GOING)
        assert rig.core.phase is Phase.CLOSED
