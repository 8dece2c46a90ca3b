"""Test forged logs, whose checksums fit, offsets are dense and checkpoints agree: only decisions reveal them."""

from __future__ import annotations

from pathlib import Path

import pytest

from journal.formats import filenames, frame
from journal.formats.filenames import SegmentKind
from journal.formats.frame import HEADER_BYTES
from journal.formats.index import IndexEntries
from journal.formats.segment_header import SegmentHeader, pack_segment_header, seed_of
from journal.vfs.filesystem import OSFilesystem
from journal.walks.journal_walk import walk_journal
from spark.audit.claims.facts import What
from tests.spark.audit.audited import audited, copied, violations
from tests.spark.damages.damages import Damages, outcomes
from tests.spark.damages.forger import (
    altered,
    at_time,
    directory_of,
    forge,
    held,
    holding,
    log_file,
    store_of,
    write,
)
from tests.spark.world import NEVER, everything

pytestmark = pytest.mark.slow

damage = Damages()


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return everything(tmp_path_factory.mktemp("sound") / "data")


# -- a clever forger -------------------------------------------------------------------------------------------


def _without(path: Path, topic: str, index: int, value: bytes) -> int:
    """Take a message out of a log and number all others again; its offset."""
    gone = holding(path, topic, index, value).entry.offset

    def edit(content):
        for frames in content:
            frames[:] = [each for each in frames if not each[HEADER_BYTES:].startswith(value)]

    forge(path, topic, index, edit)
    return gone


@damage("a committed transaction's message is taken out of one partition, all others are numbered again")
def _(path):
    offset = _without(path, "orders", 0, b"two phases 04")
    return {"kind": "transaction", "topic": "orders", "partition": 0, "first": offset}


@damage("the last committed transaction's message is taken out of one partition")
def _(path):
    store = store_of(path, "orders", 0)
    last = held(path, "orders", 0)[-1].entry.offset
    _without(path, "orders", 0, b"two phases 13")
    return {"kind": "transaction", "topic": "orders", "partition": 0, "first": last, "number": store.number}


@damage("an old send is taken out, all others are numbered again")
def _(path):
    offset = _without(path, "a", 0, b"plain 00")
    return {
        "kind": "shifted",
        "topic": "a",
        "partition": 0,
        "says": "missing before that: 1 message",
        "first": offset + 2,
    }


@damage("the last send of all is taken out")
def _(path):
    offset = holding(path, "a", 1, b"plain 13").entry.offset
    _without(path, "a", 1, b"plain 13")
    return {"topic": "a", "partition": 1, "first": offset}


def _insert(path: Path, topic: str, index: int, data: bytes, before: bytes) -> int:
    found = holding(path, topic, index, before).entry.offset

    def edit(content):
        for frames in content:
            for n, each in enumerate(frames):
                if each[HEADER_BYTES:].startswith(before):
                    frames.insert(n, data)
                    return

    forge(path, topic, index, edit)
    return found


@damage("a message that nobody sent is put between others")
def _(path):
    offset = _insert(path, "orders", 0, frame.encode(b"forged", 1_700_000_000_000_000), b"two phases 04")
    return {
        "topic": "orders",
        "partition": 0,
        "kind": "shifted",
        "first": offset,
        "says": "too many before that",
    }


@damage("a message that nobody sent is put at the end, and the checkpoints know it")
def _(path):
    end = store_of(path, "a", 0).flushed_offset
    forge(path, "a", 0, lambda content: content[-1].append(frame.encode(b"forged", 1_700_000_000_000_000)))
    return {"kind": "undecided", "topic": "a", "partition": 0, "first": end, "last": end}


@damage("a message that nobody sent is put behind the end, and the checkpoints do not know it")
def _(path):
    store = store_of(path, "a", 0)
    file = log_file(store, store.segments[-1])
    data = bytearray(frame.encode(b"forged", 1_700_000_000_000_000))
    frame.stamp(memoryview(data), store.flushed_offset, 1)
    size = (path / file).stat().st_size
    write(path, file, size, bytes(data))
    end = store.flushed_offset
    return {"topic": "a", "partition": 0, "first": end, "last": end, "path": file, "position": size}


