"""A slow disk stops the producers, unfinished messages stay within their budget, and both let go again."""

from types import SimpleNamespace

from journal.constants import KIB
from txbroker.intake import FREE, Intake, Pause


class Connection:
    def __init__(self):
        self.reasons = Pause(0)

    def pause(self, reason):
        self.reasons |= reason

    def resume(self, reason):
        self.reasons &= ~reason


def made(pending=0, assembly=1000 * KIB, count=3):
    engine = SimpleNamespace(pending_bytes=pending)
    return engine, Intake(engine, 1000, assembly), [Connection() for _ in range(count)]


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


def test_a_part_that_one_read_can_give_is_not_counted():
    _, intake, [one, *_] = made()
    intake.holds(one, FREE)
    assert intake.assembled == 0


def test_over_the_budget_unfinished_messages_wait_but_one_always_goes_on():
    _, intake, [one, two, three] = made()
    intake.holds(one, 600 * KIB)
    intake.holds(two, 300 * KIB)
    assert not one.reasons | two.reasons
    intake.holds(three, 200 * KIB)
    assert three.reasons == Pause.ASSEMBLY
    intake.holds(two, 310 * KIB)
    assert two.reasons == Pause.ASSEMBLY
    intake.holds(one, 5000 * KIB)
    assert not one.reasons, "the last one that is read: somebody must be able to finish"
    intake.holds(one, 0)
    assert not two.reasons | three.reasons
    assert intake.assembled == 510 * KIB


def test_one_that_would_be_over_alone_is_read_all_the_same():
    _, intake, [one, two, _] = made(assembly=100 * KIB)
    intake.holds(one, 200 * KIB)
    intake.holds(two, 200 * KIB)
    assert not one.reasons
    assert two.reasons
    intake.gone(one)
    assert not two.reasons, "it goes on alone, though it is over the budget"
    assert intake.assembled == 200 * KIB


def test_those_that_wait_are_let_on_one_at_a_time_while_over_the_budget():
    _, intake, [one, two, three] = made(assembly=100 * KIB)
    for connection in (one, two, three):
        intake.holds(connection, 200 * KIB)
    intake.holds(one, 0)
    assert (bool(two.reasons), bool(three.reasons)) == (False, True)


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
