"""A program whose ``session.commit()`` carries a message, killed at a moment of it: DATABASE BROKER TOPIC MOMENT."""

import os
import signal
import sys

from sqlalchemy import create_engine
from sqlalchemy.orm import sessionmaker

import txbroker
from tests.databases.orm import Order
from txbroker.databases.blocking import BlockingSide
from txbroker.databases.sqlalchemy import carry
from txbroker.databases.sqlalchemy.driver import DriverDatabase


def kill_at(moment):
    def wrap(owner, name, before, after):
        original = getattr(owner, name)

        async def replaced(*args):
            if moment == before:
                os.kill(os.getpid(), signal.SIGKILL)
            found = await original(*args)
            if moment == after:
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        setattr(owner, name, replaced)

    wrap(BlockingSide, "prepare", "before prepare", "after prepare")
    wrap(DriverDatabase, "commit", "", "after commit")
    wrap(BlockingSide, "commit", "", "after the broker's commit")


def main(url, address, topic, moment):
    kill_at(moment)
    broker = txbroker.connect(address)
    sessions = sessionmaker(create_engine(url))
    messages = carry(sessions, broker, wait="commit")
    with sessions() as session:
        session.add(Order(number=7))
        messages.send(session, topic, b"7")
        session.commit()


if __name__ == "__main__":
    main(*sys.argv[1:])
