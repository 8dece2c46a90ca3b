"""A program with blocks that only send, which ends itself by SIGKILL at one moment: DATABASE BROKER TOPIC MOMENT ROLE.

``ROLE`` is "blocks", which sends numbers from 1 on and closes its connections, or "resolve": a resolver's pass.
"""

import contextlib
import sys

import txbroker
from tests.databases.deaths.sigkill import die
from txbroker.databases.outbox.keeper import Keeper
from txbroker.databases.outbox.streams import Streams
from txbroker.databases.outbox.table import OutboxTable
from txbroker.databases.urls import connector

BLOCKS = 5
OF_BLOCKS = ("before the row", "after the row", "before the commit", "after the commit", "before delivering")
"""Moments of the third block."""
OF_KEEPERS = {
    "claim": (Keeper, "claim"),
    "read": (OutboxTable, "rows"),
    "deliver": (Keeper, "_deliver"),
    "delete": (OutboxTable, "delete"),
    "empty": (OutboxTable, "empty"),
    "release": (Keeper, "_release"),
}
MOMENTS = (
    *OF_BLOCKS,
    "while it is held",
    "after delivering",
    *(f"{when} {name}" for name in OF_KEEPERS for when in ("before", "after")),
)
"""Moments of a program with blocks: those of keepers are its background's."""
OF_RESOLVERS = tuple(f"{when} {name}" for name in OF_KEEPERS for when in ("before", "after"))[:-4]


def dies_around(owner, name, moment, before, after):
    original = getattr(owner, name)

    def replaced(*arguments, **choices):
        if moment == before:
            die()
        found = original(*arguments, **choices)
        if moment == after:
            die()
        return found

    setattr(owner, name, replaced)


def dies_in_block(moment, adapter):
    """Of the block with this adapter."""

    def around(name, before, after):
        original = getattr(adapter, name)

        async def replaced(*arguments):
            if moment in before:
                die()
            found = await original(*arguments)
            if moment in after:
                die()
            return found

        setattr(adapter, name, replaced)

    if adapter.commits_with_row:
        around("commit_with", ("before the row", "after the row", "before the commit"), ("after the commit",))
    else:
        around("put", ("before the row",), ("after the row",))
        around("commit", ("before the commit",), ("after the commit",))


def send(database, broker, topic, number, moment):
    with txbroker.atomic(database, broker, mode="outbox", wait="commit" if number == 1 else "decision") as tx:
        cursor = database.cursor()
        cursor.execute(f"INSERT INTO orders VALUES ({number})")
        cursor.close()
        tx.send(topic, b"%d" % number)
        if number == 3:
            dies_in_block(moment, tx.database)
            if moment == "before delivering":
                Streams.committed = lambda *_: die()
            if moment == "while it is held":
                Streams._send = lambda *_: die()
            if moment == "after delivering":
                Streams.delivered = Streams._answered = lambda *_: die()


def main(url, address, topic, moment, role):
    for name, (owner, method) in OF_KEEPERS.items():
        dies_around(owner, method, moment, f"before {name}", f"after {name}")
    if role == "resolve":
        with txbroker.Resolver(connector(url), address) as resolver:
            resolver.resolve()
        return
    with contextlib.closing(connector(url)()) as database, txbroker.connect(address) as broker:
        for number in range(1, BLOCKS + 1):
            send(database, broker, topic, number, moment)


if __name__ == "__main__":
    main(*sys.argv[1:])
