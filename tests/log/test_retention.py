from hypothesis import given
from hypothesis import strategies as st

from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from journal.log.retention import retained_start
from journal.log.segment import Segment
from journal.settings import TopicSettings


def sealed(*sizes_and_times):
    return [
        Segment(1, "", number * 10, SEGMENT_HEADER_BYTES + size, number * 10 + 10, time, time)
        for number, (size, time) in enumerate(sizes_and_times)
    ]


def test_without_limits_everything_stays():
    assert retained_start(sealed((100, 0), (100, 0)), 1_000, 1 << 60, TopicSettings()) is None


def test_as_much_goes_as_leaves_the_bytes_to_keep():
    segments = sealed((100, 0), (100, 0), (100, 0))
    for keep, start in ((350, None), (251, None), (250, 10), (151, 10), (150, 20), (50, 30), (0, 30)):
        assert retained_start(segments, 350, 0, TopicSettings(retention_bytes=keep)) == start


def test_a_segment_goes_when_its_newest_message_is_too_old():
    segments = sealed((1, 100), (1, 200), (1, 300))
    for now, start in ((150, None), (151, 10), (250, 10), (251, 20), (10_000, 30)):
        assert retained_start(segments, 3, now, TopicSettings(retention_age=50)) == start


def test_either_limit_lets_a_segment_go():
    segments = sealed((100, 100), (100, 200))
    assert retained_start(segments, 200, 151, TopicSettings(retention_bytes=1_000, retention_age=50)) == 10
    assert retained_start(segments, 200, 0, TopicSettings(retention_bytes=100, retention_age=50)) == 10


def test_a_young_segment_keeps_the_older_ones_after_it():
    assert retained_start(sealed((1, 500), (1, 100)), 2, 520, TopicSettings(retention_age=50)) is None


def test_nothing_sealed_nothing_goes():
    assert retained_start([], 1 << 40, 1 << 60, TopicSettings(retention_bytes=0, retention_age=0)) is None


@given(
    st.lists(st.tuples(st.integers(1, 100), st.integers(0, 50)), max_size=8),
    st.integers(0, 300),
    st.integers(0, 500),
)
def test_by_size_alone_the_bytes_to_keep_are_always_kept(segments, active, keep):
    total = active + sum(size for size, _ in segments)
    start = retained_start(sealed(*segments), total, 0, TopicSettings(retention_bytes=keep)) or 0
    kept = total - sum(size for size, _ in segments[: start // 10])
    assert kept >= min(keep, total)
    if start // 10 < len(segments):
        assert kept - segments[start // 10][0] < keep
