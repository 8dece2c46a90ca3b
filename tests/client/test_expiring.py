"""Messages whose time runs out before they could be sent: those who are told may send again at once."""

import pytest

from tests.client.rig import Rig
from txbroker import errors


@pytest.fixture
def rig(broker):
    rig = Rig(broker)
    rig.send(b"warm")
    rig.pump()
    rig.cut()
    return rig


def test_a_message_sent_by_who_is_told_that_another_was_not_is_kept_and_sent(rig, broker):
    """Seen to fail: the lane ran over what it was changing, and what was sent meanwhile was lost without a word."""
    again = []
    first, _ = rig.send(b"first")
    large = b"again" * 20_000  # more than a batch, so it is sealed at once
    first.then(lambda: again.append(rig.send(large)[0]))
    second, _ = rig.send(b"second")
    rig.wait(31)
    for batch in (first, second):
        with pytest.raises(errors.ConnectionUnavailable, match="were not sent"):
            batch.result()
    rig.connect()
    rig.pump()
    assert again[0].base_offset == 1
    assert broker.values(1) == [b"warm", large]
    assert rig.producer.buffered == 0
