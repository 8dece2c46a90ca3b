"""Test every verdict on ledgers made by hand: what was promised, what is held, and the text about the difference."""

from array import array

import pytest

from txbroker.client.core.results import Message
from txbroker.drill.clients.ledger import (
    Acknowledged,
    Began,
    Decided,
    Ended,
    HalfSeen,
    Line,
    Prepared,
    Refused,
    Saw,
    Surprise,
    Unknown,
    WentBack,
)
from txbroker.drill.clients.messages import MessageId, value_of
from txbroker.drill.clients.reader import checksum_of, digest_of
from txbroker.drill.judgement.expectation import Expectation
from txbroker.drill.judgement.judge import Judge
from txbroker.drill.judgement.violation import Wrong

LAYOUT = [("d-orders", 0), ("d-orders", 1), ("d-relayed", 0)]
SENDER = "sender-1.1"


class Room:
    """Ledgers and partitions to be judged."""

    def __init__(self):
        self.lines = []
        self.held = [[] for _ in LAYOUT]

    def wrote(self, entry, ledger=SENDER):
        number = 1 + sum(line.sender == ledger for line in self.lines)
        self.lines.append(Line(ledger, number, entry))

    def batch(self, operation, places, sender=SENDER, connection=1):
        self.wrote(Began(operation=operation, places=places, connection=connection), sender)

    def transaction(self, operation, places, sender=SENDER, xid="", moves=()):
        entry = Began(operation=operation, places=places, together=True, xid=xid, moves=list(moves))
        self.wrote(entry, sender)

    def holds(self, place, operation, number, together=1, sender=SENDER, labelled=None, **changes):
        place_said = place if labelled is None else labelled
        fields = {
            "topic": LAYOUT[place][0],
            "partition": LAYOUT[place][1],
            "offset": len(self.held[place]),
            "timestamp": 0,
            "key": sender.encode(),
            "value": value_of(MessageId("d", sender, operation, number, together, 10)),
            "headers": (("place", b"%d" % place_said),),
        }
        self.held[place].append(Message(**(fields | changes)))

    def holds_all(self, operation, places, **more):
        for number, place in enumerate(places):
            self.holds(place, operation, number, len(places), **more)

    def judged(self, positions=None):
        expectation = Expectation()
        expectation.take(self.lines)
        judge = Judge("d", LAYOUT, expectation)
        for place, messages in enumerate(self.held):
            for message in messages:
                judge.take(place, message)
        return judge.judge(positions or {})


@pytest.fixture
def room():
    return Room()


def only(violations, wrong):
    (violation,) = violations
    assert violation.wrong is wrong, str(violation)
    return violation


