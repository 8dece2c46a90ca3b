"""Messages and queues that end by themselves: expired, too many, in a circle, unused (decision 0056)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from journal.formats import frame
from journal.records.queue_entries import ExchangeKind, Overflow
from tests.broker.queues.scene import SECOND, SELF, Scene, expiring, framed, pass_time
from tests.support.broker_room import refused
from txbroker.queues.deaths import DEATHS
from txbroker.queues.expiry import EXPIRATION
from txbroker.wire import messages


def letters(scene: Scene, partition: int) -> list[frame.Message]:
    answer = scene.take(partition)
    data = scene.peer.data[scene.peer.answers.index(answer)]
    return [each for piece, _ in frame.decode_pieces(data, 0) for each in piece]


def deaths_of(message: frame.Message) -> Any:
    return [tuple(each[:3]) for each in msgspec.json.decode(message.header(DEATHS) or b"[]")]


# -- expiry ---------------------------------------------------------------------------------------


def test_messages_expire_in_order_and_nobody_needs_to_ask():
    scene = Scene()
    queue = scene.queue(message_ttl=2 * SECOND)
    scene.publish("q", b"a", b"b")
    pass_time(scene, SECOND)
    scene.publish("q", b"c")
    pass_time(scene, SECOND + 1000)
    assert scene.counts() == (1, 1, 0, 0)
    assert scene.taken(queue) == [b"c"]
    assert scene.room.broker.queues.gauges()["queue_expired"] == 2


def test_what_has_expired_is_never_delivered_though_no_timer_has_run():
    scene = Scene()
    queue = scene.queue(message_ttl=SECOND)
    scene.publish("q", b"a")
    scene.room.broker.removal_passes.stop()
    scene.room.clock.advance(SECOND)
    scene.publish("q", b"b")
    assert scene.taken(queue) == [b"b"]
    assert scene.counts() == (1, 0, 1, 0)


def test_an_expired_one_between_others_is_left_out_and_ended():
    scene = Scene()
    queue = scene.queue()
    data = framed("q", b"1") + expiring("q", SECOND, b"2") + expiring("q", SECOND, b"3") + framed("q", b"4")
    scene.peer.ask(messages.Send, SELF, data=data)
    pass_time(scene, SECOND)
    assert scene.counts() == (4, 4, 0, 0), "as in RabbitMQ: one that is not at the head waits"
    assert scene.taken(queue) == [b"1", b"4"]
    assert scene.counts() == (2, 0, 2, 0)


def test_the_shorter_time_to_live_counts():
    scene = Scene()
    queue = scene.queue(message_ttl=2 * SECOND)
    scene.peer.ask(
        messages.Send, SELF, data=expiring("q", SECOND, b"soon") + expiring("q", 9 * SECOND, b"late")
    )
    pass_time(scene, SECOND + 1000)
    assert scene.counts() == (1, 1, 0, 0)
    pass_time(scene, SECOND)
    assert scene.counts() == (0, 0, 0, 0)
    assert scene.taken(queue) == []


def test_an_unacknowledged_message_does_not_expire_before_it_comes_back():
    scene = Scene()
    queue = scene.queue(message_ttl=SECOND)
    scene.publish("q", b"a", b"b")
    scene.taken(queue, 1)
    pass_time(scene, 2 * SECOND)
    assert scene.counts() == (1, 0, 1, 0)
    scene.give_up(queue, 0)
    pass_time(scene, 1000)
    assert scene.counts() == (0, 0, 0, 0)


def test_time_in_which_the_broker_was_stopped_counts():
    scene = Scene()
    scene.queue(message_ttl=10 * SECOND)
    scene.peer.ask(messages.Send, SELF, data=expiring("q", SECOND, b"own") + framed("q", b"queue's"))
    scene.room.clock.set_wall(scene.room.clock.wall() + 5 * SECOND)
    scene.restart()
    scene.room.broker.removal_passes.wake()
    pass_time(scene, 1000)
    assert scene.counts() == (1, 1, 0, 0)
    pass_time(scene, 5 * SECOND)
    assert scene.counts() == (0, 0, 0, 0)


@pytest.mark.parametrize("said", [b"", b"-1", b"1.5", b"soon", b"1" * 30, b"316224000000001"])
def test_what_is_no_expiration_is_refused(said):
    scene = Scene()
    scene.queue()
    answer = scene.peer.ask(messages.Send, SELF, data=framed("q", b"x", headers={EXPIRATION: said}))
    refused(answer, "InvalidFrame")
    assert scene.counts() == (0, 0, 0, 0)


def test_an_expired_message_goes_to_the_dead_letters_without_its_expiration():
    scene = Scene()
    dead = scene.queue("dead")
    scene.queue(dead_letter_exchange="", dead_letter_key="dead")
    scene.peer.ask(messages.Send, SELF, data=expiring("q", SECOND, b"x"))
    pass_time(scene, SECOND + 1000)
    [letter] = letters(scene, dead)
    assert letter.value == b"x"
    assert letter.header(EXPIRATION) is None
    assert deaths_of(letter) == [("q", "expired", 1)]
    assert letter.header("txbroker.dead.why") == b"expired"
    assert scene.counts() == (0, 0, 0, 0)


def test_more_messages_expire_than_may_wait_for_being_moved():
    scene = Scene(max_parked=100)
    dead = scene.queue("dead")
    scene.queue(dead_letter_exchange="", dead_letter_key="dead", message_ttl=SECOND)
    for _ in range(10):
        scene.publish("q", *[b"x"] * 100)
    for _ in range(100):
        pass_time(scene, SECOND)
        scene.room.broker.dead_letters.try_again()
    assert scene.counts() == (0, 0, 0, 0)
    assert scene.counts("dead")[0] == 1000
    assert len(letters(scene, dead)) > 0


# -- length ---------------------------------------------------------------------------------------


def test_the_oldest_that_can_be_got_are_dropped_when_there_are_too_many():
    scene = Scene()
    queue = scene.queue(max_length=2)
    scene.publish("q", b"a")
    assert scene.taken(queue) == [b"a"]
    scene.publish("q", b"b", b"c", b"d", b"e")
    pass_time(scene, 1000)
    assert scene.counts() == (3, 2, 1, 0), "what a session has is not counted, and not dropped"
    assert scene.taken(queue) == [b"d", b"e"]
    assert scene.room.broker.queues.gauges()["queue_dropped"] == 2


def test_what_comes_back_counts_again():
    scene = Scene()
    queue = scene.queue(max_length=1)
    scene.publish("q", b"a")
    scene.taken(queue)
    scene.publish("q", b"b")
    scene.give_up(queue, 0)
    pass_time(scene, 1000)
    assert scene.counts() == (1, 1, 0, 0)
    assert scene.taken(queue) == [b"b"]


def test_too_many_go_to_the_dead_letters():
    scene = Scene()
    dead = scene.queue("dead")
    scene.queue(max_length=0, dead_letter_exchange="", dead_letter_key="dead")
    scene.publish("q", b"a")
    pass_time(scene, 1000)
    [letter] = letters(scene, dead)
    assert deaths_of(letter) == [("q", "maxlen", 1)]


def test_a_start_drops_what_a_crash_has_left():
    scene = Scene()
    scene.queue(max_length=2)
    scene.room.broker.removal_passes.stop()
    scene.publish("q", b"a", b"b", b"c")
    assert scene.counts()[0] == 3
    scene.restart()
    scene.room.broker.removal_passes.wake()
    pass_time(scene, 1000)
    assert scene.counts() == (2, 2, 0, 0)


def test_a_queue_refuses_what_is_too_much_and_other_queues_get_nothing_of_it():
    scene = Scene()
    queue = scene.queue(max_length=2, overflow=Overflow.REJECT_PUBLISH)
    scene.queue("other")
    to = scene.exchange("all", ExchangeKind.FANOUT)
    for name in ("q", "other"):
        scene.bind("all", "", name)
    scene.publish("", b"a", to=to)
    text = refused(scene.publish("", b"b", b"c", to=to), "QueueFull")
    assert "queue 'q' may have 2 messages" in text
    assert scene.counts("other") == (1, 1, 0, 0)
    scene.taken(queue)
    assert isinstance(scene.publish("", b"b", b"c", to=to), messages.Sent), "what is taken does not count"


def test_the_messages_of_one_request_and_of_one_force_count_together():
    scene = Scene()
    scene.queue(max_length=2, overflow=Overflow.REJECT_PUBLISH)
    answers = [scene.peer.tell(messages.Send, SELF, data=framed("q", b"x")) for _ in range(3)]
    scene.room.engine.sync()
    assert isinstance(scene.peer.answer(answers[1]), messages.Sent)
    refused(scene.peer.answer(answers[2]), "QueueFull")
    refused(scene.publish("q", b"x"), "QueueFull")


# -- circles --------------------------------------------------------------------------------------


def test_a_circle_without_a_consumer_ends():
    scene = Scene()
    scene.queue("a", message_ttl=SECOND, dead_letter_exchange="", dead_letter_key="b")
    scene.queue("b", message_ttl=SECOND, dead_letter_exchange="", dead_letter_key="a")
    scene.publish("a", b"x")
    for _ in range(6):
        pass_time(scene, SECOND + 1000)
    assert scene.counts("a") == scene.counts("b") == (0, 0, 0, 0)
    assert scene.room.broker.queues.gauges()["queue_circles"] == 1


def test_a_circle_with_a_consumer_that_rejects_goes_on_and_is_counted_in_the_message():
    scene = Scene()
    queue = scene.queue("a", dead_letter_exchange="", dead_letter_key="b")
    scene.queue("b", message_ttl=SECOND, dead_letter_exchange="", dead_letter_key="a")
    scene.publish("a", b"x")
    for round in range(3):
        [message] = letters(scene, queue)
        counted = [("b", "expired", round), ("a", "rejected", round)] if round else []
        assert deaths_of(message) == counted
        scene.give_up(queue, round, dead=True)
        pass_time(scene, SECOND + 1000)
        pass_time(scene, SECOND + 1000)
    assert scene.counts("a")[0] == 1


# -- queues and exchanges -------------------------------------------------------------------------


def test_a_queue_that_nobody_uses_is_deleted():
    scene = Scene()
    queue = scene.queue(expires=10 * SECOND)
    for _ in range(3):
        scene.room.clock.advance(6 * SECOND)
        scene.room.broker.expire_queues(scene.room.engine.now())
        scene.take(queue)
    scene.queue(expires=10 * SECOND)
    scene.room.clock.advance(9 * SECOND)
    scene.room.broker.expire_queues(scene.room.engine.now())
    scene.publish("q", b"x")
    scene.room.clock.advance(SECOND)
    scene.room.broker.expire_queues(scene.room.engine.now())
    refused(scene.peer.ask(messages.DeclareQueue, "q", passive=True), "UnknownQueue")


def test_a_queue_is_used_while_somebody_waits_or_has_its_messages():
    scene = Scene()
    queue = scene.queue(expires=SECOND)
    waits = scene.peer.tell(messages.TakeMessages, queue, max_wait=100 * SECOND)
    for _ in range(3):
        scene.room.clock.advance(2 * SECOND)
        scene.room.broker.expire_queues(scene.room.engine.now())
    scene.publish("q", b"x")
    assert scene.peer.answer(waits).runs == [(0, 1)]
    scene.room.clock.advance(2 * SECOND)
    scene.room.broker.expire_queues(scene.room.engine.now())
    assert scene.counts() == (1, 0, 1, 0)


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
