"""A measurement of one client for Python, sending and reading: ``python_worker CLIENT ADDRESS WARM_UP SECONDS``.

All clients send messages of 100 bytes for that long and wait for the answers at the end; then they read all messages
back. The latency of every 100th message is taken.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping

import confluent_kafka
import msgspec
import nats
import redis
from nats.js.api import AckPolicy, ConsumerConfig, PubAck, StorageType, StreamConfig

import txbroker
from benchmarks.peers.python_clients import BODY, SaidBoth
from benchmarks.peers.python_pika import WithRabbitmq
from benchmarks.peers.python_tally import EACH, Reading, Sending


def with_txbroker(address: str, sending: Callable[[], Sending]) -> SaidBoth:
    url, _, topic = address.rpartition("/")
    with txbroker.connect(url) as client:
        state = sending()
        while state.goes_on():
            client.send_async(topic, BODY).add_done_callback(state.timed())
            for _ in range(EACH - 1):
                client.send_async(topic, BODY)
            state.sent += EACH
            state.acknowledged = state.sent  # flush() fails without it
        client.flush()
        sent = state.said()
        reading = Reading(sent.acknowledged)
        for message in client.consume(topic, start="earliest", follow=False):
            reading.read += len(message.value or b"") == len(BODY)
        return SaidBoth(sent, reading.said())


def with_redis(address: str, sending: Callable[[], Sending]) -> SaidBoth:
    with redis.Redis(port=int(address)) as client:
        state = sending()
        while state.goes_on():
            acknowledged = state.timed()
            batch = client.pipeline(transaction=False)
            for _ in range(EACH):
                batch.xadd("python", {"body": BODY})
            state.sent += EACH
            state.acknowledged += len(batch.execute())
            acknowledged()
        sent = state.said()
        reading, last = Reading(sent.acknowledged), b"0"
        while reading.goes_on():
            [(_, entries)] = client.xread({"python": last}, count=1000)
            reading.read += len(entries)
            last = entries[-1][0]
        client.delete("python")
        return SaidBoth(sent, reading.said())


def with_kafka(address: str, sending: Callable[[], Sending]) -> SaidBoth:
    bootstrap, _, topic = address.rpartition("/")
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "batch.size": 262144,
            "queue.buffering.max.messages": 100_000,
        }
    )  # fmt: skip
    state = sending()

    def delivered(error: confluent_kafka.KafkaError | None, _: object) -> None:
        if error is not None:
            raise RuntimeError(f"a message was not delivered: {error}")
        state.acknowledged += 1

    def timed() -> Callable[[confluent_kafka.KafkaError | None, object], None]:
        done = state.timed()

        def told(error: confluent_kafka.KafkaError | None, message: object) -> None:
            delivered(error, message)
            done()

        return told

    while state.goes_on():
        told: Callable[[confluent_kafka.KafkaError | None, object], None] = timed()
        for _ in range(EACH):
            while True:
                try:
                    producer.produce(topic, BODY, on_delivery=told)
                    break
                except BufferError:  # full: answers make room
                    producer.poll(0.01)
            told = delivered
        state.sent += EACH
        producer.poll(0)
    producer.flush(60)
    sent = state.said()
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    reading = Reading(sent.acknowledged)
    while reading.goes_on():
        for message in consumer.consume(1000, 1.0):
            if message.error() is not None:
                raise RuntimeError(f"a message could not be read: {message.error()}")
            reading.read += message.value() == BODY
    consumer.close()
    return SaidBoth(sent, reading.said())


def with_nats(address: str, sending: Callable[[], Sending]) -> SaidBoth:
    return asyncio.run(_with_nats(address, sending))


async def _with_nats(address: str, sending: Callable[[], Sending]) -> SaidBoth:
    connection = await nats.connect(f"nats://127.0.0.1:{address}")
    stream = connection.jetstream(publish_async_max_pending=4000)
    await stream.add_stream(StreamConfig(name="python", subjects=["python"], storage=StorageType.FILE))
    state = sending()

    def answered(answer: asyncio.Future[PubAck]) -> None:
        answer.result()
        state.acknowledged += 1

    while state.goes_on():
        timed = state.timed()
        for place in range(EACH):
            answer = await stream.publish_async("python", BODY)
            answer.add_done_callback(answered)
            if not place:
                answer.add_done_callback(timed)
        state.sent += EACH
    await stream.publish_async_completed()
    await asyncio.sleep(0)
    sent = state.said()
    consumer = await stream.pull_subscribe("python", config=ConsumerConfig(ack_policy=AckPolicy.NONE))
    reading = Reading(sent.acknowledged)
    while reading.goes_on():
        reading.read += len(await consumer.fetch(1000, timeout=5))
    found = reading.said()
    await stream.delete_stream("python")
    await connection.close()
    return SaidBoth(sent, found)


CLIENTS: Mapping[str, Callable[[str, Callable[[], Sending]], SaidBoth]] = {
    "txbroker": with_txbroker, "redis": with_redis, "kafka": with_kafka, "nats": with_nats,
    "rabbitmq": lambda address, sending: WithRabbitmq(address, sending).run(),
}  # fmt: skip


def main(client: str, address: str, warm_up: str, seconds: str) -> None:
    both = CLIENTS[client](address, lambda: Sending(float(warm_up), float(seconds)))
    print(msgspec.json.encode(both).decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