@damage("a whole segment that nobody sent lies behind the end")
def _(path):
    store = store_of(path, "a", 0)
    data = bytearray(frame.encode(b"forged", 1_700_000_000_000_000))
    frame.stamp(memoryview(data), store.flushed_offset, 1)
    file = filenames.segment_file(directory_of(store), store.flushed_offset, SegmentKind.LOG)
    header = SegmentHeader(b"n" * 16, 1, store.number, store.flushed_offset, 7)
    (path / file).write_bytes(pack_segment_header(header) + data)
    return {"topic": "a", "partition": 0, "first": store.flushed_offset, "path": file}


def _begun(path, data):
    store = store_of(path, "a", 0)
    file = filenames.segment_file(directory_of(store), store.flushed_offset, SegmentKind.LOG)
    (path / file).write_bytes(data)
    return {"kind": "torn", "topic": "a", "partition": 0, "path": file, "position": 0}


@damage("a segment behind the end is shorter than a header", harmless=True)
def _(path):
    return _begun(path, b"begun")


@damage("a segment behind the end has frames and no header", harmless=True)
def _(path):
    data = bytearray(frame.encode(b"forged" * 20, 1_700_000_000_000_000))
    frame.stamp(memoryview(data), store_of(path, "a", 0).flushed_offset, 1)
    return _begun(path, bytes(64 * [1]) + data)


@damage("messages of a transaction that was rolled back are put into the log")
def _(path):
    [never] = [each for each in outcomes(path) if each.state == 5][:1]
    offset = _insert(path, "quiet", 0, NEVER[b"quiet and never"], b"quiet 07")
    return {
        "kind": "rolled back", "topic": "quiet", "partition": 0, "first": offset, "session": never.session,
        "serial": never.serial,
    }  # fmt: skip


@damage("messages of one that is undecided are shown")
def _(path):
    doubt = next(
        entry for entry in walk_journal(OSFilesystem(path))
        if b"in doubt" in bytes(getattr(entry, "data", b""))
    )  # fmt: skip
    end = store_of(path, "orders", 2).flushed_offset
    forge(path, "orders", 2, lambda content: content[-1].append(bytes(doubt.data)))
    return {
        "kind": "undecided", "topic": "orders", "partition": 2, "first": end, "session": doubt.record.session,
        "serial": doubt.record.serial, "xid": "1:doubt:b",
    }  # fmt: skip


@damage("a committed transaction's messages are in the log once more")
def _(path):
    again = bytes(holding(path, "orders", 0, b"two phases 02").entry.frame)
    end = store_of(path, "orders", 0).flushed_offset
    forge(path, "orders", 0, lambda content: content[-1].append(again))
    return {"kind": "undecided", "topic": "orders", "partition": 0, "first": end, "last": end}


@damage("two neighbours have changed places")
def _(path):
    def edit(content):
        frames = content[0]
        n = next(n for n, each in enumerate(frames) if each[HEADER_BYTES:].startswith(b"two phases 04"))
        frames[n - 1], frames[n] = frames[n], frames[n - 1]

    offset = holding(path, "orders", 0, b"two phases 04").entry.offset
    forge(path, "orders", 0, edit)
    return {"kind": "transaction", "topic": "orders", "partition": 0, "first": offset}


@damage("two partitions' messages of one transaction have changed places")
def _(path):
    one, two = holding(path, "orders", 0, b"two phases 04"), holding(path, "a", 0, b"too")
    [end] = [e for e in outcomes(path) if e.parts[0].base_offset == one.entry.offset and e.parts[0].index == 0
             and e.parts[0].topic == "orders"]  # fmt: skip
    data = bytes(one.entry.frame), bytes(two.entry.frame)

    def put(topic: str, offset: int, new: bytes) -> None:
        def edit(content):
            at = 0
            for frames in content:
                for n, each in enumerate(frames):
                    if at == offset:
                        frames[n] = new
                    at += frame.HEADER.unpack_from(each)[5]

        forge(path, topic, 0, edit)

    put("orders", one.entry.offset, data[1])
    put("a", next(p.base_offset for p in end.parts if p.topic == "a"), data[0])
    return {"kind": "transaction", "topic": "orders", "partition": 0, "first": one.entry.offset,
            "session": end.session, "serial": end.serial}  # fmt: skip


