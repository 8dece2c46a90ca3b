"""A slow disk stops the producers, unfinished messages stay within their budget, and both let go again."""

from types import SimpleNamespace

from journal.constants import KIB
from txbroker.intake import STALLED, Intake, Pause


class Connection:
    def __init__(self, intake):
        self.reasons = Pause(0)
        self.intake = intake
        self.given_up = None

    def pause(self, reason):
        self.reasons |= reason

    def resume(self, reason):
        self.reasons &= ~reason

    def give_up(self, held):
        self.given_up = held
        self.intake.gone(self)


def made(pending=0, assembly=1000 * KIB, count=3):
    engine = SimpleNamespace(pending_bytes=pending)
    intake = Intake(engine, 1000, assembly)
    return engine, intake, [Connection(intake) for _ in range(count)]


def test_producers_are_not_read_while_the_disk_does_not_keep_up():
    engine, intake, [one, two, consumer] = made()
    intake.produced(one)
    assert not one.reasons
    engine.pending_bytes = 1001
    intake.produced(one)
    intake.produced(two)
    assert one.reasons == two.reasons == Pause.PENDING
    assert not consumer.reasons
    engine.pending_bytes = 501
    intake.published()
    assert one.reasons, "not before half of it is forced: reading must not flutter"
    engine.pending_bytes = 500
    intake.published()
    assert not one.reasons
    assert not two.reasons


def test_what_has_come_of_a_message_counts_from_its_first_byte():
    _, intake, [one, two, _] = made()
    intake.holds(one, 1)
    intake.holds(two, 10)
    assert intake.assembled == 11


def test_over_the_budget_those_wait_that_hold_most_but_one_always_goes_on():
    _, intake, [one, two, three] = made()
    intake.holds(one, 600 * KIB)
    intake.holds(two, 300 * KIB)
    assert not one.reasons | two.reasons
    intake.holds(three, 200 * KIB)
    assert one.reasons == Pause.ASSEMBLY
    assert not two.reasons | three.reasons, "not those that hold less, whoever came last"
    intake.holds(two, 310 * KIB)
    assert two.reasons == Pause.ASSEMBLY
    intake.holds(three, 5000 * KIB)
    assert not three.reasons, "the last one that is read: somebody must be able to finish"
    intake.holds(three, 0)
    assert not one.reasons | two.reasons
    assert intake.assembled == 910 * KIB


def test_who_waits_is_not_paused_again_and_what_still_comes_of_it_counts():
    _, intake, [one, two, three] = made(assembly=100 * KIB)
    intake.holds(one, 200 * KIB)
    intake.holds(two, 50 * KIB)
    assert (bool(one.reasons), bool(two.reasons)) == (True, False)
    intake.holds(one, 300 * KIB)
    assert not two.reasons
    assert intake.assembled == 350 * KIB
    intake.holds(three, 10 * KIB)
    assert (bool(two.reasons), bool(three.reasons)) == (True, False)


def test_one_that_would_be_over_alone_is_read_all_the_same():
    _, intake, [one, two, _] = made(assembly=100 * KIB)
    intake.holds(one, 200 * KIB)
    intake.holds(two, 210 * KIB)
    assert not one.reasons
    assert two.reasons
    intake.gone(one)
    assert not two.reasons, "it goes on alone, though it is over the budget"
    assert intake.assembled == 210 * KIB


def test_those_that_wait_are_let_on_one_at_a_time_while_over_the_budget_least_first():
    _, intake, [one, two, three] = made(assembly=100 * KIB)
    for connection, size in ((one, 200), (three, 220), (two, 210)):
        intake.holds(connection, size * KIB)
    intake.holds(one, 0)
    assert (bool(two.reasons), bool(three.reasons)) == (False, True)


def test_who_is_read_and_does_not_go_on_is_given_up_while_memory_is_short():
    _, intake, [one, two, three] = made(assembly=100 * KIB)
    for connection in (one, two, three):
        intake.holds(connection, 40 * KIB)
    assert one.reasons
    for _ in range(STALLED):
        intake.look()
        intake.holds(three, intake._parts[three] + 1)
    assert not two.given_up
    intake.look()
    assert two.given_up == 40 * KIB
    assert three.given_up is None, "it has gone on"
    assert not one.reasons, "there is room again"


def test_while_there_is_memory_a_message_may_take_its_time():
    _, intake, [one, *_] = made()
    intake.holds(one, 600 * KIB)
    for _ in range(10 * STALLED):
        intake.look()
    assert one.given_up is None


def test_each_of_many_that_never_go_on_is_given_up_though_it_waited_and_who_waits_behind_them_gets_on():
    _, intake, connections = made(assembly=100 * KIB, count=8)
    for connection in connections:
        intake.holds(connection, 90 * KIB)
    honest = max((one for one in connections if one.reasons), key=lambda one: one is connections[-2])
    for _ in range(STALLED * 10):
        intake.look()
        if not honest.reasons and honest in intake._parts:
            intake.holds(honest, 0)
        if intake.assembled <= 100 * KIB:
            break
    assert honest.given_up is None
    assert intake.assembled <= 100 * KIB
    assert sum(one.given_up is not None for one in connections) >= 6


def test_it_is_told_when_memory_gets_short_and_when_it_is_not_any_more():
    _, intake, [one, two, _] = made(assembly=100)
    told = []
    intake.on_short = told.append
    for connection, part in ((one, 50), (two, 1), (two, 60), (two, 0), (one, 26), (one, 25), (one, 51)):
        intake.holds(connection, part)
    assert told == [True, False, True]


def test_connections_that_are_gone_are_forgotten():
    engine, intake, [one, two, three] = made(pending=1001)
    intake.produced(one)
    for connection in (one, two, three):
        intake.holds(connection, 600 * KIB)
    for connection in (three, two, one):
        intake.gone(connection)
        intake.gone(connection)
    assert intake.assembled == 0
    engine.pending_bytes = 0
    intake.published()
    assert one.reasons & Pause.PENDING, "nobody resumes a transport that is closed"
