"""Test files under the names of others, and bytes of one log in another's: they are reported and repaired.

Every frame of a log fulfils its own checksum wherever it lies. Whose it is, the header of its segment says, and the
running checksum in index and checkpoint.

Seen to fail: with the salt not compared, blocks not compared, a block's frames trusted for their own checksums, a file
looked for under its own name alone, or the checkpoint not rewritten (each in a copy).
"""

from __future__ import annotations

import contextlib
from functools import cache
from itertools import permutations
from random import Random

import pytest

from journal import check
from journal.errors import CorruptSegment, Irreparable, TxBrokerError
from journal.formats import frame
from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from journal.repair import diagnose
from journal.testing import MemoryFilesystem
from journal.walks.segment_walk import header_of
from tests.recovery.recovery_scene import refusal
from tests.repair.repair_checks import damages, is_repaired
from tests.repair.repair_scene import Held, held, named, repaired, scene
from tests.support.engine_room import Room, contents, damage

VALUE = 4096 - frame.HEADER_BYTES
"""So that each message of a log fed in lockstep with another takes a page, and begins where the other's does."""


@cache
def lockstep() -> tuple[MemoryFilesystem, Held]:
    """Two partitions with as many messages of the same sizes, in several segments; most are in no journal file."""
    room = Room()
    room.topic("t", 2, segment_bytes=65_536)
    for number in range(45):
        for partition in (1, 2):
            room.send((b"%d of %d." % (number, partition)).ljust(VALUE, b"."), number=partition)
        if number % 8 == 7:
            room.checkpoint()
    room.checkpoint()
    room.clock.advance(2_000_000)
    room.engine.housekeeping.run_inline()
    return room.inner.kill_clone(), held(room)


def logs(filesystem):
    return sorted(path for path in contents(filesystem) if path.endswith(".log"))


def partition_of(path):
    return path.split("/")[1]


def put(filesystem, path, data):
    file = filesystem.open(path, create=True)
    file.truncate(0)
    file.write_some(0, [data])
    file.force()


def exchange(filesystem, one, other):
    filesystem.rename(one, "x")
    filesystem.rename(other, one)
    filesystem.rename("x", other)


@pytest.mark.slow
def test_a_segment_copied_over_that_of_another_partition_serves_none_of_its_messages():
    disk, before = lockstep()
    pairs = [(a, b) for a, b in permutations(logs(disk), 2) if partition_of(a) != partition_of(b)]
    assert len(pairs) > 10
    for path, other in pairs:
        filesystem = disk.kill_clone()
        put(filesystem, path, contents(disk)[other])
        assert refusal(filesystem.kill_clone(), CorruptSegment).path == path
        diagnosis, after, _ = is_repaired((disk, before), filesystem)
        lost = named(diagnosis)[0]
        for key, values in before.values.items():
            gone = lost.get(key, set())
            assert [v for n, v in enumerate(after.values[key]) if n not in gone] == [
                v for n, v in enumerate(values) if n not in gone
            ]


@pytest.mark.slow
def test_two_segments_that_have_changed_places_are_moved_back_and_nothing_is_lost():
    disk, before = lockstep()
    for one, other in [(a, b) for a, b in permutations(logs(disk), 2) if a < b]:
        filesystem = disk.kill_clone()
        exchange(filesystem, one, other)
        diagnosis, after, _ = is_repaired((disk, before), filesystem)
        assert (diagnosis.lost, after) == ([], before)
        assert {change.moved_from for change in diagnosis.changes if change.path in (one, other)} == {
            one,
            other,
        }
        assert diagnosis.size < 4096, "moved, and not copied"


def test_directories_that_have_changed_places_are_told_by_their_headers_and_lose_nothing():
    disk, before = lockstep()
    filesystem = disk.kill_clone()
    first, second = sorted({path.rpartition("/")[0] for path in logs(disk)})
    for name in sorted(
        {path.rpartition("/")[2] for path in contents(disk) if path.startswith("partitions/")}
    ):
        exchange(filesystem, f"{first}/{name}", f"{second}/{name}")
    told = damages(filesystem)
    assert all(finding.foreign for finding in told)
    assert any(
        "it is the segment of partition number 2 from offset 0 on" in finding.problem for finding in told
    )
    diagnosis, after, _ = is_repaired((disk, before), filesystem)
    assert (diagnosis.lost, after) == ([], before)


