import ctypes
import mmap

from hypothesis import given
from hypothesis import strategies as st

from journal.buffers.chunk import NONE, Chunk
from journal.buffers.size_classes import CHUNK, DEEPEST, PAGE, PAGES


def pages_of(page, depth):
    return set(range(page, page + (PAGES >> depth)))


def resident_pages(chunk):
    """Pages that the system backs, as it says itself, one by one: it shows maps side by side as one."""
    own = mmap.PAGESIZE
    with open("/proc/self/pagemap", "rb") as entries:
        entries.seek(address(chunk) // own * 8)
        found = memoryview(entries.read(CHUNK // own * 8)).cast("Q")
    return sum(entry >> 63 for entry in found) * own // PAGE


def address(chunk):
    return ctypes.addressof(ctypes.c_char.from_buffer(chunk.memory))


def test_a_new_chunk_gives_itself_as_one_run_and_no_second():
    chunk = Chunk()
    assert len(chunk.memory) == CHUNK
    assert chunk.allocate(0) == 0
    assert (chunk.used, chunk.allocate(DEEPEST), chunk.allocate(0)) == (PAGES, NONE, NONE)


def test_the_smallest_node_that_fits_is_divided_and_the_lowest_of_several_is_taken():
    chunk = Chunk()
    assert [chunk.allocate(DEEPEST), chunk.allocate(DEEPEST - 1), chunk.allocate(DEEPEST)] == [0, 2, 1]
    assert [chunk.allocate(DEEPEST), chunk.allocate(1)] == [4, PAGES // 2]
    chunk.release(2, DEEPEST - 1)
    chunk.release(0, DEEPEST)
    assert [chunk.allocate(DEEPEST), chunk.allocate(DEEPEST)] == [0, 5]


def test_buddies_become_one_again_and_neighbours_that_are_none_do_not():
    chunk = Chunk()
    first, second, third, fourth = (chunk.allocate(2) for _ in range(4))
    chunk.release(second, 2)
    chunk.release(third, 2)
    assert chunk.allocate(1) == NONE
    chunk.release(fourth, 2)
    assert chunk.allocate(1) == third
    chunk.release(third, 1)
    chunk.release(first, 2)
    assert chunk.allocate(0) == 0


def test_part_of_a_chunk_for_a_small_pool_is_a_tree_too():
    chunk = Chunk(3)
    assert len(chunk.memory) == CHUNK >> 3
    assert chunk.allocate(2) == NONE
    runs = [chunk.allocate(4), chunk.allocate(4)]
    assert runs == [0, PAGES >> 4]
    assert chunk.allocate(DEEPEST) == NONE
    for page in runs:
        chunk.release(page, 4)
    assert chunk.allocate(3) == 0


def test_what_was_given_out_is_backed_until_it_is_purged():
    chunk = Chunk()
    runs = [chunk.allocate(4) for _ in range(4)]
    for page in runs:
        chunk.memory[page * PAGE : (page + (PAGES >> 4)) * PAGE] = bytes(CHUNK >> 4)
    for page in runs[1:]:
        chunk.release(page, 4)
    assert (chunk.used, chunk.backed, resident_pages(chunk)) == (128, 512, 512)
    chunk.purge()
    assert (chunk.used, chunk.backed, resident_pages(chunk)) == (128, 128, 128)
    chunk.allocate(4)
    assert chunk.backed == 256


def test_pages_in_use_keep_their_content_when_the_others_are_purged():
    chunk = Chunk()
    runs = [chunk.allocate(DEEPEST) for _ in range(64)]
    for page in runs:
        chunk.memory[page * PAGE : page * PAGE + PAGE] = bytes([page + 1]) * PAGE
    for page in runs[::3]:
        chunk.release(page, DEEPEST)
    chunk.purge()
    for page in runs:
        wanted = 0 if page % 3 == 0 else page + 1
        assert bytes(chunk.memory[page * PAGE : page * PAGE + PAGE]) == bytes([wanted]) * PAGE


STEPS = st.lists(st.tuples(st.sampled_from("aaarrp"), st.integers(0, 10_000)), max_size=80)


@given(STEPS)
def test_runs_do_not_overlap_and_all_is_one_again_when_all_are_back(steps):
    chunk, runs, touched = Chunk(), {}, set()
    for step, number in steps:
        if step == "a":
            depth = number % (DEEPEST + 1)
            page = chunk.allocate(depth)
            taken = set().union(*(pages_of(*run) for run in runs.items()))
            if page == NONE:
                starts = range(0, PAGES, PAGES >> depth)
                assert all(pages_of(start, depth) & taken for start in starts), "a free run was overlooked"
                continue
            assert not pages_of(page, depth) & taken
            assert page % (PAGES >> depth) == 0
            runs[page] = depth
            touched |= pages_of(page, depth)
        elif step == "r" and runs:
            page = sorted(runs)[number % len(runs)]
            chunk.release(page, runs.pop(page))
        elif step == "p":
            chunk.purge()
            touched = set().union(*(pages_of(*run) for run in runs.items()))
        assert chunk.used == sum(PAGES >> depth for depth in runs.values())
        assert len(touched) <= chunk.backed <= PAGES
    for page, depth in runs.items():
        chunk.release(page, depth)
    assert chunk.used == 0
    assert chunk.allocate(0) == 0
