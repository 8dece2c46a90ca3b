"""Messages of queues that end by themselves: expired, too many, in a circle (decision 0056)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from journal.constants import MAX_ATTRIBUTE
from journal.formats import frame
from journal.records.queue_entries import DeadLetterStrategy, ExchangeKind, Overflow
from journal.testing import MemoryFile
from tests.broker.queues.scene import SECOND, SELF, Scene, expiring, framed, pass_time
from tests.support.broker_room import refused
from tests.support.manual_worker import ManualWorker
from txbroker.wire import messages
from txbroker.wire.queues import DEATHS, EXPIRATION


def letters(scene: Scene, partition: int, **more: Any) -> list[frame.Message]:
    answer = scene.take(partition, **more)
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
    pass_time(scene, 60_000)
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


@pytest.fixture
def cold(monkeypatch):
    """Segments are read on another thread; returns that thread."""
    monkeypatch.setattr(MemoryFile, "read_now", lambda *_: None)
    return ManualWorker()


def in_segments(scene, *values):
    scene.peer.ask(messages.Send, SELF, data=b"".join(expiring("q", SECOND, each) for each in values))
    scene.room.flush()


def test_messages_expire_in_segments_that_are_read_on_another_thread(cold):
    scene = Scene()
    scene.queue()
    in_segments(scene, b"a", b"b")
    scene.room.broker.removal_passes._run_blocking = cold.submit
    pass_time(scene, SECOND)
    assert len(cold.work) == 1
    assert scene.counts()[0] == 2
    while cold.work:
        cold.step()
        pass_time(scene, 0)
    assert scene.counts() == (0, 0, 0, 0)


def test_what_is_taken_or_deleted_while_it_is_read_does_not_expire(cold):
    for deletes in (False, True):
        scene = Scene()
        queue = scene.queue()
        in_segments(scene, b"a", b"b")
        scene.room.broker.removal_passes._run_blocking = cold.submit
        scene.room.clock.advance(SECOND // 2)
        scene.room.broker.removal_passes.wake()
        if deletes:
            assert isinstance(scene.peer.ask(messages.DeleteQueue, "q", queue), messages.Counted)
        else:
            assert scene.taken(queue, 1) == [b"a"]
        while cold.work:
            cold.step()
            pass_time(scene, 0)
        if not deletes:
            assert scene.counts() == (2, 1, 1, 0)


def test_a_first_message_that_cannot_be_read_is_said_once_and_stops_nothing(cold):
    scene = Scene()
    scene.queue()
    in_segments(scene, b"a", b"b")
    scene.queue("other", message_ttl=SECOND)
    scene.publish("other", b"x")
    scene.room.broker.removal_passes._run_blocking = lambda work, done, failed: failed(OSError("no disk"))
    for _ in range(3):
        scene.publish("q", b"more")
        pass_time(scene, SECOND)
    assert scene.counts("other") == (0, 0, 0, 0)
    assert scene.counts()[0] == 5


def test_the_times_that_are_kept_are_as_many_as_queues():
    scene = Scene()
    queue = scene.queue(message_ttl=3600 * SECOND)
    for number in range(500):
        scene.publish("q", b"x")
        scene.taken(queue)
        scene.acknowledge(queue, number)
        pass_time(scene, 60_000)
    assert len(scene.room.broker.queues.takes.removals._due) < 100


def test_it_goes_on_after_an_error(monkeypatch, cold):
    scene = Scene()
    scene.queue()
    in_segments(scene, b"a", b"b")
    passes, errors = (
        scene.room.broker.removal_passes,
        [OSError("too many open files"), RuntimeError("a fault")],
    )
    passes._run_blocking = lambda work, done, failed: failed(errors.pop()) if errors else done(work())
    for _ in range(4):
        pass_time(scene, SECOND)
    assert not errors
    assert scene.counts() == (0, 0, 0, 0)


POISON = {
    "a byte that is no text": b'[["\xff","expired",1,1]]', "much inside": b'[["a","b",1,1,' + b"[" * 50_000,
    "a number of many digits": b'[["a","expired",' + b"9" * 4300 + b",1]]",
    "an int above all": b'[["a","b",%d,1]]' % (1 << 64),
    "a long name": b'[["%s","expired",1,1]]' % (b"a" * 900_000),
}  # fmt: skip


@pytest.mark.parametrize("said", POISON.values(), ids=POISON)
def test_a_forged_list_of_deaths_holds_nothing_up(said):
    scene = Scene()
    dead = scene.queue("dead")
    scene.queue(message_ttl=0, dead_letter_exchange="", dead_letter_key="dead")
    answer = scene.peer.ask(messages.Send, SELF, data=framed("q", b"x", headers={DEATHS: said}))
    assert isinstance(answer, messages.Sent)
    pass_time(scene, SECOND)
    [letter] = letters(scene, dead)
    assert deaths_of(letter) == [("q", "expired", 1)]


def test_a_letter_goes_on_whose_headers_leave_no_room_for_what_is_said_of_it():
    scene = Scene(max_fetch=1 << 25)
    dead = scene.queue("dead")
    scene.queue(message_ttl=0, dead_letter_exchange="", dead_letter_key="dead")
    headers = {"own": b"x" * (MAX_ATTRIBUTE - 40)}
    assert isinstance(
        scene.peer.ask(messages.Send, SELF, data=framed("q", b"v", headers=headers)), messages.Sent
    )
    pass_time(scene, SECOND)
    answer = scene.take(dead, max_bytes=1 << 25)
    [letter] = [
        each
        for piece, _ in frame.decode_pieces(scene.peer.data[scene.peer.answers.index(answer)], 0)
        for each in piece
    ]
    assert letter.value == b"v"
    assert letter.header("own") is not None


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


def test_a_ring_of_more_queues_than_deaths_are_kept_is_a_circle_too():
    scene = Scene()
    for number in range(70):
        following = f"q{(number + 1) % 70}"
        scene.queue(f"q{number}", max_length=0, dead_letter_exchange="", dead_letter_key=following)
    scene.publish("q0", b"x")
    for _ in range(100):
        pass_time(scene, 1000)
    assert scene.room.broker.queues.gauges()["queue_messages"] == 0
    assert scene.room.broker.dead_letters.moved < 70


def test_letters_that_found_no_room_follow_each_other_once_there_is_some():
    scene = Scene()
    dead = scene.queue("dead", max_length=1, overflow=Overflow.REJECT_PUBLISH)
    scene.queue(
        message_ttl=0, overflow=Overflow.REJECT_PUBLISH, dead_letter_exchange="", dead_letter_key="dead",
        dead_letter_strategy=DeadLetterStrategy.AT_LEAST_ONCE,
    )  # fmt: skip
    for _ in range(5):
        scene.publish("q", *[b"x"] * 100)
    pass_time(scene, SECOND)
    assert len(scene.room.broker.dead_letters) == 499
    assert isinstance(scene.peer.ask(messages.DeleteQueue, "dead", dead), messages.Counted)
    scene.queue("dead")
    scene.room.broker.dead_letters.try_again()
    pass_time(scene, 0)
    assert scene.counts("dead")[0] == 499
