"""After a repair a directory starts, is sound, and lacks nothing but what the repair named; whatever was damaged.

Seen to fail, each in a copy: with records behind the first gap applied, another's file believed, lost frames taken for
messages by a read or for another segment's by a start, no starts skipped, what is replaced unlinked rather than moved,
an unfinished repair started past, a transaction left undecided that lost its frames (in its file, or in a gap of the
journal), or a checkpoint above the end of the journal taken for covered by it.
"""

from __future__ import annotations

from random import Random

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from journal import filenames, frame, inspect
from journal.errors import CorruptData, CorruptSegment
from journal.inspect import Level
from journal.record import Messages
from journal.repair import Irreparable, diagnose, execute, is_unfinished, resume
from journal.repair.salt import seed_of
from journal.repair_notes import repair_notes
from journal.testing import FaultFilesystem, FaultPlan, ManualClock, MemoryFilesystem, PowerCut, cut_power_at
from journal.transaction import Cause, State
from tests.engine_room import SMALL, Room, contents, damage, xid_of
from tests.repair_scene import all_files, held, hurt, named, only_what_was_named_is_missing, repaired, scene


@pytest.fixture(scope="module")
def disk():
    """A directory with everything in it, and what it holds. Clone it."""
    room = scene()
    return room.inner, held(room)


def damages(filesystem):
    return [f for f in inspect.verify(filesystem, Level.DEEP) if not f.harmless]


def is_repaired(disk, filesystem):
    """Repair, and check all that must be true after any repair; return (diagnosis, what is held, the start)."""
    diagnosis = repaired(filesystem)
    assert damages(filesystem) == []
    assert diagnose(filesystem).is_sound, "a second repair would find something to do"
    room = Room(filesystem)
    after = held(room)
    only_what_was_named_is_missing(disk[1], after, diagnosis)
    return diagnosis, after, room


def newest(filesystem, suffix):
    return sorted(path for path in all_files(filesystem) if path.endswith(suffix))[-1]


# -- whatever is damaged ------------------------------------------------------------------------------


@pytest.mark.parametrize("part", range(10))
def test_whatever_was_damaged_a_repair_costs_only_what_it_names(disk, part):
    damage_anything(disk, range(part * 12, part * 12 + 12))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 5))
def test_whatever_was_damaged_in_other_directories_a_repair_costs_only_what_it_names(number):
    room = scene(number)
    damage_anything((room.inner, held(room)), range(1000, 1250))


def damage_anything(disk, seeds):
    for seed in seeds:
        filesystem = disk[0].kill_clone()
        said = hurt(filesystem, Random(seed))
        if any("witness" in each[1:] for each in said) and len(said) > 1:
            continue  # without a witness nothing tells that the end of the journal is gone
        try:
            is_repaired(disk, filesystem)
        except Irreparable:
            assert sum("checkpoint" in str(each) for each in said), said
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {said}") from error


def test_a_sound_directory_is_left_alone(disk):
    filesystem = disk[0].kill_clone()
    before = contents(filesystem)
    assert repaired(filesystem).is_sound
    assert contents(filesystem) == before


def test_a_diagnosis_writes_nothing(disk):
    filesystem = disk[0].kill_clone()
    for path in (
        newest(filesystem, ".log"),
        newest(filesystem, ".journal"),
        newest(filesystem, ".checkpoint"),
    ):
        damage(filesystem, path, 20)
    before = contents(filesystem)
    assert not diagnose(filesystem).is_sound
    assert contents(filesystem) == before


# -- the journal --------------------------------------------------------------------------------------


def journal_scene():
    """Five sends of three blocks each, all in one file above the checkpoint; positions of their groups."""
    room = Room()
    room.topic("t", 2)
    room.checkpoint()
    for number in range(5):
        room.begin((1, b"%d" % number), (2, b"%d" % number)).commit()
        room.engine.sync()
    room.begin((1, b"in doubt")).prepare("late")
    room.engine.sync()
    room.clock.advance(2_000_000)
    room.engine.housekeeping.run_inline()
    entries = [
        e for e in inspect.walk_journal(room.inner) if type(e.record).__name__ == "TransactionCommitted"
    ]
    return room, entries


