"""Test the times of a request as the broker reports them."""

import msgspec
import pytest

from journal.folds.table import client_folds
from journal.formats import frame
from journal.recovery.start import recover
from journal.settings import TopicSettings
from journal.testing import ManualClock, MemoryFilesystem
from journal.transaction_states import Totals
from journal.xid import Xid
from txbroker.broker.broker import Broker
from txbroker.broker.sessions.settings import BrokerSettings
from txbroker.wire import messages
from txbroker.wire.codec import answer_decoder

MESSAGE = frame.encode(b"hello", 1)


class Room:
    """A broker over a clock that only moves when a step is said to take time."""

    def __init__(self):
        self.clock = ManualClock()
        self.engine = recover(MemoryFilesystem(), self.clock, folds=client_folds())
        self.broker = Broker(self.engine, BrokerSettings())
        self.answers = []
        decoder = answer_decoder(1 << 20)
        self.session = self.broker.opened(
            "here", lambda data: self.answers.extend(head for head, _ in decoder.feed(data)), print
        )
        self.ask(messages.Hello(1, messages.MAGIC, list(messages.VERSIONS)))
        self.ask(messages.Login(1, "ANONYMOUS"))
        self.partition = (
            self.ask(messages.CreateTopic(2, "t", 1, TopicSettings())).topics[0].partitions[0].number
        )

    def say(self, request, data=b""):
        self.broker.received(self.session, request, memoryview(data))

    def ask(self, request, data=b""):
        self.say(request, data)
        self.engine.sync()
        return self.answers.pop()

    def timed(self, request, data=b""):
        return messages.Timed(request.correlation, request), data


@pytest.fixture
def room():
    return Room()


def slow(room, target, name, micros):
    """Let a method take time."""
    method = getattr(target, name)

    def taking_time(*arguments):
        result = method(*arguments)
        room.clock.advance(micros)
        return result

    setattr(target, name, taking_time)


def test_each_phase_has_the_time_that_was_spent_in_it_and_none_is_left_out(room):
    slow(room, room.engine.journal, "write", 30)
    slow(room, room.engine.journal, "force", 400)
    room.engine.on_published = lambda stores: room.clock.advance(5000)
    room.say(*room.timed(messages.Send(7, room.partition), MESSAGE))
    room.say(messages.Ping(8))
    room.clock.advance(2)
    group = room.engine.take()
    room.clock.advance(18)
    room.engine.write(group)
    room.clock.advance(60_000)
    room.engine.when_forced(lambda _: room.clock.advance(700_000), None)
    room.say(*room.timed(messages.Send(9, room.partition), MESSAGE))
    room.engine.publish(group)
    assert room.answers[-1] == messages.TimedAnswer(
        7, messages.Sent(7, 0), messages.Times(0, 20, 30, 400, 65_000, 0)
    )
    room.engine.sync()
    assert room.answers[-1] == messages.TimedAnswer(
        9, messages.Sent(9, 1), messages.Times(0, 705_000, 30, 400, 5000, 0)
    )


def test_what_comes_before_an_answer_in_its_group_is_time_until_it_is_answered(room):
    room.say(messages.Send(6, room.partition), MESSAGE)
    room.engine.when_forced(lambda _: room.clock.advance(50), None)
    room.say(*room.timed(messages.Send(7, room.partition), MESSAGE))
    room.engine.sync()
    assert room.answers[-1].times == messages.Times(0, 0, 0, 0, 0, 50)


def test_judging_is_a_phase_too(room):
    slow(room, room.engine.transactions, "prepare", 11)
    xid, totals = Xid(1, b"g", b"b"), Totals(0, 0, 0)
    assert room.ask(*room.timed(messages.Prepare(3, 1, xid, totals))).times.judge == 11


def test_a_timed_request_is_carried_out_as_it_would_be_alone(room):
    xid = Xid(1, b"g", b"b")
    room.say(messages.Add(3, 1, room.partition, xid), MESSAGE)
    totals = Totals(1, 1, frame.crc32c(MESSAGE))
    assert room.ask(*room.timed(messages.Prepare(4, 1, xid, totals))).answer == messages.Done(4)
    committed = room.ask(*room.timed(messages.Commit(5, xid=xid))).answer
    assert committed == room.ask(messages.Commit(5, xid=xid))
    assert committed.placements


def test_a_refusal_leaves_as_it_would_alone(room):
    refused = room.ask(*room.timed(messages.Send(3, 99), MESSAGE))
    assert refused == room.ask(messages.Send(3, 99), MESSAGE)
    assert refused.error == "UnknownPartition"


def test_a_repeated_send_whose_record_is_forced_already_waits_for_nothing(room):
    opened = room.ask(messages.OpenProducer(3))
    send = messages.Send(4, room.partition, opened.producer_id, opened.epoch, 0)
    first = room.ask(*room.timed(send, MESSAGE))
    again = room.ask(*room.timed(send, MESSAGE))
    assert again.answer == first.answer
    assert again.times == messages.Times(0, 0, 0, 0, 0, 0)


def test_a_group_that_nobody_asks_about_has_no_times(room):
    room.say(messages.Send(7, room.partition), MESSAGE)
    group = room.engine.take()
    room.engine.write(group)
    room.engine.publish(group)
    assert group.times is None


def test_a_timed_request_waits_in_line_like_others_while_a_large_commit_is_applied(room):
    room.engine.transactions.table.application.small_bytes = 0
    totals = Totals(1, 1, frame.crc32c(MESSAGE))
    room.say(messages.Add(3, 1, room.partition), MESSAGE)
    room.say(*room.timed(messages.Commit(4, serial=1, totals=totals)))
    assert room.engine.busy
    room.say(*room.timed(messages.Send(5, room.partition), MESSAGE))
    assert room.session.parked == 1
    room.clock.advance(900)
    room.engine.sync()
    commit, send = room.answers[-2:]
    assert isinstance(commit.answer, messages.Committed)
    assert commit.times.answer == 0
    assert sum(msgspec.structs.astuple(commit.times)) == 900
    assert send.answer == messages.Sent(5, 1)
