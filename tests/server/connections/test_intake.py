"""Test that a peer that holds more than is free is not read; unfinished messages are given up after a few checks."""

from types import SimpleNamespace

import pytest

from journal.constants import KIB, MIB
from txbroker.server.connections.read_limits import PACE, SPARE, STALLED, Intake, Pause

MESSAGE = 16 * MIB


class Connection:
    """Sends one message of a size, as fast as it is read, or never goes on, or drips a byte a second."""

    def __init__(self, intake, size=MESSAGE):
        self.reasons = Pause(0)
        self.intake = intake
        self.size = size
        self.held = self.part = 0
        self.session = self
        self.given_up = None

    def pause(self, reason):
        self.reasons |= reason

    def resume(self, reason):
        self.reasons &= ~reason

    def give_up(self, held):
        self.given_up = held
        self.intake.gone(self)
        return True

    def sends(self, most):
        """Read up to so many bytes of it, 4 KiB at a time."""
        end = min(self.part + most, self.size)
        while self.part < end and not self.reasons and self.given_up is None:
            self.part = min(self.part + 4 * KIB, end)
            left = self.size - self.part
            self.intake.holds(self, self.part if left else 0, left)


def made(held=0, assembly=1000 * KIB, count=3):
    accounts = SimpleNamespace(held=held)
    intake = Intake(accounts, 1000, assembly)
    return accounts, intake, [Connection(intake) for _ in range(count)]


