"""Test that starts have random nonces: kept over restarts, bounded, sound in checkpoints, and drawn once."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from journal.check import Level, verify, walk_journal
from journal.constants import STARTS_KEPT
from journal.formats.checkpoint import read_checkpoint, write_checkpoint
from journal.log.start_history import Starts
from journal.records.record import NONCE_BYTES, Restored, Started
from journal.recovery.start import recover
from journal.repair import diagnose
from journal.testing import PowerCut
from tests.checkpoints.test_checkpoint_choice import reword
from tests.recovery.recovery_scene import one_file, position_of_send
from tests.repair.repair_checks import damages, is_repaired
from tests.repair.repair_scene import held
from tests.support.builders import reread
from tests.support.engine_room import SMALL, Room, checkpoint_path, damage, journal_path


def known(engine) -> list[tuple[int, bytes]]:
    return [(row.number, row.nonce) for row in engine.starts.snapshot()]


def started(number: int) -> Started:
    return Started(number, 0, 0, number.to_bytes(NONCE_BYTES))


def checkpoint(room: Room) -> None:
    room.topic(f"t{room.engine.next_lsn}", 1)
    room.checkpoint()


def test_the_record_of_a_start_carries_sixteen_random_bytes():
    rooms = Room(), Room()
    nonces = []
    for room in rooms:
        first = next(walk_journal(room.inner)).record
        assert (type(first), len(first.nonce)) == (Started, NONCE_BYTES)
        assert first.nonce == room.engine.starts.nonce
        nonces.append(first.nonce)
    assert nonces[0] != nonces[1]


def test_the_nonces_of_earlier_starts_outlive_restarts_with_and_without_a_checkpoint():
    room = Room()
    wanted = known(room.engine)
    for end in (Room.stopped, Room.killed, Room.crashed) * 2:
        room = end(room)
        wanted.append((room.engine.start_number, room.engine.starts.nonce))
        assert known(room.engine) == wanted
        if len(wanted) > 3:  # from now on older files go
            for _ in range(3):
                checkpoint(room)
    assert [number for number, _ in wanted] == [1, 2, 3, 4, 5, 6, 7]
    assert all(room.engine.starts.knows(*each) for each in wanted)


def test_a_start_draws_its_own_nonce_and_a_replay_draws_none():
    room = Room()
    for _ in range(3):
        room = room.killed()
    drawn = []

    def random(count):
        drawn.append(count)
        return bytes([len(drawn)]) * count

    engine = recover(room.inner.kill_clone(), room.clock, SMALL, random=random)
    assert sorted(drawn) == [4, NONCE_BYTES], "the salt of its journal files, and its nonce"
    assert known(engine)[:-1] == known(room.engine)
    assert engine.starts.nonce in (bytes([1]) * NONCE_BYTES, bytes([2]) * NONCE_BYTES)


def test_starts_that_follow_a_copy_have_the_numbers_of_those_that_follow_the_original_and_other_nonces():
    room = Room()
    copy = room.inner.kill_clone()
    ours = room.stopped().stopped()
    theirs = Room(copy).stopped()
    assert [number for number, _ in known(ours.engine)] == [number for number, _ in known(theirs.engine)]
    assert known(ours.engine)[0] == known(theirs.engine)[0], (
        "the start in which the copy was taken is of both"
    )
    for one, other in ((ours, theirs), (theirs, ours)):
        for number, nonce in known(one.engine)[1:]:
            assert not other.engine.starts.knows(number, nonce)


def test_a_nonce_is_known_with_its_number_alone():
    starts = Starts()
    starts.apply(1, started(1), b"")
    starts.apply(2, started(2), b"")
    assert starts.knows(2, started(2).nonce)
    assert not starts.knows(1, started(2).nonce)
    assert not starts.knows(3, b"")


def test_no_more_starts_are_kept_than_the_bound_and_those_beyond_it_are_unknown():
    starts = Starts()
    last = STARTS_KEPT + 5
    for number in range(1, last + 1):
        starts.apply(number, started(number), b"")
    assert (starts.oldest, starts.nonce) == (6, started(last).nonce)
    rows = list(starts.snapshot())
    assert (len(rows), rows[0].number) == (STARTS_KEPT, 6)
    assert starts.knows(6, started(6).nonce)
    assert not starts.knows(5, started(5).nonce)
    again = Starts()
    again.restore(reread(Starts, rows))
    assert list(again.snapshot()) == rows


def test_wherever_the_power_goes_in_a_start_no_two_nonces_have_one_number_and_none_is_lost():
    room = Room().stopped()
    before, cuts = known(room.engine), 0
    room.engine.close()
    for at in range(1, 100):
        inner = room.inner.crash_clone(0)
        try:
            Room(inner, cut_at=at)
        except PowerCut:
            cuts += 1
        else:
            break
        for seed in range(3):
            after = Room(inner.crash_clone(seed))
            starts = known(after.engine)
            assert starts[:2] == before
            assert len(starts) in (3, 4), "that of the cut start is there or not, for nobody was told of it"
            numbers = [number for number, _ in starts]
            assert numbers == sorted(set(numbers))
            assert known(after.killed().engine)[:-1] == starts
    assert cuts > 5


def test_after_a_repair_the_starts_whose_records_are_kept_are_known_and_so_is_the_repairs_own():
    room = one_file().stopped()
    room.send(b"3")
    room = room.stopped()
    for value in (b"4", b"5", b"6"):
        room.send(value)
    before, inner = held(room), room.inner.kill_clone()
    damage(inner, journal_path(room.journals()[-1]), position_of_send(0))
    assert damages(inner)
    _, _, after = is_repaired((inner, before), inner)
    starts = known(after.engine)
    assert starts[:3] == known(room.engine)
    assert len(starts) == 5, "that of the repair, and this one"
    assert starts[3][0] > 1024


ROWS = [
    pytest.param(0, [1, b"short"], id="a nonce is short"),
    pytest.param(0, [1, b"n" * 17], id="a nonce is long"),
    pytest.param(0, [1, "n" * 16], id="a nonce is a text"),
    pytest.param(0, ["1", b"n" * 16], id="a number is a text"),
    pytest.param(0, [1], id="a nonce is missing"),
    pytest.param(1, [1, b"n" * 16], id="a number comes twice"),
]


@pytest.mark.parametrize(("number", "row"), ROWS)
def test_a_damaged_row_in_the_newest_checkpoint_is_told_and_the_one_before_it_has_all(number, row):
    room = Room().stopped()
    for _ in range(2):
        checkpoint(room)
    inner = room.inner.crash_clone(0)
    newest = room.checkpoints()[-1]
    reword(inner, newest, "starts", number, row)
    [found] = [finding for finding in verify(inner, Level.DEEP) if "of its starts" in finding.problem]
    assert (found.path, found.harmless) == (checkpoint_path(newest), True)
    assert [change.path for change in diagnose(inner).changes] == [checkpoint_path(newest)]
    after = Room(inner)
    [note] = after.engine.report.notes
    assert f"row {number + 1} of its starts is of a form that is not known here" in note
    assert known(after.engine)[:-1] == known(room.engine)


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        pytest.param(
            [[1, b"s" * 16]],
            f"the nonce of start 1 is {(b's' * 16).hex()}, by the journal",
            id="another nonce",
        ),
        pytest.param(
            [[2, b"s" * 16]], "it was written by start 1, the last it knows is 2", id="a later start"
        ),
        pytest.param(
            [[3, b"s" * 16]], "the nonce of start 1 is not there, by the journal", id="another start"
        ),
    ],
)
def test_a_verification_finds_starts_in_a_checkpoint_that_the_journal_does_not_have(rows, problem):
    room = Room()
    checkpoint(room)
    assert damages(room.inner.kill_clone()) == []
    inner, [lsn] = room.inner.kill_clone(), room.checkpoints()
    old = read_checkpoint(inner, lsn)
    folds = {**old.folds, "starts": rows}
    write_checkpoint(inner, old.header, {name: iter(each) for name, each in folds.items()}, old.stores)
    found = damages(inner)
    assert {finding.path for finding in found} == {checkpoint_path(lsn)}
    assert any(problem in finding.problem for finding in found)


def test_the_first_start_of_a_time_line_forgets_the_others_and_a_checkpoint_keeps_that_it_did():
    starts = Starts()
    starts.apply(1, started(1), b"")
    starts.apply(2, replace(started(9), restored=Restored.REPLACEMENT), b"")
    starts.apply(3, started(10), b"")
    again = Starts()
    again.restore(reread(Starts, starts.snapshot()))
    for each in (starts, again):
        assert (each.restored, each.as_copy, each.oldest) == (9, False, 9)
        assert not each.knows(1, started(1).nonce)
        assert not each.may_have_had(1, started(1).nonce)
        assert each.may_have_had(9, started(9).nonce)
        assert [each.is_restored(number << 32 | 5) for number in (1, 8, 9, 10)] == [True, True, False, False]
        assert each.count_restored([1 << 32, 9 << 32, 2 << 32]) == 2
    assert Starts().count_restored([1 << 32]) == 0


def test_a_start_that_is_forgotten_for_its_age_may_have_been_and_one_of_another_time_line_may_not():
    starts = Starts()
    starts.apply(1, replace(started(100), restored=Restored.COPY), b"")
    for number in range(101, STARTS_KEPT + 110):
        starts.apply(number, started(number), b"")
    assert (starts.restored, starts.as_copy) == (100, True)
    assert starts.may_have_had(101, b"any")
    assert not starts.may_have_had(99, b"any")
    assert not starts.may_have_had(starts.oldest, b"another")
