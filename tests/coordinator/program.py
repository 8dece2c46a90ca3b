"""A program with one coordinated transaction, which ends itself by SIGKILL at a step of it.

DIRECTORY POSTGRESQL ORDERS AUDIT TOPIC NUMBER MOMENT
"""

import os
import signal
import sys

import psycopg

import txbroker
from txbroker.coordinator import Coordinator
from txbroker.coordinator.broker_resource import BrokerResource, StagingBroker
from txbroker.coordinator.decision_log import DecisionLog
from txbroker.coordinator.postgresql import PostgresqlResource

NAMES = ("pg", "orders", "audit")
UNDECIDED = ("begun", "worked", *(f"prepared {name}" for name in NAMES), "before the decision")
DECIDED = ("decided", *(f"told {name}" for name in NAMES), "ended")
MOMENTS = (*UNDECIDED, *DECIDED)


def watch(kind, method, moment_of, at):
    """Pass a moment after a method has done its work."""
    original = getattr(kind, method)

    def step(self, *arguments):
        result = original(self, *arguments)
        at(moment_of(self, *arguments))
        return result

    setattr(kind, method, step)


def watch_all(at):
    for kind in (PostgresqlResource, BrokerResource, StagingBroker):
        watch(kind, "prepare", lambda self: f"prepared {self._branch.name}", at)
        watch(kind, "finish", lambda self, *_: f"told {self._branch.name}", at)
    original = DecisionLog.decide

    def decide(self, decision):
        at("before the decision")
        original(self, decision)
        at("decided")

    DecisionLog.decide = decide


def main(directory, url, orders, audit, topic, number, moment):
    def at(name):
        if name == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    watch_all(at)
    participants = {
        "pg": lambda: psycopg.connect(url),
        "orders": lambda: txbroker.connect(orders),
        "audit": lambda: txbroker.connect(audit),
    }
    connections = {name: connect() for name, connect in participants.items()}
    with Coordinator(directory, participants) as coordinator:
        with coordinator.transaction(**connections):
            at("begun")
            connections["pg"].execute("INSERT INTO orders VALUES (%s)", (int(number),))
            connections["orders"].send(topic, number.encode())
            connections["audit"].send(topic, number.encode())
            at("worked")
        at("ended")
    for connection in connections.values():
        connection.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
