"""Test audits: a sound directory passes, and each damage is named: log, offset, transaction, file, position.

Damage is done to bytes, mostly so that every checksum fits: only what was decided tells that something is wrong.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from journal.formats import frame
from journal.vfs.filesystem import OSFilesystem
from journal.walks.outcome_walk import archive_state, walk_archive
from spark.audit.claims import journal_fold
from spark.audit.claims.facts import What
from tests.spark.audit.audited import (
    SETTINGS,
    Making,
    audited,
    copied,
    log_of,
    resealed,
    some_of_everything,
    violations,
)
from tests.spark.damages.forger import forge, overwrite
from tests.spark.damages.forger import write as rewrite

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return some_of_everything(tmp_path_factory.mktemp("sound") / "data")


@pytest.fixture
def data(sound, tmp_path):
    return copied(sound, tmp_path / "data")


@pytest.mark.parametrize("slice_bytes", [500, 20_000, 1 << 30])
def test_a_sound_directory_passes_however_it_is_cut(sound, slice_bytes):
    found = audited(sound, slice_bytes)
    assert [fact for fact in found if fact.what in (What.VIOLATION, What.NOTICE)] == []
    states = [fact.kind for fact in found if fact.what == What.ENTRY]
    assert {kind: states.count(kind) for kind in set(states)} == {
        "committed": 24,
        "rolled_back": 12,
        "prepared": 1,
    }
    messages = sum(fact.messages for fact in found if fact.what == What.LOG)
    windows = sum(fact.messages for fact in found if fact.what == What.WINDOW)
    assert messages == windows > 100


def test_without_an_archive_the_journal_is_compared_with_the_logs(tmp_path):
    path = some_of_everything(tmp_path / "data", settings=replace(SETTINGS, outcome_archive=False))
    assert violations(path) == []
    segment, last = log_of(path)[-1]
    rewrite(path, segment, last.position, resealed(last, b"forged"))
    [found] = violations(path)
    assert (found.topic, found.partition, found.first, found.path) == ("a", 0, last.offset, segment)


@pytest.mark.parametrize("kept", [2, 0])
def test_without_an_archive_a_batch_that_goes_across_the_edge_of_a_transaction_is_named_with_it(
    tmp_path, kept
):
    made = Making(tmp_path / "data", replace(SETTINGS, outcome_archive=False))
    made.send(0, b"before")
    number = made.transaction((0, b"in it"), (0, b"in it"))
    made.send(0, b"behind it")
    path = made.close()
    inner = b"".join(frame.encode_inner(n, b"forged", made.time) for n in range(2))
    wrapper = frame.encode_wrapper(inner, 2, made.time)

    def edit(content):
        content[0][kept:] = [wrapper] * (2 - kept // 2)

    forge(path, "a", 0, edit)
    [found] = [fact for fact in violations(path) if fact.kind == "transaction"]
    assert (found.session, found.serial, found.first, found.last) == (*number, 1, 2)


def only(found, **wanted):
    """The one violation, with these fields."""
    assert len(found) == 1, found
    said = {name: getattr(found[0], name) for name in wanted}
    assert said == wanted, found
    return found[0]


def forged_time(data, value):
    """Let the last message with this value be appended a moment later than its record says; return its offset."""
    entry = [each for _, each in log_of(data) if bytes(each.frame[44:]).startswith(value)][-1]

    def edit(content):
        for frames in content:
            for number, each in enumerate(frames):
                if each == bytes(entry.frame):
                    frames[number] = each[:16] + (entry.appended + 1).to_bytes(8) + each[24:]

    forge(data, "a", 0, edit)
    return entry.offset


class TestFrames:
    @pytest.mark.parametrize("place", [0, 4, 8, 24, 32, 36, 40, 44, -1])
    def test_a_turned_byte_anywhere_in_a_frame_is_found_there(self, data, place):
        segment, entry = log_of(data)[5]
        at = entry.position + (place if place >= 0 else entry.length - 1)
        with open(data / segment, "rb") as file:
            file.seek(at)
            turned = bytes([file.read(1)[0] ^ 0x55])
        rewrite(data, segment, at, turned)
        found = violations(data)
        [damage] = [fact for fact in found if fact.kind == "damaged frame"]
        assert (damage.topic, damage.partition, damage.path) == ("a", 0, segment)
        assert (damage.first, damage.position) == (entry.offset, entry.position)

    def test_a_turned_byte_in_an_append_time_is_found_with_its_block(self, data):
        """No checksum of a frame covers it, and what is damaged there could be another log's."""
        segment, entry = log_of(data)[5]
        overwrite(data, segment, entry.position + 16, b"?")
        assert "are another log's" in "".join(fact.text for fact in violations(data) if fact.path == segment)

    @pytest.mark.parametrize(("kind", "value"), [("send", b"plain"), ("transaction", b"two phases")])
    def test_append_times_that_are_not_those_of_the_record_are_found(self, data, kind, value):
        """In a log that agrees in all else, down to its running checksum."""
        offset = forged_time(data, value)
        [found] = [fact for fact in violations(data) if fact.kind == kind]
        assert found.first <= offset <= found.last
        assert "has other append times than the log" in found.text

    def test_damage_inside_of_a_transaction_names_the_transaction(self, data):
        wanted = b"c" * 50
        segment, entry = next((s, e) for s, e in log_of(data) if bytes(e.frame[44:]).startswith(wanted))
        rewrite(data, segment, entry.position + 48, b"??")
        found = {fact.kind: fact for fact in violations(data)}
        assert found.keys() == {"damaged frame", "transaction"}
        assert found["transaction"].session >= 0
        assert found["transaction"].first <= entry.offset <= found["transaction"].last

    @pytest.mark.parametrize("cut", [1, 100])
    def test_a_segment_that_was_cut_is_missed_to_its_end(self, data, cut):
        segment, last = log_of(data)[-1]
        with open(data / segment, "r+b") as file:
            file.truncate(last.position + last.length - cut)
        found = violations(data)
        damage = next(fact for fact in found if fact.kind == "damaged frame")
        assert (damage.last, damage.path) == (last.offset, segment)

    def test_a_segment_that_is_gone_is_missed(self, data):
        segment = log_of(data)[0][0]
        (data / segment).unlink()
        damage = next(fact for fact in violations(data) if fact.kind == "damaged frame")
        assert (damage.path, damage.first, "missing" in damage.text) == (segment, 0, True)

    def test_two_frames_that_changed_places_are_found(self, data):
        frames = [(s, e) for s, e in log_of(data) if e.length < 60]
        (segment, one), (_, two) = next(
            (a, b) for a in frames for b in frames if a[1].offset < b[1].offset and a[1].length == b[1].length
            and a[0] == b[0] and bytes(a[1].frame) != bytes(b[1].frame)
        )  # fmt: skip
        first = bytearray(two.frame)
        second = bytearray(one.frame)
        frame.stamp(memoryview(first), one.offset, 1)
        frame.stamp(memoryview(second), two.offset, 1)
        for position, frames in ((one.position, first), (two.position, second)):
            overwrite(data, segment, position, bytes(frames))
        found = violations(data)
        assert {fact.kind for fact in found} <= {"damaged frame", "transaction", "send", "partition"}
        assert found
        assert all(fact.topic == "a" and fact.path == segment for fact in found)

    def test_two_messages_that_were_made_one_at_the_end_of_a_segment_are_missed(self, data):
        segment = log_of(data)[0][0]
        one, two = [entry for path, entry in log_of(data) if path == segment][-2:]
        made = frame.encode(b"v" * (one.length + two.length - frame.HEADER_BYTES), one.timestamp)
        rewrite(data, segment, one.position, made[:8] + one.offset.to_bytes(8, "big") + made[16:])
        damage = next(fact for fact in violations(data) if fact.kind == "damaged frame")
        assert (damage.path, damage.first, damage.last) == (segment, two.offset, two.offset)
        assert "its frames end at byte" in damage.text

    @pytest.mark.parametrize("time", [-(1 << 63), -5, 1 << 60, (1 << 63) - 1])
    def test_times_that_are_unusual_are_told_of_and_counted_and_are_no_violation(self, data, time):
        segment, entry = log_of(data)[0]
        rewrite(data, segment, entry.position, resealed(entry, b"plain 0", timestamp=time))
        found = audited(data)
        odd = [fact for fact in found if fact.kind == "time"]
        only(odd, what=What.NOTICE, topic="a", partition=0, first=entry.offset)
        counted = {
            what: sum(fact.messages for fact in found if fact.what == what)
            for what in (What.WINDOW, What.LOG)
        }
        assert counted[What.WINDOW] == counted[What.LOG]

    def test_a_frame_of_an_unknown_kind_is_found_though_its_checksum_holds(self, data):
        segment, entry = log_of(data)[0]
        made = bytearray(resealed(entry, b"plain 0"))
        made[36:40] = (0x01000010).to_bytes(4, "big")
        from crc32c import crc32c

        made[4:8] = crc32c(bytes(made[frame.CRC_START :])).to_bytes(4, "big")
        rewrite(data, segment, entry.position, bytes(made))
        found = next(fact for fact in violations(data) if fact.kind == "damaged frame")
        assert "flag" in found.text
        assert found.first == entry.offset


