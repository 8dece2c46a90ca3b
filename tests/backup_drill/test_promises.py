"""Test what counts of ledgers as promised of a backup, and of what old clients asked of a restored broker."""

from __future__ import annotations

from array import array

from tests.backup_drill.promises import RESTORED, Window, asked_since, promised, settle
from txbroker.drill.clients.ledger import (
    Acknowledged,
    Began,
    Call,
    Decided,
    Delivered,
    Ended,
    How,
    Line,
    Prepared,
    Saw,
    Settled,
    Settles,
    Surprise,
    TakesBack,
    Took,
    TookBack,
)
from txbroker.drill.judgement.expectation import Expectation, Queued
from txbroker.drill.judgement.judge_queues import judge_queues
from txbroker.drill.judgement.violation import Wrong
from txbroker.drill.plan.plan import FANOUT, FOLLOW_UPS, LEFT

WINDOW = Window(4.0, 5.0)


def lines(*entries, sender="a"):
    return [Line(sender, number, entry) for number, entry in enumerate(entries, 1)]


def test_what_was_answered_later_is_not_promised_and_what_was_asked_until_the_end_may_be_there():
    found = lines(
        Began(operation=1, places=[0], at=1.0),
        Acknowledged(operation=1, offsets=[(0, 0)], at=2.0),
        Began(operation=2, places=[0], at=4.5),
        Acknowledged(operation=2, offsets=[(0, 1)], at=4.6),
        Began(operation=3, places=[0], at=3.0),
        Decided(operation=3, commit=True, at=9.0),
        Ended(operation=3, committed=True, at=9.1),
        Began(operation=4, places=[0], at=5.1),
        Acknowledged(operation=4, offsets=[(0, 2)], at=5.2),
    )
    assert list(promised(found, WINDOW)) == [*found[:3], *found[4:6]]


def test_what_was_seen_or_taken_back_counts_until_the_cut():
    found = lines(
        Began(operation=1, places=[0], due=[1], at=1.0),
        Saw(place=0, first=0, count=1, digest=1, at=3.9),
        Saw(place=0, first=1, count=1, digest=1, at=4.1),
        TakesBack(operation=1, number=0, at=4.2),
        TookBack(operation=1, number=0, sent=False, at=4.3),
        TakesBack(operation=1, number=0, at=6.0),
        Surprise(doing="living", error="x", at=3.0),
    )
    assert list(promised(found, WINDOW)) == [found[0], found[1], found[3]]


def test_of_an_old_client_only_what_it_asked_of_the_restored_broker_counts():
    found = lines(
        Began(operation=1, places=[0], at=8.0),
        Surprise(doing="sending", error="BrokerReplaced: x", at=10.2),
        Acknowledged(operation=1, offsets=[(0, 0)], at=10.3),
        Began(operation=2, places=[0], at=10.4),
        Acknowledged(operation=2, offsets=[(0, 1)], at=10.5),
    )
    later = lines(Surprise(doing="living", error="x", at=11.0), sender="b")
    old = asked_since([*found, *later], 10.0)
    assert old.lines == found[3:]
    assert (old.lives, old.told) == ({"a"}, {"a"})
    assert [line.sender for line, _ in old.surprises] == ["b"]


def test_messages_that_were_taken_from_the_lost_broker_are_not_settled_at_the_restored_one():
    found = lines(
        Took(queue=LEFT, messages=[taken(3)], at=9.0),
        Settles(operation=1, queue=LEFT, offsets=[3], how=How.ACKNOWLEDGE, at=10.1),
        Settled(operation=1, at=10.2),
        Took(queue=LEFT, messages=[taken(4)], at=10.3),
        Settles(operation=2, queue=LEFT, offsets=[4], how=How.ACKNOWLEDGE, at=10.4),
        Began(operation=3, places=[], together=True, published=[FANOUT], acknowledges=[(LEFT, 3)], at=10.5),
    )
    assert asked_since(found, 10.0).lines == found[3:5]


def test_a_call_for_a_message_that_came_after_the_cut_is_left_out():
    def call(offset, checksum, generation=5):
        return Call(place=0, offset=offset, generation=generation, attempts=0, checksum=checksum, fails=False)

    expectation = Expectation()
    calls = [(call(0, 7), 4.5), (call(1, 8), 4.5), (call(2, 9), 4.5), (call(1, 8, 500), 9.0)]
    entries = [
        Began(operation=number, places=[1], together=True, keys=["k"], call=each, at=at)
        for number, (each, at) in enumerate(calls)
    ]
    expectation.take(lines(*entries))
    settle(expectation, WINDOW, [array("I", [7, 1])])
    assert [number for _, number in expectation.operations] == [0, 3]


