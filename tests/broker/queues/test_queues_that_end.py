"""Queues and exchanges that end by themselves, and exchanges with an alternate (decision 0056)."""

from __future__ import annotations

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


def test_an_exclusive_queue_goes_after_the_transaction_that_needs_it_or_with_the_process():
    scene = Scene()
    queue = scene.queue(exclusive=True)
    scene.publish("q", b"a")
    scene.taken(queue)
    xid = Xid(1, b"order 7", b"")
    scene.peer.ask(messages.Prepare, 1, xid, Totals(0, 0, 0), positions=acknowledged(queue, 0))
    scene.peer.leave()
    scene.room.engine.sync()
    assert scene.other.ask(messages.ListQueues, ["q"]).queues[0].held == 1
    scene.room.broker.queues.expire(scene.room.engine.now())
    assert scene.other.ask(messages.ListQueues, ["q"]).queues[0].held == 1
    scene.restart()
    refused(scene.peer.ask(messages.DeclareQueue, "q", passive=True), "UnknownQueue")
    assert isinstance(scene.peer.ask(messages.Commit, xid=xid), messages.Committed)
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
    assert scene.room.broker.queues.gauges()["queues"] == DELETED_AT_ONCE + 10


def test_a_wait_that_ends_with_its_session_was_use():
    scene = Scene()
    queue = scene.queue(expires=5 * SECOND)
    scene.other.tell(messages.TakeMessages, queue, max_wait=100 * SECOND)
    scene.room.clock.advance(4 * SECOND)
    scene.other.leave()
    scene.room.clock.advance(4 * SECOND)
    scene.room.broker.queues.expire(scene.room.engine.now())
    assert scene.counts() == (0, 0, 0, 0)
