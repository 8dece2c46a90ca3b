"""A repair that cuts the journal names the groups whose positions, and whose settled offsets, are lost with it."""

import pytest

from journal.records.group_entries import (
    Ending,
    GroupPositions,
    GroupSettings,
    PartitionOffset,
    RetryRules,
    Settled,
)
from journal.records.record import GroupAltered, OffsetsCommitted, PartitionsClaimed
from journal.transactions.unsent import Unsent
from journal.wal.reader import JournalEntry
from journal.walks.journal_walk import walk_journal
from tests.repair.repair_scene import repaired
from tests.support.engine_room import GroupRoom, damage, run_of

ID = b"g" * 16
SETTLED = Settled(1, 0, 0, b"\x02\x01")
POSITION = [PartitionOffset(1, 1)]


def plain(engine, offsets, settled):
    engine.accept(OffsetsCommitted("lost", offsets, engine.now(), ID, settled))


def claim(engine, offsets, settled):
    engine.accept(PartitionsClaimed("lost", "m", [(1, 1)], engine.now(), ID, settled))


def alter(engine, offsets, settled):
    engine.accept(GroupAltered("lost", GroupSettings(RetryRules(3, 0, 0, Ending.DROP)), engine.now(), ID))


def alter_back(engine, offsets, settled):
    engine.accept(GroupAltered("lost", GroupSettings(), engine.now(), ID))


def one_phase(engine, offsets, settled):
    unsent = Unsent([(1, 1, run_of(b"m"), ())], [GroupPositions("lost", ID, offsets, settled)])
    room = engine.room
    transaction = room.begin()
    transaction.unsent = unsent
    transaction.commit()


@pytest.mark.parametrize(
    ("how", "offsets", "settled", "told"),
    [
        (plain, [], [SETTLED], {"finished offsets, or attempts, of group 'lost'"}),
        (plain, POSITION, [], {"positions of group 'lost'"}),
        (claim, [], [SETTLED], {"finished offsets, or attempts, of group 'lost'"}),
        (claim, [], [], set()),
        (alter, [], [], {"the change of the settings of group 'lost': it has those from before"}),
        (alter_back, [], [], {"the change of the settings of group 'lost': it has those from before"}),
        (one_phase, [], [SETTLED], {"finished offsets, or attempts, of group 'lost'"}),
        (one_phase, POSITION, [], {"positions of group 'lost'"}),
    ],
)
def test_what_a_group_loses_is_named(how, offsets, settled, told):
    room = GroupRoom()
    room.topic()
    room.send(b"a", b"b")
    room.send(b"is damaged")
    room.engine.room = room
    how(room.engine, offsets, settled)
    room.engine.sync()
    filesystem = room.inner.kill_clone()
    entries = [each for each in walk_journal(filesystem) if isinstance(each, JournalEntry)]
    damaged = entries[-2]
    damage(filesystem, damaged.path, damaged.position + 20)
    texts = {loss.text for loss in repaired(filesystem).lost}
    assert {text for text in texts if "group" in text} == told
