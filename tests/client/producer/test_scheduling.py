"""Test sends for later: what goes to which log of the schedule, over losses and refusals, and what receipts say."""

import math

import pytest

from journal.formats import frame
from journal.formats.envelope import DAY, MINUTE, SCHEDULE_TOPIC, Clock
from journal.message_headers import ID_HEADER
from tests.client.scheduling_scene import SECOND, Scene
from txbroker import errors
from txbroker.client.core.results import Durability
from txbroker.client.producer.envelope_batch import EnvelopeBatch
from txbroker.wire import messages


@pytest.fixture
def scene():
    return Scene()


def sends(scene):
    """The sends that the broker gets from now on, each as (partition, frames)."""
    found = []
    received = scene.room.broker.received

    def seen(session, head, body):
        if type(head) is messages.Send:
            found.append((head.partition, bytes(body)))
        received(session, head, body)

    scene.room.broker.received = seen
    return found


def test_a_message_comes_when_it_is_due_as_its_sender_made_it(scene):
    receipt = scene.send(b"v", key=b"k", headers={"h": b"x"}, partition=1, after=90)
    assert receipt[:4] == ("orders", 1, None, Durability.FORCED)
    assert str(receipt.scheduled).startswith("1-0-")
    scene.pass_time(89)
    assert scene.values(scene.orders[1]) == []
    scene.pass_time(1.001)
    store = scene.room.engine.catalog.stores[scene.orders[1]]
    [message] = frame.decode_run(store.read(0, 1 << 20), 0)
    assert (message.key, message.value, message.headers) == (b"k", b"v", (("h", b"x"),))


def test_the_envelope_says_by_which_clock_it_is_due_and_has_the_message_id(scene):
    now, wall = scene.rig.core.schedule_time.now(), scene.room.clock.wall()
    scene.send(after=10)
    scene.send(at=wall + 5 * SECOND, headers={ID_HEADER: b"order-1"})
    elapsed, at = scene.log(0)
    assert (elapsed.clock, elapsed.due, elapsed.partition) == (
        Clock.ELAPSED,
        now + 10 * SECOND,
        scene.orders[0],
    )
    assert (at.clock, at.due) == (Clock.WALL, wall + 5 * SECOND)
    store = scene.room.engine.catalog.topics[SCHEDULE_TOPIC].partitions[0]
    kept = list(frame.decode_run(store.read(0, 1 << 20), 0))
    assert [message.headers for message in kept] == [(), ((ID_HEADER, b"order-1"),)]


@pytest.mark.parametrize(
    ("ahead", "log"),
    [(0, 0), (MINUTE, 0), (MINUTE + 1, 1), (DAY, 3), (10 * DAY, 4), (100 * DAY, 5), (3653 * DAY, 7)],
)
def test_the_log_is_chosen_by_how_far_ahead_it_is(scene, ahead, log):
    assert scene.send(after=ahead / 1e6).scheduled.log == log
    assert scene.send(at=scene.room.clock.wall() + ahead).scheduled.log == log


def test_the_key_chooses_the_partition_as_for_a_message_for_now(scene):
    route = scene.rig.run(scene.rig.producer.route("orders"))
    for key in (b"a", b"b", b"c", b"d"):
        assert scene.send(key=key, partition=None, after=5).partition == route.choose(key, None).index


def test_messages_without_a_key_spread_over_partitions(scene):
    found = [scene.send(partition=None, after=5).partition for _ in range(4)]
    assert sorted(found) == [0, 0, 1, 1]


