"""Test the scheduling of sessions: equal shares of work, idle ones first, and the reactor gets its turn."""

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.thoroughness import examples
from txbroker.broker.sessions.scheduler import AT_ONCE, QUANTUM, STINT, TURN, Flow, Scheduler

STEP = 1000
"""Work of one step, where it does not matter."""


class Session(Flow):
    """Has steps to carry out, each of so much work and so many seconds; the house notes who did what."""

    def __init__(self, house, name):
        self.house, self.name = house, name
        self.steps = deque()
        self.left = 0

    def gets(self, count, work=STEP, seconds=0.0):
        self.steps.extend([(work, seconds)] * count)
        scheduler = self.house.scheduler
        if scheduler.busy:
            scheduler.add(self)
        else:
            scheduler.until = 0.0
            work = self.take_turn(AT_ONCE)
            scheduler.charge(self, work)
            scheduler.at_once += work
            if self.steps:
                scheduler.begun(self)
            if scheduler.at_once > AT_ONCE:
                scheduler.have_the_reactor_go_round()

    def take_turn(self, most):
        done = 0
        self.house.turns.append(self.name)
        while self.steps and done < most and (not done or self.house.scheduler.goes_on()):
            work, seconds = self.steps.popleft()
            self.house.clock.rightNow += seconds
            done += work
            self.house.steps.append((self.name, work))
        self.more = bool(self.steps)
        return done

    def leaves(self):
        self.left += 1


class Reactor:
    """Calls what is to be called later one round later, however soon that is."""

    def __init__(self):
        self.rightNow = 0.0
        self.calls = []

    def seconds(self):
        return self.rightNow

    def callLater(self, seconds, call):
        assert seconds == 0
        self.calls.append(call)

    def round(self):
        calls, self.calls = self.calls, []
        for call in calls:
            call()


class House:
    def __init__(self):
        self.clock = Reactor()
        self.scheduler = Scheduler(self.clock)
        self.steps = []
        self.turns = []

    def session(self, name):
        return Session(self, name)

    def round(self):
        self.clock.round()

    def done(self, name):
        return sum(work for who, work in self.steps if who == name)


@pytest.fixture
def house():
    return House()


def test_with_nobody_waiting_all_is_carried_out_at_once_and_the_reactor_is_not_asked(house):
    one = house.session("one")
    for _ in range(50):
        one.gets(1)
    assert house.done("one") == 50 * STEP
    assert not one.in_line
    assert house.clock.calls == []


def test_what_is_too_much_at_once_waits_in_line_and_is_carried_out(house):
    one = house.session("one")
    one.gets(1000)
    assert AT_ONCE <= house.done("one") < AT_ONCE + STEP
    assert one.in_line
    house.round()
    assert house.done("one") == 1000 * STEP
    assert (one.in_line, one.left) == (False, 1)
    assert house.clock.calls == []


def test_many_who_come_at_once_do_not_have_a_round_of_the_reactor_for_themselves_alone(house):
    many = [house.session(n) for n in range(40)]
    for one in many:
        one.gets(50)
    carried_out = [one for one in many if not one.in_line]
    assert len(carried_out) == AT_ONCE // (50 * STEP) + 1
    house.round()
    assert not any(one.in_line for one in many)
    many[0].gets(50)
    assert not many[0].in_line, "the reactor was round: it is at once again"


def test_who_was_idle_is_served_before_all_who_have_a_backlog(house):
    greedy = [house.session(n) for n in range(40)]
    for one in greedy:
        one.gets(10_000, seconds=0.0001)
    for _ in range(10):
        house.round()  # all have had a turn
    idle = house.session("idle")
    idle.gets(1)
    assert house.done("idle") == 0, "others wait: it gets in line"
    del house.turns[:]
    house.round()
    assert house.turns[0] == "idle"


def test_who_comes_again_and_again_with_little_does_not_keep_back_who_has_much(house):
    """RFC 8290, 4.2: a new one that is through goes behind the old ones, and is not new again before its turn there."""
    greedy, others = house.session("greedy"), [house.session(n) for n in range(5)]
    greedy.gets(100_000, seconds=0.0001)
    for _ in range(20):
        for one in others:
            one.gets(1, seconds=0.0001)
        del house.turns[:]
        house.round()
        assert "greedy" in house.turns


def test_who_comes_again_after_much_is_not_served_before_who_comes_with_little(house):
    """Its backlog is in its socket, which is not read while it is in line: with each read it was new again."""
    greedy = [house.session(n) for n in range(40)]
    for _ in range(100):
        for one in greedy:
            if not one.steps:
                one.gets(1, work=1_000_000, seconds=0.004)
        house.round()
    for _ in range(50):
        idle = house.session("idle")
        for one in greedy:
            if not one.steps:
                one.gets(1, work=1_000_000, seconds=0.004)
        idle.gets(1)
        del house.steps[:]
        house.round()
        assert house.steps[0][0] == "idle"


