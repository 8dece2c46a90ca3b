"""Test the transaction table: staged frames, listings, heuristic outcomes, and what coordinators said to them.

Seen to fail: with `_end` leaving `_partitions` alone a topic can never be deleted; with `heuristic` taken from the
cause alone a client's own commit counts as heuristic.
"""

import pytest

from journal.engine.settings import JournalSettings
from journal.errors import TransactionRolledBack
from journal.parties import Actor, Owner
from journal.records.group_entries import PartitionOffset
from journal.transaction_states import Cause, State
from journal.transactions.limits import TransactionLimits
from tests.support.builders import OTHER_SESSION, SESSION, Place, frames, number, totals, xid

ME = Owner("anonymous", "me", "host:1")
ANN = Actor("ann", "ops")

ONE = frames(b"a", b"b")
SENT = totals(ONE)


@pytest.fixture
def place():
    return Place()


def prepare(place, which, name="x"):
    place.transactions.add(which, 1, ONE, 2, owner=ME)
    place.transactions.prepare(which, xid(name), SENT)


def test_a_partition_is_held_while_any_undecided_transaction_has_messages_for_it(place):
    store = place.transactions
    store.add(number(1), 1, ONE, 2)
    store.add(number(1), 1, ONE, 2)
    store.add(number(2), 1, ONE, 2)
    assert store.holds_partition(1) == number(1)
    assert store.holds_partition(2) is None
    store.rollback(number(1), Cause.CLIENT)
    assert store.holds_partition(1) == number(2)
    store.commit(number(2), Cause.CLIENT, SENT)
    assert store.holds_partition(1) is None


def test_a_snapshot_is_of_its_moment_however_late_its_rows_are_drawn(place):
    prepare(place, number(1))
    place.transactions.add(number(2), 1, ONE, 2)
    rows = place.transactions.table.snapshot()
    place.transactions.add(number(2), 1, ONE, 2)
    place.transactions.commit(number(1), Cause.CLIENT)
    place.transactions.add(number(3), 1, ONE, 2)
    place.engine.sync()
    count, first, second, _, *outcomes = rows
    assert (count, outcomes) == (2, [])
    assert (first.number, first.state, first.totals) == (number(1), State.PREPARED, SENT)
    assert (second.number, second.state, second.totals) == (number(2), State.ACTIVE, SENT)
    assert (len(first.entries), len(second.entries)) == (1, 1)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_all_that_a_prepared_transaction_holds_is_held_after_a_restart(place, checkpoint):
    prepare(place, number(1))
    place.transactions.add_offsets(number(2), "g", [PartitionOffset(2, 7, 3, "note")])
    place.transactions.prepare(number(2), xid("y"), totals(offsets=1))
    place.restart(checkpoint)
    store = place.transactions
    first, second = store.live[number(1)], store.live[number(2)]
    assert (first.owner, first.xid, first.state, first.totals) == (ME, xid("x"), State.PREPARED, SENT)
    assert second.offsets == [("g", PartitionOffset(2, 7, 3, "note"))]
    assert store.holds_partition(1) == number(1)
    assert place.groups.holder("g", 2) == second.number
    assert len(store.prepared) == 2
    store.commit(store.find(xid("x")), Cause.CLIENT)
    place.engine.sync()
    assert place.values() == [b"a", b"b"]


def test_a_decision_about_many_partitions_places_each_after_what_is_there(place):
    store = place.transactions
    place.engine.append(place.engine.catalog.stores[1], ONE, 2)
    for partition in (1, 2, 1):
        store.add(number(1), partition, ONE, 2)
    outcome = store.commit(number(1), Cause.CLIENT, totals(ONE, ONE, ONE))
    assert [(p.partition, p.base_offset, p.count) for p in outcome.placements] == [(1, 2, 4), (2, 0, 2)]
    assert store.commit(number(1), Cause.CLIENT) is outcome
    assert place.values() == []
    place.engine.sync()
    assert (place.values(1), place.values(2)) == ([b"a", b"b"] * 3, [b"a", b"b"])


# -- heuristic outcomes --------------------------------------------------------------------------------


