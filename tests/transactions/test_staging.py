"""Test staged frames: in memory within a budget, else read back from the journal or a staged file, and always right.

Seen to fail: with an entry's position not counted on, the second add lies over the first; with `release` forgetting
the allocator the pool runs dry; with the staged file believed unchecked, damage commits.
"""

import pytest

from journal.buffers import PooledAllocator
from journal.engine.settings import JournalSettings
from journal.errors import CorruptJournal
from journal.formats import filenames
from journal.formats.staged_header import STAGED_HEADER_BYTES as H
from journal.records.record import Run
from journal.transaction_states import Cause
from journal.transactions.staging import Staged, Staging
from tests.support.builders import Place, frames, number, totals, xid

RUNS = [frames(bytes([n]) * (40_000 + n), b"tail") for n in range(20)]
PREPARED = number(1)


@pytest.fixture
def staging():
    return Staging(None, None, PooledAllocator(1000), 500)


def held_in_all(staging):
    return staging.held_bytes, staging._allocator.budget - staging._allocator.available()


def test_entries_lie_one_after_the_other(staging):
    staged = Staged()
    assert staged.bytes == 0
    for lsn, size in ((5, 10), (6, 0), (9, 7)):
        staging.hold(staged, Run(1, 1, 0, 0), bytes(size), lsn, 0)
    assert [(e.lsn, e.size, e.position) for e in staged.entries] == [
        (5, 10, H),
        (6, 0, H + 10),
        (9, 7, H + 10),
    ]
    assert staged.bytes == 17


def test_frames_are_held_up_to_the_budget_and_given_back_once(staging):
    first, second = Staged(), Staged()
    staging.hold(first, Run(1, 1, 0, 0), bytes(300), 1, 0)
    staging.hold(second, Run(1, 1, 0, 0), bytes(201), 2, 0)
    staging.hold(second, Run(1, 1, 0, 0), bytes(200), 3, 0)
    assert (list(first.held), list(second.held)) == ([0], [1])
    assert held_in_all(staging) == (500, 500)
    staging.release(first)
    staging.release(first)
    assert held_in_all(staging) == (200, 200)


def test_tails_come_first_when_the_pool_itself_is_short():
    staging = Staging(None, None, PooledAllocator(100), 500)
    staged = Staged()
    staging.hold(staged, Run(1, 1, 0, 0), bytes(101), 1, 0)
    assert (staged.held, staging.held_bytes) == ({}, 0)


def test_a_plan_takes_what_lies_at_or_below_an_lsn_and_not_twice(staging):
    staged = Staged()
    for lsn in (5, 6, 9):
        staging.hold(staged, Run(1, 1, 0, 0), bytes([lsn]) * 200, lsn, 0)
    assert staging.plan(PREPARED, staged, 4) is None
    plan = staging.plan(PREPARED, staged, 6)
    assert ([e.lsn for e in plan.entries], plan.through, sorted(plan.held)) == ([5, 6], 2, [0, 1])
    staged.file_entries = plan.through
    assert staging.plan(PREPARED, staged, 6) is None
    rest = staging.plan(PREPARED, staged, 9)
    assert ([e.lsn for e in rest.entries], rest.through, rest.held) == ([9], 3, {})


# -- in an engine whose memory is short -------------------------------------------------------------


def place_with(*, checkpoints, restart=False):
    """A prepared transaction of 800 kB in an engine with 512 KiB for staged frames."""
    place = Place(JournalSettings(file_bytes=1 << 18, pool_bytes=1 << 20, low_water_bytes=0))
    for n, run in enumerate(RUNS):
        place.transactions.add(PREPARED, 1 + n % 2, run, 2)
        place.engine.sync()
    place.transactions.prepare(PREPARED, xid("x"), totals(*RUNS))
    for _ in range(checkpoints):
        place.checkpoint()
    if restart:
        place.restart()
    return place


def staged_of(place):
    return place.transactions.live[PREPARED].staged


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("checkpoints", [0, 1, 2, 3])
def test_every_add_is_read_back_from_wherever_it_is(checkpoints, restart):
    place = place_with(checkpoints=checkpoints, restart=restart)
    staged = staged_of(place)
    assert 0 <= len(staged.held) < len(RUNS)
    assert staged.file_entries == (len(RUNS) if checkpoints > 1 else 0)
    found = [bytes(place.transactions.staging.load(PREPARED, staged, n)) for n in range(len(RUNS))]
    assert found == RUNS
    assert [
        bytes(part)
        for _, part in place.transactions.table.preview(PREPARED, 1 << 30, place.engine.forced_lsn)
    ] == RUNS


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("checkpoints", [0, 2])
def test_what_was_spilled_commits_whole_and_in_order(checkpoints, restart):
    place = place_with(checkpoints=checkpoints, restart=restart)
    place.transactions.commit(PREPARED, Cause.CLIENT)
    place.engine.sync()
    for _ in range(2):
        found = place.values(1) + place.values(2)
        assert found == [
            v for half in (0, 1) for n in range(half, 20, 2) for v in (bytes([n]) * (40_000 + n), b"tail")
        ]
        place.restart()


