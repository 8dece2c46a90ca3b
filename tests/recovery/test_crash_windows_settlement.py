"""The power goes before every single operation while groups settle offsets; docs/recovery.md has the windows."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from journal.errors import OffsetPending
from journal.formats.offset_set_bytes import encode_offsets
from journal.offset_set import OffsetSet
from journal.records.group_entries import (
    Ending,
    GroupPositions,
    GroupSettings,
    RetryRules,
    Settled,
    Unfinished,
)
from journal.records.record import GroupAltered, OffsetsCommitted
from journal.transactions.unsent import Unsent
from tests.support.crash_scene import at_every_operation
from tests.support.engine_room import GroupRoom, decide, run_of, xid_of

ID = b"g" * 16
TRIED = Unfinished(4, 2, 99, "why")


def settled(base, *offsets, unfinished=()):
    finished = OffsetSet()
    for offset in offsets:
        finished.add(offset)
    return Settled(1, 0, base, encode_offsets(finished, base), list(unfinished))


def settle(room, *what):
    """Outside a transaction."""
    room.engine.accept(OffsetsCommitted("g", [], room.engine.now(), ID, list(what)))


def carrying(*what):
    """The contents of a deciding request: a message for partition 1, and what is settled."""
    return Unsent([(2, 1, run_of(b"m"), ())], [GroupPositions("g", ID, [], list(what))])


def state(room):
    """The position, what is finished above it, and details."""
    group = room.groups.find("g")
    kept = group.settlements.get(1)
    return group.position(1), str(kept.finished) if kept else "", dict(kept.unfinished) if kept else {}


def begun(room):
    """Ten messages; the group has finished 0, 1, 3, and has tried 4."""
    room.topic()
    room.send(*[b"%d" % number for number in range(10)])
    settle(room, settled(0, 0, 1, 3, unfinished=[TRIED]))
    room.engine.sync()


BEFORE = (2, "3", {4: TRIED})


def test_what_is_settled_is_finished_or_not_and_surely_if_it_was_answered():
    after_it, again = (2, "3-4, 7", {}), (2, "3, 7", {4: Unfinished(4, 3)})

    def act(room, done):
        settle(room, settled(2, 4, 7))
        room.engine.sync()
        done.append("finished")
        room.checkpoint()
        settle(room, settled(2, unfinished=[Unfinished(4, 3)]))  # a dead letter is sent again
        room.engine.sync()
        done.append("unfinished")
        room.checkpoint()

    found = set()
    for done, _, after in at_every_operation(begun, act, kind=GroupRoom):
        allowed = ((BEFORE, after_it), (after_it, again), (again,))[len(done)]
        assert state(after) in allowed
        found.add((len(done), allowed.index(state(after))))
    assert found == {(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)}


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("added", [False, True], ids=["carried", "added"])
def test_a_one_phase_commit_has_its_messages_and_what_it_finishes_or_neither(added):
    def act(room, done):
        transaction = room.begin()
        if added:
            transaction.add((2, b"m"))
            room.engine.transactions.add_offsets(transaction.number, "g", [], settled=[settled(2, 2, 4, 8)])
            transaction.totals = replace(transaction.totals, requests=2)
        else:
            transaction.unsent = carrying(settled(2, 2, 4, 8))
        transaction.commit().sync()
        done.append("committed")
        room.checkpoint()

    found = set()
    for done, _, after in at_every_operation(begun, act, kind=GroupRoom):
        shown = after.values(2) == [b"m"]
        assert state(after) == ((5, "8", {}) if shown else BEFORE)
        assert shown or not done
        assert after.groups.concerned() == set()
        found.add((bool(done), shown))
    assert found == {(False, False), (False, True), (True, True)}


@pytest.mark.slow
@pytest.mark.parametrize("commit", [True, False], ids=["committed", "rolled back"])
def test_prepared_offsets_are_held_over_checkpoints_while_others_go_on(commit):
    def act(room, done):
        transaction = room.begin()
        transaction.unsent = carrying(settled(2, 2, 8, unfinished=[Unfinished(4, 3)]))
        transaction.prepare("p").sync()
        done.append("prepared")
        room.checkpoint()
        settle(room, settled(2, 5, 6))
        room.engine.sync()
        done.append("others")
        room.checkpoint()
        decide(room, "p", commit)
        done.append("decided")
        room.checkpoint()

    held = {2, 4, 8}
    for done, _, after in at_every_operation(begun, act, kind=GroupRoom):
        live = after.prepared() == {xid_of("p")}
        assert live or "prepared" not in done or "others" in done
        assert not live or "decided" not in done
        position, above, details = state(after)
        others = "5" in above
        assert others or "others" not in done
        if live or not commit or after.values(2) != [b"m"]:
            assert (position, details) == (2, {4: TRIED})
            assert above == ("3, 5-6" if others else "3")
        else:
            assert (position, above, details) == (4, "5-6, 8", {4: Unfinished(4, 3)})
        assert (after.values(2) == [b"m"]) is (commit and not live and "prepared" in done)
        for offset in range(10) if live else ():
            what = [GroupPositions("g", ID, [], [settled(min(offset, 2), offset)])]
            if offset in held:
                with pytest.raises(OffsetPending, match=f"offset {offset} of partition 1"):
                    after.engine.transactions.check_unheld(what)
            else:
                after.engine.transactions.check_unheld(what)
        assert bool(after.groups.holders("g")) is live


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("known", [True, False], ids=["of a group", "that make a group"])
def test_retry_rules_hold_or_those_before_and_surely_if_it_was_answered(known):
    first, second = RetryRules(3, 5, 80, Ending.DROP), RetryRules(1, 0, 0, Ending.STOP)
    steps = [first, second, None]

    def prepare(room):
        begun(room)
        if known:
            room.checkpoint()

    def act(room, done):
        for rules in steps:
            room.engine.accept(GroupAltered(name, GroupSettings(rules), room.engine.now(), ID))
            room.engine.sync()
            done.append("altered")
            room.checkpoint()

    name = "g" if known else "new"
    found = set()
    for done, _, after in at_every_operation(prepare, act, kind=GroupRoom):
        group = after.groups.find(name)
        allowed = [None, *steps][len(done) : len(done) + 2]
        rules = group.settings.retry
        assert rules in allowed
        assert (name in after.groups.groups) is (known or bool(done) or rules is not None)
        assert group.id == (ID if name in after.groups.groups else b"")
        assert state(after) == BEFORE
        found.add((len(done), allowed.index(rules)))
    assert found == {(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0)}
