"""Test large commits, applied in slices: all of it is seen at once, and segments are written only after the decision.

Seen to fail: with `allow_flush` called for an unforced commit its bytes reach a segment; with the ends shown slice by
slice half a transaction is read; with the counts not compared a lost record goes unnoticed.
"""

import pytest

from journal.engine.settings import JournalSettings
from journal.errors import CorruptJournal, MemoryExhausted
from journal.formats.frame import decode_run
from journal.log.message_store import MessageStore
from journal.records.record import Placement, TransactionCommitted
from journal.transaction_states import Cause
from journal.transactions.commit_application import weight_of
from tests.support.builders import Place, frames, number, totals

RUNS = [frames(b"%d" % n + bytes(10_000)) for n in range(12)]
FIRST = [b"%d" % n + bytes(10_000) for n in range(0, 12, 2)]
SECOND = [b"%d" % n + bytes(10_000) for n in range(1, 12, 2)]
SIZE = sum(map(len, RUNS))
WEIGHT = weight_of(SIZE, 12, 12)
NUMBER = number(1)


def committed(
    pool_bytes=64 << 20, slice_bytes=80_000, small_bytes=160_000, runs=RUNS, held=1 << 30, third=False
):
    """A commit over two partitions, accepted and not forced; applied in slices if it is larger than small."""
    settings = JournalSettings(file_bytes=1 << 20, pool_bytes=pool_bytes, low_water_bytes=0)
    place = Place(settings, partitions=3 if third else 2)
    place.transactions.staging._budget = min(held, pool_bytes // 2)
    application = place.transactions.table.application
    application.slice_bytes, application.small_bytes = slice_bytes, small_bytes
    for n, run in enumerate(runs):
        place.transactions.add(NUMBER, 1 + n % 2, run, len(decode_run(run)))
    if held:
        place.engine.sync()
    place.transactions.commit(NUMBER, Cause.CLIENT, totals(*runs))
    return place


def write(place):
    """Carry the groups to their force, without applying anything."""
    while (group := place.engine.take()) is not None:
        place.engine.write(group)
        place.engine.publish(group)


def seen(place):
    return place.values(1), place.values(2)


def in_logs(place):
    return [store.end_offset for store in place.engine.catalog.stores.values()]


def segment_bytes(place):
    filesystem = place.filesystem
    return sum(
        filesystem.open(f"partitions/{folder}/{name}").size()
        for folder in filesystem.list_directory("partitions")
        for name in filesystem.list_directory(f"partitions/{folder}")
    )


def flush(place):
    """Let the flusher have whatever it may take of any store."""
    place.engine.want_flush(list(place.engine.catalog.stores.values()))
    place.engine.housekeeping.run_inline()


def test_a_small_commit_is_in_its_logs_at_once_and_seen_when_forced():
    place = committed(small_bytes=WEIGHT)
    assert not place.engine.busy
    assert in_logs(place) == [6, 6]
    assert seen(place) == ([], [])
    write(place)
    assert seen(place) == (FIRST, SECOND)


def test_a_large_one_goes_slice_by_slice_and_is_seen_in_one_step():
    place = committed()
    write(place)
    steps = 0
    while place.engine.busy:
        assert seen(place) == ([], [])
        assert sum(in_logs(place)) == min(3 * steps, 12)
        place.engine.continue_apply()
        steps += 1
    assert steps == 4
    assert seen(place) == (FIRST, SECOND)


def test_one_that_is_applied_before_it_is_forced_is_seen_with_its_force():
    place = committed()
    while place.engine.busy:
        place.engine.continue_apply()
    assert in_logs(place) == [6, 6]
    assert seen(place) == ([], [])
    write(place)
    assert seen(place) == (FIRST, SECOND)


def test_answers_wait_for_all_of_it_and_its_force():
    place = committed()
    answers = []
    place.engine.when_forced(answers.append, "committed")
    write(place)
    assert place.engine.busy
    assert answers == []
    place.engine.sync()
    assert answers == ["committed"]


def test_nothing_else_is_accepted_meanwhile():
    place = committed()
    with pytest.raises(AssertionError, match="this may not pass it"):
        place.transactions.add(number(2), 1, RUNS[0], 1)
    with pytest.raises(AssertionError, match="are those of a large commit"):
        place.engine.append(place.engine.catalog.stores[1], RUNS[0], 1)


def test_messages_and_small_commits_for_other_logs_pass_it_and_replay_leads_to_the_same():
    place = committed(third=True)
    engine, told = place.engine, []
    engine.when_forced(told.append, "large")
    engine.passing = True
    engine.append(engine.catalog.stores[3], frames(b"sent"), 1)
    engine.when_forced(told.append, "sent")
    place.transactions.add(number(2), 3, frames(b"small"), 1)
    place.transactions.commit(number(2), Cause.CLIENT, totals(frames(b"small")))
    engine.when_forced(told.append, "small")
    engine.passing = False
    write(place)
    assert told == ["sent", "small"]
    assert (seen(place), place.values(3)) == (([], []), [b"sent", b"small"])
    after_all = place.filesystem.crash_clone(1)
    engine.sync()
    assert told == ["sent", "small", "large"]
    assert (seen(place), place.values(3)) == ((FIRST, SECOND), [b"sent", b"small"])
    place.filesystem = after_all
    place.open()
    assert (seen(place), place.values(3)) == ((FIRST, SECOND), [b"sent", b"small"])


def test_a_commit_that_passes_and_finds_no_memory_is_applied_behind_it(monkeypatch):
    place = committed(third=True)
    engine, told = place.engine, []
    engine.when_forced(told.append, "first")
    engine.passing = True
    place.transactions.add(number(2), 3, frames(b"second"), 1)
    with monkeypatch.context() as starving:

        def nothing(*_):
            raise MemoryExhausted("there is none")

        starving.setattr(MessageStore, "replay", nothing)
        place.transactions.commit(number(2), Cause.CLIENT, totals(frames(b"second")))
    assert not engine.passing, "its answer waits until it is applied"
    engine.when_forced(told.append, "second")
    assert place.engine.large_commits.promised == {1, 2, 3}
    with pytest.raises(AssertionError, match="are those of a large commit"):
        engine.append(engine.catalog.stores[3], RUNS[0], 1)
    write(place)
    while place.engine.large_commits.current.number == NUMBER:
        assert told == []
        engine.continue_apply()
    assert (told, place.engine.large_commits.promised) == (["first"], {3})
    engine.sync()
    assert told == ["first", "second"]
    assert (seen(place), place.values(3)) == ((FIRST, SECOND), [b"second"])


def test_what_takes_long_is_not_small_however_few_bytes_it_has():
    tiny = frames(*[b""] * 100)
    place = committed(runs=[tiny] * 12, small_bytes=weight_of(1200 * 44, 1200, 12) - 1)
    assert place.engine.busy
    place = committed(runs=[tiny] * 12, small_bytes=weight_of(1200 * 44, 1200, 12))
    assert not place.engine.busy


def test_what_is_appended_after_it_follows_in_its_place():
    place = committed()
    place.engine.sync()
    assert place.engine.append(place.engine.catalog.stores[1], RUNS[0], 1) == 6
    place.engine.sync()
    assert place.values(1) == [*FIRST, FIRST[0]]


# -- no segment is touched before the decision is forced ----------------------------------------------


def apply_some(place):
    for _ in range(3):
        place.engine.continue_apply()


def test_no_segment_holds_a_byte_of_it_before_it_is_forced():
    place = committed()
    apply_some(place)
    assert sum(in_logs(place)) > 0
    flush(place)
    assert segment_bytes(place) == 0


SHORT = [frames(b"%d" % n + bytes(150_000)) for n in range(14)]
"""Twice what the pool of a megabyte holds."""


def test_short_of_memory_it_waits_for_the_force_then_lets_the_flusher_have_what_is_there():
    place = committed(1 << 20, 1 << 20, runs=SHORT)
    for _ in range(10):
        place.engine.continue_apply()
    flush(place)
    assert place.engine.busy
    assert segment_bytes(place) == 0
    write(place)
    place.engine.continue_apply()
    assert place.engine.large_commits.current.short_of_memory
    flush(place)
    assert segment_bytes(place) > 0
    assert seen(place) == ([], [])
    place.engine.sync()
    assert [len(values) for values in seen(place)] == [7, 7]


def test_adds_that_are_not_in_memory_are_read_back_only_once_they_are_forced():
    place = committed(held=0)
    apply_some(place)
    assert in_logs(place) == [0, 0]
    write(place)
    apply_some(place)
    assert sum(in_logs(place)) == 9
    place.engine.sync()
    assert seen(place) == (FIRST, SECOND)


@pytest.mark.parametrize("after", [0, 1, 2, 5])
def test_killed_after_any_slice_it_is_whole_after_the_restart(after):
    place = committed(1 << 20, 100_000, runs=SHORT)
    write(place)
    for _ in range(after):
        if place.engine.busy:
            place.engine.continue_apply()
            flush(place)
    for seed in range(5):
        other = Place(place.settings)
        other.filesystem = place.filesystem.crash_clone(seed)
        other.open()
        assert [[v[:2].rstrip(b"\0") for v in values] for values in seen(other)] == [
            [b"%d" % n for n in range(0, 14, 2)],
            [b"%d" % n for n in range(1, 14, 2)],
        ]


def test_a_message_that_no_flush_makes_room_for_is_told_and_stays_committed():
    place = committed(1 << 20, runs=SHORT[:2])
    holder = place.engine.catalog.stores[1]
    write(place)
    taken = place.transactions.staging._allocator
    taken.reserve(taken.available())
    with pytest.raises(MemoryExhausted, match="It stays committed"):
        place.engine.sync()
    assert holder.high_watermark == 0
    place.filesystem = place.filesystem.kill_clone()
    place.open()
    assert [len(values) for values in seen(place)] == [1, 1]


@pytest.mark.parametrize(
    "placements",
    [
        [Placement(1, 0, 6)],
        [Placement(1, 0, 6), Placement(2, 0, 5)],
        [Placement(1, 0, 5), Placement(2, 0, 6)],
        [],
    ],
)
def test_a_commit_that_says_other_counts_than_were_added_tells_of_a_missing_record(placements):
    place = Place()
    for n, run in enumerate(RUNS):
        place.transactions.add(NUMBER, 1 + n % 2, run, 1)
    with pytest.raises(CorruptJournal, match="a record is missing from the journal"):
        place.engine.accept(TransactionCommitted(*NUMBER, placements, 0, Cause.CLIENT))
    assert place.engine.failed
    assert in_logs(place) == [0, 0]


def test_its_memory_is_given_back():
    place = committed()
    allocator = place.transactions.staging._allocator
    place.engine.sync()
    flush(place)
    assert place.transactions.staging.held_bytes == 0
    assert allocator.available() == allocator.budget
