"""Test that ranges and counts are written in words."""

import pytest

from journal.words import count_text, span


@pytest.mark.parametrize(
    ("first", "last", "text"),
    [(3, 3, "offset 3"), (3, 5, "offsets 3 to 5"), (3, None, "offsets from 3 on"), (275, 274, "no offsets")],
)
def test_a_range_is_told_by_both_ends_and_an_empty_one_is_told_to_be_empty(first, last, text):
    assert span("offset", first, last) == text


def test_one_is_not_many():
    assert [count_text(count, "message") for count in (0, 1, 2000)] == [
        "0 messages",
        "1 message",
        "2,000 messages",
    ]