def test_files_under_any_name_are_found_by_their_headers():
    disk, before = lockstep()
    filesystem = disk.kill_clone()
    filesystem.make_directory("partitions/lost+found")
    for number, path in enumerate(logs(disk)):
        filesystem.rename(path, f"partitions/lost+found/#{number}")
    diagnosis, after, _ = is_repaired((disk, before), filesystem)
    assert (diagnosis.lost, after) == ([], before)


@pytest.mark.slow
def test_a_page_of_another_log_is_found_though_its_frames_are_sound_and_fit():
    """What a disk that writes to the wrong place leaves: page n of one file as page n of another."""
    disk, before = lockstep()
    one, other = [path for path in logs(disk) if path.endswith(f"{0:032d}.log")]
    for page in range(1, 15):
        filesystem = disk.kill_clone()
        at = SEGMENT_HEADER_BYTES + page * 4096
        put_page = contents(disk)[other][at : at + 4096]
        filesystem.open(one).write_some(at, [put_page])
        found = [each for each in check.walk_segment(filesystem, one, 0) if isinstance(each, check.Finding)]
        assert found == [], "no frame of it tells"
        [block] = damages(filesystem)
        assert "every frame fulfils its own" in block.problem
        assert block.affects.first_offset <= page <= block.affects.last_offset
        diagnosis, after, _ = is_repaired((disk, before), filesystem)
        key = block.affects.topic, block.affects.partition
        lost = named(diagnosis)[0][key]
        assert page in lost
        assert len(lost) <= 6, "a block, and no more"
        assert all(v in (None, b) for v, b in zip(after.values[key], before.values[key], strict=True))


def test_what_only_its_own_checksum_proves_stays_if_the_operator_says_so():
    disk, _ = lockstep()
    filesystem = disk.kill_clone()
    log = logs(disk)[0]
    damage(
        filesystem, log, SEGMENT_HEADER_BYTES + 5 * 4096 + 1
    )  # of a length: nothing proves the others of the block
    without = named(diagnose(filesystem))[0]["t", 0]
    assert 5 in without
    assert len(without) > 1
    diagnosis = repaired(filesystem, accept_unproven=True)
    assert any(text.endswith(": kept all the same") for text in (loss.text for loss in diagnosis.lost))
    after = held(Room(filesystem))
    assert [n for n, value in enumerate(after.values["t", 0]) if value is None] == [5]
    assert damages(filesystem) == []


@pytest.mark.slow
def test_a_frame_inside_a_value_is_never_taken_for_a_message():
    """Values of messages are others' frames, stamped with offsets that fit; what surrounds them is damaged."""
    room = Room()
    room.topic("t", 1, segment_bytes=65_536)
    for number in range(60):
        inner = b""
        for step in range(3):
            forged = bytearray(frame.encode(b"forged %d.%d" % (number, step), 1))
            frame.stamp(memoryview(forged), number + step, 1)
            inner += bytes(forged)
        room.send(inner + bytes(2_000))
        if number % 8 == 7:
            room.checkpoint()
    room.checkpoint()
    room.clock.advance(2_000_000)
    room.engine.housekeeping.run_inline()
    disk, before = room.inner.kill_clone(), held(room)
    log = logs(disk)[0]
    places = [each.position for each in check.walk_segment(disk, log, 0)]
    for number in range(1, len(places) - 1, 3):
        for harm in (1, 9, 30):
            filesystem = disk.kill_clone()
            damage(filesystem, log, places[number] + harm)
            accepting = filesystem.kill_clone()
            repaired(accepting, accept_unproven=True)
            assert damages(accepting) == [], "whatever may lie there, it is of whole frames again"
            _, after, _ = is_repaired((disk, before), filesystem)
            served = [value for value in after.values["t", 0] if value is not None]
            assert not [value for value in served if value.startswith(b"forged")]


def test_a_damaged_header_is_written_anew_and_costs_nothing():
    disk, before = lockstep()
    for path in logs(disk):
        filesystem = disk.kill_clone()
        damage(filesystem, path, 20)
        assert held(Room(filesystem.kill_clone())) == before, "a start goes without it"
        diagnosis, after, _ = is_repaired((disk, before), filesystem)
        assert (diagnosis.lost, after) == ([], before)
        header = header_of(filesystem, path)
        assert (header.start, header.nonce) == (0, bytes(16)), "and says that a repair made it"


