"""A program of a client, run by the interpreter of one release or another: ``exchange.py ADDRESS STEP``.

It uses what the oldest release has whose clients must work. ``begin`` does one of everything and leaves a transaction
prepared, ``end`` finds and ends what another release's client has prepared. It prints what it has seen, as JSON.
"""

import json
import sys
from datetime import timedelta

import txbroker

NAME, PASSWORD = "alice", "a password of the exchange"


def begin(broker, who):
    """Send, read, schedule, queue, and prepare."""
    seen = {}
    broker.create_topic(f"{who}-topic", partitions=2)
    broker.send(
        f"{who}-topic", b"plain", key=b"k", headers={"h": b"1"}, partition=0, id=f"{who}-1", tags="eu"
    )
    with broker.transaction() as tx:
        tx.send(f"{who}-topic", b"two", partition=0)
        tx.send(f"{who}-topic", b"three", partition=1)
    tx = broker.transaction(broker.xid(1, f"{who}-prepared", "b"))
    tx.send(f"{who}-topic", b"prepared", partition=0)
    tx.prepare()
    consumer = broker.consume(f"{who}-topic", f"{who}-group", follow=False)
    messages = sorted(message.value.decode() for message in consumer)
    consumer.commit()
    consumer.close()
    seen["read"] = messages
    seen["lag"] = [each.offset for each in broker.group_offsets(f"{who}-group")]
    broker.declare_queue(f"{who}-queue", max_priority=2)
    broker.publish("", f"{who}-queue", b"low")
    broker.publish("", f"{who}-queue", b"high", priority=2)
    with broker.queue(f"{who}-queue") as queue:
        message = queue.get(10)
        queue.ack(message)
        seen["got"] = message.value.decode()
    broker.send(f"{who}-topic", b"later", after=timedelta(days=30))
    taken = broker.send(f"{who}-topic", b"never", after=timedelta(days=30), id=f"{who}-never")
    broker.cancel(message_id=f"{who}-never")
    seen["scheduled"] = taken is not None and len(broker.list_scheduled(f"{who}-topic"))
    return seen


def end(broker, who):
    """End what ``who`` has prepared, and read it."""
    found = [xid for xid in broker.tpc_recover() if xid.global_id == f"{who}-prepared".encode()]
    for xid in found:
        broker.tpc_commit(xid)
    values = []
    offset = 0
    while some := broker.read(f"{who}-topic", 0, offset):
        values += [message.value.decode() for message in some]
        offset = some[-1].offset + 1
    with broker.queue(f"{who}-queue") as queue:
        values.append(queue.get(10).value.decode())
    return {"ended": len(found), "values": values}


def main(address, step, who):
    """Run a step, and print what was seen."""
    login = {} if address.startswith("unix:") else {"user": NAME, "password": PASSWORD}
    with txbroker.connect(address, client=f"{who}-{step}", **login) as broker:
        print(json.dumps((begin if step == "begin" else end)(broker, who)))


if __name__ == "__main__":
    main(*sys.argv[1:])
