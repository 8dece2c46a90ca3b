"""Test that frames staged in a file are read before the commit is judged, on a thread, while other requests go on."""

import pytest

from journal.formats import filenames
from journal.records.record import Mark
from journal.transaction_states import TransactionNumber
from tests.broker.transactions.transaction_scene import XID, add, prepared, totals, values
from tests.support.broker_room import Room, refused
from tests.support.manual_worker import ManualWorker
from txbroker.wire import messages

BIG = b"x" * 40_000


@pytest.fixture
def room():
    return Room()


@pytest.fixture
def partition(room):
    return room.topic()[0]


@pytest.fixture
def pool(room):
    pool = ManualWorker()
    room.broker._proving._run_blocking = pool.submit
    return pool


def checkpoint(room):
    room.engine.accept(Mark(room.engine.now()))
    room.engine.housekeeping.checkpoint_inline()


def staged(room, peer, partition):
    """A transaction of that peer, whose frames are in a staged file, and which is ready to be committed."""
    add(peer, 1, partition, BIG)
    add(peer, 1, partition, b"last")
    number = TransactionNumber(peer.session.number, 1)
    for _ in range(3):
        checkpoint(room)
    assert room.engine.transactions.live[number].staged.file_entries == 2
    return filenames.staged_file(*number)


def commit(peer):
    return peer.tell(messages.Commit, serial=1, totals=totals([BIG], [b"last"]))


def test_a_commit_waits_for_what_is_read_elsewhere_and_others_do_not(room, partition, pool):
    peer, other = room.peer(), room.peer()
    staged(room, peer, partition)
    asked = commit(peer)
    assert len(pool.work) == 1
    assert isinstance(other.send(partition, b"other"), messages.Sent)
    assert peer.answer(asked) is None
    pool.step()
    room.engine.sync()
    assert isinstance(peer.answer(asked), messages.Committed)
    assert values(room, partition) == [b"other", BIG, b"last"]


def test_its_session_is_held_meanwhile(room, partition, pool):
    peer, held = room.peer(), []
    staged(room, peer, partition)
    peer.session.hold = held.append
    commit(peer)
    assert held == [True]
    pool.step()
    assert held == [True, False]


def test_one_that_is_in_memory_or_in_the_journal_does_not_wait(room, partition, pool):
    peer = room.peer()
    add(peer, 1, partition, BIG)
    add(peer, 1, partition, b"last")
    asked = commit(peer)
    assert not pool.work
    room.engine.sync()
    assert isinstance(peer.answer(asked), messages.Committed)


def test_damage_refuses_the_commit_and_decides_nothing(room, partition, pool):
    peer = room.peer()
    path = staged(room, peer, partition)
    room.filesystem.open(path).write_some(20_000, [b"\xff"])
    asked = commit(peer)
    pool.step()
    room.engine.sync()
    assert "nothing was changed" in refused(peer.answer(asked), "CorruptJournal")
    assert isinstance(peer.ask(messages.Rollback, serial=1), messages.Done)
    assert values(room, partition) == []


def test_a_disk_that_fails_refuses_it_too(room, partition, pool, monkeypatch):
    peer = room.peer()
    staged(room, peer, partition)
    asked = commit(peer)

    def fails(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("journal.testing.MemoryFile.read", fails)
    pool.step()
    monkeypatch.undo()
    room.engine.sync()
    assert "Input/output error" in refused(peer.answer(asked), "StorageUnavailable")
    asked = commit(peer)
    pool.step()
    room.engine.sync()
    assert isinstance(peer.answer(asked), messages.Committed)


def test_one_that_has_ended_meanwhile_is_answered_as_it_ended(room, partition, pool):
    """By an operator, say: then its file may be gone."""
    peer = room.peer()
    staged(room, peer, partition)
    asked = commit(peer)
    room.clock.advance(100_000_000)
    room.broker.expire_transactions(room.engine.now())
    for _ in range(3):
        checkpoint(room)
    pool.step()
    room.engine.sync()
    refused(peer.answer(asked), "TransactionRolledBack")
    assert values(room, partition) == []


def test_one_whose_session_ends_meanwhile_is_not_committed(room, partition, pool):
    peer = room.peer()
    staged(room, peer, partition)
    asked = commit(peer)
    peer.leave()
    pool.step()
    room.engine.sync()
    assert peer.answer(asked) is None
    assert values(room, partition) == []


def test_a_prepared_one_is_found_by_its_xid(room, partition, pool):
    peer = room.peer()
    prepared(peer, partition, 1, XID, BIG)
    for _ in range(3):
        checkpoint(room)
    coordinator = room.peer()
    asked = coordinator.tell(messages.Commit, xid=XID)
    assert len(pool.work) == 1
    pool.step()
    room.engine.sync()
    assert isinstance(coordinator.answer(asked), messages.Committed)
    assert values(room, partition) == [BIG]


def test_what_goes_to_the_file_while_it_is_read_is_read_too(room, partition, pool):
    peer = room.peer()
    staged(room, peer, partition)
    number = TransactionNumber(peer.session.number, 1)
    live = room.engine.transactions.live[number].staged
    live.file_entries = 1  # as if a checkpoint wrote the second one only now
    asked = commit(peer)
    live.file_entries = 2
    pool.step()
    assert len(pool.work) == 1
    assert live.proven == 1
    pool.step()
    room.engine.sync()
    assert isinstance(peer.answer(asked), messages.Committed)
