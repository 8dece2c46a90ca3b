"""Test every verdict on queues, on ledgers made by hand: what was published, taken, acknowledged, and is there."""

import msgspec
import pytest

from txbroker.amqp import properties as props
from txbroker.amqp.fields import encode_table
from txbroker.client.core.results import Message
from txbroker.drill.clients.ledger import (
    Acknowledged,
    Began,
    Decided,
    Delivered,
    Ended,
    How,
    Line,
    Prepared,
    Refused,
    Settled,
    Settles,
    Took,
    Unknown,
)
from txbroker.drill.clients.messages import MessageId, value_of
from txbroker.drill.judgement.expectation import Expectation
from txbroker.drill.judgement.judge import Judge
from txbroker.drill.judgement.judge_queues import queued
from txbroker.drill.plan.plan import DEAD_LETTERS, DELIVERY_LIMIT, FANOUT, FOLLOW_UPS, LEFT, RIGHT, Plan
from txbroker.drill.report.result import count
from txbroker.wire.queues import AMQP_PROPERTIES, EXCHANGE

PLAN = Plan(name="d", seed=1, url="", folder="", largest=10, queuers=2)
FIRST, SECOND = "queuer-1.1", "queuer-2.1"


class Hall:
    """Ledgers of two queuers, and queues to be judged."""

    def __init__(self):
        self.lines = []
        self.expectation = Expectation()

    def wrote(self, entry, sender=FIRST):
        number = 1 + sum(line.sender == sender for line in self.lines)
        at = 1.0 + len(self.lines)
        self.lines.append(Line(sender, number, msgspec.structs.replace(entry, at=at)))

    def published(self, operation, count=1, answered=True):
        self.wrote(Began(operation=operation, places=[], published=[FANOUT] * count))
        if answered:
            self.wrote(
                Acknowledged(operation=operation, offsets=[(number, number) for number in range(count)])
            )

    def transaction(self, operation, *acknowledges, ways=(FOLLOW_UPS,), committed=None, sender=FIRST, **more):
        began = {"published": list(ways), "acknowledges": list(acknowledges), "together": True}
        self.wrote(Began(operation=operation, places=[], **began, **more), sender)
        if committed is not None:
            self.wrote(Ended(operation=operation, committed=committed), sender)

    def took(
        self,
        queue,
        offset,
        operation,
        number=0,
        sender=FIRST,
        intact=True,
        attempts=0,
        publisher=FIRST,
        again=None,
    ):
        delivered = Delivered(offset, (publisher, operation, number), intact, attempts, again)
        self.wrote(Took(queue=queue, messages=[delivered]), sender)

    def settled(self, operation, queue, offset, how=How.ACKNOWLEDGE, sender=FIRST, answered=True, lost=False):
        self.wrote(Settles(operation=operation, queue=queue, offsets=[offset], how=how), sender)
        if answered:
            self.wrote(Settled(operation=operation, lost=lost), sender)

    def settled_over_amqp(self, operation, queue, *messages, how=How.ACKNOWLEDGE, answered=True, lost=False):
        which = [(FIRST, *each) for each in messages]
        self.wrote(Settles(operation=operation, queue=queue, offsets=[], how=how, messages=which), SECOND)
        if answered:
            self.wrote(Settled(operation=operation, lost=lost), SECOND)

    def holds(self, queue, offset, operation, number=0, way=FANOUT, together=1, **changes):
        key = PLAN.queue(FOLLOW_UPS) if way == FOLLOW_UPS else FIRST
        fields = {
            "key": key.encode(),
            "value": value_of(MessageId("d", FIRST, operation, number, together, 10)),
            "headers": (("way", way.encode()),),
        }
        message = Message(f"queue:d-{queue}", 1, offset, 0, **(fields | changes))
        self.expectation.queued.append(queued(PLAN, queue, message))

    def buried(self, operation, origin=LEFT, origin_offset=0, attempts=DELIVERY_LIMIT + 1, offset=0):
        headers = (
            ("way", FANOUT.encode()),
            ("txbroker.dead.topic", f"d-{origin}".encode()),
            ("txbroker.dead.offset", b"%d" % origin_offset),
            ("txbroker.dead.attempts", b"%d" % attempts),
        )
        self.holds(DEAD_LETTERS, offset, operation, key=f"d-{DEAD_LETTERS}".encode(), headers=headers)

    def judged(self):
        self.expectation.take(self.lines)
        return [f"{each.wrong.value}: {each.text}" for each in Judge("d", [], self.expectation).judge({})]


