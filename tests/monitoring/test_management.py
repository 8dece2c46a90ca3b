"""Test what is said of queues to those who watch RabbitMQ, and to whom."""

import json
import math
from decimal import Decimal

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from journal.records.queue_entries import Overflow, QueueSettings
from journal.xid import Xid
from tests.broker.queues.scene import Scene, acknowledged
from tests.support.broker_room import refused
from txbroker.monitoring.health import Health
from txbroker.monitoring.management import AT_ONCE, INTERVAL, Management
from txbroker.monitoring.site import Listener, Pages
from txbroker.queues.kept_arguments import packed
from txbroker.wire import messages


class Watcher:
    """A scene with queues, and who looks at it."""

    def __init__(self, token=b""):
        self.scene, self.clock = Scene(), Clock()
        self.management = Management(lambda: self.scene.room.broker, self.clock.seconds, ["shop"])
        pages = Pages(Health(), lambda: iter(()), self.management, self.clock, token)
        self.listener = Listener(pages, self.clock)

    def get(self, path, *headers):
        """Return status and content of a page."""
        protocol = self.listener.buildProtocol(IPv4Address("TCP", "127.0.0.1", 5))
        protocol.makeConnection(transport := StringTransport())
        lines = [f"GET {path} HTTP/1.1", "Host: x", *headers, "", ""]
        protocol.dataReceived("\r\n".join(lines).encode())
        self.clock.pump([0] * 5000)
        head, _, body = transport.value().partition(b"\r\n\r\n")
        if b"chunked" in head:
            body = b"".join(body.split(b"\r\n")[1::2])
        status = int(head.split()[1])
        return status, json.loads(body) if b"application/json" in head else body


def test_a_queue_has_the_counts_that_scalers_read():
    watcher = Watcher()
    queue = watcher.scene.queue("orders", auto_delete=True)
    watcher.scene.peer.ask(messages.Consume, queue, 1)
    watcher.scene.publish("orders", b"1", b"2", b"3")
    watcher.scene.take(queue, 1)
    status, found = watcher.get("/api/queues/%2F/orders")
    assert status == 200
    wanted = {
        "name": "orders", "vhost": "/", "messages": 3, "messages_ready": 2, "messages_unacknowledged": 1,
        "consumers": 1, "durable": True, "auto_delete": True, "exclusive": False, "state": "running",
    }  # fmt: skip
    assert {name: found[name] for name in wanted} == wanted


def test_a_queue_has_its_arguments_as_clients_of_rabbitmq_give_them_and_the_bytes_that_they_bound():
    watcher = Watcher()
    watcher.scene.queue(
        "orders", message_ttl=5_000_000, max_length=7, max_length_bytes=1000, overflow=Overflow.REJECT_PUBLISH,
        single_active=True, dead_letter_exchange="", consumer_timeout=1_800_000_000,
    )  # fmt: skip
    watcher.scene.queue("plain")
    watcher.scene.publish("orders", b"123", b"45")
    found = watcher.get("/api/queues/%2F/orders")[1]
    assert found["message_bytes_ready"] == 5
    assert found["arguments"] == {
        "x-message-ttl": 5000, "x-max-length": 7, "x-max-length-bytes": 1000, "x-overflow": "reject-publish",
        "x-single-active-consumer": True, "x-dead-letter-exchange": "",
        "x-consumer-timeout": 1_800_000,
    }  # fmt: skip
    plain = watcher.get("/api/queues/%2F/plain")[1]
    assert (plain["arguments"], plain["type"]) == ({}, "classic")
    assert "message_bytes_ready" not in plain


def test_a_queue_has_its_type_and_the_arguments_that_are_no_settings():
    watcher = Watcher()
    given = {"x-queue-type": "quorum", "x-more": [1.5, b"\xff", Decimal("0.5"), {"a": None}, math.inf]}
    watcher.scene.queue("q", max_length=7, arguments=packed(given))
    found = watcher.get("/api/queues/%2F/q")[1]
    assert found["type"] == "quorum"
    more = [1.5, {"base64": "/w=="}, "0.5", {"a": None}, "inf"]
    assert found["arguments"] == {"x-max-length": 7, "x-queue-type": "quorum", "x-more": more}


