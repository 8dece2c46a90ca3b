"""Test that replaying transactions run by run gives the same as record by record, and refuses the same."""

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from zope.interface import classImplements

from journal.constants import KIB
from journal.errors import CorruptJournal, MemoryExhausted
from journal.formats.frame import stamp
from journal.interfaces import ICommitFold
from journal.log.message_run import SHORT_RUN
from journal.parties import Owner
from journal.records.record import Messages, Placement, Run, TransactionAdded, TransactionCommitted, pack
from journal.recovery.replay import Replay
from journal.recovery.start import recover
from journal.transaction_states import Cause
from journal.xid import Xid
from tests.recovery.replay_scene import (
    PARTITIONS,
    Sender,
    check_replay_of,
    every_few,
    logs_of,
    transactions_of,
    turn_archive_on,
)
from tests.support.engine_room import SMALL, Room, run_of
from tests.support.thoroughness import examples

WHOSE = Owner("ops", "c", "host:1")

SLOTS = st.integers(0, 3)


PLACES = st.integers(1, PARTITIONS)


TRANSACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), SLOTS, PLACES, st.sampled_from([b"", b"v", b"w" * 3000]), st.booleans()),
        st.tuples(st.just("add"), SLOTS, PLACES),
        st.tuples(st.just("commit"), SLOTS, st.booleans()),
        st.tuples(st.just("commit"), SLOTS),
        st.tuples(st.just("at_once"), SLOTS, st.lists(PLACES, min_size=1, max_size=3, unique=True)),
        st.tuples(st.just("at_once"), SLOTS, st.just([1]), st.just(b"w" * 3000), st.booleans()),
        st.tuples(st.just("prepare_at_once"), SLOTS, st.lists(PLACES, max_size=3, unique=True)),
        st.tuples(st.just("rollback"), SLOTS),
        st.tuples(st.just("add_offsets"), SLOTS, PLACES),
        st.tuples(st.just("prepare"), SLOTS),
        st.tuples(st.just("decide"), st.booleans()),
        st.tuples(st.just("send"), PLACES, st.just(1), st.integers(1, 3), st.just(10)),
        st.sampled_from([("sync",), ("sync",), ("checkpoint",)]),
        st.tuples(
            st.just("stretch"),
            st.integers(1, 60),
            st.integers(1, PARTITIONS),
            st.integers(1, 2),
            st.integers(0, 3),
            st.just(10),
        ),
    ),
    min_size=20,
    max_size=100,
)
"""Of several clients, between each other's."""


@pytest.mark.slow
@settings(max_examples=examples(100), deadline=None)
@given(TRANSACTIONS, st.booleans())
def test_transactions_folded_at_their_commits_give_what_record_by_record_gives(deeds, archive):
    sender = Sender(archive=archive)
    for name, *arguments in deeds:
        getattr(sender, name)(*arguments)
    check_replay_of(sender)


@settings(max_examples=examples(50), deadline=None)
@given(TRANSACTIONS, st.booleans())
def test_so_do_those_of_which_few_are_taken_for_many_that_look_alike(deeds, archive):
    sender = Sender(archive=archive)
    for name, *arguments in deeds:
        getattr(sender, name)(*arguments)
    with every_few():
        check_replay_of(sender)


DEEDS = st.lists(
    st.tuples(
        st.sampled_from(["add", "commit", "whole", "whole", "whole", "archived"]),
        st.integers(1, 2),
        st.integers(1, 8),
        st.integers(1, 2),
        st.one_of(st.just(0), st.integers(0, 9)),
        st.sampled_from([None, None, None, b"x"]),
    ),
    min_size=1,
    max_size=40,
)
"""Of two sessions, whatever their clients say that they have seen: more than was decided, less than before."""


WALL_OFFSET = Room().engine.wall_offset
"""The wall clock at journal time 0, as every room here finds it."""

ARCHIVED = object()
"""In place of a record: what waits for the archive goes to its log."""


def whole(at, session, serial, partition, base, seen=0, xid=None):
    """A commit that begins its transaction, and its stamped frames."""
    frames = run_of(b"v%d" % at)
    checksum = crc32c(frames)
    stamp(stamped := bytearray(frames), base, at + WALL_OFFSET)
    record = TransactionCommitted(
        session, serial, [Placement(partition, base, 1)], at, Cause.CLIENT, seen,
        runs=[Run(partition, 1, 0, checksum)], checksum=checksum, xid=xid, owner=WHOSE,
    )  # fmt: skip
    return record, bytes(stamped)


