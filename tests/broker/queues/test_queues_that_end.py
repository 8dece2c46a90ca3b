"""Queues and exchanges that end by themselves, and exchanges with an alternate (decision 0056)."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from journal.records.queue_entries import Binding, ExchangeKind, QueueSettings
from journal.transaction_states import Totals
from journal.xid import Xid
from tests.broker.queues.scene import SECOND, SELF, Scene, acknowledged, framed
from tests.support.broker_room import refused
from txbroker.broker.queues.queue_requests import DELETED_AT_ONCE
from txbroker.queues.declarations import ENDED_AT_ONCE
from txbroker.wire import messages


def test_a_queue_that_nobody_uses_is_deleted():
    scene = Scene()
    queue = scene.queue(expires=10 * SECOND)
    for _ in range(3):
        scene.room.clock.advance(6 * SECOND)
        scene.room.broker.queues.expire(scene.room.engine.now())
        scene.take(queue)
    scene.queue(expires=10 * SECOND)
    scene.room.clock.advance(9 * SECOND)
    scene.room.broker.queues.expire(scene.room.engine.now())
    scene.publish("q", b"x")
    scene.room.clock.advance(SECOND)
    scene.room.broker.queues.expire(scene.room.engine.now())
    refused(scene.peer.ask(messages.DeclareQueue, "q", passive=True), "UnknownQueue")


def test_a_queue_is_used_while_somebody_waits_or_has_its_messages():
    scene = Scene()
    queue = scene.queue(expires=SECOND)
    waits = scene.peer.tell(messages.TakeMessages, queue, max_wait=100 * SECOND)
    for _ in range(3):
        scene.room.clock.advance(2 * SECOND)
        scene.room.broker.queues.expire(scene.room.engine.now())
    scene.publish("q", b"x")
    assert scene.peer.answer(waits).runs == [(0, 1)]
    scene.room.clock.advance(2 * SECOND)
    scene.room.broker.queues.expire(scene.room.engine.now())
    assert scene.counts() == (1, 0, 1, 0)


def test_an_exclusive_queue_is_for_its_session_and_goes_with_it():
    scene = Scene()
    queue = scene.queue(exclusive=True)
    assert scene.queue(exclusive=True) == queue
    scene.publish("q", b"a")
    assert isinstance(scene.other.ask(messages.Send, SELF, data=framed("q", b"b")), messages.Sent), (
        "all may send"
    )
    scene.exchange("e", ExchangeKind.FANOUT)
    binding = Binding("e", "", "q")
    settings = QueueSettings(exclusive=True)
    for kind, *fields in (
        (messages.TakeMessages, queue), (messages.PurgeQueue, "q"), (messages.DeleteQueue, "q", queue),
        (messages.DeclareQueue, "q", settings), (messages.DeclareQueue, "q", settings, True),
        (messages.Bind, binding), (messages.Unbind, binding),
    ):  # fmt: skip
        refused(scene.other.ask(kind, *fields), "QueueInUse")
    scene.bind("e", "", "q")
    assert scene.taken(queue) == [b"a", b"b"]
    scene.peer.leave()
    scene.room.engine.sync()
    refused(scene.other.ask(messages.DeclareQueue, "q", passive=True), "UnknownQueue")
    assert isinstance(scene.other.ask(messages.DeclareQueue, "q", settings), messages.QueueDeclared)


def test_an_exclusive_queue_is_gone_when_the_first_client_comes_after_a_start():
    """Celery's worker declares its own again within milliseconds, and ends if another has it."""
    scene = Scene()
    queue = scene.queue(exclusive=True)
    scene.publish("q", b"a")
    scene.room.filesystem = scene.room.filesystem.kill_clone()
    scene.room.start()
    scene.peer = scene.room.peer()
    again = scene.queue(exclusive=True)
    assert again != queue
    assert scene.taken(again) == []


XID = Xid(1, b"order 7", b"")


def over_and_needed() -> Scene:
    """Three queues that are over, and a prepared transaction that has a message for each, and one for ``stays``."""
    scene = Scene()
    scene.queue("unused", expires=SECOND)
    left = scene.queue("left", auto_delete=True)
    scene.other.ask(messages.DeclareQueue, "own", QueueSettings(exclusive=True))
    scene.queue("stays")
    scene.exchange("e", ExchangeKind.FANOUT)
    scene.exchange("to-nobody", ExchangeKind.FANOUT)
    scene.bind("to-nobody", "", "left")
    checksum = 0
    for name in ("unused", "left", "own", "stays"):
        if name != "own":
            scene.bind("e", "", name)
        data = framed(name, b"prepared")
        checksum = crc32c(data, checksum)
        scene.peer.tell(messages.Add, 1, SELF, data=data)
    assert isinstance(scene.peer.ask(messages.Prepare, 1, XID, Totals(4, 4, checksum)), messages.Done)
    scene.other.ask(messages.Consume, left, 1)
    scene.other.leave()
    scene.room.clock.advance(2 * SECOND)
    go_on(scene)
    scene.other = scene.room.peer("10.0.0.2:6")
    return scene


