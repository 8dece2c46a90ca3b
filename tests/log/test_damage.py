"""Test that damaged indexes cost a scan and a line in the log, damaged segments only the damaged offsets."""

import logging

import pytest

from journal.buffers import PooledAllocator
from journal.constants import INDEX_INTERVAL_BYTES, KIB, MIB
from journal.errors import CorruptSegment
from journal.formats.frame import decode_run, encode, stamp, walk
from journal.formats.index import OFFSET_ENTRY, IndexEntries, anchors
from journal.formats.segment_header import SEGMENT_HEADER_BYTES, seed_of
from journal.log.message_store import MessageStore
from journal.settings import TopicSettings
from journal.testing import MemoryFilesystem
from journal.vfs.filesystem import OSFilesystem, write_fully
from journal.vfs.open_files import OpenFiles
from tests.log.message_store_scene import origin

DIRECTORY = "partitions/orders-0.17"
FRAME = 500
HEAD = SEGMENT_HEADER_BYTES
SEGMENT = 400
"""Messages of a segment."""
COUNT = 1_000


opened: list[OpenFiles] = []


def files(filesystem):
    """Open files that are closed after the test: thousands of them kept later tests from opening any."""
    opened.append(OpenFiles(filesystem))
    return opened[-1]


@pytest.fixture(params=["memory", "disk"])
def filesystem(request, tmp_path):
    made = MemoryFilesystem() if request.param == "memory" else OSFilesystem(tmp_path)
    made.make_directory("partitions")
    yield made
    while opened:
        opened.pop().close()


@pytest.fixture
def state(filesystem):
    """A store of 1,000 messages in segments of 400, appended and sent at 10, 20, ... µs."""
    settings = TopicSettings(segment_bytes=SEGMENT * FRAME)
    store = MessageStore(17, "orders", 0, settings, files(filesystem), PooledAllocator(8 * MIB), origin())
    for number in range(COUNT):
        time = number * 10 + 10
        store.append(encode(b"v" * (FRAME - 44), time), 1, time)
        if number % 70 == 0:
            store.publish(store.end_offset)
            flush(store)
    store.publish(COUNT)
    flush(store)
    return store.state()


def flush(store):
    job = store.begin_flush()
    job.run()
    store.finish_flush(job)


def grow(store, count, timestamp=1):
    for _ in range(count):
        store.append(encode(b"v" * (FRAME - 44), timestamp), 1, store.last_time + 10)
    store.publish(store.end_offset)
    flush(store)


def reopened(filesystem, state):
    store = MessageStore.restore(state, files(filesystem), PooledAllocator(8 * MIB), origin())
    store.compare()
    return store


def test_what_lies_beyond_the_checkpoint_is_written_over_and_a_durable_flush_cuts_what_is_left(
    filesystem, state
):
    """As after a repair, which may have given up what had been flushed: then the log goes on otherwise."""
    before = reopened(filesystem, state)
    grow(before, 90)
    last = path(state.segments[-1].base_offset, "log")
    longer = len(content(filesystem, last))
    assert longer == state.segments[-1].size + 90 * FRAME
    store = reopened(filesystem, state)
    for cut, size in ((False, longer), (True, state.segments[-1].size + 40 * FRAME)):
        for _ in range(20):
            store.append(encode(b"w" * (FRAME - 44), 2), 1, store.last_time + 10)
        store.publish(store.end_offset)
        job = store.begin_flush()
        job.run(durably=cut, cut=cut)
        store.finish_flush(job)
        assert len(content(filesystem, last)) == size
        found = decode_run(store.read(COUNT, 1 << 30), COUNT)
        assert [(m.offset, m.value[:1]) for m in found] == [(n, b"w") for n in range(COUNT, store.end_offset)]
    assert store.end_offset == COUNT + 40


def path(base, kind):
    return f"{DIRECTORY}/{base:032d}.{kind}"


def content(filesystem, name):
    file = filesystem.open(name)
    data = file.read(0, file.size())
    file.close()
    return data