@damage("another value, with a checksum that fits, in a message of a transaction")
def _(path):
    found = holding(path, "orders", 1, b"order")
    write(
        path, found.segment, found.entry.position, altered(bytes(found.entry.frame), HEADER_BYTES, b"Order")
    )
    return {"kind": "transaction", "topic": "orders", "partition": 1, "first": found.entry.offset,
            "path": found.segment, "position": found.entry.position}  # fmt: skip


def _time(time: int, name: str) -> None:
    @damage(f"a message of the time {name}", harmless=True)
    def _(path):
        found = holding(path, "quiet", 0, b"quiet 05")
        write(path, found.segment, found.entry.position, at_time(bytes(found.entry.frame), time))
        return {"kind": "time", "topic": "quiet", "partition": 0, "first": found.entry.offset,
                "path": found.segment}  # fmt: skip


_time(-1, "before 1970")
_time(0, "0")
_time(1_700_000_000, "1970, for it was given in seconds")
_time(1_700_000_000_000, "1970, for it was given in milliseconds")
_time(32_503_680_000_000_000, "3000")
_time((1 << 63) - 1, "that is the last there is")


@pytest.mark.parametrize("name", damage.done)
def test_a_damage_is_found_and_named(sound, tmp_path, name):
    damage.check(name, copied(sound, tmp_path / "data"))


class TestShiftedLogs:
    """What stands behind a message that is missing, or too many, is there: it is told of once, and not as lost."""

    @pytest.fixture
    def path(self, sound, tmp_path):
        return copied(sound, tmp_path / "data")

    @pytest.mark.parametrize("slice_bytes", [500, 20_000, 1 << 26])
    def test_of_a_message_that_is_missing_the_transaction_is_named_and_the_rest_once(self, path, slice_bytes):
        end = store_of(path, "orders", 0).flushed_offset
        offset = _without(path, "orders", 0, b"two phases 04")
        lost, shifted = sorted(violations(path, slice_bytes), key=lambda fact: fact.kind, reverse=True)
        assert (lost.kind, lost.first, lost.last) == ("transaction", offset, offset)
        # What the last offset was given to has lost it, and is not compared: the log ends there.
        assert (shifted.kind, shifted.first, shifted.last) == ("shifted", offset + 1, end - 2)
        assert "stand 1 message before their places; missing before that: 1 message" in shifted.text

    @pytest.mark.parametrize("slice_bytes", [500, 20_000, 1 << 26])
    def test_of_a_message_that_is_too_many_there_is_one_violation(self, path, slice_bytes):
        end = store_of(path, "orders", 0).flushed_offset
        forged = frame.encode(b"forged", 1_700_000_000_000_000)
        offset = _insert(path, "orders", 0, forged, b"two phases 04")
        [found] = violations(path, slice_bytes)
        assert (found.kind, found.first, found.last) == ("shifted", offset, end - 1)
        assert "stand 1 message behind their places; too many before that: 1 message" in found.text

    def test_what_the_journal_decides_at_the_end_is_shifted_too_and_not_undecided(self, path):
        end = store_of(path, "a", 0).flushed_offset
        forged = frame.encode(b"forged", 1_700_000_000_000_000)
        offset = _insert(path, "a", 0, forged, b"plain 12")
        [found] = violations(path, 1 << 26)
        assert (found.kind, found.first, found.last) == ("shifted", offset, end - 1)

    def test_of_two_losses_each_is_told_of(self, path):
        first = _without(path, "orders", 0, b"two phases 04")
        second = _without(path, "orders", 0, b"two phases 09") + 1
        found = violations(path, 1 << 26)
        assert sorted((fact.kind, fact.first) for fact in found) == [
            ("shifted", first + 1), ("shifted", second + 1), ("transaction", first), ("transaction", second)
        ]  # fmt: skip
        [last] = [fact for fact in found if (fact.kind, fact.first) == ("shifted", second + 1)]
        assert "stand 2 messages before their places; missing before that: 1 message more" in last.text

    def test_between_a_loss_and_an_insertion_there_is_one_shift(self, path):
        forged = frame.encode(b"forged", 1_700_000_000_000_000)
        second = _insert(path, "orders", 0, forged, b"two phases 09")
        first = _without(path, "orders", 0, b"two phases 04")
        lost, shifted = sorted(violations(path, 1 << 26), key=lambda fact: fact.kind, reverse=True)
        assert (lost.kind, lost.first) == ("transaction", first)
        assert (shifted.kind, shifted.first, shifted.last) == ("shifted", first + 1, second - 1)

    def test_two_that_have_changed_places_are_no_shift(self, path):
        one, two = holding(path, "orders", 0, b"two phases 04"), holding(path, "orders", 0, b"two phases 09")

        def edit(content):
            frames = [each for segment in content for each in segment]
            places = [
                n for n, each in enumerate(frames) if each in (bytes(one.entry.frame), bytes(two.entry.frame))
            ]
            assert len(places) == 2
            frames[places[0]], frames[places[1]] = frames[places[1]], frames[places[0]]
            content[:] = [frames]

        forge(path, "orders", 0, edit)
        found = violations(path, 1 << 26)
        assert {(fact.kind, fact.first) for fact in found} == {
            ("transaction", one.entry.offset), ("transaction", two.entry.offset)
        }  # fmt: skip
        assert f"its messages stand at offset {two.entry.offset}" in found[0].text