class TestWhatWaitsForAForce:
    def test_who_holds_more_than_is_free_is_not_read_until_it_holds_half_of_that(self):
        accounts, intake, [greedy, other, consumer] = made()
        accounts.held, greedy.held, other.held = 600, 550, 50
        for connection in (greedy, other, consumer):
            intake.produced(connection)
        assert greedy.reasons == Pause.PENDING
        assert not other.reasons | consumer.reasons
        accounts.held, greedy.held = 200, 401
        intake.published()
        assert greedy.reasons, "reading must not flutter"
        greedy.held = 400
        intake.published()
        assert not greedy.reasons

    def test_whoever_holds_little_is_read_however_much_others_hold(self):
        accounts, intake, [other, greedy, _] = made(held=5000)
        other.held, greedy.held = 1, 2
        intake.connections = range(250)  # a fraction of the budget for all of them together
        intake.produced(other)
        intake.produced(greedy)
        assert (bool(other.reasons), bool(greedy.reasons)) == (False, True)
        accounts.held = greedy.held = 0
        intake.published()
        assert not greedy.reasons

    @pytest.mark.parametrize("peers", [1, 2, 9, 99])
    def test_those_who_take_all_they_get_have_equal_shares_and_leave_as_much_free(self, peers):
        accounts, intake, greedy = made(count=peers)
        for _ in range(1000):
            for one in greedy:
                if not one.reasons:
                    one.held += 1
                    accounts.held += 1
                    if one.held + accounts.held > 1000:
                        intake.produced(one)
        assert {one.held for one in greedy} <= {1000 // (peers + 1), 1000 // (peers + 1) + 1}


def test_what_has_come_of_a_message_counts_from_its_first_byte():
    _, intake, [one, two, _] = made()
    intake.holds(one, 1, 3)
    intake.holds(two, 10, 90)
    assert intake.assembled == 11


def test_over_its_share_a_message_waits_and_the_one_that_lacks_least_goes_on():
    _, intake, [one, two, three] = made()
    intake.holds(one, 450 * KIB, MIB)
    intake.holds(two, 300 * KIB, 3 * MIB)
    assert intake._first is two, "beyond what is free, there was nobody else"
    intake.holds(one, 460 * KIB, MIB)
    assert (one.reasons, two.reasons) == (0, Pause.ASSEMBLY)
    intake.holds(three, 100 * KIB, 2 * MIB)
    assert not three.reasons, "who holds no more than is free is read"
    intake.holds(three, 300 * KIB, 2 * MIB)
    assert three.reasons == Pause.ASSEMBLY
    intake.holds(one, 0)
    assert not two.reasons | three.reasons
    assert intake.assembled == 600 * KIB


def test_what_is_accepted_beyond_its_budget_leaves_less_for_parts_of_messages():
    accounts, intake, _ = made(held=1000 + 300 * KIB)
    assert intake.room == 700 * KIB
    accounts.held = 0
    assert intake.room == 1000 * KIB


def test_one_that_would_be_over_alone_is_read_all_the_same():
    _, intake, [one, *_] = made(assembly=100 * KIB)
    one.sends(MESSAGE)
    assert one.part == MESSAGE
    assert intake.assembled == 0


def test_what_waits_for_its_turn_counts_and_needs_not_grow():
    _, intake, [one, two, three] = made(assembly=100 * KIB)
    intake.holds(one, 90 * KIB)
    intake.holds(two, 20 * KIB, 10 * KIB)
    intake.holds(three, 20 * KIB, 20 * KIB)
    assert three.reasons
    for _ in range(3 * STALLED):
        intake.look()
        if two.given_up is None:
            intake.holds(two, intake._parts[two].bytes + PACE, 10 * KIB)
    assert (one.given_up, one.reasons) == (None, 0)


def test_while_nobody_waits_for_memory_a_message_may_take_its_time():
    _, intake, [one, *_] = made()
    intake.holds(one, 600 * KIB, MIB)
    for _ in range(10 * STALLED):
        intake.look()
    assert one.given_up is None


def test_one_that_cannot_be_blamed_is_not_given_up():
    _, intake, [one, two, three] = made(assembly=100 * KIB)
    one.give_up = lambda held: False
    for connection in (one, two, three):
        intake.holds(connection, 40 * KIB, MIB)
    for _ in range(2 * STALLED):
        intake.look()
        for connection in (two, three):
            connection.part = intake._parts[connection].bytes if connection in intake._parts else 0
            connection.sends(PACE)
    assert one in intake._parts


@pytest.mark.parametrize("drip", [0, 1, PACE])
@pytest.mark.parametrize(
    ("peers", "each", "lacks"),
    [
        (5, 12_500 * KIB, None),
        (5, 13_500 * KIB, None),
        (40, 15_900 * KIB, None),
        (2500, 26 * KIB, None),
        (605, 110 * KIB, None),
        (605, 110 * KIB, 1),
    ],
)
def test_halves_that_do_not_go_on_do_not_keep_a_message_of_2_mb_waiting(peers, each, lacks, drip):
    _, intake, hostile = made(assembly=64 * MIB, count=peers)
    for one in hostile:
        if lacks:
            one.size = each + lacks * KIB
    for sent in range(0, each, 110 * KIB):
        for one in hostile:
            one.sends(min(110 * KIB, each - sent))
    for _ in range(STALLED):  # those that wait are tried meanwhile
        intake.look()
        for one in hostile:
            one.sends(drip)
    honest = Connection(intake, 2_000_000)
    looks = most = 0
    while honest.part < honest.size and looks < 60:
        honest.sends(2 * MIB)
        for one in hostile:
            one.sends(drip)
        most = max(most, intake.assembled)
        intake.look()
        looks += 1
    assert honest.part == honest.size
    assert honest.given_up is None
    assert looks == 1
    assert most <= 64 * MIB * (1 + 1 / SPARE) + honest.size


@pytest.mark.parametrize("drip", [0, 1])
def test_as_many_that_lack_as_little_as_it_keep_it_for_a_few_looks_at_most(drip):
    _, intake, hostile = made(assembly=64 * MIB, count=40)
    for one in hostile:
        one.size = 3_500_000
        one.sends(1_600_000)
    honest = Connection(intake, 2_000_000)
    looks = most = 0
    while honest.part < honest.size and looks < 60:
        honest.sends(2 * MIB)
        for one in hostile:
            one.sends(drip)
        most = max(most, intake.assembled)
        intake.look()
        looks += 1
    assert honest.part == honest.size
    assert looks <= 2 * STALLED + 2
    assert most <= 64 * MIB * (1 + 1 / SPARE)


@pytest.mark.parametrize(("peers", "size"), [(40, 15 * MIB), (1000, 250_000)])
def test_honest_peers_that_all_begin_at_once_get_their_messages_through_within_the_budget(peers, size):
    _, intake, honest = made(assembly=64 * MIB, count=peers)
    for one in honest:
        one.size = size
    rounds = most = 0
    while any(one.part < one.size for one in honest):
        for one in honest:
            one.sends(64 * KIB)
        most = max(most, intake.assembled)
        rounds += 1
        if rounds % 100 == 0:
            intake.look()
        assert rounds < 20_000
    assert not any(one.given_up for one in honest)
    assert most <= 64 * MIB * (1 + 1 / SPARE) + 16 * MIB
    assert intake.assembled == 0
    assert not intake._parts
    assert not intake._waiting
    assert intake._first is None
    assert not intake._quick


def test_it_is_told_when_memory_gets_short_and_when_it_is_not_any_more():
    _, intake, [one, two, _] = made(assembly=100)
    told = []
    intake.on_short = told.append
    for connection, part in ((one, 50), (two, 1), (two, 60), (two, 0), (one, 26), (one, 25), (one, 51)):
        intake.holds(connection, part)
    assert told == [True, False, True]


def test_connections_that_are_gone_are_forgotten():
    accounts, intake, [one, two, three] = made(held=1001)
    one.held = 1001
    intake.produced(one)
    for connection in (one, two, three):
        intake.holds(connection, 600 * KIB, MIB)
    for connection in (three, two, one):
        intake.gone(connection)
        intake.gone(connection)
    assert intake.assembled == 0
    accounts.held = 0
    intake.published()
    assert one.reasons & Pause.PENDING, "nobody resumes a transport that is closed"
