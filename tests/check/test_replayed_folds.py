"""Test that folds made from the journal's records are compared with the newest checkpoint, row by row."""

import pytest

from journal.check import Level, verify
from journal.formats.checkpoint import read_checkpoint, write_checkpoint
from journal.formats.filenames import checkpoint_file
from journal.records.group_entries import (
    Ending,
    GroupSettings,
    PartitionOffset,
    RetryRules,
    Settled,
    Unfinished,
)
from journal.records.outcome_entry import OUTCOMES_TOPIC
from journal.records.record import GroupAltered, GroupDeleted, Messages, PartitionsClaimed
from journal.transaction_states import Totals
from journal.xid import Xid
from tests.support.broker_room import Room, frames
from tests.support.builders import small_files
from txbroker.wire import messages

GROUP = b"g" * 16
RULES = RetryRules(3, 5, 80, Ending.STOP)


@pytest.fixture
def room():
    """Two checkpoints; a producer, positions, settled offsets, a claim, retry rules and a prepared position are in the
    newest alone.
    """
    room = Room(small_files())
    [number] = room.topic("t")
    room.engine.housekeeping.checkpoint_inline()
    peer = room.peer()
    opened = peer.ask(messages.OpenProducer, "p")
    peer.send(number, b"a", b"b", producer_id=opened.producer_id)
    peer.send(number, b"c", b"d", b"e")
    peer.ask(messages.ClaimPartitions, "g", "m", [number], GROUP)
    peer.ask(messages.CommitOffsets, "g", [PartitionOffset(number, 1, 1)], GROUP)
    settled = Settled(number, 1, 1, b"\x02\x04", [Unfinished(2, 1, 0, "why")])
    room.broker.consuming.settle("g", GROUP, [], [settled])
    room.engine.accept(GroupAltered("g", GroupSettings(RULES), room.engine.now()))
    peer.tell(messages.AddOffsets, 1, "other", [PartitionOffset(number, 2)], id=GROUP)
    peer.ask(messages.Prepare, 1, Xid(1, b"x", b""), Totals(0, 1, 0))
    room.engine.housekeeping.checkpoint_inline()
    return room


def found(room):
    return [each for each in verify(room.filesystem.kill_clone(), Level.DEEP) if not each.harmless]


def test_a_sound_directory_has_nothing_to_tell(room):
    assert found(room) == []