def records_of(deeds, archive=False):
    """Adds and commits that a journal could hold, if clients said anything."""
    ends, live, found, ended = {1: 0, 2: 0}, {}, [], set()
    for at, (deed, session, serial, partition, seen, xid) in enumerate(deeds, 1):
        key = session, serial
        if key in ended and deed != "archived":
            continue
        named = Xid(1, b"%d-%d" % key, xid) if xid and key not in live else None
        if deed == "archived":
            found += [ARCHIVED] * archive
        elif deed == "whole" and key not in live:
            found.append(whole(at, *key, partition, ends[partition], seen, named))
            ends[partition] += 1
            ended.add(key)
        elif deed == "commit":
            added = live.pop(key, [])
            ended.update([key] if added else ())
            placed = [Placement(p, ends[p], added.count(p)) for p in dict.fromkeys(added)]
            for p in added:
                ends[p] += 1
            if added:
                found.append((TransactionCommitted(*key, placed, at, Cause.CLIENT, seen), b""))
        else:
            found.append(
                (
                    TransactionAdded(*key, partition, 1, at, seen, named, WHOSE),
                    run_of(b"v%d" % at),
                )
            )
            live.setdefault(key, []).append(partition)
    return found


def archived(engine):
    """The send that puts into the archive what waits for it, as a journal holds it."""
    archive = engine.transactions.archive
    frames, count, base = b"".join(archive._pack()), len(archive.waiting), archive.store.end_offset
    stamp(stamped := bytearray(frames), base, WALL_OFFSET)
    return Messages(archive.store.number, base, count, 0), bytes(stamped)


def one_by_one(records, archive):
    """A room after these records, each folded by itself, and what they were: with those for the archive."""
    room = Room()
    room.topic(partitions=2)
    if archive:
        turn_archive_on(room.engine)
    replay, found = Replay(room.engine, 0), []
    for each in records:
        if each is ARCHIVED and not room.engine.transactions.archive.waiting:
            continue
        found.append(archived(room.engine) if each is ARCHIVED else each)
        replay.one((1 << 40) + len(found) - 1, *found[-1])
        room.engine.transactions.archive.settle()
    return room.engine, found


def in_groups(records, size, archive):
    """A room after groups of so many of these records, each read and folded together."""
    room = Room()
    room.topic(partitions=2)
    if archive:
        turn_archive_on(room.engine)
    replay = Replay(room.engine, 0)
    for start in range(0, len(records), size):
        group = records[start : start + size]
        body = b"".join(pack(*each, 0) + each[1] for each in group)
        replay.group((1 << 40) + start, len(group), body, "f", 0)
    assert replay.records == len(records)
    return room.engine


def check_both(records, size, archive=False):
    slow, found = one_by_one(records, archive)
    fast = in_groups(found, size, archive)
    fast.transactions.archive.settle()
    assert logs_of(fast) == logs_of(slow)
    assert transactions_of(fast) == transactions_of(slow)
    assert fast.forced_lsn == slow.forced_lsn
    return fast


@settings(max_examples=examples(400), deadline=None)
@given(DEEDS, st.integers(1, 30), st.booleans())
def test_whatever_clients_say_they_have_seen_replay_remembers_what_the_table_would(deeds, size, archive):
    """And gives the archive the same entries at the same places; some of them have come, others wait."""
    with every_few():
        check_both(records_of(deeds, archive), size, archive)


@pytest.mark.parametrize("count", [1, 3, 40])
def test_at_the_end_of_a_group_logs_and_outcomes_have_all_that_it_decided(count):
    """Nothing of it is kept for later: a journal may hold nothing else for gigabytes."""
    room = Room()
    room.topic(partitions=2)
    deeds = [("whole", 1, serial, 1 + serial % 2, 0, None) for serial in range(1, count + 1)]
    records = records_of(deeds)
    body = b"".join(pack(*each, 0) + each[1] for each in records)
    Replay(room.engine, 0).group(1 << 40, len(records), body, "f", 0)
    assert sum(store.high_watermark for store in room.engine.catalog.stores.values()) == count
    assert len(room.engine.transactions.outcomes.by_number) == count


def test_an_outcome_that_was_seen_before_it_was_decided_is_remembered_whatever_is_said_later():
    """What the first says that its client has seen is more than what the second says."""
    with every_few():
        engine = check_both(records_of([("whole", 1, 3, 1, 5, None), ("whole", 1, 7, 1, 0, None)]), 4)
    assert len(engine.transactions.outcomes.by_number) == 2


def test_what_has_come_into_the_archive_does_not_wait_for_it_until_the_journals_end(monkeypatch):
    monkeypatch.setattr("journal.transactions.outcome_archive.BATCH", 10)
    deeds = []
    for serial in range(1, 201):
        deeds.append(("whole", 1, serial, 1, 0, None))
        if serial % 20 == 0:
            deeds.append(("archived", 1, 1, 1, 0, None))
    _, found = one_by_one(records_of(deeds, archive=True), archive=True)
    archive = in_groups(found, 41, archive=True).transactions.archive
    assert archive.next_offset == archive.store.end_offset == 200
    assert len(archive.waiting) <= 10 + 20