class TestTransactions:
    def committed(self, data, place=3):
        filesystem = OSFilesystem(data)
        entries = list(walk_archive(filesystem, archive_state(filesystem)))
        return [each for each in entries if each.outcome.state == 4][place]

    @pytest.mark.parametrize("place", [0, 5, 20])
    def test_a_message_of_it_that_was_forged_with_a_fitting_checksum_is_found(self, data, place):
        entry = self.committed(data, place).outcome
        part = entry.parts[0]
        segment, found = next(
            (s, e) for s, e in log_of(data, "a", part.index) if e.offset == part.base_offset
        )
        rewrite(data, segment, found.position, resealed(found, b"forged"))
        only(
            [fact for fact in violations(data) if fact.kind == "transaction"],
            topic="a", partition=part.index, first=part.base_offset, session=entry.session, serial=entry.serial,
            path=segment, position=found.position,
        )  # fmt: skip

    def test_one_that_goes_across_slices_is_put_together(self, data):
        entry = self.committed(data, 4).outcome
        assert violations(data, slice_bytes=100) == []
        part = entry.parts[0]
        segment, found = next(
            (s, e) for s, e in log_of(data, "a", part.index) if e.offset == part.base_offset + part.count - 1
        )
        rewrite(data, segment, found.position, resealed(found, b"forged"))
        [wrong] = [fact for fact in violations(data, slice_bytes=100) if fact.kind == "transaction"]
        assert (wrong.session, wrong.serial) == entry.number

    def test_an_entry_of_the_archive_that_was_forged_is_found_by_the_logs(self, data):
        filesystem = OSFilesystem(data)
        archived = self.committed(data, 2)
        from journal.records import outcome_entry

        old = archived.outcome
        parts = [replace(old.parts[0], base_offset=old.parts[0].base_offset + 1), *old.parts[1:]]
        made = bytearray(outcome_entry.pack(replace(old, parts=parts)))
        frame.stamp(memoryview(made), archived.offset, 1)
        length = int.from_bytes(
            (data / archived.path).read_bytes()[archived.position : archived.position + 4], "big"
        )
        assert len(made) == length
        rewrite(data, archived.path, archived.position, bytes(made))
        found = violations(data)
        assert any(
            fact.kind in ("transaction", "twice") and (fact.session, fact.serial) == old.number
            for fact in found
        )
        assert filesystem.exists(archived.path)

    def test_messages_of_one_that_was_rolled_back_are_found_in_old_sends(self, tmp_path):
        made = Making(tmp_path / "data", segment_bytes=1 << 20)
        made.send(0, b"before")
        made.transaction((0, b"never 0"), (0, b"never 1"), end="rollback")
        made.send(0, b"other 0", b"other 1", b"after")
        for _ in range(4):
            for partition in (0, 1):
                made.send(partition, b"g" * 600_000)
            made.checkpoint()
        path = made.close()
        assert violations(path) == []
        entries = log_of(path)
        filesystem = OSFilesystem(path)
        [rolled] = [
            each.outcome
            for each in walk_archive(filesystem, archive_state(filesystem))
            if each.outcome.state == 5
        ]
        times = [1_700_000_002_000_000, 1_700_000_003_000_000]
        for number, (segment, entry) in enumerate(entries[1:3]):
            rewrite(
                path, segment, entry.position, resealed(entry, b"never %d" % number, timestamp=times[number])
            )
        found = violations(path)
        only(
            [fact for fact in found if fact.kind == "rolled back"], topic="a", partition=0, first=1, last=2,
            session=rolled.session, serial=rolled.serial, position=entries[1][1].position,
        )  # fmt: skip


