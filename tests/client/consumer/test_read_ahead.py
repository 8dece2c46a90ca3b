"""Test what a consumer has read ahead when an interrupt comes while it takes messages in."""

from collections import deque

import pytest

from txbroker.client.consumer.read_ahead import ReadAhead
from txbroker.client.core.positions import Position
from txbroker.client.core.results import Message


class Torn(ReadAhead):
    def _took(self, chunk, size):
        if self.undecoded:
            raise KeyboardInterrupt
        super()._took(chunk, size)


def messages(first, end):
    return [Message("t", 0, offset, 1, None, b"", {}) for offset in range(first, end)]


@pytest.mark.parametrize("is_handed_out", [False, True])
def test_a_chunk_that_is_here_is_not_fetched_again(is_handed_out):
    ahead, position = Torn(deque()), Position("t", 0, 1, 9)
    ahead.undecoded.append((position, iter([(messages(0, 3), 30), (messages(3, 5), 20)]), {}))
    with pytest.raises(KeyboardInterrupt):
        ahead.decode()
    assert not ahead.undecoded, "the rest is fetched again"
    current = ahead.chunks.popleft() if is_handed_out else None
    ahead.mend(current)
    assert (position.next, ahead.size) == (3, 0 if is_handed_out else 30)


def test_a_chunk_that_did_not_come_to_be_here_is_fetched_again():
    ahead, position = Torn(deque()), Position("t", 0, 1, 9)
    ahead.undecoded.append((position, iter([(messages(0, 3), 30)]), {}))
    with pytest.raises(KeyboardInterrupt):
        ahead.decode()
    ahead.chunks.clear()
    ahead.mend(None)
    assert (position.next, ahead.size) == (0, 0)
    ahead.undecoded.append((position, iter([(messages(0, 3), 30)]), {}))
    with pytest.raises(KeyboardInterrupt):
        ahead.decode()
    assert len(ahead.chunks) == 1
