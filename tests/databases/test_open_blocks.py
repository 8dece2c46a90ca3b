"""Test which block counts as left behind, and the error about it: each rule of ``open_blocks`` alone."""

import gc
import logging
import sys

import pytest

from journal.transaction_states import State
from txbroker import errors
from txbroker.databases import open_blocks
from txbroker.databases.block_progress import BlockProgress, Step
from txbroker.databases.open_blocks import Place


class Side:
    """The broker's part of a block, which notes what it is told."""

    def __init__(self, connection="broker"):
        self.connection = connection
        self.told = []
        self.then = lambda: None

    def tell(self, commit, key=""):
        self.told.append((commit, key))
        self.then()

    def abandon(self):
        self.told.append("left to the resolver")


class Block:
    """A block that its program has, or has lost."""

    def __init__(self, who="me", frame=None, instruction=0, side=None, step=Step.OPEN):
        self.place = Place(who, frame, instruction)
        self.progress = BlockProgress(side or Side())
        self.progress.step = step
        self.is_out_of_transaction = False


class Handle:
    """A database connection."""


@pytest.fixture(autouse=True)
def blocks(monkeypatch):
    """No block of any other test is open."""
    monkeypatch.setattr(open_blocks, "_in_block", {})
    return open_blocks._in_block


@pytest.fixture
def handle():
    return Handle()


def lost(handle, step=Step.OPEN, key="", outcome=State.ACTIVE, connection="broker"):
    """Enter a block that nobody has any more; return its side."""
    side = Side(connection)
    block = Block(side=side, step=step)
    block.progress.key, block.progress.outcome = key, outcome
    assert open_blocks.enter(handle, block) is None
    return side


def here():
    frame = sys._getframe(1)
    return {"frame": frame, "instruction": frame.f_lasti}


def test_a_block_that_somebody_has_keeps_others_from_its_database_connection(handle):
    block = Block()
    open_blocks.enter(handle, block)
    with pytest.raises(errors.Misuse, match="in a block already"):
        open_blocks.enter(handle, Block())
    assert block.progress.side.told == []
    assert open_blocks.enter(handle, block) is None, "it looks again after what was left has been rolled back"
    assert open_blocks.enter(Handle(), Block()) is None


