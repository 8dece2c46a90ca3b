"""Test a broker whose data were restored from a backup: whom it lets in, what it lists and leaves alone.

Seen to fail: with `_nonces.clear()` left out a client of before is let in; with `judge_restored` left out the policy
and its coordinator end the transaction.
"""

import pytest

from journal.constants import RESTORED_STARTS
from journal.folds.table import client_folds
from journal.records.record import Restored
from journal.recovery.start import recover
from journal.transaction_states import State
from tests.broker.transactions.transaction_scene import XID, prepared
from tests.support.broker_room import Peer, Room, refused
from txbroker.broker.sessions.settings import OrphanAction
from txbroker.wire import messages

SECOND = 1_000_000


def be_restored(room, restored=Restored.REPLACEMENT):
    """Begin a new time line on the same disk, as a restore does with what it has copied."""
    room.engine.sync()
    room.engine.close()
    recover(room.filesystem, room.clock, room.journal, client_folds(), restored=restored).close()
    room.start()


def with_one(**settings):
    room = Room(**settings)
    [partition] = room.topic()
    peer = room.peer()
    prepared(peer, partition, 1, XID)
    return room, peer


def listed(room):
    return room.peer().ask(messages.ListTransactions, [State.PREPARED]).transactions


def test_a_client_of_the_time_line_before_is_told_and_so_it_is_after_further_starts():
    room, peer = with_one()
    be_restored(room)
    for _ in range(2):
        again = Peer(room, hello=False)
        again.tell(messages.Hello, messages.MAGIC, list(messages.VERSIONS), "tester")
        again.tell(messages.Login, "ANONYMOUS", b"", peer.former)
        said = refused(again.answers[-1], "BrokerReplaced")
        assert "its data were restored from a backup, and start 65538 began a new time line" in said
        room.restart()
    assert room.engine.start_number == 2 + RESTORED_STARTS + 3


def test_it_is_listed_as_restored_until_a_person_ends_it():
    room, _ = with_one()
    assert [info.restored for info in listed(room)] == [False]
    be_restored(room)
    [info] = listed(room)
    assert info.restored
    status = room.peer().ask(messages.AskStatus).values
    assert (status["transactions_restored"], status["restored_as_copy"]) == (1, 0)
    said = refused(room.peer().ask(messages.Rollback, xid=XID), "RestoredTransaction")
    assert "nothing was changed" in said
    done = room.peer().ask(messages.Rollback, xid=XID, operator=True, by="ann", why="the row is not there")
    assert isinstance(done, messages.Done)
    assert listed(room) == []
    assert room.peer().ask(messages.AskStatus).values["transactions_restored"] == 0


@pytest.mark.parametrize("action", [OrphanAction.ROLL_BACK, OrphanAction.COMMIT])
def test_the_orphan_policy_ends_it_neither_way_and_says_so_once(action):
    room, _ = with_one(orphan_age=SECOND, orphan_action=action)
    be_restored(room)
    room.clock.advance(2 * SECOND)
    for _ in range(3):
        room.broker.expire_transactions(room.engine.now())
        room.engine.sync()
    [info] = listed(room)
    assert info.restored
    assert "restored from a backup" in info.policy.obstacle
    assert room.broker.orphans.ended == 0
    assert isinstance(room.peer().ask(messages.Commit, xid=XID), messages.Committed)


def test_a_copy_gets_an_identity_of_its_own_once():
    room, _ = with_one()
    before = room.broker.greeting._identity.identity
    be_restored(room, Restored.COPY)
    copy = room.broker.greeting._identity.identity
    assert copy not in ("", before)
    room.engine.housekeeping.checkpoint_inline()
    room.restart()
    assert room.broker.greeting._identity.identity == copy
    for request in (messages.Commit, messages.Rollback):
        assert "are a copy of" in refused(room.peer().ask(request, xid=XID), "RestoredTransaction")
    assert room.peer().ask(messages.AskStatus).values["restored_as_copy"] == 1