def test_who_came_with_little_is_let_go_at_once_for_it_is_not_read_while_it_is_in_line(house):
    greedy, little = [house.session(n) for n in range(40)], house.session("little")
    for one in greedy:
        one.gets(10_000, seconds=0.0001)
    for _ in range(20):
        house.round()  # all have had a turn
    for _ in range(20):
        little.gets(1)
        house.round()
        assert not little.in_line
    assert little.left == 20


def test_what_is_owed_is_paid_by_ones_share_of_what_is_done_meanwhile(house):
    one, other = house.session("one"), house.session("other")
    house.scheduler.busy = True
    one.gets(1, work=20 * QUANTUM)
    house.round()
    assert (one.in_line, one.deficit) == (False, -19 * QUANTUM)
    house.scheduler.charge(other, 10 * QUANTUM)
    house.scheduler.busy = True
    other.gets(1)
    one.gets(1)
    assert one.deficit == -19 * QUANTUM + 10 * QUANTUM // 2, "half of it would have been its own"
    house.scheduler.charge(other, 1000 * QUANTUM)
    house.round()
    assert not one.steps, "with nobody else in line it need not wait until it is out of debt"


@pytest.mark.slow
def test_idle_ones_together_do_not_keep_back_who_has_much_either(house):
    """They are served first for so much work, then it has a turn."""
    greedy, others = house.session("greedy"), [house.session(n) for n in range(2_500)]
    greedy.gets(100_000, seconds=0.00001)
    served = house.done("greedy")
    for _ in range(2_000):
        for one in others:
            if not one.in_line:
                one.gets(1, seconds=0.00001)
        house.round()
    assert house.done("greedy") - served > (len(house.steps) * STEP) // 200


def test_work_is_shared_alike_whatever_its_pieces(house):
    small, large = house.session("small"), house.session("large")
    small.gets(60_000, work=100)
    large.gets(200, work=30_000)
    for _ in range(5):
        house.round()
        if large.steps and small.steps:
            assert abs(house.done("small") - house.done("large")) <= AT_ONCE + 2 * QUANTUM + 30_000


def test_a_turn_ends_early_while_others_wait_and_they_have_theirs(house):
    slow, other = house.session("slow"), house.session("other")
    slow.gets(1000, seconds=TURN / 2)
    other.gets(20, seconds=TURN / 2)
    del house.steps[:]
    house.round()
    assert [who for who, _ in house.steps] == ["other", "other", "slow", "slow"] * 2


def test_the_reactor_has_its_turn_however_much_there_is(house):
    one, other = house.session("one"), house.session("other")
    one.gets(100_000, seconds=TURN / 4)
    other.gets(100_000, seconds=TURN / 4)
    rests = []
    house.scheduler.on_rest = lambda: rests.append(house.clock.seconds())
    for _ in range(10):
        before = house.clock.seconds()
        house.round()
        assert STINT <= house.clock.seconds() - before <= STINT + TURN
        assert rests.pop() == house.clock.seconds()
        assert not rests


def test_who_gets_in_line_while_messages_are_published_has_its_turn_in_the_same_turn_of_the_reactor(house):
    one, woken = house.session("one"), house.session("woken")
    house.scheduler.hold()
    woken.steps.append((STEP, 0.0))
    house.scheduler.add(woken)
    assert not house.steps
    house.scheduler.release()
    assert house.done("woken") == STEP
    assert house.clock.calls == []
    one.gets(1000)  # what was due before stays so: two stints, and the reactor has its turn between
    before = house.done("one")
    house.scheduler.hold()
    house.scheduler.release()
    assert house.done("one") == before
    house.round()
    assert house.done("one") == 1000 * STEP
    assert house.clock.calls == []


def test_who_has_ended_is_let_go_of_at_its_turn(house):
    one = house.session("one")
    one.gets(1000)
    one.steps.clear()
    house.round()
    assert house.done("one") < AT_ONCE + STEP
    assert (one.in_line, house.scheduler.waiting) == (False, 0)


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.tuples(
            st.integers(0, 5), st.integers(1, 40), st.sampled_from([1, 200, 5000, QUANTUM, 3 * QUANTUM])
        ),
        max_size=30,
    ),
    st.sets(st.integers(0, 29)),
)
def test_whatever_comes_is_carried_out_once_in_order_and_nobody_gets_more_than_its_share(arrivals, rounds):
    house = House()
    sessions = [house.session(n) for n in range(6)]
    expected = {n: [] for n in range(6)}
    for number, (who, count, work) in enumerate(arrivals):
        expected[who] += [work] * count
        sessions[who].gets(count, work, seconds=0.00003)
        if number in rounds:
            house.round()
    while house.clock.calls:
        house.round()
    for n, session in enumerate(sessions):
        assert [work for who, work in house.steps if who == n] == expected[n]
        assert not session.in_line