@pytest.mark.parametrize("cause", Cause)
@pytest.mark.parametrize("prepared", [False, True])
def test_only_an_end_forced_on_what_was_prepared_is_heuristic(place, cause, prepared):
    store = place.transactions
    store.add(number(1), 1, ONE, 2)
    if prepared:
        store.prepare(number(1), xid("x"), SENT)
    store.rollback(number(1), cause, ANN, "coordinator gone")
    expected = prepared and cause in (Cause.OPERATOR, Cause.ORPHAN_POLICY)
    assert store.outcome(number(1)).heuristic is expected


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_heuristic_outcome_survives_with_who_and_why_until_it_is_forgotten(place, checkpoint):
    prepare(place, number(1))
    place.transactions.rollback(number(1), Cause.OPERATOR, ANN, "coordinator gone")
    place.transactions.add(number(9), 1, ONE, 2, seen=8)
    place.restart(checkpoint)
    store = place.transactions
    outcome = store.outcome(store.find(xid("x")))
    assert (outcome.state, outcome.by, outcome.why) == (State.ROLLED_BACK, ANN, "coordinator gone")
    assert (outcome.heuristic, outcome.told, outcome.owner) == (True, None, ME)
    assert (outcome.messages, outcome.bytes) == (2, len(ONE))
    with pytest.raises(
        TransactionRolledBack, match=r"rolled back by ann \(ops\) at \S+Z \(operator\): coordinator gone"
    ):
        store.commit(number(1), Cause.CLIENT)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_that_the_coordinator_was_told_is_journaled_once_and_remembered(place, checkpoint):
    prepare(place, number(1))
    store = place.transactions
    store.commit(number(1), Cause.OPERATOR, by=ANN, why="w")
    place.journaled()
    assert store.tell(number(1), State.COMMITTED, Actor("me@host:1"))
    assert not store.tell(number(1), State.COMMITTED, Actor("me@host:2"))
    assert [type(each).__name__ for each in place.journaled()] == ["CoordinatorTold"]
    place.restart(checkpoint)
    outcome = place.transactions.outcome(number(1))
    assert (outcome.told.decided, outcome.told.by, outcome.contradicted) == (
        State.COMMITTED,
        Actor("me@host:1"),
        False,
    )


@pytest.mark.parametrize("checkpoint", [False, True])
def test_that_a_coordinator_contradicted_is_never_taken_back_by_what_it_says_before_or_after(
    place, checkpoint
):
    prepare(place, number(1))
    store = place.transactions
    store.commit(number(1), Cause.OPERATOR, by=ANN, why="w")
    said = [store.tell(number(1), state) for state in (State.COMMITTED, State.ROLLED_BACK, State.COMMITTED)]
    assert said == [True, True, False]
    assert store.outcomes.contradicted == {number(1)}
    told = place.journaled()[-2]
    place.engine.accept(told)  # as a later version might journal it
    place.restart(checkpoint)
    outcomes = place.transactions.outcomes
    assert (outcomes.contradicted, list(outcomes.heuristic)) == ({number(1)}, [number(1)])
    assert outcomes.by_number[number(1)].told.decided is State.ROLLED_BACK
    place.transactions.forget(number(1), ANN, "mended")
    assert (outcomes.contradicted, outcomes.heuristic) == (set(), {})
    assert (place.journaled()[-1].by, place.journaled()) == (ANN, [])


def test_people_are_told_the_times_of_the_wall_clock_of_the_start_in_which_it_happened(place):
    place.clock.set_wall(1_000_000_000)
    place.restart()
    prepare(place, number(1))
    began = place.engine.now() + place.engine.wall_offset
    place.engine.sync()
    place.clock.set_wall(9_000_000_000)
    place.restart(checkpoint=True)
    live = place.transactions.live[number(1)]
    assert live.began + live.wall_offset == began
    place.transactions.rollback(number(1), Cause.OPERATOR, ANN, "w")
    place.transactions.tell(number(1), State.COMMITTED)
    ended = place.engine.now() + place.engine.wall_offset
    outcome = place.transactions.outcome(number(1))
    assert (outcome.began, outcome.prepared, outcome.wall, outcome.told.wall) == (began, began, ended, ended)
    assert ended - began > 7_000_000_000