def test_damage_above_the_checkpoint_cuts_the_journal_there_and_names_what_lies_behind():
    room, commits = journal_scene()
    before = held(room)
    filesystem = room.inner.kill_clone()
    damage(filesystem, commits[2].path, commits[2].position + 20)
    diagnosis, after, started = is_repaired((filesystem, before), filesystem)
    assert after.values == {("t", 0): [b"0", b"1"], ("t", 1): [b"0", b"1"]}, (
        "half of a transaction, or what is behind"
    )
    assert named(diagnosis)[0] == {("t", 0): {2, 3, 4}, ("t", 1): {2, 3, 4}}
    texts = [loss.text for loss in diagnosis.lost]
    assert any("xid 1:late:" in text and "its prepare" in text for text in texts)
    assert any("the ends of 2 transactions without an xid" in text for text in texts)
    assert any(f"LSN {commits[2].lsn} held" in text or f"LSNs {commits[2].lsn} to" in text for text in texts)
    assert started.prepared() == set()
    assert started.send(b"next") == 2


def test_numbers_of_what_was_lost_never_come_again():
    room, commits = journal_scene()
    highest = max(entry.lsn for entry in inspect.walk_journal(room.inner))
    start = room.engine.start_number
    filesystem = room.inner.kill_clone()
    filesystem.unlink(commits[0].path)
    repaired(filesystem)
    after = Room(filesystem)
    assert after.engine.next_lsn > highest + (1 << 36) * 1000
    assert after.engine.start_number > start + 1000


def test_damage_below_the_checkpoint_costs_nothing_while_nobody_reads_there(disk):
    filesystem = disk[0].kill_clone()
    [checkpoint] = [
        int(path[12:44]) for path in all_files(filesystem) if path == newest(filesystem, ".checkpoint")
    ]
    below = [e for e in inspect.walk_journal(filesystem) if e.lsn < checkpoint][-3:]
    for entry in below:
        damage(filesystem, entry.path, entry.position + 10)
    diagnosis, _, _ = is_repaired(disk, filesystem)
    assert diagnosis.lost == []


@pytest.mark.parametrize("which", range(6))
def test_a_journal_file_whose_header_is_gone_is_read_again_by_the_salt_that_its_checksums_tell(disk, which):
    filesystem = disk[0].kill_clone()
    path = inspect.journal_files(filesystem)[which]
    for copy in (0, 4096):
        filesystem.open(path).write_some(copy, [bytes(100)])
    diagnosis, _, _ = is_repaired(disk, filesystem)
    assert diagnosis.lost == []


@given(st.binary(min_size=1, max_size=64), st.integers(0, 0xFFFFFFFF))
def test_the_seed_of_a_checksum_is_found_again(data, seed):
    assert seed_of(data, crc32c(data, seed)) == seed


def test_swapped_journal_files_get_their_names_back(disk):
    filesystem = disk[0].kill_clone()
    first, *_, last = inspect.journal_files(filesystem)
    filesystem.rename(first, "away")
    filesystem.rename(last, first)
    filesystem.rename("away", last)
    diagnosis, _, _ = is_repaired(disk, filesystem)
    assert diagnosis.lost == []


def test_flushed_bytes_that_only_the_cut_journal_knew_are_kept_as_evidence():
    room, commits = journal_scene()
    room.flush()
    [log] = [path for path in all_files(room.inner) if path.endswith(".log") and "t-0" in path]
    bytes_of_log = contents(room.inner)[log]
    filesystem = room.inner.kill_clone()
    damage(filesystem, commits[0].path, commits[0].position + 20)
    repaired(filesystem)
    [note] = repair_notes(filesystem)
    assert contents(filesystem)[f"{note.evidence}/{log}.from-0"] == bytes_of_log


