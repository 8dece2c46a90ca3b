"""A program whose ``session.commit()`` carries a message, killed at a moment of it: DATABASE BROKER TOPIC MOMENT."""

import sys

from sqlalchemy import create_engine
from sqlalchemy.orm import sessionmaker

import txbroker
from tests.databases.deaths.sigkill import die_at
from tests.databases.orm.orm import Order
from txbroker.databases.sqlalchemy import carry
from txbroker.databases.sqlalchemy.driver import DriverDatabase


def main(url, address, topic, moment):
    die_at(moment, DriverDatabase)
    broker = txbroker.connect(address)
    sessions = sessionmaker(create_engine(url))
    messages = carry(sessions, broker, wait="commit", mode="two-phase")
    with sessions() as session:
        session.add(Order(number=7))
        messages.send(session, topic, b"7")
        session.commit()


if __name__ == "__main__":
    main(*sys.argv[1:])
