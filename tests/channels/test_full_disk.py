"""Test what becomes of messages that clients of AMQP publish while the disk is full: nothing is lost in silence."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pika
import pytest

from journal.constants import MIB
from tests.channels.talk import House, Talker, declare, published
from tests.support.broker_process import ENVIRONMENT, AmqpBroker
from tests.support.builders import small_files
from tests.support.repository import PACKAGES
from txbroker.amqp import connection_methods as c
from txbroker.amqp import methods as m
from txbroker.amqp.framing import method_frame
from txbroker.amqp.reply_codes import AmqpError, Reply

BLOCKED = c.ConnectionBlocked("free space on the broker's disk is below the low-water mark")


@pytest.fixture
def house() -> House:
    return House(small_files(low_water_bytes=MIB))


@pytest.fixture
def talker(house) -> Talker:
    talker = house.talker()
    talker.queue()
    return talker


def leave(house: House, room: int) -> None:
    """Leave so much room on the disk above the low-water mark and what must stay free beside it."""
    space = house.engine.housekeeping
    for _ in range(2):
        house.filesystem.free_bytes = lambda free=space.free_bytes + room - space._room: free
        space.watch_space()
    assert bool(house.engine.full) is (room < 0)


def look(*talkers: Talker) -> None:
    """Let a second pass for connections."""
    for each in talkers:
        each.connection.check(1.0, True, 5)
        each.house.settle()


@pytest.mark.parametrize("durable", [True, False])
def test_what_is_published_without_confirms_waits_and_so_does_what_is_behind_it(house, talker, durable):
    talker.queue("p", durable=durable)
    talker.publish("q", b"input")
    talker.consume()
    [got] = talker.taken()
    leave(house, -1)
    talker.feed(
        published(1, "p", b"a") + published(1, "p", b"b") + method_frame(1, m.BasicAck(1, False))
        + published(1, "p", b"c", exchange="amq.direct", mandatory=True) + published(1, "p", b"d")
        + method_frame(1, declare("p", durable=durable))
    )  # fmt: skip
    assert talker.methods() == [BLOCKED]
    for _ in range(3):
        look(talker)
    assert talker.methods() == []
    assert house.counts("p") == (0, 0)
    assert house.counts("q") == (0, 1), "no acknowledgement overtakes what was published before it"
    leave(house, MIB)
    look(talker)
    told = talker.taken()
    assert [type(each.method) for each in told] == [m.BasicReturn, m.QueueDeclareOk]
    assert (told[0].body, told[1].method.message_count) == (b"c", 3)
    assert house.counts("q") == (0, 0)
    look(talker)
    assert talker.methods() == [c.ConnectionUnblocked()]
    assert talker.all_of("p") == [b"a", b"b", b"d"]
    assert got.method.delivery_tag == 1


def test_a_connection_that_is_closed_meanwhile_is_closed_behind_what_waits(house, talker):
    leave(house, -1)
    talker.feed(
        published(1, "q", b"a") + published(1, "q", b"b") + method_frame(1, c.ChannelClose(200, "", 0, 0))
        + method_frame(0, c.ConnectionClose(200, "", 0, 0))
    )  # fmt: skip
    assert talker.methods() == [BLOCKED]
    leave(house, MIB)
    look(talker)
    assert talker.methods() == [c.ChannelCloseOk(), c.ConnectionCloseOk()]
    talker.lose()
    assert house.talker().all_of() == [b"a", b"b"]


def test_a_connection_that_is_lost_meanwhile_takes_with_it_what_waits_and_nothing_else(house, talker):
    other = house.talker()
    talker.publish("q", b"before")
    leave(house, -1)
    for each in (talker, other):
        each.publish("q", b"from one", b"and another")
        assert each.methods() == [BLOCKED]
    talker.lose()
    leave(house, MIB)
    look(other)
    look(talker)
    assert house.talker().all_of() == [b"before", b"from one", b"and another"]


def test_a_connection_that_the_broker_closes_meanwhile_is_read_again_for_the_answer(house, talker):
    leave(house, -1)
    talker.publish("q", b"a")
    talker.connection.fail(AmqpError(Reply.CONNECTION_FORCED, "the broker goes away"))
    assert [type(each) for each in talker.methods()] == [c.ConnectionBlocked, c.ConnectionClose]
    talker.say(c.ConnectionCloseOk(), on=0)
    assert talker.closed == [""]


def test_a_refusal_that_comes_behind_the_connections_end_has_nothing_wait(house, talker):
    talker.publish("q", b"a")
    leave(house, -1)
    talker.publish("q", b"b")  # the force of what was before is under way, and the refusal waits for it
    talker.connection.fail(AmqpError(Reply.CONNECTION_FORCED, "the broker goes away"))
    assert [type(each) for each in talker.methods()] == [c.ConnectionClose]
    talker.say(c.ConnectionCloseOk(), on=0)
    assert talker.closed == [""]
    leave(house, MIB)
    talker.connection.check(1.0, True, 5)
    assert house.talker().all_of() == [b"a"]


def test_what_waits_on_a_channel_is_published_though_the_channel_has_ended(house, talker):
    leave(house, -1)
    talker.publish("q", b"a")
    talker.connection._channels[1].fail(AmqpError(Reply.PRECONDITION_FAILED, "late"))
    assert [type(each) for each in talker.methods()] == [c.ConnectionBlocked, c.ChannelClose]
    leave(house, MIB)
    look(talker)
    assert house.talker().all_of() == [b"a"]


def test_what_has_no_room_in_several_queues_waits_too_and_nothing_overtakes_it(house, talker):
    for name in ("q", "p", "o"):
        talker.queue(name)
        talker.bind(name, "amq.fanout")
    leave(house, 64 * 1024)
    large, small = b"x" * 60_000, b"y"
    talker.publish("", large, small, small, exchange="amq.fanout")
    assert talker.methods() == [BLOCKED]
    look(talker)
    assert (talker.methods(), house.counts("p")) == ([], (0, 0)), (
        "it does not say each second that it is over"
    )
    leave(house, MIB)
    look(talker)
    assert talker.all_of("p") == [large, small, small]


def test_who_publishes_is_told_before_anything_is_refused_and_who_does_not_is_not(house, talker):
    deaf, reader = house.talker(client={}), house.talker()
    for each in (talker, deaf):
        each.publish("q", b"a")
    leave(house, -1)
    look(talker, deaf, reader)
    assert talker.methods() == [BLOCKED]
    assert (deaf.methods(), reader.methods()) == ([], [])
    leave(house, MIB)
    look(talker, deaf, reader)
    assert talker.methods() == [c.ConnectionUnblocked()]
    assert (deaf.methods(), reader.methods()) == ([], [])


def test_who_publishes_with_confirms_is_read_on(house, talker):
    talker.publish("q", b"input")
    talker.consume()
    talker.taken()
    talker.confirm()
    leave(house, -1)
    talker.feed(published(1, "q", b"a") + method_frame(1, m.BasicAck(1, False)))
    assert talker.methods() == [BLOCKED, m.BasicNack(1, False, False)]
    assert house.counts("q") == (0, 0)


# -- over sockets ---------------------------------------------------------------------------------

FILLED = """
from pathlib import Path

