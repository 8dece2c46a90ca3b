"""Test transactions that schedule messages, and that take scheduled ones back."""

import pytest

from journal.formats import frame
from journal.message_headers import ID_HEADER
from journal.scheduled_id import ScheduledId
from journal.xid import Xid
from tests.client.rig import send_as_adds
from tests.client.scheduling_scene import SECOND, Scene
from txbroker import errors
from txbroker.client.transactions import bulk
from txbroker.client.transactions.decision import Stage
from txbroker.client.transactions.taking_back import take_back
from txbroker.wire import messages

XID = Xid(1, b"g", b"b")


@pytest.fixture
def scene():
    return Scene()


def later(transaction, value=b"v", topic="orders", partition=0, **due):
    return transaction.send(topic, value, None, None, partition, **due)


def states(scene, *ids):
    return [scene.rig.run(scene.rig.operations.scheduled(each)).state for each in ids]


def test_what_a_transaction_schedules_is_due_as_the_call_said_it_and_has_ids_after_the_commit(scene):
    transaction, now = scene.rig.transaction(), scene.rig.core.schedule_time.now()
    receipt = scene.rig.run(later(transaction, b"a", after=30))
    assert (receipt[:3], receipt.scheduled) == (("orders", 0, None), None)
    scene.pass_time(10)
    scene.rig.run(later(transaction, b"b", partition=1, at=scene.room.clock.wall() + 50 * SECOND))
    scene.rig.run(later(transaction, b"c", after=3600))
    scene.rig.run(later(transaction, b"now"))
    assert transaction.scheduled == []
    assert scene.log(0) == []
    scene.rig.run(transaction.commit())
    assert scene.log(0)[0].due == now + 30 * SECOND
    assert [(run.topic, run.messages) for run in transaction.runs] == [("orders", 1)]
    assert [each.log for each in transaction.scheduled] == [0, 0, 2]
    assert states(scene, *transaction.scheduled) == ["waits"] * 3
    scene.pass_time(20.001)
    assert scene.values(scene.orders[0]) == [b"now", b"a"]
    assert states(scene, *transaction.scheduled) == ["sent", "waits", "waits"]


def test_ids_are_right_for_what_went_as_adds_beside_others(scene):
    scene.send(b"other", after=5)
    transaction = scene.rig.transaction()
    scene.rig.run(later(transaction, b"a", after=5))
    scene.rig.run(transaction.begin())
    send_as_adds(transaction)
    scene.send(b"another", after=5)
    scene.rig.run(later(transaction, b"b", "others", after=5))
    scene.rig.run(transaction.commit())
    assert [each.offset for each in transaction.scheduled] == [2, 3]
    assert states(scene, *transaction.scheduled) == ["waits"] * 2


def test_a_transaction_that_is_rolled_back_schedules_nothing(scene):
    transaction = scene.rig.transaction()
    scene.rig.run(later(transaction, after=5))
    scene.rig.run(transaction.rollback())
    scene.pass_time(10)
    assert (transaction.scheduled, scene.waiting(), scene.values(scene.orders[0])) == ([], 0, [])


def test_a_prepared_one_schedules_with_its_commit(scene):
    transaction = scene.rig.transaction(XID)
    scene.rig.run(later(transaction, after=5))
    scene.rig.run(transaction.prepare())
    scene.pass_time(10)
    assert scene.values(scene.orders[0]) == []
    scene.rig.run(transaction.commit())
    scene.pass_time(0)
    assert scene.values(scene.orders[0]) == [b"v"], "it was due already"
    assert states(scene, *transaction.scheduled) == ["sent"]


def test_after_a_lost_answer_the_ids_are_asked_for(scene):
    transaction = scene.rig.transaction()
    scene.rig.run(later(transaction, after=5))
    scene.broker.lose = messages.Commit
    promise = scene.rig.start(transaction.commit())
    scene.rig.cut()
    scene.rig.connect()
    scene.rig.pump()
    assert promise.done
    promise.result()
    assert states(scene, *transaction.scheduled) == ["waits"]


def test_many_are_scheduled_at_once_for_the_same_time(scene):
    transaction = scene.rig.transaction()
    scene.rig.run(bulk.send_many(transaction, "orders", [b"a", b"b", b"c"], after=5))
    scene.rig.run(transaction.commit())
    assert len(transaction.scheduled) == 3
    assert len({each.due for each in scene.log(0)}) == 1
    with pytest.raises(errors.WrongValue, match=r"after is .*; nothing was added"):
        scene.rig.run(bulk.send_many(scene.rig.transaction(), "orders", [b"a"], after=-1))


def test_a_refused_time_changes_nothing_and_the_transaction_goes_on(scene):
    transaction = scene.rig.transaction()
    for due in ({"after": "5"}, {"at": 5}, {"after": 5, "at": scene.room.clock.wall()}, {"after": 1e9}):
        with pytest.raises(errors.Misuse, match="nothing was sent"):
            scene.rig.run(later(transaction, **due))
    scene.rig.run(later(transaction, b"now"))
    scene.rig.run(transaction.commit())
    assert scene.values(scene.orders[0]) == [b"now"]


