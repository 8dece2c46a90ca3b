"""Test that queues and exchanges that are not durable end with the broker's process (decision 0057).

Seen to fail: with nothing deleted at a start, with those deleted that are durable, and with a queue served that waits
for a transaction.
"""

from __future__ import annotations

from journal.records.queue_entries import ExchangeKind
from journal.transaction_states import Totals
from journal.xid import Xid
from tests.broker.queues.scene import SECOND, SELF, Scene, acknowledged, framed
from tests.support.broker_room import refused
from txbroker.wire import messages

XID = Xid(1, b"order 7", b"")


def names(scene: Scene) -> tuple[list[str], list[str]]:
    """Names of the queues, and of the exchanges that somebody has declared."""
    queues = [each.name for each in scene.peer.ask(messages.ListQueues).queues]
    exchanges = [each.name for each in scene.peer.ask(messages.ListExchanges).exchanges]
    return queues, [each for each in exchanges if each and not each.startswith("amq.")]


def test_a_start_ends_what_is_not_durable_and_nothing_else():
    scene = Scene()
    scene.queue("stays")
    gone = scene.queue("gone", durable=False)
    scene.exchange("lasting", ExchangeKind.FANOUT)
    to = scene.exchange("passing", ExchangeKind.FANOUT, durable=False)
    scene.bind("lasting", "", "gone")
    scene.bind("lasting", "", "passing", to_exchange=True)
    scene.bind("passing", "", "stays")
    scene.publish("gone", b"lost")
    scene.restart()
    assert names(scene) == (["stays"], ["lasting"])
    assert scene.peer.ask(messages.ListExchanges, ["lasting"], bindings=True).exchanges[0].bindings == []
    refused(scene.publish("", b"x", to=to), "UnknownExchange")
    refused(scene.publish("gone", b"x"), "Unroutable")
    again = scene.queue("gone")
    assert again != gone
    assert scene.taken(again) == []


def test_they_are_kept_while_the_broker_runs_and_do_not_end_by_themselves():
    scene = Scene()
    queue = scene.queue(durable=False)
    scene.exchange("e", ExchangeKind.FANOUT, durable=False)
    scene.publish("q", b"a")
    scene.room.clock.advance(100 * SECOND)
    scene.room.broker.queues.expire(scene.room.engine.now())
    assert names(scene) == (["q"], ["e"])
    assert scene.taken(queue) == [b"a"]


def test_a_second_start_finds_nothing_that_the_first_has_ended():
    scene = Scene()
    scene.queue(durable=False)
    scene.exchange("e", ExchangeKind.FANOUT, durable=False)
    scene.restart()
    scene.queue()
    scene.restart()
    assert names(scene) == (["q"], [])


def test_a_start_after_a_kill_ends_them_too_and_from_a_checkpoint():
    scene = Scene()
    scene.queue(durable=False)
    scene.exchange("e", ExchangeKind.FANOUT, durable=False)
    scene.publish("q", b"a")
    scene.room.engine.housekeeping.checkpoint_inline()
    scene.room.filesystem = scene.room.filesystem.kill_clone()
    scene.room.start()
    scene.peer = scene.room.peer()
    assert names(scene) == ([], [])


def test_an_exchange_that_goes_with_its_last_binding_goes_with_an_exchange_but_not_with_a_queue():
    scene = Scene()
    scene.queue(durable=False)
    scene.exchange("e", ExchangeKind.FANOUT, auto_delete=True)
    scene.bind("e", "", "q")
    scene.exchange("f", ExchangeKind.FANOUT, auto_delete=True)
    scene.exchange("g", ExchangeKind.FANOUT, durable=False)
    scene.bind("f", "", "g", to_exchange=True)
    scene.restart()
    assert names(scene) == ([], ["e"])
    scene.queue(durable=False)
    scene.bind("e", "", "q")
    scene.peer.ask(messages.DeleteQueue, "q", scene.info().partition)
    assert names(scene) == ([], [])


def test_a_prepared_transaction_keeps_its_queue_for_as_long_as_the_process_lives():
    scene = Scene()
    queue = scene.queue(durable=False)
    scene.publish("q", b"a", b"b")
    scene.taken(queue, 1)
    scene.peer.ask(messages.Prepare, 1, XID, Totals(0, 0, 0), positions=acknowledged(queue, 0))
    refused(scene.peer.ask(messages.DeleteQueue, "q", queue), "QueueInUse")
    scene.restart()
    assert names(scene) == ([], [])
    again = scene.queue(durable=False)
    scene.publish("q", b"c")
    assert isinstance(scene.peer.ask(messages.Rollback, xid=XID), messages.Done)
    for _ in range(3):
        scene.room.timers.advance(0.01)
        scene.room.engine.sync()
    refused(scene.peer.ask(messages.TakeMessages, queue), "UnknownQueue")
    assert scene.taken(again) == [b"c"]


def test_what_a_prepared_transaction_brings_to_such_a_queue_is_delivered_to_nobody():
    scene = Scene()
    queue = scene.queue(durable=False)
    data = framed("q", b"x")
    runs = [(SELF, len(data))]
    prepared = scene.peer.ask(messages.Prepare, 1, XID, Totals(0, 0, 0), runs=runs, data=data)
    assert isinstance(prepared, messages.Done), prepared
    scene.restart()
    assert isinstance(scene.peer.ask(messages.Commit, xid=XID), messages.Committed)
    refused(scene.peer.ask(messages.TakeMessages, queue), "UnknownQueue")
    scene.room.broker.queues.expire(scene.room.engine.now())
    assert names(scene) == ([], [])


def test_nothing_expires_into_another_queue_from_one_that_is_over():
    scene = Scene()
    queue = scene.queue(durable=False, message_ttl=SECOND, dead_letter_exchange="", dead_letter_key="dead")
    dead = scene.queue("dead")
    scene.publish("q", b"a", b"b")
    scene.taken(queue, 1)
    scene.peer.ask(messages.Prepare, 1, XID, Totals(0, 0, 0), positions=acknowledged(queue, 0))
    scene.restart()
    scene.room.clock.advance(5 * SECOND)
    for passes in scene.room.broker.passes:
        passes.wake()
    scene.room.timers.advance(5)
    scene.room.broker.dead_letters.try_again()
    scene.room.engine.sync()
    assert scene.taken(dead) == []


def test_what_a_transaction_returns_to_a_queue_that_is_over_dies_into_no_other():
    scene = Scene()
    queue = scene.queue(durable=False, delivery_limit=0, dead_letter_exchange="", dead_letter_key="dead")
    dead = scene.queue("dead")
    scene.publish("q", b"a")
    scene.taken(queue)
    scene.peer.ask(messages.Prepare, 1, XID, Totals(0, 0, 0), positions=acknowledged(queue, 0))
    scene.restart()
    assert isinstance(scene.peer.ask(messages.Rollback, xid=XID), messages.Done)
    for _ in range(3):
        scene.room.timers.advance(0.01)
        scene.room.broker.dead_letters.try_again()
        scene.room.engine.sync()
    assert scene.taken(dead) == []
