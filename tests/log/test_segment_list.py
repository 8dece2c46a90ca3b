import pytest

from journal.errors import CorruptSegment
from journal.formats.segment_header import SegmentHeader, pack_segment_header, seed_of
from journal.formats.store_state import SegmentState
from journal.log.segment import header_fault
from journal.log.segment_list import SegmentList
from journal.testing import MemoryFilesystem
from journal.vfs.filesystem import OSFilesystem, write_fully

DIRECTORY = "partitions/orders-0.17"
STATES = [
    SegmentState(10, 164, 20, 1, 5, 111, 1),
    SegmentState(20, 264, 40, 5, 5, 222, 2),
    SegmentState(40, 114, 45, 7, 9, 333, 3),
]
SALTS = {state.base_offset: state.salt for state in STATES}


@pytest.fixture(params=["memory", "disk"])
def filesystem(request, tmp_path):
    return MemoryFilesystem() if request.param == "memory" else OSFilesystem(tmp_path)


def segments():
    return SegmentList(17, DIRECTORY, STATES)


def write(filesystem, base_offset, size, header=None):
    """Files of so many bytes of frames behind a header: that of the segment, if no other is given."""
    header = header or SegmentHeader(b"n" * 16, 3, 17, base_offset, SALTS.get(base_offset, 999))
    for directory in ("partitions", DIRECTORY):
        filesystem.make_directory(directory)
    for kind in ("log", "index", "time"):
        file = filesystem.open(f"{DIRECTORY}/{base_offset:032d}.{kind}", create=True)
        write_fully(file, 0, [pack_segment_header(header), b"x" * size])
        file.close()


def sizes(filesystem):
    names = [name for name in filesystem.list_directory(DIRECTORY) if name.endswith(".log")]
    return {int(name[:32]): filesystem.open(f"{DIRECTORY}/{name}").size() - 64 for name in names}


def test_a_list_gives_back_the_states_it_was_made_of():
    assert segments().states() == STATES
    assert segments().total_bytes == 350


@pytest.mark.parametrize(
    ("offset", "base"), [(9, None), (10, 10), (19, 10), (20, 20), (39, 20), (40, 40), (44, 40), (45, None)]
)
def test_the_segment_of_an_offset_is_found(offset, base):
    found = segments().holding(offset)
    assert (found and found[0].base_offset) == base
    if found:
        assert found[1] is (base != 40)


@pytest.mark.parametrize(("time", "base"), [(0, 10), (5, 10), (6, 40), (9, 40), (10, None)])
def test_the_first_segment_that_reaches_a_time_is_found(time, base):
    found = segments().reaching(time)
    assert (found and found[0].base_offset) == base


def test_an_empty_list_holds_nothing():
    empty = SegmentList(17, DIRECTORY)
    assert empty.active is empty.holding(0) is empty.reaching(0) is None
    assert empty.drop_below(100) == empty.states() == []


def test_the_active_segment_grows_in_place_and_is_followed_by_the_next():
    listed = segments()
    grown = listed.active.grown(25, 50, 0, 11)
    listed.put(grown)
    listed.put(listed.next_segment(50).begun(444).grown(30, 60, 12, 13))
    assert listed.states() == [
        *STATES[:2],
        SegmentState(40, 139, 50, 7, 11, 333, 3),
        SegmentState(50, 94, 60, 12, 13, 444, seed_of(444)),
    ]
    assert listed.total_bytes == 405


def test_a_segment_that_leaves_a_gap_is_refused():
    listed = segments()
    with pytest.raises(AssertionError, match="does not follow"):
        listed.put(listed.next_segment(46))


@pytest.mark.parametrize(
    ("offset", "bases"), [(19, []), (20, [10]), (39, [10]), (40, [10, 20]), (45, [10, 20])]
)
def test_sealed_segments_wholly_below_go_and_the_active_one_stays(offset, bases):
    listed = segments()
    assert [segment.base_offset for segment in listed.drop_below(offset)] == bases
    assert listed.total_bytes == sum(segment.size - 64 for segment in listed.segments)
    assert listed.active.base_offset == 40


def files_of(base):
    return [f"{DIRECTORY}/{base:032d}.{kind}" for kind in ("index", "log", "time")]


def places(strangers):
    return [(each.segment.base_offset, each.offset, each.position) for each in strangers.beyond]


