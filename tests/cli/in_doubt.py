"""Transactions that are left in doubt, and brokers that start with them."""

from contextlib import contextmanager

import txbroker
from tests.support.broker_process import told_broker
from txbroker.cli.transactions.choice import Choice


def prepare(url, topic, *names, client="billing"):
    """Transactions that their coordinator has prepared and then left alone, each from a connection of its own."""
    for name in names:
        with txbroker.connect(url, client=client) as own:
            own.tpc_begin(own.xid(7, f"{name}-{topic}", "broker"))
            own.send(topic, b"debit", key=b"42", headers={"kind": b"new"})
            own.send(topic, b"credit", key=b"42")
            own.tpc_prepare()
    return [f"7:{name}-{topic}:broker" for name in names]


def states(run_json, xids):
    return [run_json("transactions", "show", xid)["state"] for xid in xids]


def infos_of(connection, topic):
    return Choice(topic=topic).ask(connection)


@contextmanager
def started(data, *options):
    """A start of a broker on this data; killed at the end. Gives its process and its address."""
    with told_broker(data, *options) as process:
        yield process, f"tcp:127.0.0.1:{process.ready()}"
