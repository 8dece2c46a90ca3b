"""Test that nothing of a transient queue is in the journal, and that all else of a record is (decision 0068).

Seen to fail: with records of transient queues journaled whole, with a prepared transaction's part for one kept in a
checkpoint, with what an exchange takes counted for messages that only they got, with their messages shown before the
force of those that durable queues got with them, and with numbers that begin anew at each start.
"""

from __future__ import annotations

from typing import Any

import pytest
from crc32c import crc32c

from journal.records.queue_entries import QUEUE_GROUP, ExchangeKind
from journal.records.transient import is_transient
from journal.transaction_states import Totals
from tests.broker.queues.scene import (
    SECOND,
    SELF,
    Scene,
    acknowledged,
    framed,
    settled,
)
from tests.broker.queues.transient_scene import (
    prepare,
    turns,
    verified,
    xid,
)
from tests.support.broker_room import refused
from txbroker.wire import messages


def journaled(scene: Scene) -> tuple[int, int]:
    """The LSN of the last record, and the bytes that the journal has taken."""
    return scene.room.engine.last_lsn, scene.room.engine.journaled_bytes


# -- what the journal has ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [{"durable": False}, {"exclusive": True}], ids=["not durable", "exclusive"])
def test_a_queues_whole_life_writes_nothing(kind: dict[str, Any]):
    scene = Scene()
    scene.exchange("e", ExchangeKind.TOPIC)
    before = journaled(scene)
    queue = scene.queue(max_priority=3, **kind)
    assert is_transient(queue)
    scene.bind("e", "a.#", "q")
    scene.publish("q", b"a", b"b", b"c")
    assert scene.taken(queue, 2) == [b"a", b"b"]
    scene.acknowledge(queue, 0)
    scene.give_up(queue, 1)
    scene.peer.ask(messages.PurgeQueue, "q")
    scene.peer.ask(messages.DeleteQueue, "q", queue)
    assert journaled(scene) == before
    assert scene.peer.ask(messages.ListQueues).queues == []


def test_a_message_for_it_alone_is_there_without_a_force():
    scene = Scene()
    queue = scene.queue(durable=False)
    engine = scene.room.engine
    scene.peer.tell(messages.Send, SELF, data=framed("q", b"a"))
    group = engine.take()
    assert group is not None
    assert (group.count, group.length) == (0, 0)
    assert engine.write(group) == 0.0
    engine.publish(group)
    assert scene.taken(queue) == [b"a"]


def test_one_that_a_durable_queue_gets_too_is_shown_in_none_before_the_force():
    scene = Scene()
    passing, lasting = scene.queue("passing", durable=False), scene.queue("lasting")
    to = scene.exchange("e", ExchangeKind.FANOUT)
    for name in ("passing", "lasting"):
        scene.bind("e", "", name)
    engine = scene.room.engine
    scene.peer.tell(messages.Send, to, data=framed("", b"a"))
    waits = scene.peer.tell(messages.TakeMessages, passing, 1, max_wait=SECOND)
    assert scene.peer.answer(waits) is None
    group = engine.take()
    assert group is not None
    assert group.count
    engine.write(group)
    assert scene.peer.answer(waits) is None
    engine.publish(group)
    assert scene.peer.answer(waits).runs == [(0, 1)]
    assert scene.taken(lasting) == [b"a"]


def test_messages_sent_to_it_later_are_not_shown_before_such_a_one():
    scene = Scene()
    passing, _ = scene.queue("passing", durable=False), scene.queue("lasting")
    to = scene.exchange("e", ExchangeKind.FANOUT)
    for name in ("passing", "lasting"):
        scene.bind("e", "", name)
    engine = scene.room.engine
    scene.peer.tell(messages.Send, to, data=framed("", b"a"))
    group = engine.take()
    scene.peer.tell(messages.Send, SELF, data=framed("passing", b"b"))
    assert engine.take() is None, "the first is under way, and nothing overtakes it"
    assert group is not None
    engine.write(group)
    engine.publish(group)
    engine.sync()
    assert scene.taken(passing) == [b"a", b"b"]


def test_what_an_exchange_has_taken_is_the_same_after_a_start():
    scene = Scene()
    scene.queue("passing", durable=False)
    scene.queue("lasting")
    for name in ("passing", "lasting", "passing", "lasting"):
        scene.publish(name, b"x")
    scene.restart()
    assert scene.publish("lasting", b"y").base_offset == 2
    scene.room.engine.housekeeping.checkpoint_inline()
    scene.restart()
    assert scene.publish("lasting", b"z").base_offset == 3


