"""Test what a consumer has left out of one partition, mostly messages that are tried again."""

import pytest

from journal.formats import frame
from journal.offset_set import OffsetSet
from txbroker.client.consumer.read_ahead import Again
from txbroker.client.core.left_out import MOST_BETWEEN, LeftOut
from txbroker.client.core.promise import Promise


def of(*offsets):
    found = OffsetSet()
    for offset in offsets:
        found.add(offset)
    return found


def message(offset, key=None):
    return frame.Message(offset, 1, key, b"", ())


@pytest.fixture(params=["partition", "key", None])
def left(request):
    return LeftOut(request.param)


def test_the_broker_is_asked_for_a_message_once_its_request_is_answered(left):
    answer = Promise()
    left.park(3, b"a")
    left.park(4, b"a")
    left.asked(4, answer)
    assert (str(left.missing), str(left.waiting)) == ("3", "3-4")
    answer.resolve(None)
    assert str(left.missing) == "3-4"


def test_an_answer_tells_only_of_what_it_was_asked_for(left):
    left.park(3, b"a")
    asked = left.missing.copy()
    left.park(4, b"b")
    left.told(asked, of(), of())
    assert str(left.waiting) == "4"
    assert left.ready() == [(3, 4)]
    left.told(of(4), of(4), of())
    assert not left.waiting
    assert not left.has(4)


def test_by_partition_nothing_is_read_behind_what_is_left_out():
    left = LeftOut("partition")
    left.park(3, None)
    left.park(5, None)
    assert left.blocks
    left.told(of(3, 5), of(), of(3))
    assert (left.ready(), left.readable(6), left.blocks) == ([], 3, True)
    left.told(of(3), of(), of())
    assert left.ready() == [(3, 6)]
    left.taken([3, 5])
    assert not left.blocks


def test_by_partition_the_place_where_the_reading_has_stopped_is_beside_those_that_are_tried_again():
    left = LeftOut("partition")
    left.park(3, None)
    left.block(7)
    assert str(left.waiting) == "3, 7"
    left.mend(7)
    assert str(left.waiting) == "3, 7"
    left.mend(6)  # an interrupt came before the reading noted where it stopped
    assert str(left.waiting) == "3"
    left.block(7)
    left.told(of(3, 7), of(), of(3))
    left.mend(7)
    left.block(9)
    assert str(left.waiting) == "3, 9"


def test_what_is_read_anew_is_forgotten_also_if_a_lower_one_was_left_out_later(left):
    left.park(9, b"a")
    left.park(2, b"a")
    left.mend(5)
    assert (left.has(9), left.has(2), str(left.waiting)) == (False, True, "2")


def test_by_key_later_ones_of_its_key_stay_behind_it():
    left = LeftOut("key")
    left.park(3, b"a")
    left.put_back(4, b"a")
    assert not left.admits(message(5, b"a"), False)
    assert left.admits(message(6, b"b"), False)
    assert left.ready() == []
    left.told(of(3), of(), of())
    assert left.ready() == [(3, 6)]


def test_what_lies_near_to_each_other_is_read_in_one_run():
    left = LeftOut("key")
    for offset in (3, 5, 5 + MOST_BETWEEN, 7 + 2 * MOST_BETWEEN):
        left.put_back(offset, b"a")
    assert left.ready() == [(3, 6 + MOST_BETWEEN), (7 + 2 * MOST_BETWEEN, 8 + 2 * MOST_BETWEEN)]


def test_of_what_is_read_between_nothing_is_handed_out():
    left = LeftOut("key")
    left.put_back(2, b"a")
    left.park(4, b"b")
    left.put_back(5, b"b")
    left.put_back(6, b"a")
    assert left.ready() == [(2, 7)]
    keys = b"a", b"c", b"b", b"b", b"a"
    pieces = iter([([message(offset, key) for offset, key in enumerate(keys, 2)], 1)])
    again = Again(left, pieces, (2, 7), of(), of(4))
    assert [each.offset for messages, _ in again for each in messages] == [2, 6]


class TestOrderOfWhatIsReadAgain:
    """A run is asked for, and before its answer is there a lower message may come to be left out."""

    def admitted(self, left, *messages):
        in_order = left.in_order()
        return [offset for offset, key in messages if in_order.admits(offset, key)]

    def test_by_key_none_goes_before_a_lower_one_of_its_key(self):
        left = LeftOut("key")
        for offset, key in ((2, b"a"), (4, b"b"), (5, b"a"), (6, None), (7, b"a")):
            left.put_back(offset, key)
        every = (4, b"b"), (5, b"a"), (6, None), (7, b"a")
        assert self.admitted(left, *every) == [4, 6]
        assert self.admitted(left, (2, b"a"), *every) == [2, 4, 5, 6, 7]
        left.taken([2])
        assert self.admitted(left, *every) == [4, 5, 6, 7]

    def test_by_partition_none_goes_before_any_lower_one(self):
        left = LeftOut("partition")
        for offset, key in ((2, b"a"), (4, b"b"), (6, None)):
            left.put_back(offset, key)
        assert self.admitted(left, (4, b"b"), (6, None)) == []
        assert self.admitted(left, (2, b"a"), (4, b"b"), (6, None)) == [2, 4, 6]

    def test_without_an_order_all_go(self):
        left = LeftOut(None)
        for offset in (2, 4, 6):
            left.put_back(offset, b"a")
        assert self.admitted(left, (4, b"a"), (6, b"a")) == [4, 6]

    def test_one_that_is_held_holds_those_behind_it(self):
        left = LeftOut("key")
        for offset in (2, 4, 6):
            left.put_back(offset, b"a")
        assert self.admitted(left, (2, b"a"), (6, b"a")) == [2], "4 is not among them"

    def test_one_that_comes_to_be_left_out_later_counts_from_then_on(self):
        left = LeftOut("key")
        left.put_back(4, b"a")
        assert self.admitted(left, (4, b"a")) == [4]
        left.put_back(2, b"a")
        assert self.admitted(left, (4, b"a")) == []

    @pytest.mark.parametrize("order", ["key", "partition"])
    def test_a_run_that_was_asked_for_before_is_held_when_it_comes(self, order):
        left = LeftOut(order)
        left.put_back(4, b"a")
        pieces = iter([([message(4, b"a")], 1), ([message(5, b"b")], 1)])
        again = Again(left, pieces, (4, 6), of(), of())
        left.put_back(2, b"a")
        assert list(again) == []
        assert left.ready() == [(2, 5)]