def test_being_told_of_a_forgotten_outcome_changes_nothing(place):
    prepare(place, number(1))
    store = place.transactions
    store.commit(number(1), Cause.OPERATOR, by=ANN, why="w")
    store.tell(number(1), State.COMMITTED)
    told = place.journaled()[-1]
    store.forget(number(1))
    place.engine.accept(told)
    assert not store.outcomes.by_number


# -- sessions and time ------------------------------------------------------------------------------


def test_a_lost_connection_ends_what_its_session_had_active_and_nothing_else(place):
    store = place.transactions
    prepare(place, number(1))
    store.add(number(2), 1, ONE, 2)
    store.doom(number(3))
    store.add(number(1, OTHER_SESSION), 1, ONE, 2)
    store.disconnect(SESSION)
    assert set(store.live) == {number(1), number(1, OTHER_SESSION)}
    assert store.outcome(number(2)).cause is store.outcome(number(3)).cause is Cause.DISCONNECT


def test_time_is_up_at_the_limit_and_not_a_microsecond_before(place):
    store = place.transactions
    store.add(number(1), 1, ONE, 2)
    prepare(place, number(2))
    began = place.engine.now()
    place.clock.advance(60)
    store.add(number(3), 1, ONE, 2)
    store.add(number(1), 1, ONE, 2)
    assert store.expire(began + 99, 100) == 0
    assert store.expire(began + 100, 100) == 1
    assert set(store.live) == {number(2), number(3)}
    assert store.outcome(number(1)).cause is Cause.TIMEOUT


def test_a_wall_clock_that_steps_ends_nothing(place):
    store = place.transactions
    store.add(number(1), 1, ONE, 2)
    for wall in (0, 1 << 60):
        place.clock.set_wall(wall)
        assert store.expire(place.engine.now(), 1_000_000) == 0


def test_the_age_of_what_is_prepared_does_not_grow_while_the_engine_is_stopped(place):
    prepare(place, number(1))
    place.clock.advance(5_000_000)
    place.engine.append(place.engine.catalog.stores[1], ONE, 2)
    stopped = place.engine.now()
    place.engine.sync()
    place.clock.advance(3_600_000_000)
    place.restart()
    assert place.engine.now() == stopped


# -- a look inside ----------------------------------------------------------------------------------


def test_a_preview_gives_whole_adds_up_to_a_size_and_at_least_one(place):
    store = place.transactions
    for partition in (1, 2, 1):
        store.add(number(1), partition, ONE, 2)
    assert store.table.preview(number(1), 0, place.engine.forced_lsn) == [(1, ONE)]
    assert store.table.preview(number(1), 2 * len(ONE), place.engine.forced_lsn) == [(1, ONE), (2, ONE)]
    assert [
        partition for partition, _ in store.table.preview(number(1), 1 << 20, place.engine.forced_lsn)
    ] == [1, 2, 1]


# -- what is remembered -----------------------------------------------------------------------------


def test_outcomes_are_trimmed_to_the_limit_by_a_record_and_so_the_same_after_a_restart():
    place = Place(JournalSettings(file_bytes=1 << 20, limits=TransactionLimits(outcomes=10)))
    store = place.transactions
    for serial in range(1, 31):
        store.commit(number(serial), Cause.CLIENT, totals())
    place.journaled()
    store.trim(SESSION)
    store.trim(SESSION)
    assert [type(each).__name__ for each in place.journaled()] == ["TransactionsForgotten"]
    remembered = list(store.outcomes.by_number)
    assert remembered == [number(serial) for serial in range(22, 31)]
    place.restart()
    assert list(place.transactions.outcomes.by_number) == remembered


@pytest.mark.parametrize("checkpoint", [False, True])
def test_what_a_client_has_seen_is_forgotten_with_its_next_request(place, checkpoint):
    store = place.transactions
    for serial in (1, 2, 3):
        store.commit(number(serial), Cause.CLIENT, totals())
    store.add(number(4), 1, ONE, 2, seen=2)
    assert list(store.outcomes.by_number) == [number(3)]
    place.restart(checkpoint)
    assert list(place.transactions.outcomes.by_number) == [number(3)]
    assert place.transactions.outcomes.is_forgotten(number(2))