@pytest.mark.parametrize(
    ("fold", "place", "value", "says", "partition"),
    [
        ("producers", (0, 0), 9, "the number of the next producer is 9, by the journal 2", ""),
        ("producers", (1, 1), 3, "producer 1 (epoch, name, last used, owner, principal) is (3, 'p', ", ""),
        ("producers", (1, 4, 0, 1), 1, "what producer 1 sent to partition number 1 (next, end, runs)", "t"),
        ("producers", (1, 4), [], "(next, end, runs) is not there, by the journal (2, 2, [0], [0])", "t"),
        ("groups", (0, 0), 5, "the last generation is 5, by the journal 1", ""),
        ("groups", (1, 1), b"else", "the id of group 'g' is 656c7365, by the journal 6767", ""),
        (
            "groups",
            (1, 2, 0, 1),
            2,
            "of group 'g' in partition number 1 is (2, ''), by the journal (1, '')",
            "t",
        ),
        (
            "groups",
            (1, 3),
            [],
            "the claim (generation, member, kind) of group 'g' in partition number 1",
            "t",
        ),
        (
            "groups",
            (1, 4, 0, 1),
            [b"\x02\x08"],
            "the finished offsets of group 'g' in partition number 1 is 4, by",
            "t",
        ),
        ("groups", (1, 4, 0, 2, 0, 1), 7, "the details of unfinished offsets of group 'g'", "t"),
        (
            "groups",
            (1, 4),
            [],
            "finished offsets of group 'g' in partition number 1 is not there, by the journal 3",
            "t",
        ),
        (
            "groups",
            (1, 5, 0, 0),
            7,
            "the settings of group 'g' is GroupSettings(retry=RetryRules(attempts=7, ",
            "",
        ),
        ("groups", (1, 5, 0, 1), 6, "retry=RetryRules(attempts=3, pause=6, longest=80, ", ""),
        ("groups", (1, 5, 0, 2), 81, "retry=RetryRules(attempts=3, pause=5, longest=81, ", ""),
        (
            "groups",
            (1, 5, 0, 3),
            0,
            "ending=<Ending.DEAD_LETTER: 0>, target=''), expiry=None, tags=[]), by the journal GroupSettings(",
            "",
        ),
        (
            "groups",
            (1, 5, 0),
            None,
            "is GroupSettings(retry=None, expiry=None, tags=[]), by the journal ",
            "",
        ),
        ("groups", (1, 5, 1), 8, "expiry=8, tags=[]), by the journal ", ""),
        ("groups", (1, 6), 8, "when group 'g' was used last is 8, by the journal ", ""),
        ("groups", (2, 2), False, "is ('active', ", ""),
        ("identity", (0,), "5f", "the identity of the data is 5f, by the journal", ""),
        ("starts", (0, 1), b"n" * 16, "the nonce of start 1 is 6e6e", ""),
    ],
)
def test_what_a_checkpoint_says_otherwise_is_named(room, fold, place, value, says, partition):
    lsn = room.engine.housekeeping.checkpoint_lsn
    old = read_checkpoint(room.filesystem, lsn)
    reword(room, old, fold, place, value)
    [finding] = [each for each in found(room) if says in each.problem]
    assert (finding.path, finding.affects.topic or "") == (checkpoint_file(lsn), partition)


def reword(room, old, fold, place, value):
    """Put another value into a row of a checkpoint, with checksums that fit."""
    row = old.folds[fold]
    for each in place[:-1]:
        row = row[each]
    row[place[-1]] = value
    folds = {name: iter(rows) for name, rows in old.folds.items()}
    write_checkpoint(room.filesystem, old.header, folds, old.stores)


@pytest.mark.parametrize(
    ("place", "value", "says"),
    {
        "a set that is none": ((1, 4, 0, 1), [b"\x07"], "bytes of a set of offsets are of kind 7"),
        "a set in another form": ((1, 4, 0, 1), [b"\x01\x02\x01"], "not in the only form"),
        "a last piece of nothing": ((1, 4, 0, 1), [b"\x02\x04", b""], "an empty last piece"),
        "the position is finished": ((1, 4, 0, 1), [b"\x02\x05"], "has finished offset 1, its position"),
        "no position": ((1, 4, 0, 0), 7, "in partition number 7 has settled offsets and no position"),
        "details below the position": (
            (1, 4, 0, 2, 0, 0), 0, "has details of offset 0, which is finished",
        ),
        "details of what is finished": (
            (1, 4, 0, 2, 0, 0), 3, "has details of offset 3, which is finished",
        ),
        "negative attempts": ((1, 4, 0, 2, 0, 1), -1, "Expected `int` >= 0"),
        "no attempts": ((1, 5, 0, 0), 0, "Expected `int` >= 1"),
        "too long a pause": ((1, 5, 0, 1), 1 << 50, "Expected `int` <= 31622400000000"),
        "an unknown ending": ((1, 5, 0, 3), 3, "Invalid enum value 3"),
        "a negative time of expiry": ((1, 5, 1), -1, "Expected `int` >= 0"),
        "a staged set that is none": (
            (2, 3, 0, 4), [[1, 0, 0, b"\x02\x00", []]], "not in the only form",
        ),
    }.values(),
)  # fmt: skip
def test_a_row_of_a_group_that_cannot_be_is_refused_and_a_start_goes_back_to_the_checkpoint_before(
    room, place, value, says
):
    lsn = room.engine.housekeeping.checkpoint_lsn
    reword(room, read_checkpoint(room.filesystem, lsn), "groups", place, value)
    [finding] = [each for each in verify(room.filesystem.kill_clone(), Level.DEEP) if says in each.problem]
    assert finding.path == checkpoint_file(lsn)
    room.filesystem = room.filesystem.kill_clone()
    room.start()
    group = room.broker.groups.find("g")
    kept = group.settlements[1]
    assert (str(kept.finished), [*kept.unfinished], group.settings.retry) == ("3", [2], RULES)


