"""A consumer whose process dies at one message: FACE WAY URL TOPIC. It prints what it begins."""

import asyncio
import os
import signal
import sys

import txbroker
from tests.worker.lethal_program import POLICY

READING = {"retry": POLICY, "follow": False}


def handle(*messages):
    print(" ".join(f"{each.offset}/{each.attempts}" for each in messages), flush=True)
    if any(each.value == b"lethal" for each in messages):
        os.kill(os.getpid(), signal.SIGKILL)


def blocking(way, url, topic):
    with txbroker.connect(url) as broker:
        if way == "receive":
            while True:
                with broker.transaction() as tx:
                    message = tx.receive(topic, topic, timeout=10.0, **READING)
                    if message is None:
                        return
                    handle(message)
        with broker.consume(topic, topic, **READING) as consumer:
            if way == "iteration":
                for message in consumer:
                    handle(message)
                    consumer.done(message)
            while messages := consumer.poll(10.0):
                handle(*messages)
                consumer.done(messages)


async def on_asyncio(way, url, topic):
    from txbroker.client.asyncio import connect

    async with await connect(url) as broker:
        if way == "receive":
            while True:
                async with broker.transaction() as tx:
                    message = await tx.receive(topic, topic, timeout=10.0, **READING)
                    if message is None:
                        return
                    handle(message)
        consumer = broker.consume(topic, topic, **READING)
        if way == "iteration":
            async for message in consumer:
                handle(message)
                await consumer.done(message)
        while messages := await consumer.poll(10.0):
            handle(*messages)
            await consumer.done(messages)
        consumer.close()


if __name__ == "__main__":
    face, *words = sys.argv[1:]
    asyncio.run(on_asyncio(*words)) if face == "asyncio" else blocking(*words)