class TestSends:
    def test_a_send_that_the_journal_holds_and_the_log_says_otherwise_is_found(self, data):
        segment, entry = next((s, e) for s, e in log_of(data) if bytes(e.frame[44:52]) == b"plain 10")
        rewrite(data, segment, entry.position, resealed(entry, b"forged"))
        found = only(violations(data), topic="a", partition=0, kind="send", path=segment)
        assert found.first <= entry.offset <= found.last
        assert found.lsn > 0


class TestUndecided:
    def test_messages_that_no_record_decides_are_found_where_the_journal_would_have_it(
        self, data, monkeypatch
    ):
        real = journal_fold._Sends.take
        last = max(e.offset for _, e in log_of(data) if bytes(e.frame[44:52]) == b"plain 10")

        def take(self, entry, sent, frames):
            return iter(()) if sent.base_offset == last else real(self, entry, sent, frames)

        monkeypatch.setattr(journal_fold._Sends, "take", take)
        found = [fact for fact in violations(data) if fact.kind == "undecided"]
        assert any(fact.topic == "a" and fact.first <= last <= fact.last for fact in found)

    def test_what_ended_before_the_archive_was_turned_on_needs_no_entry(self, tmp_path):
        made = Making(tmp_path / "data", replace(SETTINGS, outcome_archive=False))
        made.transaction((0, b"before"), (1, b"before"))
        made.send(0, b"plain")
        made.transaction((0, b"before, in doubt"), end="prepare")
        made.log.close()
        again = Making.again(tmp_path / "data")
        again.transaction((0, b"after"))
        again.send(1, b"plain")
        assert violations(again.close()) == []


class TestElsewhere:
    def test_a_damaged_journal_checkpoint_or_index_is_found_and_named(self, data):
        newest = max((data / "journal").glob("*.journal"))
        content = bytearray(newest.read_bytes())
        content[8192 + 60] ^= 1
        newest.write_bytes(bytes(content))
        kinds = {(fact.kind, fact.path) for fact in violations(data)}
        assert ("journal", f"journal/{newest.name}") in kinds

    def test_a_staged_file_of_one_in_doubt_that_is_gone_is_found_with_its_xid(self, tmp_path):
        made = Making(tmp_path / "data")
        made.transaction((0, b"in doubt"), end="prepare", xid="doubt")
        for _ in range(3):
            made.send(1, b"x")
            made.checkpoint()
        path = made.close()
        assert violations(path) == []
        [staged] = list((path / "staged").glob("*.staged"))
        staged.unlink()
        found = only(violations(path), kind="staged")
        assert found.xid == "1:doubt:"