def test_a_caller_that_gives_up_while_it_asks_for_the_schedule_can_only_roll_back(scene):
    transaction = scene.rig.transaction()
    scene.rig.run(later(transaction, b"now"))
    scene.rig.feed, feed = None, scene.rig.feed
    sending = scene.rig.start(later(transaction, after=5))
    assert not sending.done
    sending.cancel()
    scene.rig.feed = feed
    scene.rig.pump()
    with pytest.raises(errors.TransactionRolledBack, match="cancelled or interrupted"):
        scene.rig.run(transaction.commit())


# -- taking back ---------------------------------------------------------------------------------------


def test_a_transaction_takes_messages_back_with_its_commit(scene):
    first, second = scene.send(b"a", after=5).scheduled, scene.send(b"b", after=5).scheduled
    transaction = scene.rig.transaction()
    scene.rig.run(take_back(transaction, first))
    scene.rig.run(take_back(transaction, str(second)))
    scene.rig.run(take_back(transaction, second))
    assert not transaction.is_empty
    assert states(scene, first, second) == ["waits", "waits"]
    scene.rig.run(later(transaction, b"instead"))
    scene.rig.run(transaction.commit())
    assert states(scene, first, second) == ["cancelled", "cancelled"]
    scene.pass_time(6)
    assert scene.values(scene.orders[0]) == [b"instead"]


def test_a_transaction_takes_all_back_that_wait_with_an_id_of_their_sender(scene):
    first, second = (scene.send(after=5, headers={ID_HEADER: b"mine"}).scheduled for _ in range(2))
    other = scene.send(after=5, headers={ID_HEADER: b"another"}).scheduled
    scene.rig.run(scene.rig.operations.cancel(first))
    transaction = scene.rig.transaction()
    assert scene.rig.run(take_back(transaction, None, "mine")) == [second]
    with pytest.raises(errors.NotScheduled, match="with the id 'nobody'"):
        scene.rig.run(take_back(transaction, None, "nobody"))
    with pytest.raises(errors.Misuse, match="or message_id="):
        scene.rig.run(take_back(transaction, first, "mine"))
    scene.rig.run(transaction.commit())
    assert states(scene, first, second, other) == ["cancelled", "cancelled", "waits"]
    with pytest.raises(errors.NotScheduled, match="was taken back before"):
        scene.rig.run(take_back(scene.rig.transaction(), None, "mine"))


def test_of_messages_with_one_id_none_is_taken_back_with_a_transaction_while_one_is_held(scene):
    held, waits = (scene.send(after=5, headers={ID_HEADER: b"mine"}).scheduled for _ in range(2))
    prepared = scene.rig.transaction(XID)
    scene.rig.run(take_back(prepared, held))
    scene.rig.run(prepared.prepare())
    transaction = scene.rig.transaction()
    with pytest.raises(errors.ScheduleHeld, match="nothing has changed"):
        scene.rig.run(take_back(transaction, None, "mine"))
    scene.rig.run(transaction.commit())
    assert states(scene, held, waits) == ["held", "waits"]


def test_a_transaction_may_do_nothing_else(scene):
    first = scene.send(after=5).scheduled
    transaction = scene.rig.transaction()
    scene.rig.run(take_back(transaction, first))
    scene.rig.run(transaction.commit())
    assert states(scene, first) == ["cancelled"]


@pytest.mark.parametrize(("commits", "state"), [(True, "cancelled"), (False, "waits")])
def test_a_prepared_transaction_holds_what_it_takes_back(scene, commits, state):
    first = scene.send(after=60).scheduled
    transaction = scene.rig.transaction(XID)
    scene.rig.run(take_back(transaction, first))
    scene.rig.run(transaction.prepare())
    assert transaction.stage is Stage.PREPARED
    assert states(scene, first) == ["held"]
    with pytest.raises(errors.ScheduleHeld, match="End it first"):
        scene.rig.run(take_back(scene.rig.transaction(), first))
    scene.rig.run(transaction.commit() if commits else transaction.rollback())
    assert states(scene, first) == [state]


def test_it_is_dropped_with_a_rollback(scene):
    first = scene.send(after=60).scheduled
    transaction = scene.rig.transaction()
    scene.rig.run(take_back(transaction, first))
    scene.rig.run(transaction.rollback())
    assert transaction.is_empty
    assert states(scene, first) == ["waits"]


