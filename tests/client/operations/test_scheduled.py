"""Test how scheduled messages are looked up, listed and taken back, by id and by the id of their sender."""

import pytest

from journal.message_headers import ID_HEADER
from journal.scheduled_id import ScheduledId
from journal.xid import Xid
from tests.client.lossy_room import lost
from tests.client.scheduling_scene import SECOND, Scene
from txbroker import errors
from txbroker.client.transactions.taking_back import take_back
from txbroker.wire import messages


@pytest.fixture
def scene():
    return Scene()


def run(scene, name, *args, **choices):
    return scene.rig.run(getattr(scene.rig.operations, name)(*args, **choices))


def named(scene, name, value=b"v", **choices):
    return scene.send(value, headers={ID_HEADER: name}, **choices).scheduled


def test_a_message_that_waits_is_shown(scene):
    scene.room.topic("more")
    given = named(scene, b"order-1", b"value", topic="more", key=b"k", after=90)
    scene.pass_time(30)
    found = run(scene, "scheduled", given)
    assert found[:5] == (given, "waits", "more", 0, "elapsed")
    assert found.due_in == pytest.approx(60, abs=0.001)
    assert found.due_at == pytest.approx(scene.room.clock.wall() + 60 * SECOND, abs=1000)
    assert (found.offset, found.size, found.message) == (None, 0, None)
    shown = run(scene, "scheduled", str(given), with_message=True)
    assert (shown.message_id, shown.message.key, shown.message.value) == (b"order-1", b"k", b"value")
    assert shown.size > 0


def test_a_message_by_the_wall_clock_is_due_at_its_time(scene):
    at = scene.room.clock.wall() + 10 * SECOND
    found = run(scene, "scheduled", scene.send(at=at).scheduled)
    assert (found.clock, found.due_in, found.due_at) == ("wall", 10.0, at)


def test_what_was_sent_is_shown_with_its_place(scene):
    given = scene.send(after=1, partition=1).scheduled
    scene.pass_time(2)
    found = run(scene, "scheduled", given, with_message=True)
    assert (found.state, found.topic, found.partition, found.offset) == ("sent", "orders", 1, 0)
    assert found.message is None


def test_what_was_for_a_topic_that_is_gone_has_the_number_of_its_partition(scene):
    given = scene.send(topic="others", after=60).scheduled
    run(scene, "delete_topic", "others", scheduled=True)
    found = run(scene, "scheduled", given)
    assert (found.state, found.topic, found.partition) == ("waits", "", scene.others)
    scene.pass_time(61)
    with pytest.raises(errors.AlreadySent, match="where is not known any more") as caught:
        run(scene, "cancel", given)
    assert caught.value.topic == ""


def test_a_topic_with_scheduled_messages_is_deleted_only_with_them(scene):
    scene.send(topic="others", after=60)
    with pytest.raises(errors.ScheduledForTopic):
        run(scene, "delete_topic", "others")
    with pytest.raises(errors.WrongType, match="scheduled is 1"):
        run(scene, "delete_topic", "others", scheduled=1)
    run(scene, "delete_topic", "others", scheduled=True)


def test_a_message_is_taken_back_and_again(scene):
    given = scene.send(after=60).scheduled
    assert run(scene, "cancel", given) == [given]
    assert run(scene, "cancel", str(given)) == [given], "the second time as the first"
    assert run(scene, "scheduled", given).state == "cancelled"
    scene.pass_time(61)
    assert scene.values(scene.orders[0]) == []


def test_over_a_lost_answer_it_is_taken_back_once(scene):
    given = scene.send(after=60).scheduled
    promise = lost(scene.rig, scene.broker, messages.CancelScheduled, scene.rig.operations.cancel(given))
    scene.rig.connect()
    assert promise.result() == [given]


def test_what_cannot_be_taken_back_is_refused_with_the_reason(scene):
    sent, held = scene.send(after=1, partition=1).scheduled, scene.send(after=60).scheduled
    scene.pass_time(2)
    transaction = scene.rig.transaction(Xid(1, b"g", b""))
    scene.rig.run(take_back(transaction, held))
    scene.rig.run(transaction.prepare())
    with pytest.raises(errors.AlreadySent, match="offset 0 of orders-1; nothing has changed") as caught:
        run(scene, "cancel", sent)
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("orders", 1, 0)
    with pytest.raises(errors.ScheduleHeld, match=str(Xid(1, b"g", b""))):
        run(scene, "cancel", held)
    assert run(scene, "scheduled", held).holder == str(Xid(1, b"g", b""))
    for unknown in (ScheduledId(0, 99, 1), sent._replace(checksum=1)):
        with pytest.raises(errors.NotScheduled, match="there never was"):
            run(scene, "cancel", unknown)
        with pytest.raises(errors.NotScheduled, match="nothing was read"):
            run(scene, "scheduled", unknown)


