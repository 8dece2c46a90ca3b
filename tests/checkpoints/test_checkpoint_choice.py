"""Test which checkpoint a start uses when rows of the newest have valid checksums and are not what their folds keep.

Seen to fail: such a start ended with an error of msgspec, or a ``TypeError``, between the passes.
"""

from __future__ import annotations

import pytest

from journal.errors import NEXT_STEP
from journal.folds.table import client_folds
from journal.formats.checkpoint import read_checkpoint, write_checkpoint
from journal.recovery.start import recover
from journal.repair import diagnose
from journal.testing import ManualClock
from tests.recovery.recovery_scene import one_file, refusal
from tests.repair.repair_checks import damages, is_repaired
from tests.repair.repair_scene import held
from tests.support.engine_room import SMALL, Room, checkpoint_path, decide, xid_of


def _undecided(owner):
    """A row of an undecided transaction of this owner."""
    return [[1, 2], 5, owner, None, 1, 0, [0, 0, 0], [], 0, [], 0]


ROWS = [
    pytest.param("transactions", 0, "word", id="how many are undecided is a word"),
    pytest.param("transactions", 0, 9_999, id="more are undecided than there are rows"),
    pytest.param("transactions", 1, [[1, 2], 3], id="an undecided transaction is short"),
    pytest.param("transactions", 1, b"\x93", id="an undecided transaction is no list"),
    pytest.param("transactions", 1, _undecided("c@a"), id="an owner is a text, as in version 1"),
    pytest.param("transactions", 1, _undecided(["p", 5, "a"]), id="a part of an owner is a number"),
    pytest.param(
        "transactions", 1, _undecided(["p", "c" * 1_000_000, "a"]), id="a client has a megabyte's name"
    ),
    pytest.param("transactions", 2, [1, 2, 3], id="the marks are no marks"),
    pytest.param("catalog", 0, 7, id="the head of the catalog is a number"),
    pytest.param("catalog", 1, [7, [], 1, 1, 0], id="the name of a topic is a number"),
    pytest.param("archive", 0, [True], id="the head of the archive is short"),
]


def reword(filesystem, lsn, fold, number, row):
    """Put another row into a checkpoint, with checksums that fit."""
    old = read_checkpoint(filesystem, lsn)
    rows = old.folds[fold]
    rows[number] = row
    write_checkpoint(
        filesystem, old.header, {name: iter(each) for name, each in old.folds.items()}, old.stores
    )


def two_checkpoints():
    """A prepared transaction in both of two checkpoints, and messages before, between and after them."""
    room = one_file()
    room.begin((1, b"a")).prepare("p").sync()
    for value in (b"3", b"4"):
        room.checkpoint()
        room.send(value)
    return room


@pytest.mark.parametrize(("fold", "number", "row"), ROWS)
def test_a_row_that_does_not_decode_in_the_newest_costs_only_time_and_is_told(fold, number, row):
    room = two_checkpoints()
    newest = room.checkpoints()[-1]
    inner = room.inner.crash_clone(0)
    reword(inner, newest, fold, number, row)
    after = Room(inner)
    assert after.values() == [b"0", b"1", b"2", b"3", b"4"]
    assert after.prepared() == {xid_of("p")}
    note = after.engine.report.notes[0]
    assert note.startswith(f"{checkpoint_path(newest)} is damaged at "), note
    assert f"of its {fold}" in note or f"its {fold} end" in note
    assert note.endswith("Nothing was changed; the checkpoint before it is used")
    decide(after, "p", commit=True)
    after.checkpoint()
    assert Room(inner.crash_clone(0)).values() == [b"0", b"1", b"2", b"3", b"4", b"a"]


def test_one_in_the_older_is_told_and_nothing_needs_it_now():
    room = two_checkpoints()
    older, newest = room.checkpoints()
    inner = room.inner.crash_clone(0)
    reword(inner, older, "catalog", 0, 7)
    after = Room(inner)
    assert after.values() == room.values()
    [note] = after.engine.report.notes
    assert note.startswith(checkpoint_path(older))
    assert note.endswith(f"the one at LSN {newest} is used")


@pytest.mark.parametrize(("fold", "number", "row"), ROWS)
def test_one_in_every_checkpoint_refuses_the_start_and_leaves_all_as_it_was(fold, number, row):
    room = two_checkpoints()
    inner = room.inner.crash_clone(0)
    for lsn in room.checkpoints():
        reword(inner, lsn, fold, number, row)
    error = refusal(inner)
    path = checkpoint_path(room.checkpoints()[-1])
    assert error.path == path
    assert f"none of the 2 checkpoints can be read: {path} is damaged at " in str(error)
    assert f"its {fold}" in str(error)
    assert f"Restore one of them from a copy. {NEXT_STEP}" in str(error)


@pytest.mark.parametrize(
    ("fold", "number", "row"),
    [
        ("identity", 0, 5),
        ("producers", 0, ["1", []]),
        ("producers", 1, [1, 1, "p", 1, [[1, 1, 1, [-1], [0]]], b"o" * 16]),
        ("groups", 0, [0, []]),
        ("groups", 1, ["g", b"", [[1]], []]),
    ],
)
def test_one_of_the_folds_of_the_service_is_made_up_for_too(fold, number, row):
    def started(filesystem):
        return recover(filesystem, ManualClock(monotonic=1_000_000), SMALL, client_folds())

    room = one_file()
    room.engine.close()
    engine = started(room.inner)
    engine.housekeeping.checkpoint_inline()
    engine.mark()
    engine.sync()
    engine.housekeeping.checkpoint_inline()
    newest = room.checkpoints()[-1]
    old = read_checkpoint(room.inner, newest)
    inner = room.inner.crash_clone(0)
    sequences = [[1, 1, 1, [0], [0]]]
    rows = {
        "identity": ["5f"],
        "producers": [[1, []], [1, 1, "p", 1, sequences, b"o" * 16]],
        "groups": [[0, [], 1], ["g", b"", [], []]],
    }
    changed = {name: list(each) for name, each in (old.folds | rows).items()}
    write_checkpoint(inner, old.header, {name: iter(each) for name, each in changed.items()}, old.stores)
    assert not started(inner.crash_clone(0)).report.notes, "as a fold keeps them"
    reword(inner, newest, fold, number, row)
    [note] = started(inner).report.notes
    assert f"of its {fold} is of a form that is not known here" in note


@pytest.mark.parametrize(("fold", "number", "row"), ROWS)
def test_a_verification_names_it_and_a_repair_takes_the_older_one(fold, number, row):
    room = two_checkpoints()
    room.clock.advance(2_000_000)
    room.engine.housekeeping.run_inline()
    filesystem, newest = room.inner.kill_clone(), room.checkpoints()[-1]
    before = held(room)
    reword(filesystem, newest, fold, number, row)
    assert damages(filesystem) == [], "harmless: the other one is used instead"
    assert [change.path for change in diagnose(filesystem).changes] == [checkpoint_path(newest)]
    _, after, _ = is_repaired((filesystem, before), filesystem)
    assert after == before


def test_one_in_every_checkpoint_is_named_and_a_repair_goes_by_the_journal_while_that_has_all():
    room = two_checkpoints()
    room.clock.advance(2_000_000)
    room.engine.housekeeping.run_inline()
    filesystem, before = room.inner.kill_clone(), held(room)
    for lsn in room.checkpoints():
        reword(filesystem, lsn, "transactions", 1, b"\x93")
    assert {finding.path for finding in damages(filesystem)} == {*map(checkpoint_path, room.checkpoints())}
    _, after, _ = is_repaired((filesystem, before), filesystem)
    assert after == before