class TestSends:
    def test_what_was_acknowledged_and_is_there_once_is_no_violation(self, room):
        room.batch(1, [0, 1, 0])
        room.wrote(Acknowledged(operation=1, offsets=[(0, 0), (1, 0), (2, 1)]))
        room.holds(0, 1, 0)
        room.holds(1, 1, 1)
        room.holds(0, 1, 2)
        assert room.judged() == []

    def test_what_was_acknowledged_and_is_not_there_is_lost(self, room):
        room.batch(1, [0, 0])
        room.wrote(Acknowledged(operation=1, offsets=[(0, 0), (1, 1)]))
        room.holds(0, 1, 0)
        lost = only(room.judged(), Wrong.LOST)
        assert (lost.topic, lost.partition, lost.offset) == ("d-orders", 0, 1)
        assert (lost.client, lost.ledger) == (SENDER, "sender-1.1.jsonl:2")
        assert "message 1 of sender-1.1 operation 1" in lost.text

    def test_what_is_there_twice_is_duplicated(self, room):
        room.batch(1, [0])
        room.wrote(Acknowledged(operation=1, offsets=[(0, 0)]))
        room.holds(0, 1, 0)
        room.holds(0, 1, 0)
        assert only(room.judged(), Wrong.DUPLICATED).offset == 1

    def test_what_was_never_answered_may_be_there_once_or_not(self, room):
        room.batch(1, [0, 0, 0])
        room.wrote(Unknown(operation=1, indexes=[0, 1], error="lost"))
        room.holds(0, 1, 1)
        room.holds(0, 1, 2)
        assert room.judged() == []

    def test_what_was_never_answered_may_not_be_there_twice(self, room):
        room.batch(1, [0])
        room.holds(0, 1, 0)
        room.holds(0, 1, 0)
        only(room.judged(), Wrong.DUPLICATED)

    def test_what_was_refused_must_not_be_there(self, room):
        room.batch(1, [0])
        room.wrote(Refused(operation=1, indexes=[0], error="no room"))
        room.holds(0, 1, 0)
        only(room.judged(), Wrong.CONTRADICTED)

    def test_what_is_at_another_offset_than_was_said_has_moved(self, room):
        room.batch(1, [0, 0])
        room.wrote(Acknowledged(operation=1, offsets=[(0, 1)]))
        room.holds(0, 1, 0)
        room.holds(0, 1, 1)
        assert only(room.judged(), Wrong.MOVED).offset == 1

    def test_what_is_in_another_partition_has_moved(self, room):
        room.batch(1, [1])
        room.holds(0, 1, 0, labelled=1)
        only(room.judged(), Wrong.MOVED)

    def test_what_a_connection_sent_later_must_not_come_earlier(self, room):
        room.batch(1, [0])
        room.wrote(Acknowledged(operation=1, offsets=[(0, 1)]))
        room.batch(2, [0])
        room.wrote(Acknowledged(operation=2, offsets=[(0, 0)]))
        room.holds(0, 2, 0)
        room.holds(0, 1, 0)
        only(room.judged(), Wrong.OUT_OF_ORDER)

    def test_connections_and_partitions_have_no_order_among_each_other(self, room):
        room.batch(1, [0, 1])
        room.wrote(Acknowledged(operation=1, offsets=[(0, 1), (1, 0)]))
        room.batch(2, [0], connection=2)
        room.wrote(Acknowledged(operation=2, offsets=[(0, 0)]))
        room.holds(0, 2, 0)
        room.holds(0, 1, 0)
        room.holds(1, 1, 1)
        assert room.judged() == []

    @pytest.mark.parametrize(
        "changes",
        [
            {"key": b"another"},
            {"headers": ()},
            {"value": value_of(MessageId("d", SENDER, 1, 0, 1, 10))[:-1] + b"?"},
            {"value": value_of(MessageId("d", SENDER, 1, 0, 1, 10)) + b"!"},
        ],
        ids=["key", "headers", "a byte", "one more byte"],
    )
    def test_a_message_that_is_not_what_was_sent_has_been_changed(self, room, changes):
        room.batch(1, [0])
        room.wrote(Acknowledged(operation=1, offsets=[(0, 0)]))
        room.holds(0, 1, 0, **changes)
        only(room.judged(), Wrong.CHANGED)

    @pytest.mark.parametrize(
        "value",
        [
            None,
            b"",
            b"what is this",
            value_of(MessageId("d", SENDER, 9, 0, 1, 1)),
            value_of(MessageId("d", SENDER, 1, 1, 1, 1)),
        ],
        ids=["tombstone", "empty", "no line", "of no operation", "of no message of the operation"],
    )
    def test_a_message_that_nobody_sent_is_told(self, room, value):
        room.batch(1, [0])
        room.holds(0, 1, 0, value=value)
        only(room.judged(), Wrong.NEVER_SENT)

    def test_a_message_of_another_drill_was_never_sent(self, room):
        room.batch(1, [0])
        room.holds(0, 1, 0, value=value_of(MessageId("other", SENDER, 1, 0, 1, 10)))
        only(room.judged(), Wrong.NEVER_SENT)

    def test_a_gap_in_the_offsets_is_told(self, room):
        room.batch(1, [0, 0])
        room.holds(0, 1, 0)
        room.holds(0, 1, 1, offset=5)
        assert only(room.judged(), Wrong.GAP).offset == 5


