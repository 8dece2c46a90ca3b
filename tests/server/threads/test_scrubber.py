"""Test that the scrubber finds damage in cold files, at its rate, and changes nothing.

Seen to fail: with frames not checked, groups not checked, what is behind damage left out, the load ignored, the pause
left out, findings logged every pass, or a lost mark taken for damage (each in a copy).
"""

from __future__ import annotations

import time

import pytest
from twisted.internet.task import Clock
from twisted.logger import LogLevel, globalLogPublisher

import txbroker as client
from journal import check
from journal.check.scrub import PIECE_BYTES, CheckpointPiece, JournalPiece, SegmentPiece, StagedPiece
from journal.constants import MIB
from journal.errors import CorruptSegment
from journal.formats import filenames, frame
from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from journal.formats.staged_header import STAGED_HEADER_BYTES
from journal.transaction_states import Cause
from tests.repair.repair_scene import all_files, repaired
from tests.support.broker_process import PATIENCE, told_broker
from tests.support.engine_room import Room, damage
from txbroker.server.threads.scrubber import FIRST_PASS, LOAD_PAUSE, Scrubber


class Inline:
    """A worker without a thread; ``reads`` is what was read when."""

    def __init__(self, clock):
        self.clock = clock
        self.reads = []

    def submit(self, work, done, failed):
        self.reads.append((self.clock.seconds(), work.__self__.path))
        try:
            result = work()
        except Exception as error:  # noqa: BLE001  (as a worker does)
            failed(error)
        else:
            done(result)


@pytest.fixture
def room():
    """Two sealed segments and an active one, two journal files that are closed, two checkpoints."""
    room = Room()
    room.topic("t", 1, segment_bytes=65_536)
    for number in range(40):
        room.send(b"%d" % number + bytes(4000))
        if number % 8 == 7:
            room.checkpoint()
    return room


@pytest.fixture
def told():
    """What is logged as an error meanwhile."""
    events = []

    def observe(event):
        if event["log_level"] is LogLevel.error:
            events.append(event["log_format"].format(**event))

    globalLogPublisher.addObserver(observe)
    yield events
    globalLogPublisher.removeObserver(observe)


def scrubber(room, rate=MIB, interval=3600.0):
    clock = Clock()
    worker = Inline(clock)
    made = Scrubber(room.engine, worker, clock, rate, interval)
    made.start()
    return made, clock, worker


def a_pass(clock):
    clock.pump([0.5] * 240)


def sealed(room):
    return room.store().sealed_segments


def pieces(piece):
    """The findings and the bytes of a piece and all that follow it."""
    findings, count = [], 0
    while piece is not None:
        scrubbed = piece.run()
        count += scrubbed.bytes
        findings += [scrubbed.finding] if scrubbed.finding is not None else []
        piece = scrubbed.rest
    return findings, count


def test_a_pass_reads_every_cold_byte_once_and_finds_nothing_in_what_is_sound(room, told):
    made, clock, worker = scrubber(room)
    a_pass(clock)
    assert (made.passes, told) == (1, [])
    paths = [path for _, path in worker.reads]
    assert len(sealed(room)) == 2
    assert {segment.path for segment in sealed(room)} < set(paths)
    closed = [path for path, _ in room.engine.journal.closed_files()]
    assert closed
    assert set(closed) < set(paths)
    assert sum(path.startswith("checkpoints/") for path in paths) == 2
    assert made.bytes >= sum(segment.size for segment in sealed(room))
    gauges = made.gauges()
    assert (gauges["scrub_findings"], gauges["scrub_passes"], gauges["scrubbed_bytes"]) == (0, 1, made.bytes)
    assert 0 < gauges["scrub_age"] < 120_000_000


