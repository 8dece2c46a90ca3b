from hypothesis import given
from hypothesis import strategies as st

from journal.vfs.file_window import FileWindow

DATA = bytes(range(256)) * 4


def window_of(size=1024, window=100):
    reads = []

    def read(position, length):
        reads.append((position, length))
        return DATA[:size][position : position + length]

    return FileWindow(read, size, window), reads


@given(st.lists(st.tuples(st.integers(0, 1100), st.integers(0, 400)), max_size=20))
def test_whatever_is_asked_for_in_whatever_order_is_what_the_file_has_there(asked):
    window, _ = window_of()
    for position, length in asked:
        assert bytes(window.at(position, length)) == DATA[position : position + length]


def test_what_lies_in_the_window_is_not_read_again():
    window, reads = window_of()
    for position in range(0, 100, 10):
        assert bytes(window.at(position, 10)) == DATA[position : position + 10]
    assert reads == [(0, 100)]


def test_more_than_a_window_is_read_in_one_piece():
    window, reads = window_of()
    assert bytes(window.at(50, 300)) == DATA[50:350]
    assert reads == [(50, 300)]


def test_what_was_given_stays_good_when_the_window_moves_on():
    window, _ = window_of()
    early = window.at(0, 10)
    window.at(500, 10)
    assert bytes(early) == DATA[:10]


def test_a_file_ends_where_it_ends():
    window, _ = window_of(size=120)
    assert bytes(window.at(110, 40)) == DATA[110:120]
    assert bytes(window.at(120, 40)) == bytes(window.at(500, 40)) == b""
    assert bytes(window.at(0, 5)) == DATA[:5]


def test_a_window_over_bytes_shows_all_of_them():
    window = FileWindow.of(DATA)
    assert window.size == len(DATA)
    assert bytes(window.at(1000, 100)) == DATA[1000:]
    assert bytes(FileWindow.of(b"").at(0, 40)) == b""