def replace(filesystem, name, data):
    file = filesystem.open(name, create=True)
    file.truncate(0)
    write_fully(file, 0, [data])
    file.close()


def flip(filesystem, base, position, length=1):
    data = bytearray(content(filesystem, path(base, "log")))
    for place in range(position, position + length):
        data[place] ^= 0x20
    replace(filesystem, path(base, "log"), bytes(data))


def offsets(data):
    return [offset for _, _, offset, _ in walk(data)]


def everything_is_read(store):
    for offset in (0, 1, 33, 399, 400, 437, 799, 800, 801, 930, 999):
        assert offsets(store.read(offset, 1)) == [offset]
    offset, found = 0, 0
    while data := store.read(offset, 40 * KIB):
        found += len(decode_run(data, offset))
        offset = offsets(data)[-1] + 1
    assert found == COUNT


DAMAGES = {
    "missing": None,
    "empty": lambda data: b"",
    "torn": lambda data: data[: len(data) // 2 + 3],
    "zeroed": lambda data: bytes(len(data)),
    "half zeroed": lambda data: data[: len(data) // 2] + bytes(len(data) // 2),
    "flipped": lambda data: bytes(byte ^ 0x10 for byte in data),
    "reversed": lambda data: data[::-1],
    "foreign": lambda data: b"nothing of ours " * 20,
}


class TestIndexes:
    def test_sound_indexes_are_used_without_a_word(self, filesystem, state, caplog):
        everything_is_read(reopened(filesystem, state))
        assert caplog.records == []

    @pytest.mark.sampled(10)
    @pytest.mark.parametrize("base", [0, 400, 800])
    @pytest.mark.parametrize("kinds", [("index",), ("time",), ("index", "time")])
    @pytest.mark.parametrize("damage", DAMAGES)
    def test_a_damaged_index_is_made_again(self, filesystem, state, caplog, damage, kinds, base):
        sound = {kind: content(filesystem, path(base, kind)) for kind in ("index", "time")}
        for kind in kinds:
            change = DAMAGES[damage]
            if change is None:
                filesystem.unlink(path(base, kind))
            else:
                replace(filesystem, path(base, kind), change(sound[kind]))
        store = reopened(filesystem, state)
        for time in range(10, COUNT * 10, 490):
            exact = time // 10 - 1 + (time % 10 > 0)
            earliest = exact - 3 * INDEX_INTERVAL_BYTES // FRAME
            if "time" in kinds and base <= exact < base + SEGMENT:
                earliest = base  # append times are nowhere else, so it is early; but never late
            assert earliest <= store.offset_for_time(time) <= exact
        everything_is_read(store)
        assert any("making the indexes of" in record.message for record in caplog.records)
        if base != 800:
            for kind in {"index", "time"} - ({"time"} & set(kinds)):
                assert content(filesystem, path(base, kind)) == sound[kind]

    @pytest.mark.parametrize("filesystem", ["memory"], indirect=True)
    def test_the_index_of_a_closed_segment_that_is_made_again_survives_a_power_cut(self, filesystem, state):
        filesystem.force_directory("")
        for kind in ("index", "time"):
            filesystem.unlink(path(0, kind))
        filesystem.force_directory(DIRECTORY)
        everything_is_read(reopened(filesystem, state))
        made = {kind: content(filesystem, path(0, kind)) for kind in ("index", "time")}
        assert made["index"]
        clone = filesystem.crash_clone(0, survive=0.0)
        assert {kind: content(clone, path(0, kind)) for kind in made} == made

    def test_an_index_made_from_bytes_that_nothing_proves_is_not_written(self, filesystem, state, caplog):
        """Frames of another log at their place, sound and of the right offsets: the index would prove them for ever."""
        filesystem.unlink(path(0, "index"))
        other = bytearray(encode(b"w" * (FRAME - 44), 1))
        stamp(memoryview(other), 50, 1)
        write_fully(filesystem.open(path(0, "log")), HEAD + 50 * FRAME, [bytes(other)])
        store = reopened(filesystem, state)
        everything_is_read(store)
        assert not filesystem.exists(path(0, "index"))
        made = [record for record in caplog.records if "making the indexes of" in record.message]
        assert len(made) == 1, "it serves this process from memory"

    def test_the_active_segments_index_is_not_gone_on_with_from_such_bytes(self, filesystem, state):
        before = content(filesystem, path(800, "index"))
        filesystem.unlink(path(800, "index"))
        other = bytearray(encode(b"w" * (FRAME - 44), 1))
        stamp(memoryview(other), 850, 1)
        write_fully(filesystem.open(path(800, "log")), HEAD + 50 * FRAME, [bytes(other)])
        store = reopened(filesystem, state)
        grow(store, 100)
        assert len(before) >= OFFSET_ENTRY.size
        places = anchors(
            content(filesystem, path(800, "index")), seed_of(state.segments[2].salt), 1 << 40, 1 << 30
        )
        assert places, "what is written now has its entries"
        assert all(place.position >= state.segments[2].size for place in places), "and nothing below it has"

    @pytest.mark.parametrize("kind", ["index", "time"])
    def test_one_damaged_entry_costs_no_more_than_itself(self, filesystem, state, kind):
        size = {"index": 16, "time": 20}[kind]
        sound = content(filesystem, path(0, kind))
        for number in range(len(sound) // size):
            damaged = bytearray(sound)
            damaged[number * size + 3] ^= 0x40
            replace(filesystem, path(0, kind), bytes(damaged))
            store = reopened(filesystem, state)
            for time in range(10, SEGMENT * 10, 70):
                exact = time // 10 - 1
                assert exact - 4 * INDEX_INTERVAL_BYTES // FRAME <= store.offset_for_time(time) <= exact
            everything_is_read(store)

    @pytest.mark.parametrize("kinds", [("index",), ("time",), ("index", "time")])
    def test_clients_whose_clocks_are_behind_do_not_make_a_time_begin_too_late(
        self, filesystem, state, kinds
    ):
        store = reopened(filesystem, state)
        grow(store, 400, timestamp=1)
        for kind in kinds:
            filesystem.unlink(path(800, kind))
        again = reopened(filesystem, store.state())
        for number in range(800, COUNT + 390, 7):
            assert again.offset_for_time(number * 10 + 10) <= number

    def test_once_made_again_it_is_not_made_a_third_time(self, filesystem, state, caplog):
        for base in (0, 800):
            filesystem.unlink(path(base, "index"))
        store = reopened(filesystem, state)
        for _ in range(3):
            assert offsets(store.read(300, 1)) == [300]
            assert offsets(store.read(950, 1)) == [950]
        assert len(caplog.records) == 2

    def test_the_flusher_repairs_the_index_of_the_active_segment(self, filesystem, state, caplog):
        sound = content(filesystem, path(800, "index"))
        replace(filesystem, path(800, "index"), b"")
        store = reopened(filesystem, state)
        assert offsets(store.read(950, 1)) == [950]
        assert content(filesystem, path(800, "index")) == b""
        grow(store, 150)
        assert content(filesystem, path(800, "index")).startswith(sound)
        caplog.clear()
        for offset in (950, COUNT + 140):
            assert offsets(store.read(offset, 1)) == [offset]
        assert caplog.records == []

    @pytest.mark.parametrize("kinds", [["index"], ["time"], ["index", "time"]])
    @pytest.mark.parametrize("damage", ["zeros", "empty", "missing"])
    def test_the_flusher_repairs_the_index_of_a_segment_that_it_closes_without_writing_to_it(
        self, filesystem, state, caplog, damage, kinds
    ):
        """What a power cut leaves of an active segment's indexes is forced as a closed one's, and must prove it."""
        sound = [content(filesystem, path(800, kind)) for kind in ("index", "time")]
        for kind in kinds:
            if damage == "missing":
                filesystem.unlink(path(800, kind))
            else:
                size = len(content(filesystem, path(800, kind)))
                replace(filesystem, path(800, kind), bytes(size if damage == "zeros" else 0))
        store = reopened(filesystem, state)
        store.append(encode(b"v" * (SEGMENT - COUNT + 800 + 1) * FRAME, 1), 1, store.last_time + 10)
        store.publish(store.end_offset)
        flush(store)
        assert [each.base_offset for each in store.sealed_segments] == [0, 400, 800]
        assert content(filesystem, path(800, "index")) == sound[0]
        assert len(content(filesystem, path(800, "time"))) == len(sound[1])
        for offset in (950, COUNT):
            assert offsets(store.read(offset, 1)) == [offset]
        assert caplog.records == []

    def test_an_index_made_for_a_past_size_gives_way_once_the_segment_is_sealed(
        self, filesystem, state, caplog
    ):
        store = reopened(filesystem, state)
        grow(store, 1)
        plan = store.plan_read(950, 1)
        replace(filesystem, path(800, "index"), b"")
        grow(store, 300)
        assert offsets(plan.run().data) == [950]
        for _ in range(2):
            caplog.clear()
            assert offsets(store.read(COUNT + 150, 1)) == [COUNT + 150]
        assert caplog.records == []

    def test_an_index_of_another_segment_is_not_believed(self, filesystem, state, caplog):
        for kind in ("index", "time"):
            replace(filesystem, path(0, kind), content(filesystem, path(400, kind)))
        everything_is_read(reopened(filesystem, state))
        assert any(path(0, "log") in record.message for record in caplog.records)

    def test_a_sound_entry_that_leads_to_the_wrong_place_is_found_out(self, filesystem, state, caplog):
        lie = IndexEntries()
        for offset in (40, 80, 120, 160, 200, 240, 280, 320, 360):
            lie.add(offset, HEAD + offset * FRAME + 7, offset * 10)
        lies = lie.packed(seed_of(state.segments[0].salt), [0] * len(lie.places))
        replace(filesystem, path(0, "index"), lies[0])
        replace(filesystem, path(0, "time"), lies[1])
        store = reopened(filesystem, state)
        everything_is_read(store)
        assert any("points to where no such frame is" in record.message for record in caplog.records)
        caplog.clear()
        everything_is_read(store)
        assert caplog.records == []

    def test_a_read_on_the_reactor_does_not_scan(self, filesystem, state):
        filesystem.unlink(path(0, "index"))
        store = reopened(filesystem, state)
        plan = store.plan_read(300, 1)
        assert plan.run_now() is None
        assert offsets(plan.run().data) == [300]

    def test_an_empty_index_does_not_make_the_store_begin_at_zero(self, filesystem, state):
        for base in (0, 400, 800):
            for kind in ("index", "time"):
                replace(filesystem, path(base, kind), b"")
        store = reopened(filesystem, state)
        assert store.end_offset == COUNT
        assert offsets(store.append(encode(b"next", 1), 1, 20_000)) == [COUNT]

    def test_entries_of_a_future_that_was_cut_off_do_no_harm(self, filesystem, state, caplog):
        grow(reopened(filesystem, state), 190)
        again = reopened(filesystem, state)
        large = encode(b"w" * (10 * FRAME - 44), 1)
        for number in range(COUNT, COUNT + 10):
            again.append(large, 1, number * 10 + 10)
        again.publish(COUNT + 10)
        flush(again)
        for offset in range(COUNT - 20, COUNT + 10):
            assert offsets(again.read(offset, 1)) == [offset]
        assert caplog.records == []
        index = content(filesystem, path(800, "index"))
        assert max(offset for offset, *_ in OFFSET_ENTRY.iter_unpack(index)) < COUNT + 10

    def test_times_found_by_a_scan_stay_within_what_the_segment_knows(self, filesystem, state):
        store = reopened(filesystem, state)
        grow(store, 60, timestamp=1 << 50)
        filesystem.unlink(path(800, "time"))
        again = reopened(filesystem, store.state())
        grow(again, 140)
        end = COUNT + 200
        assert 800 <= again.offset_for_time(end * 10) < end
        assert again.offset_for_time(end * 10 + 1) == end


class TestSegments:
    @pytest.mark.parametrize("base", [0, 400, 800])
    @pytest.mark.parametrize("at", [28, 44, FRAME - 1])
    def test_a_flipped_byte_costs_one_message(self, filesystem, state, base, at):
        flip(filesystem, base, HEAD + 50 * FRAME + at)
        store = reopened(filesystem, state)
        with pytest.raises(CorruptSegment, match="checksum") as caught:
            store.read(base + 50, KIB)
        error = caught.value
        assert (error.first_offset, error.last_offset) == (base + 50, base + 50)
        assert (error.path, error.position) == (path(base, "log"), HEAD + 50 * FRAME)
        assert offsets(store.read(base + 40, MIB)) == list(range(base + 40, base + 50))
        assert offsets(store.read(base + 51, 1)) == [base + 51]
        for other in {0, 400, 800} - {base}:
            assert offsets(store.read(other + 50, 1)) == [other + 50]

    @pytest.mark.parametrize("field", [0, 8, 32])
    def test_a_broken_header_costs_the_messages_up_to_the_next_entry(self, filesystem, state, field):
        index = content(filesystem, path(400, "index"))
        resume = min(offset for offset, *_ in OFFSET_ENTRY.iter_unpack(index) if offset > 450)
        flip(filesystem, 400, HEAD + 50 * FRAME + field)
        store = reopened(filesystem, state)
        for offset in range(450, resume):
            with pytest.raises(CorruptSegment) as caught:
                store.read(offset, KIB)
            assert (caught.value.first_offset, caught.value.last_offset) == (450, resume - 1)
        assert offsets(store.read(449, KIB)) == [449]
        assert offsets(store.read(resume, 1)) == [resume]
        assert store.read(0, 1)

    def test_a_hole_over_several_entries_costs_what_lies_in_it(self, filesystem, state):
        replace_from, length = HEAD + 50 * FRAME, 5 * INDEX_INTERVAL_BYTES
        data = bytearray(content(filesystem, path(400, "log")))
        data[replace_from : replace_from + length] = bytes(length)
        replace(filesystem, path(400, "log"), bytes(data))
        store = reopened(filesystem, state)
        end = 400 + (replace_from + length) // FRAME
        for offset in (450, 500, end):
            with pytest.raises(CorruptSegment) as caught:
                store.read(offset, KIB)
            assert caught.value.first_offset <= offset <= caught.value.last_offset
            assert caught.value.last_offset < end + 2 * INDEX_INTERVAL_BYTES // FRAME
        assert offsets(store.read(caught.value.last_offset + 1, 1)) == [caught.value.last_offset + 1]
        assert offsets(store.read(449, 1)) == [449]

    def test_damage_in_the_data_and_no_index_leaves_what_comes_before(self, filesystem, state):
        flip(filesystem, 400, HEAD + 50 * FRAME)
        filesystem.unlink(path(400, "index"))
        store = reopened(filesystem, state)
        assert offsets(store.read(440, MIB)) == list(range(440, 450))
        with pytest.raises(CorruptSegment) as caught:
            store.read(700, 1)
        assert (caught.value.first_offset, caught.value.last_offset) == (450, 799)
        assert offsets(store.read(800, 1)) == [800]

    def test_a_file_that_vanished_at_work_is_named(self, filesystem, state):
        store = reopened(filesystem, state)
        filesystem.unlink(path(400, "log"))
        with pytest.raises(CorruptSegment, match="the file is missing") as caught:
            store.plan_read(500, 1)
        assert (caught.value.first_offset, caught.value.last_offset) == (400, 799)
        assert offsets(store.read(300, 1)) == [300]

    def test_flushing_goes_on_behind_damage_in_the_active_segment(self, filesystem, state, caplog):
        caplog.set_level(logging.ERROR)
        flip(filesystem, 800, HEAD + 50 * FRAME)
        store = reopened(filesystem, state)
        grow(store, 100)
        assert offsets(store.read(COUNT + 90, 1)) == [COUNT + 90]
        with pytest.raises(CorruptSegment):
            store.read(850, 1)