def test_a_commit_of_what_was_added_is_not_taken_for_one_that_has_all():
    """Its number is live; the frames that it brings follow those that were added."""
    sender = Sender()
    sender.add(0, 1)
    sender.at_once(0, [1, 2])
    for slot in range(1, 40):
        sender.at_once(slot, [1])
    with every_few():
        check_replay_of(sender)
    assert sender.engine.catalog.stores[1].end_offset == 41


class Commits:
    """A fold that counts the commits of transactions, and nothing else."""

    name = "commits"
    handles = (TransactionCommitted,)

    def __init__(self):
        self.seen = []

    def apply(self, lsn, record, data):
        self.seen.append((lsn, record.serial))

    def snapshot(self):
        return iter(())

    def restore(self, rows):
        assert not list(rows)


class FewCommits(Commits):
    """One to which only one transaction matters."""

    def concerned(self):
        return {(7 | 1 << 32, 30)}

    def conflict(self, positions, number=None):
        return None


classImplements(FewCommits, ICommitFold)


@pytest.mark.parametrize("kind", [Commits, FewCommits])
def test_a_fold_that_looks_at_commits_is_shown_those_that_concern_it(kind):
    """All, if it does not say which these are: then none are folded together."""
    room = Room()
    room.topic()
    for _ in range(40):
        room.begin((1, b"v")).commit()
    room.engine.sync()
    fold = kind()
    recover(room.inner.kill_clone(), room.clock, SMALL, [fold])
    assert len({serial for _, serial in fold.seen}) == len(fold.seen)
    if kind is Commits:
        assert len(fold.seen) == 40
    else:
        assert 30 in {serial for _, serial in fold.seen}


@pytest.mark.parametrize("partitions", [1, 2])
def test_transactions_that_fit_into_no_memory_stop_the_start_with_advice(partitions):
    room = Room()
    room.topic(partitions=partitions)
    replay = Replay(room.engine, 0)
    value, body = b"v" * (300 * KIB), b""
    frames = run_of(value)
    for serial in range(1, 1 + SMALL.pool_bytes // len(frames) + 2 * SHORT_RUN):
        turn, place = divmod(serial - 1, partitions)
        stamp(stamped := bytearray(frames), turn, serial + WALL_OFFSET)
        runs = [Run(1 + place, 1, 0, crc32c(frames))]
        commit = TransactionCommitted(
            7, serial, [Placement(1 + place, turn, 1)], serial, Cause.CLIENT, serial - 1, runs=runs
        )
        body += pack(commit, bytes(stamped), 0) + stamped
    with pytest.raises(MemoryExhausted, match=r"They stay: start again with a larger pool_bytes"):
        replay.group(1 << 40, serial, body, "f", 0)


def test_what_an_add_says_was_seen_counts_from_the_add_on():
    """Not from its commit on: an outcome between the two is one that the client has not seen."""
    sender = Sender()
    sender.add(0, 1)
    sender.add(2, 2, seen=True)
    sender.commit(0)
    sender.commit(2)
    check_replay_of(sender)
    [first, _] = sender.engine.transactions.outcomes.by_number
    assert sender.engine.transactions.outcomes.forgotten_through == {first.session: first.serial}


def test_what_a_client_has_seen_grows_only_whatever_it_says_later():
    engine = check_both(records_of([("whole", 1, 9, 1, 5, None), ("whole", 1, 10, 1, 2, None)]), 2)
    assert engine.transactions.outcomes.forgotten_through == {1: 5}


@pytest.mark.parametrize(
    "placements",
    [[Placement(1, 0, 2)], [Placement(2, 0, 1)], [], [Placement(1, 0, 1), Placement(2, 0, 1)]],
    ids=["count", "partition", "none", "two"],
)
def test_a_commit_that_places_otherwise_than_it_has_is_refused(placements):
    room = Room()
    room.topic(partitions=2)
    record, frames = whole(1, 7, 1, 1, 0)
    record = replace(record, placements=placements)
    with pytest.raises(CorruptJournal, match="a record is missing from the journal"):
        Replay(room.engine, 0).group(5, 1, pack(record, frames, 0) + frames, "f", 0)
    assert room.engine.catalog.stores[1].end_offset == 0


@pytest.mark.parametrize("starts", [[1], [0, 500], [0, 3, 2]], ids=["behind", "beyond", "back"])
def test_runs_that_do_not_fit_their_data_are_refused(starts):
    room = Room()
    room.topic()
    record, frames = whole(1, 7, 1, 1, 0)
    runs = [Run(1, 1, start, 0) for start in starts]
    record = replace(record, runs=runs, placements=[Placement(1, 0, len(runs))])
    with pytest.raises(CorruptJournal, match="its runs start at"):
        Replay(room.engine, 0).group(5, 1, pack(record, frames, 0) + frames, "f", 0)
    assert room.engine.catalog.stores[1].end_offset == 0
