"""A program with one block that ends itself by SIGKILL at one moment of it: DATABASE BROKER TOPIC NUMBER MOMENT."""

import os
import signal
import sys

import txbroker
from txbroker.databases.blocking import BlockingSide
from txbroker.databases.urls import connector

MOMENTS = (
    "before decide",
    "before prepare",
    "after prepare",
    "after commit",
    "before the broker's commit",
    "after the broker's commit",
    "never",
)


def main(url: str, address: str, topic: str, number: str, moment: str) -> None:
    def at(name: str) -> None:
        if name == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    side_prepare, side_commit = BlockingSide.prepare, BlockingSide.commit

    async def prepare(self):
        at("before prepare")
        await side_prepare(self)
        at("after prepare")

    async def commit(self, key):
        at("before the broker's commit")
        await side_commit(self, key)
        at("after the broker's commit")

    BlockingSide.prepare, BlockingSide.commit = prepare, commit
    database = connector(url)()
    with txbroker.connect(address) as broker:  # noqa: SIM117 - it outlives the block
        with txbroker.atomic(database, broker, application="victim", wait="commit") as tx:
            cursor = database.cursor()
            cursor.execute(f"INSERT INTO orders VALUES ({int(number)}, 'new')")
            cursor.close()
            message = tx.receive(f"{topic}-in", group=topic, timeout=30.0)
            tx.send(topic, number.encode() + b" from " + message.value)
            at("before decide")
            database_commit = tx.database.commit

            async def commit_rows():
                await database_commit()
                at("after commit")

            tx.database.commit = commit_rows
    database.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
