"""A program with blocks that only send, in several threads, until its input ends: DATABASE BROKER TOPIC FIRST THREADS.

Each connection to the database counts from a number of its own on, so what it has sent must arrive in ascending order.
Whatever is raised, it goes on, with a new connection if the old one is no good. It prints each number that it has begun
and, after a "+", each that it knows to be committed.
"""

import contextlib
import faulthandler
import itertools
import signal
import sys
import threading

import txbroker
from txbroker import errors
from txbroker.databases.urls import connector

SPACE = 10_000
"""Numbers of one connection."""


def say(text):
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def work(opens, broker, topic, spaces, ended):
    database, numbers = None, None
    while not ended.is_set():
        number = None
        try:
            if database is None:
                database, numbers = opens(), itertools.count(next(spaces) * SPACE)
            with txbroker.atomic(database, broker, mode="outbox") as tx:
                number = next(numbers)
                say(number)
                cursor = database.cursor()
                cursor.execute(f"INSERT INTO orders VALUES ({number})")
                cursor.close()
                tx.send(topic, b"%d" % number)
            say(f"+{number}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the program goes on
            if not isinstance(error, errors.BacklogFull):
                say(f"! {type(error).__name__}: {' '.join(str(error).split())[:100]}")
            if database is not None:
                with contextlib.suppress(Exception):
                    database.close()
            database = None
            ended.wait(0.02)


def main(url, address, topic, first, threads):
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # for whoever finds one that does not go on
    ended, spaces = threading.Event(), itertools.count(int(first))
    with txbroker.connect(address, timeout=5.0) as broker:
        workers = [
            threading.Thread(target=work, args=(connector(url), broker, topic, spaces, ended))
            for _ in range(int(threads))
        ]
        for worker in workers:
            worker.start()
        sys.stdin.read()
        ended.set()
        for worker in workers:
            worker.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