def test_what_does_not_wait_is_refused_at_the_call_and_the_transaction_goes_on(scene):
    sent, cancelled = scene.send(after=1).scheduled, scene.send(after=60).scheduled
    scene.rig.run(scene.rig.operations.cancel(cancelled))
    scene.pass_time(2)
    transaction = scene.rig.transaction()
    with pytest.raises(errors.AlreadySent, match="offset 0 of orders-0; nothing has changed") as caught:
        scene.rig.run(take_back(transaction, sent))
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("orders", 0, 0)
    with pytest.raises(errors.NotScheduled, match="was taken back before"):
        scene.rig.run(take_back(transaction, cancelled))
    with pytest.raises(errors.NotScheduled, match="there never was"):
        scene.rig.run(take_back(transaction, ScheduledId(0, 99, 1)))
    with pytest.raises(errors.WrongValue, match="id is 'x'"):
        scene.rig.run(take_back(transaction, "x"))
    with pytest.raises(errors.WrongType, match="id is 5"):
        scene.rig.run(take_back(transaction, 5))
    scene.rig.run(later(transaction, b"now"))
    scene.rig.run(transaction.commit())
    assert scene.values(scene.orders[0]) == [b"v", b"now"]


def test_what_is_sent_before_the_commit_has_the_transaction_refused(scene):
    first = scene.send(after=1).scheduled
    transaction = scene.rig.transaction()
    scene.rig.run(take_back(transaction, first))
    scene.rig.run(later(transaction, b"instead"))
    scene.pass_time(2)
    with pytest.raises(errors.NotScheduled, match="does not wait"):
        scene.rig.run(transaction.commit())
    scene.rig.run(transaction.rollback())
    assert scene.values(scene.orders[0]) == [b"v"]


def test_after_a_loss_it_is_rolled_back_because_the_broker_knows_only_what_it_was_asked_about(scene):
    first = scene.send(after=60).scheduled
    transaction = scene.rig.transaction()
    scene.rig.run(take_back(transaction, first))
    scene.rig.cut()
    scene.rig.connect()
    with pytest.raises(errors.TransactionRolledBack, match="begin it anew"):
        scene.rig.run(transaction.commit())
    assert states(scene, first) == ["waits"]


def test_it_cannot_be_left_in_a_database(scene):
    first = scene.send(after=60).scheduled
    transaction = scene.rig.transaction(XID)
    transaction.begins_beyond = 1 << 20
    scene.rig.run(later(transaction, after=5))
    assert [queue.topic for queue, _ in transaction.outside_now()] == ["txbroker.schedule"]
    scene.rig.run(take_back(transaction, first))
    assert transaction.outside_now() is None
    transaction.contents.correlation = 0  # even if it had not begun
    assert transaction.contents.sealed() is None


def test_there_is_a_bound_of_what_one_takes_back(scene, monkeypatch):
    monkeypatch.setattr("txbroker.client.transactions.contents.MAX_SCHEDULED_IDS", 2)
    ids = [scene.send(after=60).scheduled for _ in range(3)]
    transaction = scene.rig.transaction()
    scene.rig.run(take_back(transaction, ids[0]))
    scene.rig.run(take_back(transaction, ids[1]))
    with pytest.raises(errors.LimitExceeded, match="2 scheduled messages at most"):
        scene.rig.run(take_back(transaction, ids[2]))
    scene.rig.run(take_back(transaction, ids[1]))
    scene.rig.run(transaction.commit())
    assert states(scene, *ids) == ["cancelled", "cancelled", "waits"]


def test_nothing_is_taken_back_once_it_has_ended(scene):
    first = scene.send(after=60).scheduled
    transaction = scene.rig.transaction()
    scene.rig.run(transaction.commit())
    asked = scene.rig.core._correlation
    with pytest.raises(errors.Misuse, match="committed"):
        scene.rig.run(take_back(transaction, first))
    assert scene.rig.core._correlation == asked, "the broker is not asked"


def test_a_transaction_that_dies_while_it_asks_says_so(scene):
    first = scene.send(after=60).scheduled
    transaction = scene.rig.transaction()
    scene.rig.feed = None
    taking = scene.rig.start(take_back(transaction, first))
    scene.rig.cut()
    scene.rig.connect()
    with pytest.raises(errors.TransactionRolledBack, match="begin it anew"):
        taking.result()


def test_an_interrupted_call_that_has_taken_effect_leaves_only_the_rollback(scene):
    first = scene.send(after=60).scheduled
    transaction = scene.rig.transaction()
    before = transaction.contents.changes
    scene.rig.run(take_back(transaction, first))
    transaction.interrupted(before, KeyboardInterrupt())
    with pytest.raises(errors.TransactionRolledBack):
        scene.rig.run(transaction.commit())


def test_frames_of_a_transaction_are_single_ones_and_mixed_targets_go_in_one_run(scene):
    transaction = scene.rig.transaction()
    for partition in (0, 1, 0):
        scene.rig.run(later(transaction, partition=partition, after=5))
    scene.rig.run(transaction.begin())
    unsent = transaction.contents.unsent()
    [(_, size)] = unsent.runs
    assert size == len(unsent.data)
    assert [count for *_, count in frame.walk(unsent.data)] == [1, 1, 1]