def test_every_flipped_byte_of_a_sealed_segment_is_found_and_told_as_a_reader_is_told(room):
    segment = sealed(room)[0]
    size = room.inner.open(segment.path).size()
    walk = check.walk_segment(room.inner, segment.path, segment.base_offset)
    times = {each.position + at for each in walk for at in range(frame.CRC_START - 8, frame.CRC_START)}
    for position in [*range(64, 124), *range(124, size, 997)]:
        damage(room.inner, segment.path, position)
        findings, _ = pieces(
            SegmentPiece(room.engine.open_files, segment, SEGMENT_HEADER_BYTES, segment.seed)
        )
        assert len(findings) == 1, f"byte {position}"
        [error] = findings
        if position in times:  # which no checksum of a frame covers, so that a reader does not miss it
            assert "every frame fulfils its own" in str(error)
            damage(room.inner, segment.path, position)
            continue
        with pytest.raises(CorruptSegment) as read:
            room.store().read(error.first_offset, 1)
        assert str(read.value) == str(error)
        damage(room.inner, segment.path, position)


@pytest.mark.parametrize("position", [0, 20, 45, 55, 63])
def test_a_damaged_header_is_found_and_its_messages_are_looked_at_all_the_same(room, position):
    segment = sealed(room)[0]
    damage(room.inner, segment.path, position)
    [error], _ = pieces(SegmentPiece(room.engine.open_files, segment, SEGMENT_HEADER_BYTES, segment.seed))
    assert "its header is damaged. Its messages can be read all the same" in str(error)
    damage(room.inner, segment.path, 4500)
    findings, _ = pieces(SegmentPiece(room.engine.open_files, segment, SEGMENT_HEADER_BYTES, segment.seed))
    assert len(findings) == 2


def test_a_segment_with_the_bytes_of_another_log_is_found_though_every_frame_is_sound(room):
    segment = sealed(room)[0]
    file = room.inner.open(segment.path)
    places = list(check.walk_segment(room.inner, segment.path, segment.base_offset))
    other = bytearray(frame.encode(b"x" * (places[1].length - 44), 1))
    frame.stamp(memoryview(other), places[1].offset, 1)
    file.write_some(places[1].position, [bytes(other)])
    [error], _ = pieces(SegmentPiece(room.engine.open_files, segment, SEGMENT_HEADER_BYTES, segment.seed))
    assert "every frame fulfils its own: some are another log's" in str(error)


def test_two_damages_of_one_segment_are_both_found(room):
    segment = sealed(room)[0]
    damage(room.inner, segment.path, 4500)
    damage(room.inner, segment.path, segment.size - 100)
    findings, _ = pieces(SegmentPiece(room.engine.open_files, segment, SEGMENT_HEADER_BYTES, segment.seed))
    assert len(findings) == 2
    assert findings[1].last_offset == segment.end_offset - 1


def test_damage_of_a_closed_journal_file_is_found(room):
    path, end = room.engine.journal.closed_files()[0]
    assert pieces(JournalPiece(room.filesystem, path, end))[0] == []
    for position in (8192 + 4, 8192 + 60):
        damage(room.inner, path, position)
        [error] = pieces(JournalPiece(room.filesystem, path, end))[0]
        assert (error.path, error.position) == (path, 8192)
        damage(room.inner, path, position)
    for copy in (0, 4096):
        damage(room.inner, path, copy + 20)
    [error] = pieces(JournalPiece(room.filesystem, path, end))[0]
    assert "header" in str(error)


def test_a_damaged_checkpoint_is_found(room):
    lsn = room.checkpoints()[0]
    damage(room.inner, filenames.checkpoint_file(lsn), 40)
    [error] = pieces(CheckpointPiece(room.filesystem, lsn))[0]
    assert error.path == filenames.checkpoint_file(lsn)


@pytest.fixture
def in_doubt(room):
    """A prepared transaction whose frames are in a staged file of several pieces; the number of entries in it."""
    begun = room.begin(
        *[(1, b"%d" % n + bytes(size)) for n, size in enumerate([9, 700, PIECE_BYTES * 2, 40, 900])]
    )
    begun.prepare("doubt")
    for _ in range(3):
        room.send(b"between")
        room.checkpoint()
    [transaction] = room.engine.transactions.live.values()
    assert transaction.staged.file_entries == 5
    return transaction


