"""Test what a consumer has left out of one partition, mostly messages that are tried again."""

import pytest

from journal.formats import frame
from journal.offset_set import OffsetSet
from txbroker.client.core.left_out import LeftOut
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
    assert left.ready() == [(3, 4), (5, 6)]
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