def test_the_settings_of_the_outcome_archive_are_those_of_the_last_record_that_set_them():
    room = Room(small_files(outcome_archive=True))
    room.engine.housekeeping.checkpoint_inline()
    room.journal = small_files(outcome_archive=True, outcome_archive_age=7)
    room.restart()
    room.engine.housekeeping.checkpoint_inline()
    assert found(room) == []
    old = read_checkpoint(room.filesystem, room.engine.housekeeping.checkpoint_lsn)
    [row] = [each for each in old.folds["catalog"][1:] if each[0] == OUTCOMES_TOPIC]
    row[1][4] = 8
    folds = {name: iter(rows) for name, rows in old.folds.items()}
    write_checkpoint(room.filesystem, old.header, folds, old.stores)
    [by_journal, _] = found(room)  # and its log has other settings than its topic
    assert by_journal.problem.startswith(f"it has topic {OUTCOMES_TOPIC!r} as ")


@pytest.mark.parametrize(
    ("ranges", "says"),
    [
        ([(1, 1)], "partition number 3: it has a log, no topic has it"),
        ([(1, 1), (3, 2), (5, 1)], "partition number 5: its topic has it, it has no log"),
        ([(3, 2), (1, 1)], "partition number 3 is ('t', 0) by its topic and ('t', 1) by its log"),
        ([(1, 1), (3, 1), (4, 1)], "it has topic 't' as "),
        ([(1, 1), (4, 1), (3, 1)], "partition number 3 is ('t', 2) by its topic and ('t', 1) by its log"),
    ],
)
def test_the_partitions_of_a_topic_are_those_of_all_records_that_made_some(room, ranges, says):
    room.topic("u")
    room.peer().ask(messages.AlterTopic, "t", room.topic_id("t"), {}, 3)
    room.engine.housekeeping.checkpoint_inline()
    assert found(room) == []
    old = read_checkpoint(room.filesystem, room.engine.housekeeping.checkpoint_lsn)
    [row] = [each for each in old.folds["catalog"][1:] if each[0] == "t"]
    assert row[2] == [[1, 1], [3, 2]]
    row[2] = ranges
    folds = {name: iter(rows) for name, rows in old.folds.items()}
    write_checkpoint(room.filesystem, old.header, folds, old.stores)
    told = [each.problem for each in found(room)]
    assert [each for each in told if each.startswith(says)], told


@pytest.mark.parametrize(
    ("record", "data", "says"),
    [
        (
            lambda at: Messages(1, 5, 1, at, 1, 0, 7),
            b"c",
            "Messages at LSN {}: producer 1 in epoch 0 sent it as its",
        ),
        (lambda at: GroupDeleted("none", at), b"", "GroupDeleted at LSN {}: it does not continue the groups"),
        (lambda at: PartitionsClaimed("g", "m", [(1, 1)], at), b"", "PartitionsClaimed at LSN {}: "),
        (lambda at: GroupAltered("none", GroupSettings(RULES), at), b"", "GroupAltered at LSN {}: "),
    ],
)
def test_a_record_that_does_not_continue_a_fold_is_named_once(room, record, data, says):
    """Of such a fold nothing more is said; the engine that wrote it here kept no such fold."""
    engine, store = room.engine, room.engine.catalog.stores[1]
    view = store.append(frames(data), 1, engine.now(), engine.wall_offset) if data else b""
    lsn = engine.queue(record(engine.now()), view)
    engine._filling.ends[store] = store.end_offset
    engine.sync()
    assert [each.problem.startswith(says.format(lsn)) for each in found(room)] == [True]
