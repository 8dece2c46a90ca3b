"""Test what programs rely on, by the clients that they use: pika, aio-pika and kombu.

It runs in the environment of the foreign suites, with the broker's port in ``AMQP_PORT``, and needs nothing of ours; so
it also shows what RabbitMQ does.
"""

import asyncio
import os
import time
import uuid
from contextlib import suppress

import aio_pika
import kombu
import pika
import pika.exceptions
import pytest

PORT = int(os.environ["AMQP_PORT"])
URL = f"amqp://guest:guest@127.0.0.1:{PORT}/"
PATIENCE = 10.0
MEBIBYTE = 1 << 20


def connected(**options):
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", PORT, **options))


@pytest.fixture
def connection():
    with connected() as one:
        yield one


@pytest.fixture
def channel(connection):
    return connection.channel()


@pytest.fixture
def name():
    return f"test-{uuid.uuid4()}"


def declared(channel, **options):
    """Declare a queue that ends with its connection."""
    return channel.queue_declare("", exclusive=True, **options).method.queue


def got(channel, name):
    """Take the next message, which must come."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        method, properties, body = channel.basic_get(name)
        if method is not None:
            return method, properties, body
        time.sleep(0.01)
    pytest.fail(f"no message in {name}")


def refused(code, call):
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        call()
    assert caught.value.reply_code == code
    return caught.value.reply_text


def test_a_confirmed_message_is_in_the_queue_with_its_properties(channel):
    name = declared(channel)
    channel.confirm_delivery()
    sent = pika.BasicProperties(
        content_type="text/plain",
        headers={
            "text": "é",
            "number": -3,
            "large": 1 << 40,
            "yes": True,
            "nested": {"list": [1, "two", None]},
        },
        delivery_mode=2,
        priority=4,
        correlation_id="c",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        app_id="a",
    )
    channel.basic_publish("", name, b"body", sent)
    method, properties, body = got(channel, name)
    assert (method.exchange, method.routing_key, method.redelivered, method.message_count) == (
        "",
        name,
        False,
        0,
    )
    assert (properties, body) == (sent, b"body")


def test_a_mandatory_message_without_a_queue_comes_back(channel, name):
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.UnroutableError) as caught:
        channel.basic_publish("", name, b"lost", mandatory=True)
    (returned,) = caught.value.messages
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert (returned.method.exchange, returned.method.routing_key, returned.body) == ("", name, b"lost")


def test_a_consumer_has_no_more_unacknowledged_messages_than_its_prefetch(connection, channel):
    name = declared(channel)
    for number in range(5):
        channel.basic_publish("", name, b"%d" % number)
    channel.basic_qos(prefetch_count=2)
    came = []
    channel.basic_consume(name, lambda _, method, __, body: came.append((method.delivery_tag, body)))
    connection.process_data_events(0.5)
    connection.process_data_events(0.5)
    assert [body for _, body in came] == [b"0", b"1"]
    channel.basic_ack(came[1][0], multiple=True)
    until = time.monotonic() + PATIENCE
    while len(came) < 4 and time.monotonic() < until:
        connection.process_data_events(0.1)
    connection.process_data_events(0.3)
    assert [body for _, body in came] == [b"0", b"1", b"2", b"3"]


def test_a_requeued_message_is_back_at_its_place_and_says_so(channel):
    name = declared(channel)
    for body in (b"first", b"second"):
        channel.basic_publish("", name, body)
    method, _, _ = got(channel, name)
    channel.basic_nack(method.delivery_tag, requeue=True)
    method, _, body = got(channel, name)
    assert (method.redelivered, body) == (True, b"first")
    method, _, body = got(channel, name)
    assert (method.redelivered, body) == (False, b"second")


def test_a_rejected_message_is_a_dead_letter_that_tells_where_it_was(channel):
    dead = declared(channel)
    name = declared(channel, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    channel.basic_publish("", name, b"bad", pika.BasicProperties(headers={"own": 1}))
    method, _, _ = got(channel, name)
    channel.basic_reject(method.delivery_tag, requeue=False)
    _, properties, body = got(channel, dead)
    headers = properties.headers
    (death,) = headers.pop("x-death")
    assert body == b"bad"
    assert headers == {
        "own": 1,
        "x-first-death-exchange": "",
        "x-first-death-queue": name,
        "x-first-death-reason": "rejected",
    } | {key: value for key, value in headers.items() if key.startswith("x-last-death-")}
    assert death.pop("time").year >= 2024
    assert death == {
        "count": 1,
        "exchange": "",
        "queue": name,
        "reason": "rejected",
        "routing-keys": [name],
    }


def test_an_expired_message_is_a_dead_letter_without_its_expiration(channel):
    dead = declared(channel)
    name = declared(channel, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    channel.basic_publish("", name, b"late", pika.BasicProperties(expiration="50"))
    _, properties, _ = got(channel, dead)
    (death,) = properties.headers["x-death"]
    assert (death["reason"], death["original-expiration"], properties.expiration) == ("expired", "50", None)


def test_a_message_waits_at_a_delayed_exchange(channel, name):
    arguments = {"x-delayed-type": "direct"}
    channel.exchange_declare(name, "x-delayed-message", auto_delete=True, arguments=arguments)
    queue = declared(channel)
    channel.queue_bind(queue, name, "k")
    channel.confirm_delivery()
    begun = time.monotonic()
    for after in (400, 100):
        properties = pika.BasicProperties(message_id=str(after), headers={"x-delay": after, "own": 1})
        channel.basic_publish(name, "k", b"after %d" % after, properties)
    channel.basic_publish(name, "k", b"now")
    found = [got(channel, queue) for _ in range(3)]
    assert [body for _, _, body in found] == [b"now", b"after 100", b"after 400"]
    assert time.monotonic() - begun >= 0.4
    assert [each.headers for _, each, _ in found[1:]] == [
        {"x-delay": -100, "own": 1},
        {"x-delay": -400, "own": 1},
    ]
    assert found[1][1].message_id == "100"


def test_an_exclusive_queue_is_locked_for_another_connection(channel):
    name = declared(channel)
    with connected() as other:
        text = refused(405, lambda: other.channel().queue_declare(name, passive=True))
    assert text.startswith(
        f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{name}' in vhost '/'"
    )


def test_an_argument_that_differs_is_refused(channel, name):
    channel.queue_declare(name, auto_delete=True, arguments={"x-max-length": 5})
    text = refused(406, lambda: channel.queue_declare(name, auto_delete=True, arguments={"x-max-length": 6}))
    assert text.startswith(
        f"PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue '{name}' in vhost '/'"
    )


def test_a_queue_that_is_missing_is_not_found(channel, name):
    text = refused(404, lambda: channel.queue_declare(name, passive=True))
    assert text == f"NOT_FOUND - no queue '{name}' in vhost '/'"


def test_messages_go_from_exchange_to_exchange(channel, name):
    channel.exchange_declare(f"{name}-from", "topic", auto_delete=True)
    channel.exchange_declare(f"{name}-to", "fanout", auto_delete=True)
    there = declared(channel)
    channel.queue_bind(there, f"{name}-to")
    channel.exchange_bind(f"{name}-to", f"{name}-from", "a.*")
    channel.basic_publish(f"{name}-from", "b.1", b"not this")
    channel.basic_publish(f"{name}-from", "a.1", b"this")
    method, _, body = got(channel, there)
    assert (method.exchange, method.routing_key, body, method.message_count) == (
        f"{name}-from",
        "a.1",
        b"this",
        0,
    )


@pytest.mark.parametrize(("match", "expected"), [("all", [b"both"]), ("any", [b"both", b"one"])])
def test_an_exchange_routes_by_headers(channel, name, match, expected):
    channel.exchange_declare(name, "headers", auto_delete=True)
    there = declared(channel)
    channel.queue_bind(there, name, arguments={"x-match": match, "kind": "a", "size": 2})
    for headers, body in (
        ({"kind": "a", "size": 2}, b"both"),
        ({"kind": "a", "size": 3}, b"one"),
        ({}, b"none"),
    ):
        channel.basic_publish(name, "", body, pika.BasicProperties(headers=headers))
    assert [got(channel, there)[2] for _ in expected] == expected
    assert channel.basic_get(there) == (None, None, None)


def test_what_a_transaction_publishes_is_there_after_its_commit_only(channel):
    name = declared(channel)
    channel.tx_select()
    channel.basic_publish("", name, b"rolled back")
    channel.tx_rollback()
    channel.basic_publish("", name, b"committed")
    assert channel.basic_get(name) == (None, None, None)
    channel.tx_commit()
    assert got(channel, name)[2] == b"committed"
    assert channel.basic_get(name) == (None, None, None)


def test_a_consumer_is_told_that_its_queue_was_deleted(connection, channel):
    name = declared(channel)
    cancelled = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tag = channel.basic_consume(name, lambda *_: None)
    connection.channel().queue_delete(name)
    until = time.monotonic() + PATIENCE
    while not cancelled and time.monotonic() < until:
        connection.process_data_events(0.1)
    assert cancelled == [tag]


def test_a_get_from_an_empty_queue_gives_nothing(channel):
    assert channel.basic_get(declared(channel)) == (None, None, None)


def test_a_connection_lives_by_its_heartbeats_alone():
    with connected(heartbeat=2) as one:
        channel = one.channel()
        began = time.monotonic()
        while time.monotonic() - began < 5:
            one.process_data_events(0.5)
        assert channel.basic_get(declared(channel)) == (None, None, None)


def test_a_client_without_heartbeats_is_given_up():
    one = connected(heartbeat=1)
    time.sleep(4)
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        one.channel()


def test_a_message_of_five_mebibytes_arrives_whole(channel):
    name = declared(channel)
    large = os.urandom(MEBIBYTE) * 5
    channel.confirm_delivery()
    channel.basic_publish("", name, large)
    assert got(channel, name)[2] == large


def test_an_answer_comes_directly_to_who_asked(connection, channel, name):
    channel.queue_declare(name, auto_delete=True)
    came = []
    channel.basic_consume(
        "amq.rabbitmq.reply-to", lambda _, __, properties, body: came.append((properties.correlation_id, body)),
        auto_ack=True,
    )  # fmt: skip
    asking = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id="7")
    channel.basic_publish("", name, b"ask", asking)
    with connected() as other:
        theirs = other.channel()
        _, asked, body = got(theirs, name)
        assert asked.reply_to.startswith("amq.rabbitmq.reply-to.")
        answer = pika.BasicProperties(correlation_id=asked.correlation_id)
        theirs.basic_publish("", asked.reply_to, body.upper(), answer)
    until = time.monotonic() + PATIENCE
    while not came and time.monotonic() < until:
        connection.process_data_events(0.1)
    channel.queue_delete(name)
    assert came == [("7", b"ASK")]


def test_aio_pika_consumes_what_it_has_published(name):
    async def both():
        async with await aio_pika.connect_robust(URL) as connection:
            channel = await connection.channel(publisher_confirms=True)
            await channel.set_qos(prefetch_count=10)
            exchange = await channel.declare_exchange(name, aio_pika.ExchangeType.TOPIC, auto_delete=True)
            there = await channel.declare_queue(exclusive=True)
            await there.bind(exchange, "#.end")
            for number in range(20):
                await exchange.publish(aio_pika.Message(b"%d" % number), "a.b.end")
            came = []
            async with there.iterator() as messages:
                async for message in messages:
                    async with message.process():
                        came.append(message.body)
                    if len(came) == 20:
                        break
            return came

    assert asyncio.run(asyncio.wait_for(both(), PATIENCE)) == [b"%d" % number for number in range(20)]


def test_aio_pika_publishes_in_a_transaction():
    async def publish():
        async with await aio_pika.connect(URL) as connection:
            channel = await connection.channel(publisher_confirms=False)
            there = await channel.declare_queue(exclusive=True)
            with suppress(ZeroDivisionError):
                async with channel.transaction():
                    await channel.default_exchange.publish(aio_pika.Message(b"not"), there.name)
                    raise ZeroDivisionError
            async with channel.transaction():
                await channel.default_exchange.publish(aio_pika.Message(b"this"), there.name)
            message = await there.get(no_ack=True, timeout=PATIENCE)
            return message.body, await there.get(no_ack=True, fail=False)

    assert asyncio.run(asyncio.wait_for(publish(), PATIENCE)) == (b"this", None)


def test_kombu_consumes_what_it_has_published(name):
    with kombu.Connection(URL) as connection:
        exchange = kombu.Exchange(name, "direct", auto_delete=True)
        there = kombu.Queue(name, exchange, routing_key="key", auto_delete=True)
        came = []
        with (
            connection.Producer() as producer,
            connection.Consumer(there, callbacks=[lambda body, message: (came.append(body), message.ack())]),
        ):
            producer.publish({"a": [1, 2]}, exchange=exchange, routing_key="key", declare=[there])
            connection.drain_events(timeout=PATIENCE)
    assert came == [{"a": [1, 2]}]


def test_kombu_has_the_highest_priority_first(name):
    with (
        kombu.Connection(URL) as connection,
        connection.SimpleQueue(
            kombu.Queue(name, routing_key=name, max_priority=5, auto_delete=True)
        ) as simple,
    ):
        for priority in (0, 5, 3):
            simple.put(priority, priority=priority)
        first = [simple.get(timeout=PATIENCE) for _ in range(3)]
        for message in first:
            message.ack()
    assert [message.payload for message in first] == [5, 3, 0]