def test_later_files_and_the_newest_if_it_is_longer_lie_beyond_and_nothing_is_touched(filesystem):
    for base, size in ((10, 100), (20, 230), (40, 90), (60, 10)):
        write(filesystem, base, size)
    found = segments().compare(filesystem, 45)
    assert (found.early, found.late, places(found)) == ([], files_of(60), [(40, 45, 114), (60, 60, 64)])
    assert sizes(filesystem) == {10: 100, 20: 230, 40: 90, 60: 10}


def test_files_that_were_dropped_but_not_yet_unlinked_come_before_it(filesystem):
    for base, size in ((0, 10), (10, 100), (20, 200), (40, 50)):
        write(filesystem, base, size)
    found = segments().compare(filesystem, 45)
    assert (found.early, found.late, places(found)) == (files_of(0), [], [])


def test_all_files_of_a_partition_that_was_never_flushed_come_late(filesystem):
    assert SegmentList(17, DIRECTORY).compare(filesystem, 0) == ([], [], [], [])
    write(filesystem, 0, 10)
    found = SegmentList(17, DIRECTORY).compare(filesystem, 0)
    assert (found.early, found.late, places(found)) == ([], files_of(0), [(0, 0, 64)])


def test_foreign_files_are_none_of_them(filesystem):
    for state in STATES:
        write(filesystem, state.base_offset, state.size - 64)
    filesystem.open(f"{DIRECTORY}/notes.txt", create=True).close()
    assert segments().compare(filesystem, 45) == ([], [], [], [])


@pytest.mark.parametrize("base", [10, 20, 40])
def test_a_missing_file_is_refused_and_nothing_is_touched(filesystem, base):
    for other, size in ((10, 100), (20, 200), (40, 90), (60, 10)):
        write(filesystem, other, size)
    filesystem.unlink(f"{DIRECTORY}/{base:032d}.log")
    before = sizes(filesystem)
    with pytest.raises(CorruptSegment, match="the file is missing") as caught:
        segments().compare(filesystem, 45)
    assert caught.value.first_offset == base
    assert sizes(filesystem) == before


def test_a_missing_directory_is_refused(filesystem):
    with pytest.raises(CorruptSegment, match="missing"):
        segments().compare(filesystem, 45)


@pytest.mark.parametrize(("base", "size", "last"), [(10, 99, 19), (20, 0, 39), (40, 49, 44)])
def test_a_file_that_is_too_short_is_refused_and_nothing_is_touched(filesystem, base, size, last):
    for other, full in ((10, 100), (20, 200), (40, 90), (60, 10)):
        write(filesystem, other, size if other == base else full)
    before = sizes(filesystem)
    with pytest.raises(CorruptSegment, match="had been forced") as caught:
        segments().compare(filesystem, 45)
    assert (caught.value.position, caught.value.first_offset, caught.value.last_offset) == (
        64 + size,
        base,
        last,
    )
    assert sizes(filesystem) == before


@pytest.mark.parametrize(
    ("header", "what"),
    [
        (
            SegmentHeader(b"n" * 16, 3, 18, 20, 222),
            "it is the segment of partition number 18 from offset 20 on",
        ),
        (
            SegmentHeader(b"n" * 16, 3, 17, 10, 111),
            "it is the segment of partition number 17 from offset 10 on",
        ),
        (SegmentHeader(b"n" * 16, 2, 17, 20, 221), "it is another file of offset 20 on, made by start 2"),
    ],
)
def test_a_file_of_another_segment_is_refused_by_its_header(filesystem, header, what):
    write(filesystem, 10, 100)
    write(filesystem, 20, 200, header)
    write(filesystem, 40, 50)
    with pytest.raises(CorruptSegment, match=what) as caught:
        segments().compare(filesystem, 45)
    assert (caught.value.first_offset, caught.value.last_offset) == (20, 39)


def test_a_damaged_header_stops_no_start_but_is_known(filesystem):
    for state in STATES:
        write(filesystem, state.base_offset, state.size - 64)
    segment = segments().segments[1]
    file = filesystem.open(segment.path)
    assert header_fault(segment, file.read(0, 64)) is None
    for position in (0, 9, 30, 50, 63):
        octet = file.read(position, 1)[0]
        write_fully(file, position, [bytes([octet ^ 0x20])])
        assert segments().compare(filesystem, 45) == ([], [], [], [segment.path])
        assert header_fault(segment, file.read(0, 64)) == ("its header is damaged", False)
        write_fully(file, position, [bytes([octet])])
    assert header_fault(segment, file.read(0, 63)) == ("its header is damaged", False)
