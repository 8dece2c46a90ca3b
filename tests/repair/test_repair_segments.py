"""Test that a repair of segments keeps every sound message at its offset and names the others.

Seen to fail, each in a copy: with another's file believed, a damaged file taken for another's, or lost frames taken for
messages by a read or for another segment's by a start.
"""

from __future__ import annotations

import pytest

from journal import check
from journal.check.block_check import Block
from journal.errors import CorruptSegment
from journal.formats import frame
from journal.formats.frame_check import check_run
from journal.formats.index import Anchor
from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from journal.records.record import Messages
from journal.repair.segment_plan import unproven_frames
from journal.testing import MemoryFilesystem
from tests.repair.repair_checks import is_repaired, newest, oldest_log
from tests.repair.repair_scene import all_files, held, named, scene
from tests.support.engine_room import Room, contents, damage


@pytest.fixture(scope="module")
def disk():
    """A directory with everything in it, and what it holds. Clone it."""
    room = scene()
    return room.inner, held(room)


@pytest.fixture
def old():
    """A partition whose journal is gone: three segments, the oldest ones nowhere else."""
    room = Room()
    room.topic("t", 1, segment_bytes=65_536)
    for number in range(40):
        room.send(b"%d" % number + bytes(4000))
        if number % 8 == 7:
            room.checkpoint()
    return room.inner.kill_clone(), held(room)


def test_a_damaged_message_that_nothing_else_holds_is_a_typed_error_and_all_others_are_there(old):
    filesystem, _ = old
    log = oldest_log(filesystem)
    damage(filesystem, log, 64 + 4100)
    diagnosis, after, room = is_repaired(old, filesystem)
    assert named(diagnosis)[0] == {("t", 0): {1}}
    assert [value is None for value in after.values["t", 0][:4]] == [False, True, False, False]
    with pytest.raises(CorruptSegment, match="lost before a repair") as error:
        room.store().read(1, 1 << 20)
    assert (error.value.first_offset, error.value.last_offset) == (1, 1)


def test_a_damaged_length_costs_only_the_messages_that_it_hides(old):
    filesystem, _ = old
    damage(filesystem, oldest_log(filesystem), 4049 * 2 - 13 + 1)
    diagnosis, _, _ = is_repaired(old, filesystem)
    assert len(named(diagnosis)[0]["t", 0]) == 1


@pytest.mark.parametrize("what", ["missing", "shorter", "empty", "zeros"])
def test_a_segment_that_is_gone_keeps_its_offsets_and_says_that_they_are_lost(old, what):
    filesystem, before = old
    log = oldest_log(filesystem)
    file = filesystem.open(log)
    size = file.size()
    if what == "missing":
        filesystem.unlink(log)
    elif what == "shorter":
        file.truncate(size // 2)
    elif what == "empty":
        file.truncate(0)
    else:
        file.write_some(0, [bytes(size)])
    diagnosis, after, _ = is_repaired(old, filesystem)
    lost = named(diagnosis)[0]["t", 0]
    assert lost == {offset for offset, value in enumerate(after.values["t", 0]) if value is None}
    assert 0 < len(lost) < len(before.values["t", 0]) // 2
    assert (0 in lost) == (what != "shorter")


def test_what_the_journal_still_holds_is_put_back_into_its_segment(disk):
    filesystem = disk[0].kill_clone()
    log = newest(filesystem, ".log")
    data = contents(filesystem)[log]
    filesystem.unlink(log)
    diagnosis, _, _ = is_repaired(disk, filesystem)
    assert diagnosis.lost == []
    again = contents(filesystem)[log]
    assert again[64 : len(data)] == data[64:]
    assert again[32:56] == data[32:56], (
        "partition, offset and salt: all that the checkpoint knows of its header"
    )


def test_lost_messages_are_never_sent_nor_taken():
    lost = frame.encode_lost(0, 3, 100)
    with pytest.raises(frame.InvalidFrame, match=f"flag {frame.VERSION | frame.LOST:#x}"):
        check_run(lost)
    with pytest.raises(frame.InvalidFrame, match="cannot be read here"):
        frame.decode_run(lost)


def test_indexes_are_made_again(disk):
    filesystem = disk[0].kill_clone()
    before = {path: data for path, data in contents(filesystem).items() if path.endswith((".index", ".time"))}
    for path in before:
        filesystem.unlink(path)
    is_repaired(disk, filesystem)
    after = contents(filesystem)
    assert {path for path in before if before[path]} == {path for path in before if after.get(path)}


@pytest.mark.parametrize(
    "hurt_it",
    [
        lambda file, at: file.truncate(at + 10),
        lambda file, at: file.write_some(at, [bytes(200)]),
        lambda file, at: file.write_some(at, [b"\x7f"]),
        lambda file, at: file.write_some(at + 10, [b"\x7f"]),
    ],
    ids=["cut", "zeros", "length", "offset"],
)
def test_damage_beside_sound_messages_that_are_nowhere_else_costs_none_of_these(hurt_it):
    """A file that is damaged is not another's: what the journal still knows to differ there is not all that it has."""
    room = Room()
    room.topic("t", 1)
    for number in range(12):
        room.send(b"%d" % number + bytes(9000))
        if number in (3, 7):
            room.checkpoint()
    room.checkpoint()
    room.clock.advance(2_000_000)
    room.engine.housekeeping.run_inline()
    first = min(e.record.base_offset for e in check.walk_journal(room.inner) if type(e.record) is Messages)
    assert first > 2, "the journal has forgotten the first ones"
    before, filesystem = held(room), room.inner.kill_clone()
    [log] = [path for path in all_files(filesystem) if path.endswith(".log")]
    places = [each.position for each in check.walk_segment(filesystem, log, 0)]
    hurt_it(filesystem.open(log), places[first + 1])
    diagnosis, after, _ = is_repaired((filesystem, before), filesystem)
    assert (diagnosis.lost, after.values) == ([], before.values)
    assert len(diagnosis.damage) == 1, "one place is told once"


def test_a_frame_that_leaves_less_than_a_header_for_those_before_it_is_not_kept_though_asked_for():
    """Nothing could stand in such a hole: not even the mark that says that its messages are lost."""
    filesystem = MemoryFilesystem()
    data = bytearray(frame.encode(b"x" * 64, 1) * 3)
    frame.stamp(memoryview(data), 11, 1)
    for before, kept in ((20, [(12, 14)]), (frame.HEADER_BYTES, [(11, 14)])):
        file = filesystem.open("log", create=True)
        file.truncate(0)
        file.write_some(0, [bytes(SEGMENT_HEADER_BYTES + before) + bytes(data)])
        begin = Anchor(10, SEGMENT_HEADER_BYTES, 0)
        block = Block(begin, Anchor(14, SEGMENT_HEADER_BYTES + before + len(data), 0))
        assert [(span.first, span.after) for span in unproven_frames(filesystem, "log", block)] == kept