def test_arguments_that_nobody_could_read_are_refused():
    scene = Watcher().scene
    for arguments in (b"\x01", b"\x01aS\xff\xff\xff\xff", b"\x01a?"):
        made = scene.peer.ask(messages.DeclareQueue, "q", QueueSettings(arguments=arguments))
        assert "are no fields of an AMQP table" in refused(made, "InvalidSetting")


@pytest.mark.parametrize("path", ["/api/queues", "/api/queues/%2F", "/api/queues/", "/api/queues//"])
def test_all_queues_are_listed_by_their_names(path):
    watcher = Watcher()
    assert watcher.get(path) == (200, [])
    for name in ("b", "a", "c/d \u00e9"):
        watcher.scene.queue(name)
    status, found = watcher.get(path)
    assert (status, [each["name"] for each in found]) == (200, ["a", "b", "c/d \u00e9"])


def test_a_name_is_unquoted_once():
    watcher = Watcher()
    watcher.scene.queue("c/d%2F")
    assert watcher.get("/api/queues/%2F/c%2Fd%252F")[1]["name"] == "c/d%2F"


@pytest.mark.parametrize(
    "path", ["/api", "/api/queues/%2F/none", "/api/queues/other", "/api/queues/other/q", "/api/nodes"]
)
def test_what_is_not_there_is_not_found(path):
    watcher = Watcher()
    watcher.scene.queue("q")
    assert watcher.get(path) == (404, {"error": "Object Not Found", "reason": "Not Found"})


def test_rates_are_those_since_the_last_look_that_is_long_enough_ago():
    watcher = Watcher()
    queue = watcher.scene.queue("q")
    watcher.scene.publish("q", *[b"x"] * 7)

    def rates():
        told = watcher.get("/api/queues/%2F/q")[1]["message_stats"]
        return told["publish_details"]["rate"], told["ack_details"]["rate"]

    assert rates() == (0.0, 0.0), "nothing is known of before"
    watcher.scene.publish("q", *[b"x"] * 20)
    watcher.scene.take(queue, 5)
    watcher.scene.acknowledge(queue, 0, 1, 2, 3, 4)
    watcher.clock.advance(INTERVAL - 0.1)
    assert rates() == (0.0, 0.0)
    watcher.clock.advance(0.1)
    assert rates() == (20 / INTERVAL, 5 / INTERVAL)
    watcher.clock.advance(INTERVAL)
    assert rates() == (0.0, 0.0)


def test_the_overview_counts_everything():
    watcher = Watcher()
    queue = watcher.scene.queue("q")
    watcher.scene.publish("q", b"1", b"2")
    watcher.scene.take(queue, 1)
    watcher.scene.peer.ask(messages.Consume, queue, 1)
    status, found = watcher.get("/api/overview")
    assert status == 200
    assert found["queue_totals"] == {"messages": 2, "messages_ready": 1, "messages_unacknowledged": 1}
    assert (found["object_totals"]["queues"], found["object_totals"]["consumers"]) == (1, 1)
    assert found["product_name"] == "RabbitMQ"