@pytest.mark.parametrize(
    "given", ["x", "9-1-00000000", "0-1", ScheduledId(0, 1, 1).place, 5, b"0-1-00000000"]
)
def test_what_is_no_id_is_refused(scene, given):
    for name in ("cancel", "scheduled"):
        with pytest.raises((errors.WrongType, errors.WrongValue), match="id is"):
            run(scene, name, given)


def test_cancel_takes_an_id_or_that_of_the_sender(scene):
    with pytest.raises(errors.Misuse, match="nothing has changed"):
        run(scene, "cancel")
    with pytest.raises(errors.Misuse, match="nothing has changed"):
        run(scene, "cancel", "0-1-00000000", message_id="x")
    for wrong in (True, False, 5, ["x"]):
        with pytest.raises(errors.WrongType, match="message_id is"):
            run(scene, "cancel", message_id=wrong)
    for wrong in ("", "x" * 256):
        with pytest.raises(errors.WrongValue, match="message_id is"):
            run(scene, "cancel", message_id=wrong)


def test_messages_are_taken_back_by_the_id_of_their_sender_wherever_they_wait(scene):
    others = [named(scene, b"order-1", after=after) for after in (5, 3600)]
    ids = [named(scene, b"order-42", after=after) for after in (5, 3600, 100 * 86400)]
    assert sorted(run(scene, "cancel", message_id="order-42")) == sorted(ids)
    assert [run(scene, "scheduled", each).state for each in ids] == ["cancelled"] * 3
    assert [run(scene, "scheduled", each).state for each in others] == ["waits"] * 2
    assert sorted(run(scene, "cancel", message_id=b"order-42")) == sorted(ids), "and again"


def test_an_id_that_was_used_before_does_not_keep_the_one_that_waits(scene):
    sent = named(scene, b"x", after=1)
    scene.pass_time(2)
    with pytest.raises(errors.AlreadySent) as caught:
        run(scene, "cancel", message_id="x")
    assert caught.value.offset == 0
    waits = named(scene, b"x", after=60)
    assert run(scene, "cancel", message_id="x") == [waits]
    with pytest.raises(errors.AlreadySent):
        run(scene, "cancel", message_id="x")  # one of them has been sent, so it does not say that none comes
    assert run(scene, "scheduled", sent).state == "sent"


def test_one_that_is_held_is_told_though_others_are_taken_back(scene):
    held, waits = named(scene, b"x", after=60), named(scene, b"x", after=60)
    transaction = scene.rig.transaction(Xid(1, b"g", b""))
    scene.rig.run(take_back(transaction, held))
    scene.rig.run(transaction.prepare())
    with pytest.raises(errors.ScheduleHeld, match="1 other message with its id has been taken back"):
        run(scene, "cancel", message_id="x")
    assert run(scene, "scheduled", waits).state == "cancelled"


def test_an_id_that_nothing_has_is_refused(scene):
    scene.send(after=60)
    with pytest.raises(errors.NotScheduled, match="the id 'order-43'"):
        run(scene, "cancel", message_id="order-43")


def test_who_may_not_read_the_schedule_finds_what_waits_in_the_list(scene, monkeypatch):
    given = named(scene, b"x", after=60)
    named(scene, b"y", after=60)

    async def denied(core, log, number, wanted, damage):
        raise errors.AccessDenied("no")

    monkeypatch.setattr("txbroker.client.operations.scheduled._named_in_log", denied)
    assert run(scene, "cancel", message_id="x") == [given]


def test_what_waits_is_listed_as_it_comes_due(scene):
    late = named(scene, b"late", after=3600)
    later = scene.send(after=58).scheduled
    soon = scene.send(topic="others", after=50).scheduled
    middle = scene.send(at=scene.room.clock.wall() + 600 * SECOND).scheduled
    run(scene, "cancel", scene.send(after=60).scheduled)
    found = run(scene, "list_scheduled")
    assert [each.id for each in found] == [soon, later, middle, late]
    assert (found.is_filtered, found.holds) == (False, False)
    assert found[3].message_id == b"late"
    assert [each.topic for each in run(scene, "list_scheduled", "others")] == ["others"]
    assert run(scene, "list_scheduled", "nothing") == []
    with pytest.raises(errors.WrongType, match="topic is"):
        run(scene, "list_scheduled", 5)


def test_a_list_goes_on_until_its_end(scene, monkeypatch):
    monkeypatch.setattr("txbroker.client.operations.scheduled.MAX_SCHEDULED_IDS", 2)
    ids = [scene.send(after=after).scheduled for after in (5, 6, 7, 3600, 3601)]
    assert [each.id for each in run(scene, "list_scheduled")] == ids


def test_what_is_held_by_the_clock_is_listed_so_and_released(scene):
    at = scene.room.clock.wall() + 600 * SECOND
    scene.send(at=at)
    scene.room.engine.schedule.holds = True
    assert run(scene, "list_scheduled").holds
    run(scene, "release_scheduled")
    assert not run(scene, "list_scheduled").holds