@pytest.mark.parametrize(
    ("step", "outcome", "key", "told"),
    [
        (Step.OPEN, State.ACTIVE, "", [(False, "")]),
        (Step.PREPARED, State.ACTIVE, "k", ["left to the resolver"]),
        (Step.COMMITTING, State.ACTIVE, "k", ["left to the resolver"]),
        (Step.DECIDED, State.COMMITTED, "k", [(True, "k")]),
        (Step.DECIDED, State.COMMITTED, "", [(False, "")]),
        (Step.DECIDED, State.ROLLED_BACK, "k", [(False, "")]),
        (Step.NEW, State.ACTIVE, "", []),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_the_brokers_side_of_a_block_that_nobody_has_is_ended_as_far_as_it_had_come(
    handle, step, outcome, key, told
):
    side = lost(handle, step, key, outcome)
    found = open_blocks.enter(handle, Block())
    assert side.told == told
    assert found.progress.step is Step.ENDED
    assert found.progress.outcome is (
        State.PREPARED if told == ["left to the resolver"] else found.progress.outcome
    )
    assert found.progress.is_lost


def test_what_it_left_in_the_database_is_looked_at_until_that_is_done_once(handle):
    side = lost(handle)
    for _ in range(2):  # the first look was interrupted
        left = open_blocks.enter(handle, Block())
        assert left is not None
    assert side.told == [(False, "")], "and the broker is told once"
    open_blocks.forget(handle, left)
    assert open_blocks.enter(handle, Block()) is None


def test_a_block_that_is_over_is_remembered_for_nothing(handle):
    block = Block()
    open_blocks.enter(handle, block)
    block.progress.step = Step.ENDED
    assert open_blocks.enter(handle, Block()) is None
    assert block.progress.side.told == []


def test_one_whose_side_was_ended_from_outside_is_looked_at_though_its_program_has_it(handle):
    block = Block()
    open_blocks.enter(handle, block)
    block.progress.end_without_program()
    block.is_out_of_transaction = True
    assert open_blocks.enter(handle, Block()) is not None


def test_the_same_with_again_is_not_inside_of_itself(handle):
    places = [here() for _ in range(2)]
    first, again = (Block(**place) for place in places)
    open_blocks.enter(handle, first)
    left = open_blocks.enter(handle, again)
    assert left.block() is first
    assert first.progress.side.told == [(False, "")]


@pytest.mark.parametrize(
    ("who", "instruction"), [("me", 1), ("another", 0)], ids=["another with", "another thread"]
)
def test_another_with_may_be_inside_and_one_of_another_thread_is_nobodys_business(handle, who, instruction):
    frame = sys._getframe()
    first = Block("me", frame, 0)
    open_blocks.enter(handle, first)
    first.is_out_of_transaction = who == "another"
    with pytest.raises(errors.Misuse, match="in a block already"):
        open_blocks.enter(handle, Block(who, frame, instruction))


def test_of_tasks_no_frame_is_known_so_the_same_task_may_be_inside(handle):
    first = Block("task")
    open_blocks.enter(handle, first)
    with pytest.raises(errors.Misuse, match="in a block already"):
        open_blocks.enter(handle, Block("task"))


def test_a_block_whose_transaction_its_own_program_has_ended_is_left(handle):
    first = Block()
    open_blocks.enter(handle, first)
    first.is_out_of_transaction = True
    assert open_blocks.enter(handle, Block()).block() is first
    assert first.progress.side.told == [(False, "")]


def test_lost_blocks_of_other_databases_are_ended_where_their_broker_is_used_again(blocks, handle):
    others = [Handle(), Handle(), Handle()]
    same, another = lost(others[0]), lost(others[1], connection="another broker")
    held = Block()
    open_blocks.enter(others[2], held)
    open_blocks.enter(handle, Block())
    assert (same.told, another.told, held.progress.side.told) == ([(False, "")], [], [])
    assert blocks[id(others[0])].progress is None, "what it left in its database is still to be looked at"


def test_one_that_is_over_is_not_looked_at_again_because_another_one_begins(blocks, handle):
    elsewhere = Handle()
    side = lost(elsewhere)
    blocks[id(elsewhere)].progress.tell()
    assert blocks[id(elsewhere)].is_over
    open_blocks.enter(handle, Block())
    assert blocks[id(elsewhere)].is_over
    assert side.told == [(False, "")]


def test_a_broker_that_cannot_be_told_keeps_no_block_from_beginning(handle, caplog):
    side = lost(Handle())

    def fails():
        raise errors.ConnectionClosed("it is closed")

    side.then = fails
    with caplog.at_level(logging.WARNING):
        assert open_blocks.enter(handle, Block()) is None
    assert "could not be rolled back at the broker: it is closed" in caplog.text


def test_what_another_thread_has_made_of_the_connection_meanwhile_stands(blocks, handle):
    elsewhere = Handle()
    side = lost(elsewhere)
    newer = Block("another", side=Side("another broker"))

    def another_thread():
        open_blocks.forget(elsewhere, blocks[id(elsewhere)])
        blocks[id(elsewhere)] = entry

    open_blocks.enter(elsewhere2 := Handle(), newer)
    entry = blocks.pop(id(elsewhere2))
    side.then = another_thread
    open_blocks.enter(handle, Block())
    assert blocks[id(elsewhere)] is entry


def test_leaving_and_looking_take_away_that_block_only(blocks, handle):
    first, second = Block(), Block()
    open_blocks.enter(handle, first)
    entry = blocks[id(handle)]
    first.progress.step = Step.ENDED
    open_blocks.enter(handle, second)
    open_blocks.leave(handle, first)
    open_blocks.forget(handle, entry)
    assert blocks[id(handle)].block() is second
    open_blocks.leave(handle, second)
    open_blocks.leave(handle, second)
    assert blocks == {}


def test_the_collector_is_asked_only_for_blocks_of_frames_that_have_ended(handle, monkeypatch):
    collected = []
    monkeypatch.setattr(gc, "collect", lambda: collected.append(True))

    def ended():
        return Block(**here())

    elsewhere = [Handle() for _ in range(4)]
    open_blocks.enter(elsewhere[0], one := Block(**here()))
    open_blocks.enter(elsewhere[1], Block("task"))
    open_blocks.enter(elsewhere[2], other := ended())
    assert collected == [], "none was open but of this frame"
    open_blocks.enter(elsewhere[3], another := Block("other thread", **here()))
    assert collected == [], "nor any of that thread"
    other.progress.step = Step.ENDED
    open_blocks.enter(handle, last := Block(**here()))
    assert collected == []
    other.progress.step = Step.OPEN
    open_blocks.enter(Handle(), Block(**here()))
    assert collected == [True]
    assert [each.progress.step for each in (one, another, last)] == [Step.OPEN] * 3
