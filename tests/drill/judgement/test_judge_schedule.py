"""Test every verdict on messages for later, on ledgers made by hand: what was sent for when, and taken back."""

import pytest

from txbroker.client.core.results import Message
from txbroker.drill.clients.ledger import (
    Began,
    Decided,
    Ended,
    Line,
    Prepared,
    Refused,
    Scheduled,
    TakesBack,
    TookBack,
    Unknown,
)
from txbroker.drill.clients.messages import MessageId, value_of
from txbroker.drill.judgement.expectation import Expectation
from txbroker.drill.judgement.judge import Judge
from txbroker.drill.report.result import count

LAYOUT = [("d-later", 0), ("d-later", 1)]
SENDER = "scheduler-1.1"
DUE = 1_000_000


class Room:
    """The ledger of a scheduler, and partitions to be judged."""

    def __init__(self):
        self.lines = []
        self.held = [[] for _ in LAYOUT]
        self.expectation = Expectation()

    def wrote(self, entry):
        self.lines.append(Line(SENDER, 1 + len(self.lines), entry))

    def sent(self, operation, count=1, kept=(0,), **more):
        self.wrote(Began(operation=operation, places=[0] * count, due=[DUE] * count, **more))
        if kept:
            self.wrote(Scheduled(operation=operation, numbers=list(kept)))

    def transaction(self, operation, count=1, **more):
        self.sent(operation, count, kept=(), together=True, **more)

    def came(self, operation, number=0, at=DUE, place=0):
        labels = {"key": SENDER.encode(), "headers": (("place", b"0"),)}
        value = value_of(MessageId("d", SENDER, operation, number, 1, 10))
        offset = len(self.held[place])
        self.held[place].append(Message("d-later", place, offset, 0, value=value, appended=at, **labels))

    def judged(self):
        self.expectation.take(self.lines)
        judge = Judge("d", LAYOUT, self.expectation)
        for place, messages in enumerate(self.held):
            for message in messages:
                judge.take(place, message)
        return [f"{each.wrong.value}: {each.text}" for each in judge.judge({})]


@pytest.fixture
def room():
    return Room()


def test_what_came_in_time_and_what_never_comes_is_right(room):
    room.sent(1, 3, kept=(0, 1))
    room.wrote(Unknown(operation=1, indexes=[2], error=""))
    room.came(1, 0)
    room.wrote(TakesBack(operation=1, number=1))
    room.wrote(TookBack(operation=1, number=1, sent=False))
    room.sent(2, kept=())
    room.wrote(Refused(operation=2, indexes=[0], error=""))
    assert room.judged() == []
    counts = count(room.expectation)
    assert (counts.later, counts.came, counts.taken_back) == (2, 1, 1)


def test_a_message_that_came_before_it_was_due(room):
    room.sent(1)
    room.came(1, at=DUE - 50_000)  # as far as clocks may differ
    room.sent(2)
    room.came(2, at=DUE - 60_000)
    [found] = room.judged()
    assert found == "early: message 0 of scheduler-1.1 operation 2 was placed 60 ms before it was due"


def test_a_message_that_was_kept_and_never_came(room):
    room.sent(1)
    [found] = room.judged()
    assert found.startswith("lost: message 0 of scheduler-1.1 operation 1 was kept for later, is due")


def test_a_message_that_came_twice(room):
    room.sent(1)
    room.came(1)
    room.came(1)
    [found] = room.judged()
    assert found.startswith("duplicated")


def test_a_message_that_came_in_another_partition(room):
    room.sent(1)
    room.came(1, place=1)
    [found] = room.judged()
    assert found.startswith("moved")


def test_a_message_that_was_taken_back_and_came(room):
    room.sent(1)
    room.wrote(TakesBack(operation=1, number=0))
    room.wrote(TookBack(operation=1, number=0, sent=False))
    room.came(1)
    [found] = room.judged()
    assert found == "contradicted: message 0 of scheduler-1.1 operation 1 was taken back, and is there"


@pytest.mark.parametrize("comes", [True, False])
def test_a_taking_back_without_an_answer_may_have_happened(room, comes):
    room.sent(1)
    room.wrote(TakesBack(operation=1, number=0))
    if comes:
        room.came(1)
    assert room.judged() == []


def test_a_message_that_was_refused_and_came(room):
    room.sent(1, kept=())
    room.wrote(Refused(operation=1, indexes=[0], error=""))
    room.came(1)
    [found] = room.judged()
    assert found.startswith("contradicted: message 0 of scheduler-1.1 operation 1 was refused or rolled back")


@pytest.mark.parametrize(
    ("offset", "comes", "kind"), [(0, True, ""), (-1, True, ""), (3, True, "moved"), (0, False, "lost")]
)
def test_where_the_broker_said_that_it_was_sent_to(room, offset, comes, kind):
    room.sent(1, kept=())
    room.wrote(TakesBack(operation=1, number=0))
    room.wrote(TookBack(operation=1, number=0, sent=True, offset=offset))
    if comes:
        room.came(1)
    assert [found.partition(":")[0] for found in room.judged()] == ([kind] if kind else [])


def ends(room, committed):
    room.wrote(Ended(operation=2, committed=committed))


@pytest.mark.parametrize("committed", [True, False])
def test_what_a_transaction_takes_back_goes_with_its_outcome(room, committed):
    room.sent(1)
    room.transaction(2, takes_back=[(1, 0)])
    ends(room, committed)
    room.came(*((2,) if committed else (1,)))
    assert room.judged() == []
    assert count(room.expectation).taken_back == committed


@pytest.mark.parametrize("committed", [True, False])
def test_what_a_transaction_does_and_what_it_takes_back_are_one(room, committed):
    room.sent(1)
    room.transaction(2, takes_back=[(1, 0)])
    ends(room, committed)
    room.came(*((1,) if committed else (2,)))
    kinds = sorted(found.partition(":")[0] for found in room.judged())
    assert kinds == ["contradicted", "lost"]


def test_a_transaction_that_nobody_knows_the_end_of_shows_by_what_came(room):
    room.sent(1)
    room.transaction(2, 2, takes_back=[(1, 0)])
    room.wrote(Unknown(operation=2, error=""))
    assert room.judged() == []
    room.came(2, 0)
    room.came(1)
    kinds = sorted(found.partition(":")[0] for found in room.judged())
    assert kinds == ["contradicted", "lost"], (
        "it was committed: the other one is missing, and this one not taken back"
    )


def test_what_was_said_of_a_transaction_must_agree(room):
    room.transaction(2, xid="x")
    ends(room, True)
    ends(room, False)
    room.came(2)
    assert [found.partition(":")[0] for found in room.judged()] == ["contradicted"]


def test_a_prepared_transaction_that_was_to_be_committed_and_was_rolled_back(room):
    room.transaction(2, xid="x")
    room.wrote(Prepared(operation=2))
    room.wrote(Decided(operation=2, commit=True))
    ends(room, False)
    assert [found.partition(":")[0] for found in room.judged()] == ["prepare lost"]