@pytest.fixture
def hall():
    return Hall()


def kinds(found):
    return sorted(each.partition(":")[0] for each in found)


def test_a_message_that_stays_one_that_was_acknowledged_and_a_dead_letter_are_right(hall):
    hall.published(1, 2)
    hall.holds(LEFT, 0, 1)
    hall.took(LEFT, 1, 1, 1)
    hall.settled(2, LEFT, 1, How.RETURN)
    hall.took(LEFT, 1, 1, 1, sender=SECOND, attempts=1)
    hall.settled(1, LEFT, 1, sender=SECOND)
    hall.buried(1, RIGHT)
    hall.took(RIGHT, 1, 1, 1)
    hall.transaction(3, (RIGHT, 1), committed=True)
    hall.holds(FOLLOW_UPS, 0, 3, way=FOLLOW_UPS)
    assert hall.judged() == []
    counts = count(hall.expectation)
    assert (counts.published, counts.delivered, counts.settled) == (3, 3, 2)
    assert (counts.settled_with_transactions, counts.dead_letters, counts.queued) == (1, 1, 2)
    assert (counts.transactions_committed, counts.unanswered_whole, counts.acknowledged) == (1, 0, 3)


def test_a_message_that_is_in_one_of_its_queues_alone(hall):
    hall.published(1)
    hall.holds(LEFT, 0, 1)
    [found] = hall.judged()
    assert found.startswith(
        "lost: message 0 of queuer-1.1 operation 1 in queue right was published, as the broker"
    )


def test_a_message_that_was_taken_and_is_gone_without_an_acknowledgement(hall):
    hall.published(1)
    hall.holds(RIGHT, 0, 1)
    hall.took(LEFT, 0, 1)
    hall.settled(2, LEFT, 0, How.RETURN)
    [found] = hall.judged()
    assert found.startswith("lost: message 0 of queuer-1.1 operation 1 in queue left is gone")


@pytest.mark.parametrize(("lost", "expected"), [(True, ["lost"]), (False, [])])
def test_an_acknowledgement_that_came_too_late_has_acknowledged_nothing(hall, lost, expected):
    hall.published(1)
    hall.holds(RIGHT, 0, 1)
    hall.took(LEFT, 0, 1)
    hall.settled(2, LEFT, 0, lost=lost)
    assert kinds(hall.judged()) == expected


@pytest.mark.parametrize("stays", [True, False])
def test_an_acknowledgement_without_an_answer_may_have_happened(hall, stays):
    hall.published(1)
    hall.holds(RIGHT, 0, 1)
    hall.took(LEFT, 0, 1)
    hall.settled(2, LEFT, 0, answered=False)
    if stays:
        hall.holds(LEFT, 0, 1)
    assert hall.judged() == []


@pytest.mark.parametrize(
    ("queues", "expected"),
    [((), []), ((LEFT, RIGHT), []), ((LEFT,), ["half-visible"]), ((RIGHT,), ["half-visible"])],
)
def test_a_publish_without_an_answer_is_in_all_queues_or_in_none(hall, queues, expected):
    hall.published(1, answered=False)
    hall.wrote(Unknown(operation=1, indexes=[0], error=""))
    for queue in queues:
        hall.holds(queue, 0, 1)
    assert kinds(hall.judged()) == expected


