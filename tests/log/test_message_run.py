import pytest

from journal.log.message_run import MessageRun, follow
from journal.records.record import Messages

FRAMES = [b"0", b"11", b"2"]


def run_of(*records):
    return MessageRun.of_records(records, FRAMES[: len(records)])


GOOD = (
    Messages(5, 10, 1, 100, 7, 2, 30),
    Messages(5, 11, 2, 101, 7, 2, 31),
    Messages(5, 13, 1, 101, 7, 2, 33),
)


def test_rows_and_records_make_the_same_columns():
    by_record = run_of(*GOOD)
    fields = Messages.__struct_fields__
    rows = [(*(getattr(each, f) for f in fields), frames) for each, frames in zip(GOOD, FRAMES, strict=True)]
    by_row = MessageRun.of_rows(rows)
    for column in MessageRun.__slots__:
        one, other = getattr(by_record, column), getattr(by_row, column)
        assert (one, other) == (5, 5) if column == "partition" else list(one) == list(other)
    assert list(by_row.sequences) == [30, 31, 33]


def test_stretches_lie_side_by_side_or_not():
    assert follow([5], [3])
    assert follow((5, 8, 9), (3, 1, 7))
    assert not follow([5, 9], [3, 1])
    assert not follow([5, 7], [3, 1])


def test_a_producers_sends_one_after_the_other_are_of_one():
    assert run_of(*GOOD).is_of_one_producer
    assert run_of(GOOD[1]).is_of_one_producer


@pytest.mark.parametrize(
    "last",
    [
        Messages(5, 13, 1, 101, 8, 2, 33),  # another producer
        Messages(5, 13, 1, 101, 7, 3, 33),  # another epoch
        Messages(5, 13, 1, 101, 7, 2, 34),  # a sequence left out
        Messages(5, 14, 1, 101, 7, 2, 33),  # another's messages between
        Messages(5, 13, 1, 101),  # no producer
    ],
)
def test_sends_that_do_not_continue_each_other_are_not(last):
    assert not run_of(*GOOD[:2], last).is_of_one_producer


def test_sends_without_a_producer_need_no_sequence():
    assert run_of(Messages(5, 0, 1, 1), Messages(5, 1, 1, 1)).is_of_one_producer
    assert not run_of(Messages(5, 0, 1, 1), Messages(5, 2, 1, 1)).is_of_one_producer