def test_a_producers_sequence_is_known_after_a_start_though_only_such_a_queue_got_the_message():
    scene = Scene()
    queue = scene.queue(durable=False)
    opened = scene.peer.ask(messages.OpenProducer, "p")
    more = {"producer_id": opened.producer_id, "epoch": opened.epoch}
    scene.publish("q", b"a", sequence=0, **more)
    assert scene.taken(queue) == [b"a"]
    scene.room.restart()
    peer = scene.peer = scene.peer.again()
    again = scene.queue(durable=False)
    scene.publish("q", b"a", sequence=0, **more)
    assert scene.taken(again, peer=peer) == [], "it came before, and went with the queue of then"
    scene.publish("q", b"b", sequence=1, **more)
    assert scene.taken(again, peer=peer) == [b"b"]


def test_numbers_of_an_earlier_process_mean_no_queue_of_this_one():
    scene = Scene()
    queue = scene.queue(durable=False)
    scene.publish("q", b"a")
    scene.taken(queue)
    scene.restart()
    again = scene.queue(durable=False)
    scene.publish("q", b"b")
    scene.taken(again)
    assert again != queue
    assert "is no queue's" in refused(scene.acknowledge(queue, 0), "InvalidSetting")
    assert scene.counts() == (1, 0, 1, 0)


# -- transactions --------------------------------------------------------------------------------------


def scene_with_both() -> tuple[Scene, int, int, int]:
    scene = Scene()
    passing, lasting = scene.queue("passing", durable=False), scene.queue("lasting")
    to = scene.exchange("e", ExchangeKind.FANOUT)
    for name in ("passing", "lasting"):
        scene.bind("e", "", name)
    return scene, passing, lasting, to


def test_a_transaction_brings_messages_to_both_at_once():
    scene, passing, lasting, to = scene_with_both()
    data = framed("", b"a", b"b")
    assert isinstance(prepare(scene, 1, data, to), messages.Done)
    assert scene.taken(passing) == []
    committed = scene.peer.ask(messages.Commit, xid=xid("1"))
    assert [each.partition for each in committed.placements] == [lasting]
    assert scene.taken(passing) == scene.taken(lasting) == [b"a", b"b"]


def test_after_a_start_a_prepared_one_brings_what_lasts():
    scene, passing, lasting, to = scene_with_both()
    scene.publish("passing", b"old")
    scene.publish("lasting", b"old")
    scene.taken(passing)
    scene.taken(lasting)
    what = [*acknowledged(passing, 0), *acknowledged(lasting, 0)]
    assert isinstance(prepare(scene, 1, framed("", b"new"), to, positions=what), messages.Done)
    scene.room.engine.housekeeping.checkpoint_inline()
    scene.restart()
    again = scene.queue("passing", durable=False)
    committed = scene.peer.ask(messages.Commit, xid=xid("1"))
    assert [each.partition for each in committed.placements] == [lasting]
    assert scene.taken(lasting) == [b"new"]
    assert scene.taken(again) == []
    scene.restart()
    assert scene.counts("lasting") == (1, 1, 0, 0)


def test_one_that_only_had_to_do_with_transient_queues_can_still_be_ended_after_a_start():
    scene = Scene()
    queue = scene.queue(durable=False)
    scene.publish("q", b"old")
    scene.taken(queue)
    data = framed("q", b"new")
    scene.peer.tell(messages.Add, 1, SELF, data=data)
    scene.peer.tell(messages.AddOffsets, 1, QUEUE_GROUP, [], settled=[settled(queue, 0)])
    said = Totals(1, 2, crc32c(data))
    assert isinstance(scene.peer.ask(messages.Prepare, 1, xid("1"), said), messages.Done)
    scene.room.engine.housekeeping.checkpoint_inline()
    scene.restart()
    committed = scene.peer.ask(messages.Commit, xid=xid("1"))
    assert committed.placements == []
    assert verified(scene) == []


def test_the_group_of_queues_is_the_same_though_its_first_record_was_of_a_transient_queue():
    scene = Scene()
    queue = scene.queue(durable=False)
    scene.publish("q", b"a")
    scene.taken(queue)
    assert isinstance(prepare(scene, 1, b"", positions=acknowledged(queue, 0)), messages.Done)
    assert isinstance(scene.peer.ask(messages.Commit, xid=xid("1")), messages.Committed)
    scene.queue("lasting")
    scene.room.engine.housekeeping.checkpoint_inline()
    assert verified(scene) == []


def test_dead_letters_go_from_one_kind_to_the_other():
    scene = Scene()
    lasting = scene.queue("lasting", delivery_limit=0, dead_letter_exchange="", dead_letter_key="passing")
    passing = scene.queue(
        "passing", durable=False, delivery_limit=0, dead_letter_exchange="", dead_letter_key="end"
    )
    end = scene.queue("end")
    scene.publish("lasting", b"a")
    scene.taken(lasting)
    scene.give_up(lasting, 0, dead=True)
    turns(scene)
    assert scene.taken(passing) == [b"a"]
    scene.give_up(passing, 0, dead=True)
    turns(scene)
    assert scene.taken(end) == [b"a"]
    scene.restart()
    assert scene.counts("lasting") == (0, 0, 0, 0)
    assert scene.taken(end) == [b"a"]
    assert verified(scene) == []