class TestTransactions:
    PLACES = (0, 1, 0)

    def begun(self, room, there, **more):
        room.transaction(1, list(self.PLACES), **more)
        if there:
            room.holds_all(1, self.PLACES)

    @pytest.mark.parametrize("there", [True, False])
    def test_one_that_nobody_knows_the_end_of_may_be_there_or_not(self, room, there):
        self.begun(room, there)
        assert room.judged() == []

    @pytest.mark.parametrize("committed", [True, False])
    def test_one_that_ended_as_the_broker_said_is_no_violation(self, room, committed):
        self.begun(room, committed)
        room.wrote(Ended(operation=1, committed=committed, runs=[(0, 0, 2), (1, 0, 1)] if committed else []))
        assert room.judged() == []

    def test_one_of_which_a_part_is_there_is_half_visible(self, room):
        self.begun(room, there=False, xid="1:a:b")
        room.holds(0, 1, 0, 3)
        half = only(room.judged(), Wrong.HALF_VISIBLE)
        assert half.transaction == "1:a:b"
        assert "1 of 3" in half.text

    def test_one_of_which_a_part_is_there_twice_is_duplicated(self, room):
        self.begun(room, there=True)
        room.holds_all(1, self.PLACES)
        found = [violation.wrong for violation in room.judged()]
        assert found.count(Wrong.DUPLICATED) == 3

    def test_one_that_was_committed_and_is_not_there_is_lost(self, room):
        self.begun(room, there=False)
        room.wrote(Ended(operation=1, committed=True))
        assert only(room.judged(), Wrong.LOST).ledger == "sender-1.1.jsonl:2"

    def test_one_that_was_rolled_back_and_is_there_is_a_contradiction(self, room):
        self.begun(room, there=True)
        room.wrote(Ended(operation=1, committed=False))
        only(room.judged(), Wrong.CONTRADICTED)

    def test_two_different_answers_are_a_contradiction(self, room):
        self.begun(room, there=True)
        room.wrote(Ended(operation=1, committed=True))
        room.wrote(Ended(operation=1, committed=False, sender=SENDER), "coordinator")
        assert "committed, and that it was rolled back" in only(room.judged(), Wrong.CONTRADICTED).text

    def test_a_prepared_one_that_is_neither_listed_nor_ended_is_lost(self, room):
        self.begun(room, there=False, xid="1:a:b")
        room.wrote(Prepared(operation=1))
        only(room.judged(), Wrong.PREPARE_LOST)

    def test_a_prepared_one_that_came_without_a_decision_is_a_contradiction(self, room):
        self.begun(room, there=True, xid="1:a:b")
        room.wrote(Prepared(operation=1))
        assert "never ended" in only(room.judged(), Wrong.CONTRADICTED).text

    def test_a_prepared_one_to_be_committed_that_the_broker_rolled_back_is_a_lost_prepare(self, room):
        self.begun(room, there=False, xid="1:a:b")
        room.wrote(Prepared(operation=1))
        room.wrote(Decided(operation=1, commit=True))
        room.wrote(Ended(operation=1, committed=False, found_out=True))
        only(room.judged(), Wrong.PREPARE_LOST)

    @pytest.mark.parametrize(
        ("commit", "there", "wrong"),
        [
            (True, True, None),
            (False, False, None),
            (True, False, Wrong.LOST),
            (False, True, Wrong.CONTRADICTED),
        ],
    )
    def test_one_whose_client_died_with_its_decision_is_as_decided(self, room, commit, there, wrong):
        self.begun(room, there, xid="1:a:b")
        room.wrote(Prepared(operation=1))
        room.wrote(Decided(operation=1, commit=commit))
        assert [violation.wrong for violation in room.judged()] == ([wrong] if wrong else [])

    @pytest.mark.parametrize("commit", [True, False])
    def test_one_that_the_coordinator_ended_is_as_it_decided(self, room, commit):
        room.wrote(Decided(operation=1, commit=commit, sender=SENDER), "coordinator")
        room.wrote(Ended(operation=1, committed=commit, sender=SENDER), "coordinator")
        self.begun(room, commit, xid="1:a:b")
        room.wrote(Prepared(operation=1))
        assert room.judged() == []

    def test_messages_of_others_between_its_own_are_told(self, room):
        room.batch(2, [0])
        room.transaction(1, [0, 0])
        room.holds(0, 1, 0, 2)
        room.holds(0, 2, 0)
        room.holds(0, 1, 1, 2)
        only(room.judged(), Wrong.OUT_OF_ORDER)

    def test_another_order_than_that_of_the_adds_is_told(self, room):
        room.transaction(1, [0, 0])
        room.holds(0, 1, 1, 2)
        room.holds(0, 1, 0, 2)
        only(room.judged(), Wrong.OUT_OF_ORDER)

    def test_another_place_than_the_answer_said_is_told(self, room):
        self.begun(room, there=True)
        room.wrote(Ended(operation=1, committed=True, runs=[(0, 7, 2)]))
        only(room.judged(), Wrong.MOVED)