def test_a_message_that_was_refused_and_is_there(hall):
    hall.published(1, answered=False)
    hall.wrote(Refused(operation=1, indexes=[0], error=""))
    hall.holds(LEFT, 0, 1)
    hall.holds(RIGHT, 0, 1)
    assert kinds(hall.judged()) == ["contradicted"]


def test_a_message_that_is_in_a_queue_twice(hall):
    hall.published(1)
    hall.holds(LEFT, 0, 1)
    hall.holds(LEFT, 7, 1)
    hall.holds(RIGHT, 0, 1)
    [found] = hall.judged()
    assert found.startswith("duplicated")
    assert found.endswith("is there twice, at 0 and at 7")


def test_a_message_that_was_delivered_twice_and_acknowledged_once(hall):
    hall.published(1)
    hall.holds(RIGHT, 0, 1)
    hall.took(LEFT, 0, 1)
    hall.took(LEFT, 7, 1)
    hall.settled(2, LEFT, 0)
    assert kinds(hall.judged()) == ["duplicated"]


@pytest.mark.parametrize("letter", [True, False])
def test_a_message_that_was_acknowledged_and_is_there(hall, letter):
    hall.published(1)
    hall.holds(RIGHT, 0, 1)
    hall.took(LEFT, 0, 1)
    hall.settled(2, LEFT, 0)
    hall.buried(1) if letter else hall.holds(LEFT, 0, 1)
    [found] = hall.judged()
    what = "a dead letter" if letter else "there"
    assert found == (
        f"acknowledged and back: message 0 of queuer-1.1 operation 1 in queue left was acknowledged, and is {what}"
    )


def test_a_message_that_comes_again_to_the_client_that_had_acknowledged_it(hall):
    hall.published(1)
    hall.holds(RIGHT, 0, 1)
    hall.took(LEFT, 0, 1)
    hall.settled(2, LEFT, 0)
    hall.took(LEFT, 0, 1, sender=SECOND)
    assert hall.judged() == [], "that one may have it from a session that has ended"
    hall.expectation = Expectation()
    hall.holds(RIGHT, 0, 1)
    hall.took(LEFT, 0, 1)
    assert kinds(hall.judged()) == ["acknowledged and back"]


def test_a_message_that_two_transactions_have_acknowledged(hall):
    hall.published(1)
    hall.holds(RIGHT, 0, 1)
    for operation, sender in ((2, FIRST), (1, SECOND)):
        hall.took(LEFT, 0, 1, sender=sender)
        hall.transaction(operation, (LEFT, 0), committed=True, sender=sender)
        hall.took(FOLLOW_UPS, operation, operation, publisher=sender)
        hall.settled(operation + 5, FOLLOW_UPS, operation)
    assert kinds(hall.judged()) == ["acknowledged and back"] * 2


def test_a_transaction_that_began_after_a_message_had_been_acknowledged(hall):
    hall.published(1)
    hall.holds(RIGHT, 0, 1)
    hall.took(LEFT, 0, 1)
    hall.took(LEFT, 0, 1, sender=SECOND)
    hall.settled(1, LEFT, 0, sender=SECOND)
    hall.transaction(2, (LEFT, 0), committed=True)
    hall.holds(FOLLOW_UPS, 0, 2, way=FOLLOW_UPS)
    [found] = hall.judged()
    assert found.endswith("operation 2, which began after it had been acknowledged")


@pytest.mark.parametrize("committed", [True, False, None])
@pytest.mark.parametrize("is_acknowledged", [True, False])
@pytest.mark.parametrize("is_published", [True, False])
def test_what_a_transaction_acknowledges_and_what_it_publishes_are_one(
    hall, committed, is_acknowledged, is_published
):
    hall.published(1)
    hall.holds(RIGHT, 0, 1)
    hall.took(LEFT, 0, 1)
    hall.transaction(2, (LEFT, 0), committed=committed)
    if not is_acknowledged:
        hall.holds(LEFT, 0, 1)
    if is_published:
        hall.holds(FOLLOW_UPS, 0, 2, way=FOLLOW_UPS)
    expected = ["half done"] if is_acknowledged is not is_published else []
    expected += ["lost"] if committed and not is_published else []
    expected += ["contradicted"] if committed is False and is_published else []
    assert kinds(hall.judged()) == sorted(expected)