def staged_piece(room, transaction):
    return StagedPiece(
        room.filesystem, transaction.number, transaction.staged.entries, transaction.staged.file_entries
    )


def test_a_staged_file_is_read_whole_and_every_byte_of_it_is_checked(room, in_doubt, told):
    made, clock, worker = scrubber(room)
    a_pass(clock)
    piece = staged_piece(room, in_doubt)
    assert sum(path == piece.path for _, path in worker.reads) > 2
    assert (made.passes, told) == (1, [])
    assert pieces(piece) == ([], in_doubt.staged.bytes)
    size = STAGED_HEADER_BYTES + in_doubt.staged.bytes
    ends = [entry.position for entry in in_doubt.staged.entries] + [size]
    for position in [
        *sorted({at + by for at in ends for by in (-1, 0, 1)} & set(range(STAGED_HEADER_BYTES, size))),
        PIECE_BYTES + 5000,
    ]:
        damage(room.inner, piece.path, position)
        [error], _ = pieces(piece)
        assert error.path == piece.path
        hit = max(entry.position for entry in in_doubt.staged.entries if entry.position <= position)
        assert error.position == hit, "the message that is damaged, and no other"
        assert "roll the transaction back" in str(error)
        damage(room.inner, piece.path, position)


def test_two_damages_of_a_staged_file_are_both_found_and_so_is_its_end_that_is_missing(room, in_doubt):
    piece, entries = staged_piece(room, in_doubt), in_doubt.staged.entries
    damage(room.inner, piece.path, entries[0].position + 20)
    room.inner.open(piece.path).truncate(entries[3].position + 10)
    assert [error.position for error in pieces(piece)[0]] == [entries[n].position for n in (0, 3, 4)]


def test_a_staged_file_that_is_missing_is_told_while_its_transaction_is_undecided(room, in_doubt, told):
    made, clock, _worker = scrubber(room, interval=100.0)
    room.inner.unlink(staged_piece(room, in_doubt).path)
    a_pass(clock)
    assert len(told) == 1
    assert "the file is missing" in told[0]
    assert told[0].count("verify DIR") == 1
    room.engine.transactions.rollback(in_doubt.number, Cause.CLIENT)
    room.engine.sync()
    a_pass(clock)
    assert (made.gauges()["scrub_findings"], len(told)) == (0, 1)


def test_a_transaction_that_ends_while_its_file_is_read_has_no_finding(room, in_doubt, told):
    made, clock, worker = scrubber(room)
    piece = staged_piece(room, in_doubt)
    submit = worker.submit

    def end_first(work, done, failed):
        if work.__self__.path == piece.path and in_doubt.number in room.engine.transactions.live:
            room.engine.transactions.rollback(in_doubt.number, Cause.CLIENT)
            room.engine.sync()
            room.inner.unlink(piece.path)
        submit(work, done, failed)

    worker.submit = end_first
    a_pass(clock)
    assert (made.passes, told) == (1, [])
    assert piece.path in [path for _, path in worker.reads]


def test_what_a_repair_has_marked_as_lost_is_not_found_again(room):
    filesystem = room.inner.kill_clone()
    log = min(path for path in all_files(filesystem) if path.endswith(".log"))
    damage(filesystem, log, 4500)
    assert repaired(filesystem).lost
    after = Room(filesystem)
    segment = sealed(after)[0]
    findings, count = pieces(
        SegmentPiece(after.engine.open_files, segment, SEGMENT_HEADER_BYTES, segment.seed)
    )
    assert findings == []
    assert count > segment.size - 10_000


def test_a_finding_is_told_once_and_counted_for_as_long_as_it_is_there(room, told):
    made, clock, _ = scrubber(room, interval=100.0)
    segment = sealed(room)[1]
    damage(room.inner, segment.path, SEGMENT_HEADER_BYTES + 30)
    a_pass(clock)
    assert len(told) == 1
    assert f"{segment.path} is damaged at byte 64" in told[0]
    assert f"Offset {segment.base_offset} cannot be read" in told[0]
    a_pass(clock)
    assert (made.passes >= 2, len(told), made.gauges()["scrub_findings"]) == (True, 1, 1)
    damage(room.inner, segment.path, SEGMENT_HEADER_BYTES + 30)
    a_pass(clock)
    assert made.gauges()["scrub_findings"] == 0


