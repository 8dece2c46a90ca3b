"""A program with one transaction of the package ``transaction`` that ends itself by SIGKILL at a step of it.

DIRECTORY POSTGRESQL ORDERS AUDIT TOPIC NUMBER MOMENT
"""

import os
import signal
import sys

import psycopg
import transaction

import txbroker
from tests.coordinator import program
from txbroker.coordinator import Coordinator

UNDECIDED = ("all have voted", "before the decision")
DECIDED = ("decided", "told orders", "all have finished")
MOMENTS = (*UNDECIDED, *DECIDED)


class Last:
    """A data manager of somebody else, behind ours: when it votes and finishes, all others have."""

    def __init__(self, at):
        self.at = at

    def sortKey(self):
        return "~~"

    def tpc_vote(self, _):
        self.at("all have voted")

    def tpc_finish(self, _):
        self.at("all have finished")

    def _nothing(self, _):
        pass

    abort = tpc_begin = commit = tpc_abort = _nothing


def main(directory, url, orders, audit, topic, number, moment):
    def at(name):
        if name == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    program.watch_all(at)
    participants = {
        "pg": lambda: psycopg.connect(url),
        "orders": lambda: txbroker.connect(orders),
        "audit": lambda: txbroker.connect(audit),
    }
    database, first, second = (connect() for connect in participants.values())
    manager = transaction.manager
    with Coordinator(directory, participants) as coordinator, manager:
        manager.get().join(Last(at))
        coordinator.join(manager, pg=database)
        database.execute("INSERT INTO orders VALUES (%s)", (int(number),))
        for name, broker in (("orders", first), ("audit", second)):
            txbroker.join(manager, broker, coordinator=coordinator, participant=name).send(
                topic, number.encode()
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
