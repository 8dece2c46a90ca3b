"""The shared parts of the tests of a client's transactions: transactions with messages, and the broker's requests."""

from journal.xid import Xid
from tests.client.rig import add

XID = Xid(1, b"g", b"b")


def seen(broker, kind):
    return [request for request in broker.requests if type(request) is kind]


def swallow(broker, *kinds):
    broker.before = lambda request, data: broker.SWALLOW if type(request) in kinds else None


def begun(rig, *values, xid=None):
    transaction = rig.transaction(xid)
    for value in values:
        rig.run(add(transaction, value))
    return transaction
