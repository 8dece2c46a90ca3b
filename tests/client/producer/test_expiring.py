"""Test messages whose time runs out before they are sent: after the error they may be sent again at once."""

import pytest

from tests.client.rig import Rig
from txbroker import errors
from txbroker.wire.messages import Refused, Send


@pytest.fixture
def rig(broker):
    rig = Rig(broker)
    rig.send(b"warm")
    rig.pump()
    rig.cut()
    return rig


def test_a_message_sent_by_who_is_told_that_another_was_not_is_kept_and_sent(rig, broker):
    """Seen to fail: the queue ran over what it was changing, and what was sent meanwhile was lost without a word."""
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


def test_a_message_sent_by_who_is_told_has_a_time_of_its_own_wherever_it_goes(broker):
    """Seen to fail: on a partition already looked through it was forgotten, and who awaited it waited for ever."""
    rig = Rig(broker)
    for topic in ("t", "t2"):
        rig.send(b"warm", topic)
    rig.pump()
    rig.cut()
    again = []
    first, _ = rig.send(b"first", "t2")
    first.then(lambda: again.append(rig.send(b"again", "t")[0]))
    rig.wait(31)
    assert not again[0].done
    rig.wait(31)
    with pytest.raises(errors.ConnectionUnavailable, match="were not sent"):
        again[0].result()


def test_what_waits_behind_refused_ones_ends_with_why_they_are_refused(broker):
    """Seen to fail: of those never tried it was said that no connection had been made yet."""
    rig = Rig(broker, timeout=1.0, batch_bytes=0)
    rig.send(b"warm")
    rig.pump()
    tried = set()

    def refuse(request, data):
        if type(request) is not Send:
            return None
        tried.add(bytes(data)[-2:])
        return Refused(request.correlation, "MemoryExhausted", "try later")

    broker.before = refuse
    batches = []
    for number in range(20):
        batches.append(rig.send(b"%02d" % number)[0])
        rig.pump()
        rig.wait(0.2)
    rig.wait(2)
    assert 1 < len(tried) < 20, (
        "some came while the client waited before it tried again, longer than they could"
    )
    for batch in batches:
        with pytest.raises(errors.MemoryExhausted, match="try later"):
            batch.result()
    assert rig.producer.buffered == 0
    broker.before = lambda request, data: None
    rig.wait(2)
    rig.send(b"after")
    rig.pump()
    assert broker.values(1) == [b"warm", b"after"]


def test_what_waits_behind_unanswered_ones_says_so(broker):
    """Seen to fail: it was said that no connection had been made yet."""
    rig = Rig(broker)
    rig.send(b"warm")
    rig.pump()
    broker.before = lambda request, data: broker.SWALLOW if type(request) is Send else None
    sent, _ = rig.send(b"sent")
    rig.pump()
    waits, _ = rig.send(b"waits")
    rig.now += 30
    rig.core.tick()
    with pytest.raises(errors.RequestTimedOut):
        sent.result()
    with pytest.raises(errors.ConnectionUnavailable, match="has not answered what came before them"):
        waits.result()