def test_a_part_of_a_transaction(hall):
    hall.transaction(2, ways=(FANOUT, FANOUT), committed=True)
    hall.holds(LEFT, 0, 2, 0, together=2)
    hall.holds(LEFT, 1, 2, 1, together=2)
    hall.holds(RIGHT, 0, 2, 1, together=2)
    [found] = hall.judged()
    assert found.startswith("half-visible: 3 of 4 messages of queuer-1.1 operation 2")


def test_a_prepared_transaction_that_was_to_be_committed_and_was_rolled_back(hall):
    hall.published(1)
    hall.holds(LEFT, 0, 1)
    hall.holds(RIGHT, 0, 1)
    hall.took(LEFT, 0, 1)
    hall.transaction(2, (LEFT, 0), xid="x")
    hall.wrote(Prepared(operation=2))
    hall.wrote(Decided(operation=2, commit=True))
    hall.wrote(Ended(operation=2, committed=False))
    assert kinds(hall.judged()) == ["prepare lost"]


def test_what_a_coordinator_has_ended_counts_as_it_says(hall):
    hall.published(1)
    hall.holds(RIGHT, 0, 1)
    hall.took(LEFT, 0, 1)
    hall.transaction(2, (LEFT, 0), xid="x")
    hall.wrote(Prepared(operation=2))
    hall.wrote(Decided(operation=2, commit=True, sender=FIRST), "coordinator")
    hall.wrote(Ended(operation=2, committed=True, sender=FIRST), "coordinator")
    hall.holds(FOLLOW_UPS, 0, 2, way=FOLLOW_UPS)
    assert hall.judged() == []
    assert count(hall.expectation).in_doubt_committed_by_coordinator == 1


def test_dead_letters_in_more_than_one_place(hall):
    hall.published(1)
    hall.holds(RIGHT, 0, 1)
    hall.buried(1)
    hall.buried(1, offset=1)
    hall.published(2)
    hall.holds(RIGHT, 1, 2)
    hall.holds(LEFT, 1, 2)
    hall.buried(2, origin_offset=1, offset=2)
    found = hall.judged()
    assert kinds(found) == ["duplicated", "duplicated"]
    assert "has 2 dead letters" in found[0]
    assert "is a dead letter, too" in found[1]


@pytest.mark.parametrize(
    ("how", "attempts", "expected"),
    [
        (How.RETURN, DELIVERY_LIMIT + 1, []),
        (How.RETURN, DELIVERY_LIMIT, ["contradicted"]),
        (How.GIVE_UP, 1, []),
    ],
)
def test_a_dead_letter_was_returned_too_often_or_given_up(hall, how, attempts, expected):
    hall.published(1)
    hall.holds(RIGHT, 0, 1)
    hall.took(LEFT, 0, 1)
    hall.settled(2, LEFT, 0, how)
    hall.buried(1, attempts=attempts)
    assert kinds(hall.judged()) == expected


def test_a_message_that_was_given_up_and_is_there(hall):
    hall.published(1)
    hall.holds(RIGHT, 0, 1)
    hall.took(LEFT, 0, 1)
    hall.settled(2, LEFT, 0, How.GIVE_UP)
    hall.holds(LEFT, 0, 1)
    assert hall.judged() == [
        "contradicted: message 0 of queuer-1.1 operation 1 in queue left was given up, and is there"
    ]


def test_a_message_that_was_delivered_more_often_than_its_queue_allows(hall):
    hall.published(1)
    hall.holds(RIGHT, 0, 1)
    hall.took(LEFT, 0, 1, attempts=DELIVERY_LIMIT + 1)
    hall.settled(2, LEFT, 0)
    assert kinds(hall.judged()) == ["contradicted"]


