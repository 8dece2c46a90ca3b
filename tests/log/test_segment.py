import pytest
from crc32c import crc32c

from journal.formats.frame import HEADER_BYTES, encode, stamp
from journal.formats.segment_header import SEGMENT_HEADER_BYTES, seed_of
from journal.log.segment import BrokenChain, Segment, is_frame_of, read_run, run_on, walk_headers
from journal.testing import MemoryFilesystem
from journal.vfs.filesystem import OSFilesystem, write_fully

H = SEGMENT_HEADER_BYTES
DIRECTORY = "partitions/orders-0.17"


@pytest.fixture(params=["memory", "disk"])
def filesystem(request, tmp_path):
    return MemoryFilesystem() if request.param == "memory" else OSFilesystem(tmp_path)


def frames(count, size=100):
    data = bytearray(encode(b"v" * (size - HEADER_BYTES), 1) * count)
    stamp(memoryview(data), 50, 1)
    return data


def made(filesystem, data, messages):
    """A segment of that content from offset 50 on, and how to read it."""
    segment = Segment(17, DIRECTORY, 50, H + len(data), 50 + messages, 1, 2)
    for directory in ("partitions", DIRECTORY):
        filesystem.make_directory(directory)
    file = filesystem.open(segment.path, create=True)
    write_fully(file, 0, [bytes(H), bytes(data)])
    return segment, file.read


def test_files_are_named_after_the_base_offset():
    assert Segment(17, DIRECTORY, 50).paths == [
        f"{DIRECTORY}/00000000000000000000000000000050.{kind}" for kind in ("log", "index", "time", "keys")
    ]


def test_growing_keeps_the_first_time_and_takes_the_last():
    begun = Segment(17, DIRECTORY, 50, 0, 50).begun(1 << 40)
    once = begun.grown(300, 53, 5, 7)
    twice = once.grown(100, 54, 8, 9)
    assert (begun.size, begun.frame_bytes, begun.checksum) == (H, 0, seed_of(1 << 40))
    assert (once.size, once.end_offset, once.first_time, once.last_time) == (H + 300, 53, 5, 7)
    assert (twice.frame_bytes, twice.end_offset, twice.first_time, twice.last_time) == (400, 54, 5, 9)
    assert Segment.of(17, DIRECTORY, twice.state()) == twice


def test_headers_are_walked_to_the_end_through_any_number_of_blocks(filesystem):
    segment, read = made(filesystem, frames(3_000), 3_000)
    walked = [(place.offset, place.position) for place in walk_headers(read, segment, 50, H)]
    assert walked == [(50 + n, H + 100 * n) for n in range(3_000)]
    assert next(walk_headers(read, segment, 60, H + 1_000)).offset == 60


def test_walking_does_not_go_beyond_the_known_size(filesystem):
    segment, read = made(filesystem, frames(10), 10)
    known = Segment(17, DIRECTORY, 50, H + 300, 53, 1, 2)
    assert [place.offset for place in walk_headers(read, known, 50, H)] == [50, 51, 52]
    assert read_run(read, known, 51, H + 100, 10_000)[1] == 53
    assert segment.frame_bytes == 1_000


@pytest.mark.parametrize("field", [0, 8, 32])
def test_a_header_that_does_not_continue_the_chain_breaks_it(filesystem, field):
    data = frames(10)
    data[500 + field] ^= 0x40
    segment, read = made(filesystem, data, 10)
    walk = walk_headers(read, segment, 50, H)
    assert [next(walk).offset for _ in range(5)] == [50, 51, 52, 53, 54]
    with pytest.raises(BrokenChain) as caught:
        next(walk)
    assert (caught.value.position, caught.value.offset, caught.value.next_offset) == (H + 500, 55, None)
    assert not is_frame_of(read, segment, 55, H + 500)
    with pytest.raises(BrokenChain):
        read_run(read, segment, 55, H + 500, 1_000)


def test_a_file_that_ends_early_breaks_the_chain(filesystem):
    _, read = made(filesystem, frames(10), 10)
    segment = Segment(17, DIRECTORY, 50, H + 1_100, 61, 1, 2)
    with pytest.raises(BrokenChain, match="ends too early"):
        list(walk_headers(read, segment, 50, H))
    with pytest.raises(BrokenChain, match="ends too early"):
        read_run(read, segment, 60, H + 1_000, 1_000)


def test_a_run_is_of_whole_frames_and_at_least_one(filesystem):
    data = frames(10)
    segment, read = made(filesystem, data, 10)
    assert read_run(read, segment, 50, H + 0, 10_000) == (data, 60)
    assert read_run(read, segment, 52, H + 200, 299) == (data[200:400], 54)
    assert read_run(read, segment, 52, H + 200, 1) == (data[200:300], 53)
    assert read_run(read, segment, 59, H + 900, 1) == (data[900:], 60)


def test_a_run_stops_before_a_damaged_frame_and_starts_with_none(filesystem):
    data = frames(10)
    data[550] ^= 0x01
    segment, read = made(filesystem, data, 10)
    assert read_run(read, segment, 53, H + 300, 10_000) == (data[300:500], 55)
    assert read_run(read, segment, 56, H + 600, 10_000) == (data[600:], 60)
    with pytest.raises(BrokenChain, match="offset 55 fails its checksum") as caught:
        read_run(read, segment, 55, H + 500, 10_000)
    assert caught.value.next_offset == 56


def test_zero_bytes_are_no_frames(filesystem):
    segment, read = made(filesystem, bytes(1_000), 10)
    with pytest.raises(BrokenChain):
        next(walk_headers(read, segment, 50, H))
    with pytest.raises(BrokenChain):
        read_run(read, segment, 50, H + 0, 1_000)


def test_a_frame_is_recognised_by_offset_and_place(filesystem):
    segment, read = made(filesystem, frames(10), 10)
    assert is_frame_of(read, segment, 53, H + 300)
    for offset, position in ((54, 300), (53, 301), (60, 1_000), (50, -1), (50, -64), (59, 999)):
        assert not is_frame_of(read, segment, offset, H + position)


def test_the_error_names_what_where_and_which_offsets():
    error = Segment(17, DIRECTORY, 50).corrupt("no frame", 400, 54, 59)
    assert (error.position, error.first_offset, error.last_offset) == (400, 54, 59)
    for words in ("0050.log", "byte 400", "no frame", "Offsets 54 to 59", "read on from offset 60"):
        assert words in str(error)


def test_the_running_checksum_goes_on_from_any_place_and_tells_every_change(filesystem):
    data = frames(2_000)
    segment, read = made(filesystem, data, 2_000)
    whole = run_on(read, segment.seed, H, segment.size)
    assert whole == crc32c(bytes(data), segment.seed)
    halfway = run_on(read, segment.seed, H, H + 70_100)
    assert run_on(read, halfway, H + 70_100, segment.size) == whole
    assert run_on(read, segment.seed, H, segment.size + 1) != whole, "the file ends too early"
    data[150_008] ^= 0x01  # of an id, which no frame's own checksum covers
    write_fully(filesystem.open(segment.path), H, [bytes(data)])
    assert run_on(read, segment.seed, H, segment.size) != whole