def test_it_keeps_to_its_rate(room):
    made, clock, worker = scrubber(room, rate=65_536)
    clock.advance(FIRST_PASS)
    clock.pump([0.01] * 100)
    assert made.bytes <= 2 * 65_536 + 2 * 65_536
    seconds = made.bytes / 65_536
    assert len({when for when, _ in worker.reads}) >= seconds / 2
    clock.pump([0.1] * 200)
    assert made.passes == 1


def test_a_rate_of_nothing_switches_it_off(room):
    made, clock, worker = scrubber(room, rate=0)
    a_pass(clock)
    assert (made.passes, worker.reads) == (0, [])


def test_it_waits_while_the_journal_has_much_to_force(room):
    made, clock, worker = scrubber(room)
    clock.advance(FIRST_PASS)
    before = len(worker.reads)
    room.engine.pending_bytes += 2 * MIB
    a_pass(clock)
    assert len(worker.reads) <= before + 1
    room.engine.pending_bytes -= 2 * MIB
    clock.advance(LOAD_PAUSE)
    a_pass(clock)
    assert made.passes == 1


def test_a_segment_that_retention_takes_meanwhile_is_no_finding(room, told):
    made, clock, _ = scrubber(room, rate=65_536)
    clock.advance(FIRST_PASS)
    for segment in sealed(room):
        room.inner.unlink(segment.path)
    a_pass(clock)
    assert (made.passes, told) == (1, [])


def test_a_disk_that_does_not_give_the_bytes_is_told_and_the_pass_goes_on(room, told):
    made, clock, _ = scrubber(room)
    path = sealed(room)[0].path
    inner = room.engine.open_files.filesystem

    class Failing:
        def open(self, name, **options):
            if name == path:
                raise OSError(5, "Input/output error", name)
            return inner.open(name, **options)

    room.engine.open_files.filesystem = Failing()
    a_pass(clock)
    assert (made.passes, len(told)) == (1, 1)
    assert f"{path} cannot be read" in told[0]


def test_nothing_is_read_after_the_stop(room):
    made, clock, worker = scrubber(room, rate=65_536)
    clock.advance(FIRST_PASS)
    made.stop()
    before = len(worker.reads)
    a_pass(clock)
    assert len(worker.reads) == before
    assert clock.getDelayedCalls() == []


@pytest.mark.slow
def test_a_running_broker_reports_a_bit_that_was_flipped_in_a_cold_segment(tmp_path):
    with told_broker(tmp_path, "--set", "scrub_interval=1s", "--set", "scrub_rate=64MiB") as process:
        address = f"tcp:127.0.0.1:{process.ready()}"
        with client.connect(address) as broker:
            broker.create_topic("orders", partitions=1, segment_bytes=65_536, force_messages=1)
            for number in range(60):
                broker.send("orders", b"%d" % number + bytes(4000))
            logs = wait_for(broker, lambda _: sorted(tmp_path.glob("partitions/*/*.log"))[:-1])
            data = bytearray(logs[0].read_bytes())
            at = data.index(b"3" + bytes(4000)) + 100
            data[at] ^= 1
            logs[0].write_bytes(data)
            line = process.wait_for("scrubber: ")
            assert f"{logs[0].relative_to(tmp_path)} is damaged at byte" in line
            assert "Offset 3 cannot be read" in line
            whole = len(data) * len(logs)
            # The first pass may have been over before there was anything to read: the one that finds it goes on, too.
            status = wait_for(
                broker, lambda now: now if now["scrub_passes"] and now["scrubbed_bytes"] > whole else None
            )
            assert status["scrub_findings"] == 1
            broker.send("orders", b"it goes on")
        process.stop()


def wait_for(broker, condition):
    """What the condition makes of the broker's status, once that is something; the broker is asked meanwhile."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if found := condition(dict(broker.status())):
            return found
    raise AssertionError("it never came true")