def test_two_checkpoints_after_it_was_spilled_the_journal_below_is_free_to_go():
    place = place_with(checkpoints=3)
    first = min(entry.lsn for entry in staged_of(place).entries)
    assert place.transactions.table.needed_from(1 << 60) == 1 << 60
    names = [filenames.parse_journal_file(n) for n in place.filesystem.list_directory("journal")]
    assert min(name for name in names if name is not None) > first


def test_the_staged_file_goes_after_the_outcome():
    place = place_with(checkpoints=2)
    assert place.filesystem.list_directory("staged")
    place.transactions.rollback(PREPARED, Cause.CLIENT)
    for _ in range(3):
        place.checkpoint()
    assert place.filesystem.list_directory("staged") == []
    assert place.transactions.staging.held_bytes == 0


def damaged(place, change):
    file = place.filesystem.open(filenames.staged_file(*PREPARED))
    change(file)
    return place.transactions.staging, staged_of(place)


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file.write_some(H, [b"\x7f"]),
        lambda file: file.write_some(H + 3, [b"\0"]),
        lambda file: file.write_some(20_000, [b"\xff"]),
        lambda file: file.write_some(H, [bytes(len(RUNS[0]))]),
        lambda file: file.write_some(H, [frames(bytes(40_000 + 40))]),
        lambda file: file.truncate(H + 100),
        lambda file: file.truncate(0),
    ],
    ids=["length too large", "length", "value", "zeros", "too few messages", "cut", "empty"],
)
def test_a_staged_file_that_is_not_what_was_written_is_corrupt_and_named(change):
    staging, staged = damaged(place_with(checkpoints=2, restart=True), change)
    with pytest.raises(CorruptJournal, match="are not the 2 messages staged there") as caught:
        staging.load(PREPARED, staged, 0)
    assert caught.value.path == filenames.staged_file(*PREPARED)


@pytest.mark.parametrize("restart", [False, True], ids=["held in part", "not held"])
@pytest.mark.parametrize("at", [20_000, 10 * 40_000, 19 * 40_000], ids=["first", "middle", "last"])
def test_a_damaged_staged_file_is_noticed_before_the_decision_which_may_still_be_taken_otherwise(at, restart):
    place = place_with(checkpoints=2, restart=restart)
    damaged(place, lambda file: file.write_some(at, [b"\xff"]))
    with pytest.raises(CorruptJournal, match="nothing was changed"):
        place.transactions.commit(PREPARED, Cause.CLIENT)
    assert not place.engine.failed
    place.restart()
    place.transactions.rollback(PREPARED, Cause.CLIENT)
    place.engine.sync()
    assert place.values(1) + place.values(2) == []


def test_what_has_been_proven_of_a_staged_file_is_not_read_again_and_what_came_since_is():
    place = place_with(checkpoints=2)
    staged = staged_of(place)
    staged.file_entries = 7
    place.transactions.staging.verify(PREPARED, staged)
    assert staged.proven == 7
    assert place.transactions.staging.proof(PREPARED, staged) is None
    staged.file_entries = len(RUNS)
    damaged(place, lambda file: file.write_some(20_000, [b"\xff"]))
    proof = place.transactions.staging.proof(PREPARED, staged)
    assert (proof.first, proof.through) == (7, len(RUNS))
    proof.run()
    damaged(place, lambda file: file.write_some(19 * 40_000, [b"\xff"]))
    with pytest.raises(CorruptJournal, match="are not the 2 messages staged there"):
        proof.run()


def test_a_missing_staged_file_is_corrupt_and_named():
    place = place_with(checkpoints=2, restart=True)
    place.filesystem.unlink(filenames.staged_file(*PREPARED))
    with pytest.raises(CorruptJournal, match="are not there: the file is missing") as caught:
        place.transactions.commit(PREPARED, Cause.CLIENT)
    assert caught.value.path == filenames.staged_file(*PREPARED)