def test_what_waits_for_one_topic_goes_as_frames_in_one_request(scene):
    scene.send(topic="others", after=5)
    scene.send(after=5)
    seen, producer = sends(scene), scene.rig.producer
    feed, scene.rig.feed = scene.rig.feed, None
    appended = [scene.append(b"%d" % number, after=5).result() for number in range(4)]
    appended += [scene.append(b"4", partition=1, after=5).result(), scene.append(b"5", after=5).result()]
    appended += [scene.append(b"6", "others", after=5).result(), scene.append(b"7", after=5).result()]
    scene.rig.feed = feed
    scene.rig.pump()
    counts = [len(list(frame.walk(data))) for _, data in seen]
    assert counts == [1, 5, 1, 1], "each request is for one topic"
    assert all(count == 1 for _, data in seen for *_, count in frame.walk(data))
    receipts = [each.receipt(each.batch.base_offset, None) for each in appended]
    assert [(each.partition, each.scheduled.offset) for each in receipts] == [
        (0, 2), (0, 3), (0, 4), (0, 5), (1, 6), (0, 7), (0, 8), (0, 9),
    ]  # fmt: skip
    assert [each.topic for each in receipts] == ["orders"] * 6 + ["others", "orders"]
    assert producer.buffered == 0
    for receipt in receipts:
        state = scene.rig.run(scene.rig.operations.scheduled(receipt.scheduled)).state
        assert state == "waits", "the receipt has the checksum of its own envelope"


def test_envelopes_are_not_compressed_though_the_client_compresses():
    scene = Scene(compression="lz4")
    seen = sends(scene)
    scene.send(b"a" * 5000, after=5)
    scene.send(b"a" * 5000, after=5)
    assert all(len(data) > 5000 for _, data in seen)
    scene.pass_time(6)
    assert scene.values(scene.orders[0]) == [b"a" * 5000] * 2


def test_over_a_lost_answer_it_is_stored_once_with_the_due_time_of_the_call(scene):
    scene.send(b"first", after=5)
    now = scene.rig.core.schedule_time.now()
    scene.broker.lose = messages.Send
    promise = scene.append(b"v", after=60).result()
    assert not promise.batch.done
    scene.rig.cut()
    scene.pass_time(20)
    scene.rig.connect()
    assert promise.batch.base_offset == 1
    [_, envelope] = scene.log(0)
    assert envelope.due == now + 60 * SECOND
    scene.pass_time(60)
    assert scene.values(scene.orders[0]) == [b"first", b"v"]


def test_what_waits_for_a_connection_has_the_due_time_of_the_call(scene):
    scene.send(b"first", after=5)
    now = scene.rig.core.schedule_time.now()
    scene.rig.cut()
    appended = scene.append(b"v", after=30).result()
    scene.pass_time(10)
    scene.rig.connect()
    assert appended.batch.done
    assert [each.due for each in scene.log(0)][1] == now + 30 * SECOND


def test_a_caller_that_waits_for_the_way_into_the_schedule_has_its_time_fixed_before(scene):
    now = scene.rig.core.schedule_time.now()
    feed, scene.rig.feed = scene.rig.feed, None
    promise = scene.append(after=30)
    assert not promise.done
    scene.pass_time(10)
    scene.rig.feed = feed
    scene.rig.pump()
    assert promise.result().batch.done
    assert [each.due for each in scene.log(0)] == [now + 30 * SECOND]


def test_a_topic_that_is_gone_fails_its_own_messages_and_no_others(scene):
    scene.send(b"first", "others", after=5)
    scene.send(b"first", after=5)
    peer = scene.room.peer()
    peer.ask(messages.DeleteTopic, "others", scene.room.topic_id("others"), True)
    feed, scene.rig.feed = scene.rig.feed, None
    places = [
        scene.append(b"v", topic, after=5).result()
        for topic in ("orders", "others", "orders", "others", "orders")
    ]
    scene.rig.feed = feed
    scene.rig.pump()
    ends = [type(each.batch.error) for each in places]
    assert ends == [type(None), errors.UnknownPartition, type(None), errors.UnknownPartition, type(None)]
    scene.send(b"later", after=5)
    scene.pass_time(6)
    assert scene.values(scene.orders[0]) == [b"first", b"v", b"v", b"v", b"later"]
    with pytest.raises(errors.UnknownTopic):
        scene.append(topic="others", after=5).result()
    scene.room.topic("others")
    assert scene.send(topic="others", after=5).scheduled is not None