def test_a_checkpoint_above_the_end_of_what_is_left_of_the_journal_is_kept():
    room = Room()
    room.topic("t", 1)
    while len(room.journals()) < 3:
        room.send(bytes(9000))
    room.checkpoint()
    before, filesystem = held(room), room.inner.kill_clone()
    filesystem.unlink(inspect.journal_files(filesystem)[-1])
    filesystem.unlink("witness")
    diagnosis, after, _ = is_repaired((filesystem, before), filesystem)
    assert after.values == before.values
    assert any("what came after" in loss.text for loss in diagnosis.lost)


# -- checkpoints ---------------------------------------------------------------------------------------


def test_a_damaged_checkpoint_goes_and_the_other_one_has_all(disk):
    filesystem = disk[0].kill_clone()
    damage(filesystem, newest(filesystem, ".checkpoint"), 30)
    diagnosis, _, _ = is_repaired(disk, filesystem)
    assert diagnosis.lost == []


def test_without_any_checkpoint_the_whole_journal_gives_everything():
    room = Room()
    room.topic("t", 2)
    room.send(b"one")
    room.checkpoint()
    room.send(b"two")
    before = held(room)
    filesystem = room.inner.kill_clone()
    damage(filesystem, newest(filesystem, ".checkpoint"), 30)
    diagnosis, after, _ = is_repaired((filesystem, before), filesystem)
    assert (diagnosis.lost, after.values["t", 0]) == ([], [b"one", b"two"])


def test_without_any_checkpoint_and_with_part_of_the_journal_nothing_is_guessed():
    room = Room()
    room.topic("t", 2)
    for _ in range(3):
        for _ in range(8):
            room.send(bytes(9000))
        room.checkpoint()
    assert room.journals()[0] != 1 << 36
    filesystem = room.inner.kill_clone()
    for path in all_files(filesystem):
        if path.startswith("checkpoints/"):
            damage(filesystem, path, 30)
    before = contents(filesystem)
    with pytest.raises(Irreparable, match="Restore a file of checkpoints/ from a copy"):
        diagnose(filesystem)
    assert contents(filesystem) == before


# -- segments ------------------------------------------------------------------------------------------


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


def oldest_log(filesystem):
    return min(path for path in all_files(filesystem) if path.endswith(".log"))


def test_a_damaged_message_that_nothing_else_holds_is_a_typed_error_and_all_others_are_there(old):
    filesystem, _ = old
    log = oldest_log(filesystem)
    damage(filesystem, log, 4100)
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
    assert contents(filesystem)[log][: len(data)] == data


def test_lost_messages_are_never_sent_nor_taken():
    lost = frame.encode_lost(0, 3, 100)
    with pytest.raises(frame.InvalidFrame, match="flag 0x1000004"):
        frame.check_run(lost)
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


# -- transactions ----------------------------------------------------------------------------------------


def staged_scene():
    """A prepared transaction whose frames are in a staged file alone."""
    room = Room()
    room.topic("t", 2)
    room.begin((1, b"in doubt"), (2, b"too")).prepare("old")
    room.engine.sync()
    for _ in range(4):
        for _ in range(8):
            room.send(bytes(9000))
        room.checkpoint()
    [path] = [path for path in all_files(room.inner) if path.startswith("staged/")]
    return room, path


def test_a_prepared_transaction_that_lost_its_frames_is_rolled_back_and_its_coordinator_can_be_told():
    room, path = staged_scene()
    before, filesystem = held(room), room.inner.kill_clone()
    filesystem.unlink(path)
    diagnosis, after, started = is_repaired((filesystem, before), filesystem)
    assert [loss.what.xid for loss in diagnosis.lost] == [xid_of("old")]
    assert after.prepared == set()
    number = started.engine.transactions.find(xid_of("old"))
    outcome = started.engine.transactions.outcome(number)
    assert (outcome.state, outcome.cause, outcome.heuristic) == (State.ROLLED_BACK, Cause.OPERATOR, True)
    assert (outcome.by, "lost to damage" in outcome.why) == ("txbroker repair", True)


