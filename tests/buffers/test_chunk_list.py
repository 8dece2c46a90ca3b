from hypothesis import given
from hypothesis import strategies as st

from journal.buffers.chunk import Chunk
from journal.buffers.chunk_list import RANGES, ChunkLists
from journal.buffers.size_classes import DEEPEST, PAGES


def place(lists, chunk):
    return [chunk in one for one in lists.lists].index(True)


def fill(lists, chunk, pages):
    """That many pages of a chunk that is the only one."""
    return [lists.allocate(DEEPEST) for _ in range(pages - chunk.used)]


def test_a_chunk_moves_up_with_its_usage_and_down_again_later_than_it_came():
    lists, chunk = ChunkLists(), Chunk()
    lists.add(chunk)
    places = {}
    runs = []
    for used in range(1, PAGES + 1):
        runs.append(lists.allocate(DEEPEST))
        places[used] = place(lists, chunk)
    assert [places[n] for n in (1, 511, 512, 1023, 1024, 1535, 1536, 2047, 2048)] == [
        0,
        0,
        1,
        1,
        2,
        2,
        3,
        3,
        5,
    ]
    down = {}
    for used in range(PAGES - 1, -1, -1):
        lists.release(*runs.pop(), DEEPEST)
        down[used] = place(lists, chunk)
    found = [down[n] for n in (2047, 1536, 1535, 1024, 1023, 512, 511, 1, 0)]
    assert found == [4, 4, 3, 3, 2, 2, 1, 1, 0]


def test_half_full_chunks_are_used_first_and_empty_ones_last():
    lists = ChunkLists()
    half, quarter, empty = Chunk(), Chunk(), Chunk()
    lists.add(half)
    fill(lists, half, PAGES // 2)
    assert lists.lists[2] == [half]
    lists.add(empty)
    whole = lists.allocate(0)
    assert whole is not None
    assert whole[0] is empty
    lists.add(quarter)
    lists.release(*whole, 0)
    assert lists.allocate(DEEPEST)[0] is half
    assert lists.allocate(0)[0] in (quarter, empty)


def test_full_chunks_are_not_searched():
    lists, full = ChunkLists(), Chunk()
    lists.add(full)
    assert lists.allocate(0) is not None
    assert lists.lists[5] == [full]
    full.release(0, 0)  # behind the lists' back: there would be something to be found
    assert lists.allocate(DEEPEST) is None


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 10_000)), max_size=150))
def test_each_chunk_is_in_the_list_of_its_usage_and_counted(steps):
    lists = ChunkLists()
    runs = []
    for release, number in steps:
        if release and runs:
            chunk, page, depth = runs.pop(number % len(runs))
            lists.release(chunk, page, depth)
        else:
            depth = number % 8
            found = lists.allocate(depth)
            if found is None:
                if len(lists) == 4:
                    continue
                lists.add(Chunk())
                found = lists.allocate(depth)
            runs.append((*found, depth))
        for where, chunks in enumerate(lists.lists):
            least, most = RANGES[where]
            assert all(least <= chunk.used < most for chunk in chunks)
        assert lists.backed == sum(chunk.backed for chunk in lists)
        assert sum(chunk.used for chunk in lists) == sum(PAGES >> depth for _, _, depth in runs)


def test_shedding_lets_empty_chunks_go_and_purges_the_others_as_far_as_needed():
    lists = ChunkLists()
    for _ in range(3):
        lists.add(Chunk())
    runs = [lists.allocate(1) for _ in range(6)]
    for run in (runs[0], runs[1], runs[2]):
        lists.release(*run, 1)
    assert (len(lists), lists.backed) == (3, 3 * PAGES)
    lists.shed(1)
    assert (len(lists), lists.backed) == (2, 2 * PAGES)
    lists.shed(PAGES // 2 + 1)
    assert (len(lists), lists.backed) == (2, 3 * PAGES // 2)
    lists.shed(0)
    assert lists.backed == 3 * PAGES // 2


def test_memory_is_given_back_from_the_emptiest_chunk_first():
    lists, low, empty = ChunkLists(), Chunk(), Chunk()
    lists.add(low)
    runs = fill(lists, low, PAGES // 8)
    lists.release(*runs.pop(), DEEPEST)
    lists.add(empty)
    lists.release(*lists.allocate(0), 0)
    lists.shed(1)
    assert list(lists) == [low]
    assert low.backed == low.used + 1
