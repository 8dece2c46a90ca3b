"""Test deliveries that another session takes over by their lease."""

import pytest

from journal.xid import Xid
from tests.broker.queues.scene import Scene, acknowledged, pass_time
from txbroker.wire import messages

XID = Xid(1, b"branch", b"1")


class Leased:
    """A scene in which a peer has a delivery with a lease; ``taken`` notes that it was taken over."""

    def __init__(self, values=(b"a",), **settings):
        self.scene = Scene()
        self.queue = self.scene.queue(**settings)
        self.scene.publish("q", *values)
        self.values = self.scene.taken(self.queue)
        self.taken = []
        self.leases = self.scene.room.broker.queues.leases
        self.lease = self.leases.grant(self.scene.peer.session, self.queue, 0, lambda: self.taken.append(0))

    def take_over(self, lease=None, peer=None):
        return (peer or self.scene.other).ask(messages.TakeOver, self.lease if lease is None else lease)


@pytest.fixture
def leased():
    return Leased()


def test_who_takes_over_has_the_delivery_and_who_had_it_has_not(leased):
    scene = leased.scene
    told = leased.take_over()
    assert (told.partition, told.offset, told.attempts, told.queue) == (leased.queue, 0, 0, "q")
    assert leased.taken == [0]
    assert scene.acknowledge(leased.queue, 0).error == "DeliveryLost"
    scene.peer.leave()
    scene.peer = scene.room.peer()
    pass_time(scene, 1)
    assert scene.info().unacknowledged == 1, "it is the other's"
    assert isinstance(scene.acknowledge(leased.queue, 0, peer=scene.other), messages.Done)
    assert scene.info().messages == 0


def test_a_lease_is_good_for_one(leased):
    third = leased.scene.room.peer()
    leased.take_over()
    assert leased.take_over(peer=third).error == "DeliveryLost"
    assert leased.taken == [0]


def test_a_lease_that_was_made_up_is_none(leased):
    assert leased.take_over(bytes(16)).error == "DeliveryLost"
    assert leased.take_over(b"").error == "DeliveryLost"
    assert leased.taken == []


def test_another_principal_does_not_take_over(leased):
    leased.scene.other.session.principal = "mallory"
    assert leased.take_over().error == "AccessDenied"
    assert leased.taken == []
    assert isinstance(leased.scene.acknowledge(leased.queue, 0), messages.Done)


def test_what_is_acknowledged_returned_or_purged_cannot_be_taken_over(leased):
    scene = leased.scene
    scene.give_up(leased.queue, 0)
    assert leased.take_over().error == "DeliveryLost"
    scene.take(leased.queue)
    again = leased.leases.grant(scene.peer.session, leased.queue, 0, bool)
    scene.acknowledge(leased.queue, 0)
    assert leased.take_over(again).error == "DeliveryLost"


def test_a_lease_ends_with_the_session_that_has_the_delivery_and_with_the_broker(leased):
    scene = leased.scene
    scene.peer.leave()
    pass_time(scene, 1)
    assert leased.take_over().error == "DeliveryLost"
    assert len(leased.leases) == 0
    leased = Leased()
    leased.scene.restart()
    assert leased.take_over().error == "DeliveryLost"


def test_a_lease_that_has_ended_is_forgotten(leased):
    leased.leases.end(leased.lease)
    leased.leases.end(leased.lease)
    assert len(leased.leases) == 0
    assert leased.take_over().error == "DeliveryLost"
    leased.scene.peer.leave()


def test_with_the_end_of_who_took_over_the_message_is_returned_with_an_attempt(leased):
    scene = leased.scene
    leased.take_over()
    scene.other.leave()
    pass_time(scene, 1)
    answer = scene.take(leased.queue)
    assert (answer.runs, answer.attempts) == ([(0, 1)], [(0, 1)])


def test_the_acknowledgement_of_who_took_over_is_part_of_its_transaction(leased):
    scene, other = leased.scene, leased.scene.other
    leased.take_over()
    prepared = other.ask(messages.Prepare, 1, XID, positions=acknowledged(leased.queue, 0))
    assert isinstance(prepared, messages.Done), prepared
    for peer in (other, scene.peer):
        peer.leave()
    pass_time(scene, 1)
    third = scene.room.peer()
    assert scene.take(leased.queue, peer=third).runs == [], "it is held"
    assert isinstance(third.ask(messages.Rollback, xid=XID), messages.Done)
    pass_time(scene, 1)
    assert scene.take(leased.queue, peer=third).attempts == [(0, 1)], "once"


def test_only_the_delivery_of_the_lease_is_handed_over():
    leased = Leased((b"a", b"b", b"c"))
    leased.take_over()
    assert isinstance(leased.scene.acknowledge(leased.queue, 1, 2), messages.Done)
    assert leased.scene.info().unacknowledged == 1


def test_a_lease_of_a_queue_that_is_deleted_is_of_nothing(leased):
    assert isinstance(leased.scene.peer.ask(messages.DeleteQueue, "q", leased.queue), messages.Counted)
    assert leased.take_over().error == "DeliveryLost"