def test_staged_files_that_have_changed_places_lose_no_transaction():
    room = Room()
    room.topic("t", 2)
    for name in ("one", "two"):
        room.begin((1, name.encode()), (2, name.encode())).prepare(name)
    for number in range(24):
        room.send(bytes(9_000))
        if number % 6 == 5:
            room.checkpoint()
    first = min(
        entry.lsn for entry in check.walk_journal(room.inner) if isinstance(entry, check.JournalEntry)
    )
    rows = [transaction.staged.entries for transaction in room.engine.transactions.live.values()]
    assert all(entry.lsn < first for entries in rows for entry in entries), "nothing else has their frames"
    room.clock.advance(2_000_000)
    room.engine.housekeeping.run_inline()
    disk, before = room.inner.kill_clone(), held(room)
    one, other = sorted(path for path in contents(disk) if path.endswith(".staged"))
    filesystem = disk.kill_clone()
    exchange(filesystem, one, other)
    assert any("it is that of transaction" in finding.problem for finding in damages(filesystem))
    diagnosis, after, _ = is_repaired((disk, before), filesystem)
    assert (diagnosis.lost, diagnosis.rollbacks, after) == ([], [], before)
    filesystem = disk.kill_clone()
    damage(filesystem, one, 3)
    [found] = damages(filesystem)
    assert found.problem == "its header is damaged; its frames are sound"
    diagnosis, after, _ = is_repaired((disk, before), filesystem)
    assert (diagnosis.lost, diagnosis.rollbacks, after) == ([], [], before)


def harm(random, filesystem, older):
    """Exchange, copy or set back some files of the directory."""
    files = sorted(path for path in contents(filesystem) if path.startswith(("partitions/", "staged/")))
    mine = [path for path in files if path.endswith((".log", ".index", ".time", ".staged"))]
    one = random.choice(mine)
    match random.choice(("exchange", "copy", "older", "page", "exchange directories", "rename")):
        case "exchange":
            exchange(filesystem, one, random.choice([path for path in mine if path != one]))
        case "copy":
            put(filesystem, one, contents(filesystem)[random.choice(mine)])
        case "older":
            put(filesystem, one, contents(older).get(one, b""))
        case "page":
            data, other = contents(filesystem)[one], contents(filesystem)[random.choice(mine)]
            at = random.randrange(max(1, len(data))) // 512 * 512
            size = random.choice((512, 4096))
            patched = (
                data[:at] + other[at : at + size].ljust(min(size, len(data) - at), b"\0")[: len(data) - at]
            )
            put(filesystem, one, patched + data[at + size :])
        case "exchange directories":
            first, second = random.sample(sorted({path.rpartition("/")[0] for path in mine}), 2)
            names = {path.rpartition("/")[2] for path in mine if path.startswith((f"{first}/", f"{second}/"))}
            for name in sorted(names):
                there = [d for d in (first, second) if filesystem.exists(f"{d}/{name}")]
                if len(there) == 2:
                    exchange(filesystem, f"{first}/{name}", f"{second}/{name}")
                else:
                    target = second if there == [first] else first
                    filesystem.rename(f"{there[0]}/{name}", f"{target}/{name}")
        case "rename":
            base = random.randrange(1, 1 << 40)
            filesystem.rename(one, f"{one.rpartition('/')[0]}/{base:032d}.{one.rpartition('.')[2]}")


@cache
def moments() -> tuple[MemoryFilesystem, MemoryFilesystem, Held]:
    """A directory as it was, as it is now, and what it holds now."""
    room = scene(3)
    older = room.inner.kill_clone()
    for step in range(6):
        for number in (1, 2, 3, 4):
            room.send(b"later %d" % step + bytes(5_000), number=number)
        room.checkpoint()
    room.clock.advance(2_000_000)
    room.engine.housekeeping.run_inline()
    return older, room.inner.kill_clone(), held(room)


CASES = 25
OLDER_CASES = 12


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_exchanged_nothing_is_invented_and_what_is_missing_is_named(seed):
    random = Random(seed)
    older, disk, before = moments()
    for _ in range(CASES):
        filesystem = disk.kill_clone()
        for _ in range(random.choice((1, 1, 2, 3))):
            harm(random, filesystem, older)
        accepting = filesystem.kill_clone()
        is_repaired((disk, before), filesystem)
        repaired(accepting, accept_unproven=True)
        assert damages(accepting) == []
        held(Room(accepting))