def test_staged_frames_that_the_journal_still_holds_are_written_again(disk):
    filesystem = disk[0].kill_clone()
    [path] = [path for path in all_files(filesystem) if path.startswith("staged/")]
    data = contents(filesystem)[path]
    damage(filesystem, path, 40)
    diagnosis, after, room = is_repaired(disk, filesystem)
    assert diagnosis.lost == []
    assert contents(filesystem)[path] == data
    assert xid_of("old") in after.prepared
    transactions = room.engine.transactions
    transactions.commit(transactions.find(xid_of("old")), Cause.CLIENT)
    room.engine.sync()
    assert b"in doubt 1" in room.values(1)


def test_a_prepared_transaction_whose_frames_lay_in_a_gap_of_the_journal_is_rolled_back():
    room = Room()
    room.topic("t", 2)
    room.begin((1, b"in doubt"), (2, b"too")).prepare("lost")
    room.engine.sync()
    room.begin((1, b"also in doubt")).prepare("kept")
    room.engine.sync()
    room.send(b"after")
    room.checkpoint()
    before, filesystem = held(room), room.inner.kill_clone()
    add = next(e for e in inspect.walk_journal(filesystem) if type(e.record).__name__ == "TransactionAdded")
    damage(filesystem, add.path, add.position + 20)
    diagnosis, after, _ = is_repaired((filesystem, before), filesystem)
    assert [loss.what.xid for loss in diagnosis.lost] == [xid_of("lost")]
    assert after.prepared == {xid_of("kept")}


def test_what_was_committed_above_the_checkpoint_and_lost_its_frames_cuts_the_journal():
    room, path = staged_scene()
    transactions = room.engine.transactions
    room.send(b"before")
    transactions.commit(transactions.find(xid_of("old")), Cause.CLIENT)
    room.engine.sync()
    room.send(b"after")
    before, filesystem = held(room), room.inner.kill_clone()
    filesystem.unlink(path)
    diagnosis, after, _ = is_repaired((filesystem, before), filesystem)
    assert after.values["t", 0][-1] == b"before"
    assert any("xid 1:old:" in loss.text or "without an xid" in loss.text for loss in diagnosis.lost)


# -- evidence, notes, crashes -------------------------------------------------------------------------------


def hurt_a_little(filesystem):
    """Damage in the journal, in a segment, in a checkpoint."""
    entries = [e for e in inspect.walk_journal(filesystem) if isinstance(e, inspect.JournalEntry)]
    damage(filesystem, entries[-6].path, entries[-6].position + 12)
    damage(filesystem, oldest_log(filesystem), 5000)
    damage(filesystem, newest(filesystem, ".checkpoint"), 40)
    filesystem.unlink(newest(filesystem, ".index"))


def test_everything_that_is_replaced_is_kept_as_it_was(disk):
    filesystem = disk[0].kill_clone()
    hurt_a_little(filesystem)
    before = contents(filesystem)
    diagnosis = repaired(filesystem)
    [note] = repair_notes(filesystem)
    after = contents(filesystem)
    for change in diagnosis.changes:
        if change.path in before:
            assert after[f"{note.evidence}/{change.path}"] == before[change.path], change.path
    assert not any(path.startswith(filenames.REPAIR_DIRECTORY) for path in after)


def test_a_repair_is_told_by_every_start_and_every_verification_after_it(disk):
    filesystem = disk[0].kill_clone()
    hurt_a_little(filesystem)
    repaired(filesystem)
    [note] = repair_notes(filesystem)
    assert note.lost
    told = [f.problem for f in inspect.verify(filesystem, Level.QUICK) if f.path == filenames.REPAIRS]
    [text] = told
    assert note.lost[0] in text
    assert text in Room(filesystem).engine.report.notes
    damage(filesystem, filenames.REPAIRS, 0)
    assert any("cannot be read" in f.problem for f in inspect.verify(filesystem, Level.QUICK))
    with pytest.raises(CorruptData, match="what earlier repairs lost is in it"):
        Room(filesystem.kill_clone())