class TestWhatTheBytesAloneCannotShow:
    """docs/spark.md says so. Whoever learns to see one of these changes it there."""

    def test_another_value_in_a_send_that_no_journal_holds_any_more(self, sound, tmp_path):
        path = copied(sound, tmp_path / "data")
        found = holding(path, "quiet", 0, b"quiet 05")
        forged = altered(bytes(found.entry.frame), HEADER_BYTES, b"Quiet")
        write(path, found.segment, found.entry.position, forged)
        assert violations(path) == []

    def test_committed_messages_once_more_where_such_sends_stand(self, sound, tmp_path):
        path = copied(sound, tmp_path / "data")
        again = bytes(holding(path, "quiet", 0, b"quiet, once").entry.frame)
        forge(path, "quiet", 0, lambda content: content[-1].append(again))
        assert violations(path) == []

    def test_such_sends_that_are_gone_from_the_end_of_a_log_as_from_all_checkpoints(self, sound, tmp_path):
        path = copied(sound, tmp_path / "data")
        end = outcomes(path)  # the archive claims what lies before
        assert end
        last = next(e for e in end if e.state == 4 and e.parts[0].topic == "quiet").parts[0]
        forge(
            path, "quiet", 0, lambda content: content[-1].append(frame.encode(b"late", 1_700_000_000_000_000))
        )
        assert store_of(path, "quiet").flushed_offset > last.base_offset + last.count
        forge(path, "quiet", 0, lambda content: content[-1].pop())
        assert violations(path) == []


class TestWhatIsPassedOver:
    """docs/spark.md says this, too."""

    def test_entries_of_an_index_that_point_behind_the_end(self, sound, tmp_path):
        path = copied(sound, tmp_path / "data")
        store = store_of(path, "quiet")
        state = store.segments[-1]
        entries = IndexEntries()
        entries.add(store.flushed_offset, state.size + 40_000, state.last_time)
        for kind, more in zip(
            (SegmentKind.INDEX, SegmentKind.TIME), entries.packed(seed_of(state.salt), [7]), strict=True
        ):
            file = log_file(store, state, kind)
            assert more
            write(path, file, (path / file).stat().st_size, more)
        assert [fact for fact in audited(path) if fact.what in (What.VIOLATION, What.NOTICE)] == []

    def test_a_key_that_cannot_be_read_under_a_checksum_that_fits(self, sound, tmp_path):
        path = copied(sound, tmp_path / "data")
        keyed = frame.encode(b"value", 1_700_000_000_000_000, b"key")
        forge(path, "quiet", 0, lambda content: content[-1].append(altered(keyed, HEADER_BYTES, b"\xc1")))
        assert violations(path) == []