def test_the_overview_has_rates_and_says_of_each_message_what_its_queue_says():
    watcher = Watcher()
    queues = [watcher.scene.queue(name) for name in ("q", "p")]
    for name in ("q", "p"):
        watcher.scene.publish(name, *[b"x"] * 10)
    assert watcher.get("/api/overview")[1]["message_stats"]["publish_details"] == {"rate": 0.0}
    watcher.scene.publish("p", *[b"x"] * 5)
    for queue in queues:
        watcher.scene.take(queue, 3)
        watcher.scene.acknowledge(queue, 0)
    holds = watcher.scene.peer.ask(
        messages.Prepare, 1, Xid(1, b"order", b""), positions=acknowledged(queues[0], 1)
    )
    assert isinstance(holds, messages.Done), holds
    watcher.clock.advance(INTERVAL)
    found, queue = watcher.get("/api/overview")[1], watcher.get("/api/queues/%2F/q")[1]
    counts = ("messages", "messages_ready", "messages_unacknowledged")
    assert [queue[each] for each in counts] == [9, 7, 1]
    assert found["queue_totals"] == dict(zip(counts, (23, 19, 3), strict=True))
    assert found["message_stats"] == {
        "publish": 25, "publish_details": {"rate": 5 / INTERVAL}, "ack": 2, "ack_details": {"rate": 2 / INTERVAL},
    }  # fmt: skip


def test_the_overview_of_thousands_of_queues_is_made_in_turns():
    watcher = Watcher()
    for number in range(100):
        watcher.scene.queue(f"q{number:03}")
    pieces = list(watcher.management.answer(["overview"])[1])
    assert pieces[:-1] == [""] * (100 // AT_ONCE)
    assert watcher.get("/api/overview")[1]["object_totals"]["queues"] == 100


def test_a_broker_that_recovers_says_so():
    management = Management(lambda: None, float)
    status, pieces = management.answer(["queues"])
    assert (status, json.loads("".join(pieces))["reason"]) == (503, "the broker recovers")


def test_nothing_is_kept_of_queues_that_are_gone():
    watcher = Watcher()
    watcher.scene.queue("q")
    watcher.get("/api/queues")
    made = watcher.scene.peer.ask(messages.DeclareQueue, "q", passive=True)
    watcher.scene.peer.ask(messages.DeleteQueue, "q", made.partition)
    watcher.get("/api/queues")
    assert watcher.management._looks == {}


def test_the_token_is_a_password_too():
    watcher = Watcher(b"s3cret")
    assert watcher.get("/api/overview")[0] == 401
    assert watcher.get("/api/overview", "Authorization: Bearer s3cret")[0] == 200
    assert watcher.get("/api/overview", "Authorization: Basic Z3Vlc3Q6czNjcmV0")[0] == 200, "guest:s3cret"
    assert watcher.get("/api/overview", "Authorization: Basic Z3Vlc3Q6Z3Vlc3Q=")[0] == 401, "guest:guest"
    assert watcher.get("/metrics", "Authorization: Basic Z3Vlc3Q6czNjcmV0")[0] == 200


def test_thousands_of_queues_are_told_in_turns():
    watcher = Watcher()
    for number in range(300):
        watcher.scene.queue(f"queue-{number:04}")
    status, found = watcher.get("/api/queues")
    assert (status, len(found)) == (200, 300)
    pieces = watcher.management.answer(["queues"])[1]
    assert len(list(pieces)) == 301, "a queue at a time"


def test_a_virtual_host_has_its_own_queues_by_its_own_names():
    watcher = Watcher()
    for name in ("q", "shop/q", "other/q"):
        watcher.scene.queue(name)
    assert [(each["vhost"], each["name"]) for each in watcher.get("/api/queues")[1]] == [
        ("/", "other/q"), ("/", "q"), ("shop", "q"),
    ]  # fmt: skip
    assert [each["name"] for each in watcher.get("/api/queues/shop")[1]] == ["q"]
    assert [each["name"] for each in watcher.get("/api/queues/%2F")[1]] == ["other/q", "q"]
    assert watcher.get("/api/queues/shop/q")[1]["vhost"] == "shop"
    watcher.scene.queue("shop/dying", dead_letter_exchange="shop/amq.direct")
    assert watcher.get("/api/queues/shop/dying")[1]["arguments"] == {"x-dead-letter-exchange": "amq.direct"}
    assert watcher.get("/api/queues/%2F/shop%2Fq")[0] == 404
    assert watcher.get("/api/queues/other")[0] == 404