def test_messages_that_nobody_has_published_there(hall):
    hall.published(1)
    hall.holds(LEFT, 0, 1)
    hall.holds(RIGHT, 0, 1)
    hall.holds(FOLLOW_UPS, 0, 1)
    hall.holds(LEFT, 1, 9)
    hall.holds(LEFT, 2, 1, value=b"what?")
    assert kinds(hall.judged()) == ["moved", "never sent", "never sent"]


@pytest.mark.parametrize(
    "changes",
    [{"key": b"k"}, {"headers": ()}, {"headers": (("way", b"fanout"), ("more", b""))}, {"value": b"+"}],
)
def test_messages_that_are_not_what_was_published(hall, changes):
    hall.published(1)
    hall.holds(LEFT, 0, 1)
    if "value" in changes:
        changes = {"value": value_of(MessageId("d", FIRST, 1, 0, 1, 10)) + b"+"}
    hall.holds(RIGHT, 0, 1, **changes)
    assert kinds(hall.judged()) == ["changed"]


def test_what_a_client_was_handed_is_compared_too(hall):
    hall.published(1, 2)
    hall.holds(RIGHT, 0, 1)
    hall.holds(RIGHT, 1, 1, 1)
    hall.took(LEFT, 0, 1, intact=False)
    hall.holds(LEFT, 0, 1, 1)
    found = hall.judged()
    assert kinds(found) == ["changed", "changed", "lost"]
    assert any(
        "message 1 of queuer-1.1 operation 1 in queue left is where message 0" in each for each in found
    )


def test_what_was_settled_over_amqp_is_judged_by_what_it_says(hall):
    hall.published(1, 3)
    for number in range(3):
        hall.took(LEFT, -1, 1, number, sender=SECOND, again=False)
        hall.holds(RIGHT, number, 1, number)
    hall.settled_over_amqp(2, LEFT, (1, 0), (1, 1))
    hall.settled_over_amqp(3, LEFT, (1, 2), how=How.RETURN)
    hall.took(LEFT, 2, 1, 2, attempts=1, again=True)
    hall.holds(LEFT, 2, 1, 2)
    assert hall.judged() == []
    assert count(hall.expectation).settled == 3


def test_what_was_acknowledged_over_amqp_and_is_there_or_gone_without_that_is_found(hall):
    hall.published(1, 2)
    hall.holds(RIGHT, 0, 1)
    hall.holds(RIGHT, 1, 1, 1)
    hall.took(LEFT, -1, 1, sender=SECOND)
    hall.took(LEFT, -1, 1, 1, sender=SECOND)
    hall.settled_over_amqp(2, LEFT, (1, 0))
    hall.settled_over_amqp(3, LEFT, (1, 1), lost=True)
    hall.holds(LEFT, 0, 1)
    assert kinds(hall.judged()) == ["acknowledged and back", "lost"]


def test_a_message_that_comes_again_without_a_word_of_it_is_found(hall):
    hall.published(1)
    hall.holds(RIGHT, 0, 1)
    hall.holds(LEFT, 0, 1)
    hall.took(LEFT, -1, 1, again=False)
    hall.took(LEFT, 0, 1, sender=SECOND, again=False)
    [found] = hall.judged()
    assert found.startswith("contradicted: ")
    assert "delivered 2 times" in found


def test_a_message_that_was_published_over_amqp_is_known_by_its_properties(hall):
    hall.published(1)
    hall.holds(LEFT, 0, 1, headers=over_amqp("fanout"))
    hall.holds(RIGHT, 0, 1, headers=over_amqp("aside"))
    assert kinds(hall.judged()) == ["changed"]


def over_amqp(way):
    given = {props.HEADERS: encode_table({"way": way})}
    return ((AMQP_PROPERTIES, props.replaced(props.NONE, {}, given)), (EXCHANGE, b"d-fanout"))
