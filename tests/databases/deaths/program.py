"""A program with one block that ends itself by SIGKILL at one moment of it: DATABASE BROKER TOPIC NUMBER MOMENT."""

import sys

import txbroker
from tests.databases.deaths.sigkill import die, die_at
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
    database = connector(url)()
    with txbroker.connect(address) as broker:  # noqa: SIM117 - it outlives the block
        with txbroker.atomic(database, broker, application="victim", wait="commit", mode="two-phase") as tx:
            cursor = database.cursor()
            cursor.execute(f"INSERT INTO orders VALUES ({int(number)}, 'new')")
            cursor.close()
            message = tx.receive(f"{topic}-in", group=topic, timeout=30.0)
            tx.send(topic, number.encode() + b" from " + message.value)
            if moment == "before decide":
                die()
            die_at(moment, tx.database)
    database.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
