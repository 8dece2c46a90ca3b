"""Dead letters that a full queue refuses: they are dropped, or kept until there is room (decision 0056)."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.logger import capturedLogs, formatEvent

from journal.records.queue_entries import DeadLetterStrategy, ExchangeKind, Overflow, QueueSettings
from tests.broker.queues.scene import SECOND, Scene, pass_time
from tests.support.broker_room import refused
from txbroker.wire import messages

REFUSING = {"overflow": Overflow.REJECT_PUBLISH}
TO_DEAD = {"dead_letter_exchange": "", "dead_letter_key": "dead"}
KEEPING = {**REFUSING, "dead_letter_strategy": DeadLetterStrategy.AT_LEAST_ONCE}


def rest(scene: Scene, micros: int = 2 * SECOND) -> None:
    """Let passes end what has to end, and dead letters be moved that could not be."""
    for _ in range(4):
        pass_time(scene, micros // 4)
        scene.room.broker.dead_letters.try_again()


def dropped(scene: Scene) -> int:
    found = scene.room.broker.queues.gauges()["queue_dead_letters_refused"]
    assert isinstance(found, int)
    return found


@pytest.mark.parametrize("max_parked", [100, 10_000])
def test_a_bounded_queue_is_never_longer_though_the_queue_of_its_dead_letters_is_full(
    max_parked: int,
) -> None:
    """Seen with each dead letter kept until there was room: of 300 messages 298 stayed, 198 of them ready."""
    scene = Scene(max_parked=max_parked)
    scene.queue("dead", max_length=2, **REFUSING)
    queue = scene.queue(max_length=5, **TO_DEAD)
    for number in range(60):
        scene.publish("q", *[b"%d" % number] * 5)
        pass_time(scene, 1000)
        assert scene.counts()[1] <= 5
    rest(scene)
    assert scene.counts() == (5, 5, 0, 0)
    assert scene.counts("dead")[0] == 2
    assert len(scene.room.broker.dead_letters) == 0
    assert dropped(scene) == 300 - 5 - 2
    assert scene.taken(queue) == [b"59"] * 5
    scene.restart()
    assert scene.counts() == (5, 5, 0, 0), "what was dropped is gone for good"


def test_a_queue_that_is_full_gets_nothing_and_the_others_do() -> None:
    scene = Scene()
    scene.exchange("dying", ExchangeKind.FANOUT)
    scene.queue("full", max_length=0, **REFUSING)
    for name in ("full", "roomy"):
        if name == "roomy":
            scene.queue(name)
        scene.bind("dying", "", name)
    scene.queue(max_length=0, dead_letter_exchange="dying")
    scene.publish("q", b"a", b"b")
    rest(scene)
    assert [scene.counts(name)[0] for name in ("q", "full", "roomy")] == [0, 0, 2]
    assert dropped(scene) == 2


@pytest.mark.parametrize("how", ["rejected", "delivery limit", "expired"])
def test_it_is_dropped_whatever_it_has_died_of(how: str) -> None:
    scene = Scene()
    scene.queue("dead", max_length=0, **REFUSING)
    settings: dict[str, Any] = {"delivery limit": {"delivery_limit": 0}, "expired": {"message_ttl": SECOND}}
    queue = scene.queue(**settings.get(how, {}), **TO_DEAD)
    scene.publish("q", b"a")
    if how == "expired":
        pass_time(scene, 2 * SECOND)
    else:
        assert scene.taken(queue) == [b"a"]
        scene.give_up(queue, 0, dead=how == "rejected")
    rest(scene)
    assert scene.counts() == (0, 0, 0, 0)
    assert dropped(scene) == 1


def test_with_at_least_once_it_is_kept_until_there_is_room_also_over_a_start() -> None:
    scene = Scene()
    dead = scene.queue("dead", max_length=1, **REFUSING)
    scene.queue(message_ttl=SECOND, **TO_DEAD, **KEEPING)
    scene.publish("q", b"a", b"b")
    rest(scene)
    assert (scene.counts()[:2], scene.counts("dead")[0]) == ((1, 0), 1)
    scene.restart()
    assert scene.taken(dead) == [b"a"]
    rest(scene)
    assert (scene.counts()[0], scene.counts("dead")[0]) == (0, 2)
    assert dropped(scene) == 0


def test_keeping_needs_that_the_queue_refuses_what_is_too_much_for_itself() -> None:
    scene = Scene()
    strategy = DeadLetterStrategy.AT_LEAST_ONCE
    said = refused(
        scene.peer.ask(messages.DeclareQueue, "q", QueueSettings(dead_letter_strategy=strategy)),
        "InvalidSetting",
    )
    assert "dead_letter_strategy is 'at-least-once'" in said
    assert "overflow 'reject-publish'" in said
    scene.queue(**KEEPING)
    said = refused(scene.peer.ask(messages.DeclareQueue, "q", QueueSettings(**REFUSING)), "DeclaredOtherwise")
    assert "dead_letter_strategy 'at-least-once', not 'at-most-once'" in said


def test_the_log_tells_of_them_together_once_a_minute() -> None:
    scene = Scene()
    scene.queue("dead", max_length=0, **REFUSING)
    scene.queue(max_length=0, **TO_DEAD)
    with capturedLogs() as caught:
        for _ in range(3):
            scene.publish("q", *[b"x"] * 10)
            rest(scene)
        assert len(caught) == 1
        pass_time(scene, 60 * SECOND)
        scene.publish("q", b"x")
        rest(scene)
    first, second = map(formatEvent, caught)
    assert "1 dead letter dropped" in first
    assert "queue 'q'" in first
    assert "queue 'dead' may have 0 messages" in first
    assert "30 dead letters dropped" in second
