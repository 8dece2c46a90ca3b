"""Test how many bytes wait in memory for a transaction's vote: each message counts once."""

import pytest
import transaction

import txbroker
from txbroker import errors
from txbroker.client.loop.waiting import Waiting

pytestmark = pytest.mark.slow


@pytest.fixture
def manager():
    return transaction.TransactionManager()


@pytest.fixture
def broker(scene):
    with scene.participants["orders"]() as connection:
        yield connection


def test_the_size_of_a_message_is_taken_once_however_many_wait(scene, manager, broker, monkeypatch):
    """Each send added up all that were kept: 20,000 messages took minutes."""
    taken = []
    size = Waiting.size.fget
    monkeypatch.setattr(Waiting, "size", property(lambda message: taken.append(1) or size(message)))
    messages = txbroker.join(manager, broker)
    for _ in range(2000):
        messages.send(scene.topic, b"1")
    assert len(taken) == 2000
    manager.abort()


def test_scheduled_messages_are_taken_back_with_the_transaction(scene, manager, broker):
    messages = txbroker.join(manager, broker)
    first, second, third = (
        broker.send(scene.topic, b"v", after=3600, id=f"{scene.topic}-{number}").scheduled
        for number in range(3)
    )
    messages.cancel(first)
    savepoint = manager.savepoint()
    messages.cancel(third)
    savepoint.rollback()
    messages.cancel(message_id=f"{scene.topic}-1")
    assert broker.scheduled(first).state == "waits"
    manager.commit()
    states = [broker.scheduled(each).state for each in (first, second, third)]
    assert states == ["cancelled", "cancelled", "waits"]
    messages.send(scene.topic, b"not sent")
    messages.cancel(third)
    messages.cancel(first)
    with pytest.raises(errors.NotScheduled, match="taken back before"):
        manager.commit()
    manager.abort()
    assert broker.scheduled(third).state == "waits"
    assert broker.read(scene.topic, 0, 0) == []
    with pytest.raises(errors.Misuse, match="or message_id="):
        messages.cancel()


def test_what_a_savepoint_takes_back_makes_room_to_the_byte(scene, manager, broker):
    messages = txbroker.join(manager, broker, max_bytes=20)
    messages.send(scene.topic, b"1" * 7, key=b"2", headers={"h": b"34"})  # 11 bytes
    savepoint = manager.savepoint()
    for _ in range(3):
        messages.send(scene.topic, b"1" * 6, key=b"123")
        with pytest.raises(errors.BufferFull, match=r"^20 bytes .* 1 more are over max_bytes \(20\)"):
            messages.send(scene.topic, b"1")
        savepoint.rollback()
    messages.send(scene.topic, None)
    messages.send(scene.topic, b"1" * 9)
    manager.commit()
    assert [message.value for message in broker.read(scene.topic, 0, 0)] == [b"1" * 7, None, b"1" * 9]
    messages.send(scene.topic, b"1" * 20)  # the next transaction has the room anew
    manager.abort()