from journal.vfs.filesystem import OSFilesystem

free_bytes = OSFilesystem.free_bytes
OSFilesystem.free_bytes = lambda self: 0 if Path({path!r}).exists() else free_bytes(self)
"""
"""What the broker's process runs first: its disk is full while there is a file of that name."""


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """Return the file while which there is the disk is full."""
    return tmp_path / "full"


@pytest.fixture
def broker(tmp_path: Path, full: Path) -> Iterator[AmqpBroker]:
    (tmp_path / "sitecustomize.py").write_text(FILLED.format(path=str(full)))
    path = f"{tmp_path}{os.pathsep}{PACKAGES}"
    with AmqpBroker(tmp_path / "data", {**ENVIRONMENT, "PYTHONPATH": path}) as found:
        yield found


class Client:
    """A client that notes what it is told of the disk."""

    def __init__(self, broker: AmqpBroker) -> None:
        self.connection = pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", broker.amqp_port, heartbeat=2)
        )
        self.told: list[str] = []
        self.connection.add_on_connection_blocked_callback(lambda *_: self.told.append("blocked"))
        self.connection.add_on_connection_unblocked_callback(lambda *_: self.told.append("unblocked"))
        self.channel = self.connection.channel()

    def until(self, is_so: Callable[[], object]) -> None:
        for _ in range(300):
            if is_so():
                return
            self.connection.process_data_events(0.1)
        pytest.fail(f"it never came to this; told: {self.told}")

    def count(self, queue: str) -> int:
        return self.channel.queue_declare(queue, passive=True).method.message_count


@pytest.fixture
def clients(broker: AmqpBroker) -> Iterator[list[Client]]:
    found = [Client(broker), Client(broker)]
    yield found
    for each in found:
        with suppress(pika.exceptions.AMQPError):  # one may be gone
            each.connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("durable", [True, False])
def test_over_a_socket_what_is_published_while_the_disk_is_full_comes_in_order_once_there_is_room(
    clients, full, durable
):
    publisher, other = clients
    publisher.channel.queue_declare("q", durable=durable)
    publisher.channel.basic_publish("", "q", b"0")
    full.touch()
    publisher.until(lambda: publisher.told == ["blocked"])
    bodies = [b"%d" % number + b"x" * 20_000 for number in range(1, 100)]  # more than is read at once
    writer = threading.Thread(
        target=lambda: [publisher.channel.basic_publish("", "q", body) for body in bodies]
    )
    writer.start()
    other.connection.process_data_events(6)  # longer than heartbeats may be missed
    assert other.count("q") == 1
    full.unlink()
    writer.join(30)
    assert not writer.is_alive()
    publisher.until(lambda: publisher.told == ["blocked", "unblocked"])
    assert other.count("q") == 100
    assert [other.channel.basic_get("q", auto_ack=True)[2] for _ in range(100)] == [b"0", *bodies]


@pytest.mark.slow
def test_over_a_socket_what_a_client_has_sent_that_is_gone_meanwhile_is_published(clients, full):
    publisher, other = clients
    publisher.channel.queue_declare("q", durable=True)
    publisher.channel.basic_publish("", "q", b"0")
    full.touch()
    publisher.until(lambda: publisher.told == ["blocked"])
    for number in range(1, 10):
        publisher.channel.basic_publish("", "q", b"%d" % number)
    publisher.connection._impl._transport._sock.shutdown(socket.SHUT_WR)
    assert other.count("q") == 1
    full.unlink()
    other.until(lambda: other.count("q") == 10)
    assert [other.channel.basic_get("q", auto_ack=True)[2] for _ in range(10)] == [
        b"%d" % n for n in range(10)
    ]