def go_on(scene: Scene) -> None:
    scene.room.engine.sync()
    scene.room.broker.queues.expire(scene.room.engine.now())
    scene.room.engine.sync()


OVER = ("unused", "left", "own")


def test_queues_that_are_over_are_hidden_at_once_though_a_transaction_needs_them():
    scene = over_and_needed()
    assert [each.name for each in scene.peer.ask(messages.ListQueues).queues] == ["stays"]
    assert scene.room.broker.queues.gauges()["queues"] == 1
    found = scene.peer.ask(messages.ListExchanges, ["e"], bindings=True).exchanges[0]
    assert [each.destination for each in found.bindings] == ["stays"]
    for name in OVER:
        refused(scene.publish(name, b"later"), "Unroutable")
        for kind, *fields in (
            (messages.DeclareQueue, name, QueueSettings(), True), (messages.PurgeQueue, name),
            (messages.DeleteQueue, name, 1), (messages.Bind, Binding("e", "", name)),
            (messages.ListQueues, [name]),
        ):  # fmt: skip
            refused(scene.peer.ask(kind, *fields), "UnknownQueue")
        settings = QueueSettings()
        text = refused(scene.peer.ask(messages.DeclareQueue, name, settings), "QueueInUse")
        assert f"xid {XID}" in text
        assert "has messages for it" in text
    refused(scene.publish("", b"x", to=scene.exchange("to-nobody", ExchangeKind.FANOUT)), "Unroutable")
    assert scene.publish("", b"x", to=scene.exchange("e", ExchangeKind.FANOUT)).base_offset == 0
    assert scene.counts("stays")[0] == 1


@pytest.mark.parametrize("is_commit", [True, False])
def test_and_go_with_its_outcome_which_brings_them_nothing(is_commit: bool):
    scene = over_and_needed()
    decision = messages.Commit if is_commit else messages.Rollback
    assert isinstance(scene.peer.ask(decision, xid=XID), (messages.Committed, messages.Done))
    go_on(scene)
    fold = scene.room.broker.queues.declarations.fold
    assert list(fold.queues) == ["stays"]
    assert not fold.hidden
    assert scene.room.broker.queues.gauges()["queue_unrouted"] == (3 if is_commit else 0)
    assert scene.counts("stays")[0] == is_commit
    for name in OVER:
        scene.queue(name)
        assert scene.counts(name) == (0, 0, 0, 0)


def test_after_a_start_a_durable_one_is_there_again_for_as_long_as_it_may_be_unused():
    scene = over_and_needed()
    scene.restart()
    assert [each.name for each in scene.peer.ask(messages.ListQueues).queues] == ["left", "stays", "unused"]
    scene.room.clock.advance(2 * SECOND)
    go_on(scene)
    assert [each.name for each in scene.peer.ask(messages.ListQueues).queues] == ["left", "stays"]
    assert isinstance(scene.peer.ask(messages.Commit, xid=XID), messages.Committed)
    go_on(scene)
    refused(scene.peer.ask(messages.ListQueues, ["unused"]), "UnknownQueue")
    assert scene.counts("left")[0] == 1


def test_who_waits_at_a_queue_that_is_over_hears_so():
    scene = Scene()
    queue = scene.queue(auto_delete=True)
    scene.peer.ask(messages.Add, 1, SELF, data=framed("q", b"x"))
    scene.other.ask(messages.Consume, queue, 1)
    waits = scene.peer.tell(messages.TakeMessages, queue, max_wait=100 * SECOND)
    scene.other.leave()
    refused(scene.peer.answer(waits), "UnknownQueue")
    refused(scene.peer.ask(messages.TakeMessages, queue), "UnknownQueue")


def test_what_sessions_have_of_a_queue_that_is_over_they_may_acknowledge():
    scene = Scene()
    queue = scene.queue(auto_delete=True)
    scene.publish("q", b"a")
    assert scene.taken(queue) == [b"a"]
    scene.peer.ask(messages.Add, 1, SELF, data=framed("q", b"x"))
    scene.other.ask(messages.Consume, queue, 1)
    scene.other.leave()
    scene.room.engine.sync()
    assert isinstance(scene.acknowledge(queue, 0), messages.Done)


def test_an_exclusive_queue_goes_after_the_transaction_that_needs_it_or_with_the_process():
    scene = Scene()
    queue = scene.queue(exclusive=True)
    scene.publish("q", b"a")
    scene.taken(queue)
    scene.peer.ask(messages.Prepare, 1, XID, Totals(0, 0, 0), positions=acknowledged(queue, 0))
    scene.peer.leave()
    for _ in range(2):
        go_on(scene)
        refused(scene.other.ask(messages.ListQueues, ["q"]), "UnknownQueue")
        assert "q" in scene.room.broker.queues.declarations.fold.queues
    scene.restart()
    refused(scene.peer.ask(messages.DeclareQueue, "q", passive=True), "UnknownQueue")
    assert isinstance(scene.peer.ask(messages.Commit, xid=XID), messages.Committed)
    refused(scene.peer.ask(messages.DeclareQueue, "q", passive=True), "UnknownQueue")