@pytest.mark.slow
@pytest.mark.sampled(test=5)
@pytest.mark.parametrize("seed", range(4, 24))
def test_whatever_is_exchanged_nothing_is_invented_and_what_is_missing_is_named_more_often(seed):
    test_whatever_is_exchanged_nothing_is_invented_and_what_is_missing_is_named(seed)


def set_back(random, filesystem, older):
    """Some files, folders or partitions as they were, as a copy that is put back in part leaves them; but not all."""
    old, new = contents(older), contents(filesystem)
    changed = [
        path
        for path in sorted({*old, *new})
        if old.get(path) != new.get(path) and path not in ("lock", "ballast") and "spare" not in path
    ]
    folders = sorted({path.rpartition("/")[0] for path in changed if path.startswith("partitions/")})
    chosen: set[str] = set()
    how = random.choice(("files", "folders", "partitions", "mixed"))
    if how in ("files", "mixed"):
        chosen.update(random.sample(changed, random.randint(1, 6)))
    if how in ("folders", "mixed"):
        tops = random.sample(
            ("journal", "checkpoints", "staged", "witness", "partitions"), random.randint(1, 4)
        )
        chosen.update(path for path in changed if path.split("/")[0] in tops)
    if how == "partitions":
        whose = random.sample(folders, random.randint(1, len(folders) - 1))
        chosen.update(path for path in changed if path.rpartition("/")[0] in whose)
    for path in sorted(chosen) if chosen != {*changed} else ():
        if path in old:
            filesystem.make_directory(path.rpartition("/")[0])
            put(filesystem, path, old[path])
        elif filesystem.exists(path):
            filesystem.unlink(path)
    return sorted(chosen)


def starts_sound_or_refuses(filesystem, before):
    """A start says what is wrong, and has changed nothing then; or it serves what was acknowledged, all of it."""
    files = contents(filesystem)
    found = damages(filesystem.kill_clone())
    try:
        room = Room(filesystem)
    except TxBrokerError:
        assert {**contents(filesystem), "lock": b""} == {**files, "lock": b""}
        assert found, "the start refuses what verify finds sound"
        return
    after = held(room)
    assert after.prepared == before.prepared
    assert after.values.keys() == before.values.keys()
    for key, values in before.values.items():
        assert len(after.values[key]) == len(values)
        lost = [now for now, then in zip(after.values[key], values, strict=True) if now != then]
        assert set(lost) <= {None}, "another message"
        assert found or not lost, "a read fails where verify finds all sound"


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize(
    "seed", [0, 32, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(1, 32))]
)
def test_files_of_an_older_moment_are_never_taken_for_all_there_is(seed):
    """Journal, checkpoints and witness among them: the start refuses, and a repair says what is or may be missing.

    Seed 32 found a repair that kept a checkpoint to which the journal no longer led, which verify then found damaged.
    """
    random = Random(seed)
    older, disk, before = moments()
    for _ in range(OLDER_CASES):
        filesystem = disk.kill_clone()
        chosen = set_back(random, filesystem, older)
        starts_sound_or_refuses(filesystem.kill_clone(), before)
        has_proof = {"journal", "checkpoints"}.isdisjoint(path.split("/")[0] for path in chosen)
        with contextlib.nullcontext() if has_proof else contextlib.suppress(Irreparable):
            is_repaired((disk, before), filesystem)


def test_an_older_journal_beside_an_older_log_is_repaired_with_a_word_on_what_may_be_missing():
    """Of that log nothing tells that it had more; the newer messages of another tell that there was more."""
    older, disk, before = moments()
    filesystem = disk.kill_clone()
    old, new = contents(older), contents(disk)
    first = min(path.rpartition("/")[0] for path in new if path.startswith("partitions/"))
    for path in sorted({*old, *new}):
        if path.startswith(("journal/0", "checkpoints/", "witness", "staged/", f"{first}/")):
            if path in old:
                put(filesystem, path, old[path])
            else:
                filesystem.unlink(path)
    diagnosis, after, _ = is_repaired((disk, before), filesystem)
    [may] = [loss for loss in diagnosis.lost if loss.what.first_lsn is not None]
    assert "from LSN" in may.text
    short = [key for key, values in before.values.items() if len(after.values[key]) < len(values)]
    offsets = named(diagnosis)[0]
    assert set(short) - set(offsets), "one has lost its newest messages, and nothing of it says so"
