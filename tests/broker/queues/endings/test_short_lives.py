"""Messages with hardly a time to live: who waits for them gets them, and nobody else does (decision 0056)."""

from __future__ import annotations

import pytest

from journal.formats.offset_set_bytes import encode_offsets
from tests.broker.queues.scene import SECOND, SELF, Scene, expiring, framed, offsets, pass_time, values_of
from txbroker.broker.queues.takes import SERVED_AT_ONCE
from txbroker.wire import messages
from txbroker.wire.queues import PRIORITY

WAITS = {"max_wait": 60 * SECOND}


def zero(scene: Scene, *values: bytes, after: int = 0) -> None:
    scene.other.tell(messages.Send, SELF, data=expiring("q", after, *values))
    scene.room.clock.advance(10)
    scene.room.engine.sync()


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("durable", [True, False])
def test_who_waits_gets_a_message_that_has_expired_when_it_comes(after: int, durable: bool) -> None:
    """Seen with nothing delivered: the message had expired before it was forced."""
    scene = Scene()
    queue = scene.queue(durable=durable)
    asked = scene.peer.tell(messages.TakeMessages, queue, 10, **WAITS)
    zero(scene, b"a", b"b", after=after)
    assert values_of(scene.peer.answer(asked), scene.peer) == [b"a", b"b"]
    assert scene.counts() == (2, 0, 2, 0)


def test_so_does_who_waits_at_a_queue_in_which_nothing_may_live() -> None:
    scene = Scene()
    queue = scene.queue(message_ttl=0, max_priority=3)
    asked = scene.peer.tell(messages.TakeMessages, queue, 10, **WAITS)
    scene.other.ask(messages.Send, SELF, data=framed("q", b"a", headers={PRIORITY: b"2"}))
    assert values_of(scene.peer.answer(asked), scene.peer) == [b"a"]


def test_without_anybody_who_waits_it_ends() -> None:
    scene = Scene()
    queue = scene.queue()
    zero(scene, b"a")
    asked = scene.peer.tell(messages.TakeMessages, queue, 10, **WAITS)
    pass_time(scene, 1000)
    assert not [each for each in scene.peer.answers if each.correlation == asked]
    assert scene.counts() == (0, 0, 0, 0)


def test_who_asks_and_does_not_wait_gets_nothing_of_it() -> None:
    scene = Scene()
    queue = scene.queue()
    scene.peer.tell(messages.Send, SELF, data=expiring("q", 0, b"a"))
    asked = scene.peer.tell(messages.TakeMessages, queue)
    scene.room.engine.sync()
    assert scene.peer.answer(asked).runs == []
    assert scene.counts() == (0, 0, 0, 0)


def test_what_is_given_back_has_expired() -> None:
    scene = Scene()
    queue = scene.queue()
    asked = scene.peer.tell(messages.TakeMessages, queue, 10, **WAITS)
    zero(scene, b"a")
    assert scene.peer.answer(asked).runs == [(0, 1)]
    again = scene.other.tell(messages.TakeMessages, queue, 10, **WAITS)
    scene.peer.ask(messages.GiveBack, queue, encode_offsets(offsets(0), 0), 0)
    pass_time(scene, 1000)
    assert not [each for each in scene.other.answers if each.correlation == again]
    assert scene.counts() == (0, 0, 0, 0)


def test_who_waits_gets_no_more_than_it_can_take() -> None:
    scene = Scene()
    queue = scene.queue()
    asked = scene.peer.tell(messages.TakeMessages, queue, 1, **WAITS)
    zero(scene, b"a", b"b")
    pass_time(scene, 1000)
    assert values_of(scene.peer.answer(asked), scene.peer) == [b"a"]
    assert scene.counts() == (1, 0, 1, 0)
    assert scene.room.broker.queues.gauges()["queue_expired"] == 1


def test_who_cannot_take_it_when_it_comes_does_not_get_it_later() -> None:
    scene = Scene()
    queue = scene.queue()
    asked = scene.peer.tell(messages.TakeMessages, queue, 10, **WAITS)
    scene.peer.session.congested = True
    zero(scene, b"a")
    scene.peer.session.congested = False
    pass_time(scene, 1000)
    assert not [each for each in scene.peer.answers if each.correlation == asked]
    assert scene.counts() == (0, 0, 0, 0)


def test_each_of_many_who_wait_gets_one_though_they_are_served_in_several_turns() -> None:
    """Seen with those ended that the first turn had left."""
    scene = Scene()
    queue, count = scene.queue(message_ttl=0, max_priority=1), 3 * SERVED_AT_ONCE
    peers = [scene.room.peer(f"10.0.1.{number}:1") for number in range(count)]
    asked = [each.tell(messages.TakeMessages, queue, 1, **WAITS) for each in peers]
    values = [b"%d" % number for number in range(count + 5)]
    scene.other.ask(messages.Send, SELF, data=framed("q", *values, headers={PRIORITY: b"1"}))
    pass_time(scene, 100_000)
    got = [values_of(peer.answer(each), peer) for peer, each in zip(peers, asked, strict=True)]
    assert got == [[each] for each in values[:count]]
    assert scene.counts() == (count, 0, count, 0)
