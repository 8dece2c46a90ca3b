"""Test many messages in one call: they are the same as one by one, with no more in memory than necessary."""

import pytest

from journal.formats import frame
from tests.client.rig import Rig
from txbroker import errors
from txbroker.client.transactions import bulk
from txbroker.wire.messages import Add


def messages(broker):
    return [message for _, run in broker.logs[1] for message in frame.decode_run(run)]


def test_columns_become_the_messages_that_single_sends_would_be(rig, broker):
    transaction = rig.transaction()
    headers = [{"h": b"1"}, None, None]
    values, keys = [b"a", None, b"c"], [b"k", None, b""]
    rig.run(bulk.send_many(transaction, "t", values, keys, headers, [0, 0, 0], [10**15, None, 10**15 + 3]))
    rig.run(transaction.commit())
    first, second, third = messages(broker)
    assert (first.value, first.key, first.headers, first.timestamp) == (b"a", b"k", (("h", b"1"),), 10**15)
    assert (second.value, second.key, second.headers) == (None, None, ())
    assert second.timestamp == rig.core.wall()
    assert (third.value, third.key, third.timestamp) == (b"c", b"", 10**15 + 3)


def test_what_is_not_said_is_none_or_now(rig, broker):
    transaction = rig.transaction()
    rig.run(bulk.send_many(transaction, "t", [b"a", b"b"]))
    rig.run(transaction.commit())
    assert [(m.key, m.headers) for m in messages(broker)] == [(None, ())] * 2


def test_columns_of_different_lengths_are_refused_before_anything_is_added(rig, broker):
    transaction = rig.transaction()
    with pytest.raises(
        errors.Misuse, match=r"different lengths, \[2, 1, None, None, None, None, None\]; nothing was added"
    ):
        rig.run(bulk.send_many(transaction, "t", [b"a", b"b"], [b"k"]))
    assert transaction.is_empty


class Watched(list):
    """Values that note how much waits to be sent whenever one is taken."""

    def __init__(self, values, core):
        super().__init__(values)
        self.core = core
        self.waiting = []

    def __iter__(self):
        for value in super().__iter__():
            self.waiting.append(self.core.output_bytes)
            yield value


def test_output_is_sent_while_the_call_goes_on(rig, broker):
    transaction = rig.transaction()
    values = Watched([bytes(10_000)] * 200, rig.core)
    rig.run(bulk.send_many(transaction, "t", values, partitions=[0] * 200))
    assert max(values.waiting) <= bulk.EAGER
    assert any(type(request) is Add for request in broker.requests)
    rig.run(transaction.commit())
    assert len(messages(broker)) == 200


def test_a_refused_message_leaves_what_came_before_it(rig, broker):
    transaction = rig.transaction()
    with pytest.raises(errors.UnknownPartition):
        rig.run(bulk.send_many(transaction, "t", [b"a", b"b"], partitions=[0, 9]))
    rig.run(transaction.commit())
    assert [m.value for m in messages(broker)] == [b"a"]


class Encoded:
    """Messages as frames, each made by itself."""

    def __init__(self, *values: bytes) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def fitting(self, first: int, room: int) -> int:
        size = count = 0
        for value in self.values[first:]:
            size += len(frame.encode_inner(0, value, 10**15))
            if size > room:
                break
            count += 1
        return count

    def packed(self, first: int, last: int, position: int) -> memoryview:
        made = [
            frame.encode_inner(position + number, value, 10**15)
            for number, value in enumerate(self.values[first:last])
        ]
        return memoryview(b"".join(made))


def test_messages_that_are_frames_already_are_added_in_their_order_in_batches_of_the_usual_size(broker):
    rig = Rig(broker, batch_bytes=2000)
    transaction = rig.transaction()
    values = [b"%03d" % number * 30 for number in range(100)]
    asked = []

    def split(partitions):
        asked.append(partitions)
        return [(0, Encoded(*values[:60])), (0, Encoded(*values[60:]))]

    rig.run(bulk.send_frames(transaction, "t", split))
    rig.run(transaction.commit())
    assert [message.value for message in messages(broker)] == values
    assert len(broker.logs[1]) > 5, "no batch is much larger than it may be"
    assert asked == [1]