def test_an_alternate_exchange_gets_what_has_no_way():
    scene = Scene()
    scene.exchange("rest", ExchangeKind.FANOUT)
    to = scene.exchange("e", ExchangeKind.DIRECT, alternate="rest")
    one, other = scene.queue("one"), scene.queue("other")
    scene.bind("e", "known", "one")
    refused(scene.publish("unknown", b"x", to=to), "Unroutable")
    scene.bind("rest", "", "other")
    scene.publish("known", b"a", to=to)
    scene.publish("unknown", b"b", to=to)
    assert scene.taken(one) == [b"a"]
    assert scene.taken(other) == [b"b"]


def test_alternate_exchanges_in_a_circle_and_the_default_one():
    scene = Scene()
    scene.exchange("f", ExchangeKind.DIRECT, alternate="g")
    to = scene.exchange("g", ExchangeKind.DIRECT, alternate="f")
    refused(scene.publish("q", b"x", to=to), "Unroutable")
    queue = scene.queue()
    to = scene.exchange("h", ExchangeKind.DIRECT, alternate="")
    scene.publish("q", b"x", to=to)
    assert scene.taken(queue) == [b"x"]
    refused(
        scene.publish("gone", b"x", to=scene.exchange("i", ExchangeKind.DIRECT, alternate="later")),
        "Unroutable",
    )


def test_exchanges_that_are_to_go_with_their_last_binding_go():
    scene = Scene()
    for name in ("a", "b"):
        scene.exchange(name, ExchangeKind.FANOUT, auto_delete=True)
    scene.exchange("stays", ExchangeKind.FANOUT)
    scene.queue()
    scene.bind("a", "", "b", to_exchange=True)
    scene.bind("b", "", "q")
    scene.bind("stays", "", "q")
    assert isinstance(scene.peer.ask(messages.DeleteQueue, "q", 1), messages.Counted)
    left = scene.peer.ask(messages.ListExchanges).exchanges
    names = [each.name for each in left if not each.name.startswith("amq.")]
    assert names == ["", "stays"]
    scene.restart()
    assert [each.name for each in scene.peer.ask(messages.ListExchanges).exchanges][-1] == "stays"


def test_a_long_chain_of_exchanges_goes_in_many_turns():
    scene = Scene()
    queue = scene.queue()
    for number in range(600):
        scene.exchange(f"e{number}", ExchangeKind.FANOUT, auto_delete=True)
        if number:
            scene.bind(f"e{number - 1}", "", f"e{number}", to_exchange=True)
    scene.bind("e599", "", "q")
    assert isinstance(scene.peer.ask(messages.DeleteQueue, "q", queue), messages.Counted)
    assert len(scene.peer.ask(messages.ListExchanges).exchanges) == 6 + 600 - ENDED_AT_ONCE
    for _ in range(600 // ENDED_AT_ONCE):
        scene.room.broker.queues.expire(scene.room.engine.now())
    assert len(scene.peer.ask(messages.ListExchanges).exchanges) == 6


def test_many_queues_that_end_together_go_in_many_turns():
    scene = Scene()
    for number in range(DELETED_AT_ONCE + 10):
        scene.queue(f"q{number}", expires=SECOND)
    scene.room.clock.advance(2 * SECOND)
    scene.room.broker.queues.expire(scene.room.engine.now())
    assert scene.room.broker.queues.gauges()["queues"] == 10
    scene.room.broker.queues.expire(scene.room.engine.now())
    assert scene.room.broker.queues.gauges()["queues"] == 0


def test_queues_that_transactions_need_do_not_keep_others_from_going():
    scene = Scene()
    for number in range(DELETED_AT_ONCE + 10):
        scene.queue(f"q{number}", expires=SECOND)
        scene.peer.ask(messages.Add, 1, SELF, data=framed(f"q{number}", b"x"))
    scene.queue("other", expires=SECOND)
    scene.room.clock.advance(2 * SECOND)
    scene.room.broker.queues.expire(scene.room.engine.now())
    refused(scene.peer.ask(messages.DeclareQueue, "other", passive=True), "UnknownQueue")
    assert scene.room.broker.queues.gauges()["queues"] == 0
    assert len(scene.room.broker.queues.declarations.fold.queues) == DELETED_AT_ONCE + 10


def test_a_wait_that_ends_with_its_session_was_use():
    scene = Scene()
    queue = scene.queue(expires=5 * SECOND)
    scene.other.tell(messages.TakeMessages, queue, max_wait=100 * SECOND)
    scene.room.clock.advance(4 * SECOND)
    scene.other.leave()
    scene.room.clock.advance(4 * SECOND)
    scene.room.broker.queues.expire(scene.room.engine.now())
    assert scene.counts() == (0, 0, 0, 0)