class TestRelay:
    def relayed(self, room, operation, start, end):
        room.transaction(operation, [2] * (end - start), moves=[(0, start, end)])
        room.holds_all(operation, [2] * (end - start))

    def test_moves_that_follow_each_other_to_where_the_group_stands_are_right(self, room):
        self.relayed(room, 1, 0, 2)
        room.transaction(2, [2, 2], moves=[(0, 2, 4)])  # rolled back, then done anew
        self.relayed(room, 3, 2, 4)
        assert room.judged({0: 4}) == []

    def test_a_message_relayed_twice_is_told(self, room):
        self.relayed(room, 1, 0, 2)
        self.relayed(room, 2, 1, 3)
        assert "1 to 1 were relayed twice" in only(room.judged({0: 3}), Wrong.OFFSETS).text

    def test_a_message_never_relayed_is_told(self, room):
        self.relayed(room, 1, 0, 2)
        self.relayed(room, 2, 3, 4)
        assert "2 to 2 were relayed never" in only(room.judged({0: 4}), Wrong.OFFSETS).text

    @pytest.mark.parametrize("position", [1, 3, None])
    def test_a_group_that_stands_elsewhere_is_told(self, room, position):
        self.relayed(room, 1, 0, 2)
        only(room.judged({0: position}), Wrong.OFFSETS)


class TestReaders:
    def test_what_a_reader_saw_and_is_there_is_right(self, room):
        room.batch(1, [0, 0])
        room.holds(0, 1, 0)
        room.holds(0, 1, 1)
        sums = array("I", [checksum_of(message.value) for message in room.held[0]])
        room.wrote(Saw(place=0, first=0, count=2, digest=digest_of(sums)), "reader-1.1")
        room.wrote(Saw(place=0, first=1, count=1, digest=digest_of(sums[1:])), "reader-1.1")
        assert room.judged() == []

    def test_what_a_reader_saw_and_is_gone_is_told(self, room):
        room.batch(1, [0])
        room.holds(0, 1, 0)
        digest = digest_of(array("I", [checksum_of(room.held[0][0].value), 5]))
        room.wrote(Saw(place=0, first=0, count=2, digest=digest), "reader-1.1")
        assert only(room.judged(), Wrong.UNSEEN).ledger == "reader-1.1.jsonl:1"

    @pytest.mark.parametrize(
        ("entry", "wrong"),
        [
            (HalfSeen(sender=SENDER, operation=1, seen=1, together=3), Wrong.HALF_VISIBLE),
            (WentBack(place=1, seen=9, end=7), Wrong.UNSEEN),
            (Surprise(doing="sending", error="CorruptData: oh"), Wrong.SURPRISE),
        ],
    )
    def test_what_a_client_complained_of_is_a_violation_with_its_line(self, room, entry, wrong):
        room.wrote(entry, "reader-1.1")
        assert only(room.judged(), wrong).ledger == "reader-1.1.jsonl:1"