def test_a_call_with_a_generation_that_the_restored_group_gives_anew_is_left_out():
    def began(number, generation, at, place=0):
        call = Call(place=place, offset=0, generation=generation, attempts=0, checksum=7, fails=False)
        return Began(operation=number, places=[1], together=True, keys=["k"], call=call, at=at)

    expectation = Expectation()
    expectation.take(lines(began(1, 5, 4.4), began(2, 6, 4.5), began(3, 6, 4.6, place=1), began(4, 6, 3.9)))
    expectation.take(lines(began(1, 6, 9.0), sender="b"))
    settle(expectation, WINDOW, [array("I", [7]), array("I", [7])])
    assert list(expectation.operations) == [("a", 1), ("a", 3), ("a", 4), ("b", 1)]


# -- queues ----------------------------------------------------------------------------------------


def taken(offset, operation=1, number=0, again=None):
    return Delivered(offset, ("a", operation, number), True, 0, again)


def judged(*entries, queued=(), since=()):
    """What the judge finds; ``since`` are lines about the restored broker."""
    expectation = Expectation()
    expectation.take([*promised(lines(*entries), WINDOW), *since])
    expectation.queued += queued
    settle(expectation, WINDOW, [])
    return [each.wrong for each in judge_queues(expectation)]


def published(at, operation=1, way=FOLLOW_UPS, count=1, **more):
    return Began(operation=operation, places=[], published=[way] * count, at=at, **more)


def took(at, *messages, queue=FOLLOW_UPS):
    return Took(queue=queue, messages=list(messages), at=at)


def acknowledging(at, offset, queue=FOLLOW_UPS):
    return Settles(operation=9, queue=queue, offsets=[offset], how=How.ACKNOWLEDGE, at=at)


def test_a_message_that_was_published_and_taken_in_between_may_be_gone_or_never_have_been():
    entries = (published(4.1), took(4.2, taken(0)), acknowledging(4.3, 0))
    assert judged(*entries) == []
    assert judged(*entries, queued=[Queued(FOLLOW_UPS, 0, ("a", 1, 0), True)]) == []


def test_a_promised_message_that_nobody_acknowledged_must_be_there():
    promise = published(1.0), Acknowledged(operation=1, offsets=[(0, 0)], at=2.0)
    assert judged(*promise) == [Wrong.LOST]
    assert judged(*promise, took(4.2, taken(0))) == [Wrong.LOST]
    assert judged(*promise, took(4.2, taken(0)), acknowledging(4.3, 0)) == []
    assert judged(*promise, took(4.2, taken(0)), acknowledging(5.3, 0)) == [Wrong.LOST]


def test_of_a_message_in_two_queues_one_copy_is_not_enough():
    entries = published(4.1, way=FANOUT), took(4.2, taken(0), queue=LEFT)
    assert judged(*entries) == []
    assert judged(*entries, queued=[Queued("right", 0, ("a", 1, 0), True)]) == [Wrong.LOST]


def test_what_a_transaction_acknowledged_may_be_gone_if_what_it_published_may_be():
    before = published(1.0), Acknowledged(operation=1, offsets=[(0, 0)], at=1.1), took(2.0, taken(0))
    work = published(4.0, operation=2, together=True, acknowledges=[(FOLLOW_UPS, 0)])
    gone = took(4.2, taken(5, operation=2)), acknowledging(4.3, 5)
    assert judged(*before, work, *gone) == []
    assert judged(*before, work) == [Wrong.HALF_DONE]
    there = Queued(FOLLOW_UPS, 0, ("a", 1, 0), True), Queued(FOLLOW_UPS, 5, ("a", 2, 0), True)
    assert judged(*before, work, queued=there[1:]) == []
    assert judged(*before, work, queued=there) == [Wrong.HALF_DONE]


def test_what_was_prepared_at_the_cut_is_delivered_for_the_first_time_in_each_time_line():
    prepared = published(3.0, together=True, xid="x"), Prepared(operation=1, at=3.1)
    lost = took(4.2, taken(7, again=False)), acknowledging(4.3, 7)
    again = lines(took(9.0, taken(5, again=False)), acknowledging(9.1, 5), sender="b")
    [ended] = lines(Ended(operation=1, committed=True, sender="a", at=8.0), sender=RESTORED)
    assert judged(*prepared, *lost, since=[ended, *again]) == []
    twice = lines(took(9.0, taken(5, again=False)), took(9.2, taken(5, again=False)), sender="b")
    assert judged(*prepared, *lost, since=[ended, *twice, *again[1:]]) == [Wrong.CONTRADICTED]
    elsewhere = lines(Ended(operation=1, committed=True, sender="a", at=8.0), sender="coordinator")
    assert judged(*prepared, *lost, since=[*elsewhere, *again]) == [Wrong.DUPLICATED, Wrong.CONTRADICTED]
