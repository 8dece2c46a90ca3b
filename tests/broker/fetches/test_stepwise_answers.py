"""Test answers made in steps: one step at a time while the turn lasts, disk reads on a thread, one answer at the
end.
"""

import pytest
from twisted.logger import capturedLogs

from tests.support.broker_room import Room, refused
from tests.support.manual_worker import ManualWorker
from txbroker.broker.fetches.stepwise_answers import MOST_AT_ONCE, Stepwise, Until
from txbroker.errors import CorruptJournal, LimitExceeded, UnknownTopic
from txbroker.wire.codec import encode
from txbroker.wire.messages import Done, ListGroups, Ping


class Made:
    """A session in a line, and answers in the making; each turn lasts for ``steps`` steps."""

    def __init__(self):
        self.room = Room()
        self.peer = self.room.peer()
        self.session = self.peer.session
        self.woken = 0
        self.session.wake = self.wake
        self.worker = ManualWorker()
        self.faults = []
        broker = self.room.broker
        self.stepwise = Stepwise(
            self.worker.submit, broker.accounts, self.room.engine.when_forced, self.broke, broker._refused
        )
        self.left = self.lasts = 0
        self.stepwise.goes_on = self.goes_on
        self.seen = []

    def wake(self):
        self.woken += 1

    def broke(self, session, what, error):
        self.faults.append((session, what, error))

    def goes_on(self):
        self.left -= 1
        return self.left > 0

    def begin(self, steps, correlation=7):
        self.left = self.lasts
        self.stepwise.answer(self.session, ListGroups(correlation), steps)

    def turn(self):
        self.left = self.lasts
        self.session.go_on()

    def counting(self, count, correlation=7):
        for number in range(count):
            self.seen.append(number)
            yield None
        return encode(Done(correlation))


@pytest.fixture
def made():
    return Made()


def test_as_many_steps_are_made_as_the_turn_lasts_and_the_rest_in_the_next_ones(made):
    made.lasts = 3
    made.begin(made.counting(7))
    assert (made.seen, made.woken, list(made.session.due)) == ([0, 1, 2], 1, [*made.session.due])
    made.turn()
    assert made.seen == [0, 1, 2, 3, 4, 5]
    assert made.peer.answers == []
    made.turn()
    assert made.peer.answers == [Done(7)]
    assert (made.session.due, made.session.making) == ({}, 0)


def test_without_a_line_an_answer_is_made_at_once(made):
    made.session.wake = None
    made.begin(made.counting(1000))
    assert made.peer.answers == [Done(7)]


def test_an_answer_that_waits_for_the_engine_takes_no_turns_until_it_is_idle(made):
    def waiting():
        yield Until.IDLE
        made.seen.append("idle")
        yield Until.IDLE
        return encode(Done(7))

    made.lasts = 100
    made.begin(waiting())
    assert (made.seen, made.session.due, made.woken) == ([], {}, 0)
    made.stepwise.idle()
    assert made.seen == ["idle"], "asked for once more, and not until the next time"
    assert made.peer.answers == []
    made.stepwise.idle()
    assert made.peer.answers == [Done(7)]
    assert made.session.making == 0


def test_what_is_to_be_read_is_read_elsewhere_and_gone_on_with_in_a_turn(made):
    def reading():
        found = yield lambda: "from the disk"
        made.seen.append(found)
        return encode(Done(7))

    made.begin(reading())
    assert (made.seen, made.woken) == ([], 0)
    made.worker.step()
    assert (made.seen, made.woken) == ([], 1), "it waits for the session's turn"
    made.turn()
    assert made.seen == ["from the disk"]
    assert made.peer.answers == [Done(7)]


def test_what_is_wrong_is_the_answer(made):
    def refusing():
        yield None
        raise UnknownTopic("there is none")

    made.lasts = 5
    made.begin(refusing())
    refused(made.peer.answers[0], "UnknownTopic")
    assert made.session.making == 0


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (OSError(5, "Input/output error"), "StorageUnavailable"),
        (CorruptJournal("bad", "f"), "CorruptJournal"),
    ],
)
def test_a_read_that_fails_refuses_that_request_and_the_session_goes_on(made, error, name):
    def fail():
        raise error

    def reading():
        yield fail

    with capturedLogs():
        made.begin(reading())
        made.worker.step()
        made.turn()
    refused(made.peer.answers[0], name)
    assert made.session.making == 0
    assert isinstance(made.peer.ask(Ping), Done)


def test_an_answer_may_do_without_what_could_not_be_read(made):
    def fail():
        raise OSError(5, "Input/output error")

    def reading():
        try:
            yield fail
        except OSError as error:
            made.seen.append(error.errno)
        return encode(Done(7))

    made.begin(reading())
    made.worker.step()
    made.turn()
    assert (made.seen, made.peer.answers) == ([5], [Done(7)])
    assert made.session.making == 0


def test_a_fault_of_ours_is_told_of_and_costs_one_connection(made):
    def faulty():
        yield None
        raise ArithmeticError("of ours")

    made.lasts = 5
    made.begin(faulty())
    [(session, what, error)] = made.faults
    assert (session, what, str(error)) == (made.session, "ListGroups", "of ours")


def test_for_a_session_that_has_ended_no_further_step_is_made(made):
    made.lasts = 1
    made.begin(made.counting(7))
    made.peer.leave()
    made.turn()
    assert made.seen == [0]
    assert made.peer.answers == []


def test_a_session_has_a_bounded_number_of_answers_in_the_making(made):
    made.lasts = 1
    for number in range(MOST_AT_ONCE):
        made.begin(made.counting(3, number), number)
    with pytest.raises(LimitExceeded):
        made.begin(made.counting(3))
    while made.session.due:
        made.turn()
    assert [answer.correlation for answer in made.peer.answers] == list(range(MOST_AT_ONCE))
    made.begin(made.counting(0))
    assert len(made.peer.answers) == MOST_AT_ONCE + 1