def test_a_request_is_for_one_topic_and_not_for_another_one_of_its_name(scene):
    first, second = scene.rig.run(scene.rig.producer.route("orders")).queues
    [other] = scene.rig.run(scene.rig.producer.route("others")).queues
    batch = EnvelopeBatch(math.inf, None, first)
    assert [batch.suits(each) for each in (first, second, other)] == [True, True, False]
    first.broken = errors.UnknownPartition("its topic has been deleted")
    assert not batch.suits(second), "which is of the new one"


def test_a_message_that_its_topic_does_not_take_is_refused_and_others_go_on(scene):
    scene.room.topic("small", max_message_bytes=1000)
    appended = scene.append(bytes(2000), "small", after=5).result()
    scene.rig.pump()
    with pytest.raises(errors.MessageTooLarge, match="small-0"):
        appended.batch.result()
    assert scene.rig.producer.known_route("small") is None, "the next send asks what it takes"
    assert scene.send(after=5).scheduled.offset == 0


def test_a_message_over_the_clients_limit_is_refused_at_once(scene):
    with pytest.raises(errors.MessageTooLarge, match="nothing was sent"):
        scene.append(bytes(scene.rig.core.max_frame), after=5).result()
    assert scene.send(after=5).scheduled.offset == 0


def test_a_full_client_has_messages_for_later_wait_for_room_too():
    scene = Scene(max_buffered=1000)
    scene.send(after=5)
    feed, scene.rig.feed = scene.rig.feed, None
    scene.append(bytes(2000), after=5).result()
    waiting = scene.append(b"v", after=5)
    assert not waiting.done
    scene.rig.feed = feed
    scene.rig.pump()
    scene.rig.wait(0.1)
    assert waiting.result().batch.done


def test_a_caller_that_gives_up_while_it_waits_for_room_has_sent_nothing():
    scene = Scene(max_buffered=1000)
    scene.send(b"first", after=5)
    feed, scene.rig.feed = scene.rig.feed, None
    scene.append(bytes(2000), after=5).result()
    waiting = scene.append(b"never", after=5)
    waiting.cancel()
    scene.rig.feed = feed
    scene.rig.pump()
    scene.rig.wait(0.1)
    scene.pass_time(6)
    assert scene.values(scene.orders[0]) == [b"first", bytes(2000)]


def test_reports_do_not_count_what_comes_later():
    scene = Scene(reports="others", report_interval=1.0)
    scene.send(after=5)
    scene.rig.send(b"now", "orders", b"k")
    scene.rig.pump()
    assert {topic for topic, _ in scene.rig.producer.reports._sent} == {"orders"}
    assert sum(row[0] for row in scene.rig.producer.reports._sent.values()) == 1


def test_an_interrupted_add_is_mended():
    batch = EnvelopeBatch(0.0)
    batch.add(b"a", 1, b"k", None, 1000)
    size = batch.size
    batch._pieces.append(b"half")
    batch.checksums.append(1)
    batch.mend()
    assert (batch.size, len(batch.checksums), len(batch._pieces)) == (size, 1, 1)


def test_a_batch_takes_so_many_messages_as_a_request_may_have(monkeypatch):
    monkeypatch.setattr("txbroker.client.producer.separate_batch.MAX_REQUEST_MESSAGES", 2)
    batch = EnvelopeBatch(0.0)
    assert [batch.add(b"a", 1, b"k", None, 1000) for _ in range(3)] == [0, 1, -1]


def test_a_batch_takes_so_many_bytes_as_there_is_room_for_and_one_message_always():
    batch = EnvelopeBatch(0.0)
    assert batch.add(b"a" * 2000, 1, b"k", None, 1000) == 0
    assert batch.add(b"a", 1, b"k", None, 1000) == -1