def test_no_start_goes_past_a_repair_that_was_not_finished(disk):
    filesystem = disk[0].kill_clone()
    hurt_a_little(filesystem)
    cut_at(filesystem, last_before(filesystem, filenames.REPAIR_PLAN))
    assert is_unfinished(filesystem)
    with pytest.raises(CorruptData, match="begun and not finished"):
        Room(filesystem)
    assert any("begun and not finished" in f.problem for f in damages(filesystem))
    finish(filesystem)
    assert damages(filesystem) == []


def finish(filesystem):
    """What the command does next: goes on, or begins again."""
    lock = filesystem.lock("lock")
    if is_unfinished(filesystem):
        resume(filesystem, ManualClock(), lock, tuple, SMALL)
    elif not (diagnosis := diagnose(filesystem)).is_sound:
        execute(filesystem, ManualClock(), lock, diagnosis, tuple, SMALL)
    lock.release()


def cut_at(filesystem, nth):
    """Repair until the power goes before the nth change; whether it did."""
    plan = FaultPlan(on_operation=cut_power_at(nth))
    faulty = FaultFilesystem(filesystem, plan)
    lock = filesystem.lock("lock")
    try:
        execute(faulty, ManualClock(), lock, diagnose(filesystem), tuple, SMALL)
    except PowerCut:
        return True
    finally:
        lock.release()
    return False


def last_before(filesystem, path):
    """The number of the change after which the path is there."""
    for nth in range(1, 1000):
        clone = filesystem.kill_clone()
        assert cut_at(clone, nth)
        if clone.exists(path):
            return nth
    raise AssertionError(path)


def test_a_repair_may_be_cut_and_so_may_the_one_after_it(disk):
    cut_everywhere(disk, range(1, 1000, 9), [None])


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_a_repair_may_be_cut_at_any_operation_and_so_may_the_one_after_it(disk, part):
    cut_everywhere(disk, range(1 + part, 1000, 4), [0.0, 1.0, None])


def cut_everywhere(disk, moments, survivals):
    """Cut a repair before each of these changes and the one after it somewhere; the third must have it all."""
    hurted = disk[0].kill_clone()
    hurt_a_little(hurted)
    whole = hurted.kill_clone()
    assert repaired(whole).lost
    expected = held(Room(whole))
    before = contents(hurted)
    paths = {change.path for change in diagnose(hurted).changes}
    forced = (".log", ".journal", ".checkpoint")
    replaced = {data for path, data in before.items() if path in paths and path.endswith(forced)}
    assert len(replaced) > 2
    seen = set()
    for nth in moments:
        cut = hurted.kill_clone()
        if not cut_at(cut, nth):
            break
        for seed, survive in enumerate(survivals, nth):
            crashed: MemoryFilesystem = cut.crash_clone(seed, survive)
            seen.add(is_unfinished(crashed))
            try:
                finish(FaultFilesystem(crashed, FaultPlan(on_operation=cut_power_at(1 + nth % 7))))
            except PowerCut:
                crashed = crashed.crash_clone(nth)
            finish(crashed)
            assert damages(crashed) == [], f"cut at {nth}, seed {seed}"
            assert held(Room(crashed)) == expected, f"cut at {nth}, seed {seed}"
            kept = {data for path, data in contents(crashed).items() if path.startswith(filenames.EVIDENCE)}
            assert replaced <= kept, f"evidence is gone, cut at {nth}, seed {seed}"
    assert seen == {True, False}
    assert nth > 100


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
    first = min(e.record.base_offset for e in inspect.walk_journal(room.inner) if type(e.record) is Messages)
    assert first > 2, "the journal has forgotten the first ones"
    before, filesystem = held(room), room.inner.kill_clone()
    [log] = [path for path in all_files(filesystem) if path.endswith(".log")]
    places = [each.position for each in inspect.walk_segment(filesystem, log, 0)]
    hurt_it(filesystem.open(log), places[first + 1])
    diagnosis, after, _ = is_repaired((filesystem, before), filesystem)
    assert (diagnosis.lost, after.values) == ([], before.values)
    assert len(diagnosis.damage) == 1, "one place is told once"
