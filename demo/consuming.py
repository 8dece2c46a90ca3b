"""The consuming half of the demo: what four workers make of the flights in PostgreSQL, over three kills."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import txbroker
from demo.departures import LATE, MALFORMED, TABLE, compare, effects
from demo.flight_worker import BATCH, CONCURRENCY, GROUP
from demo.postgresql import PostgresqlServer
from demo.source import FLIGHTS, Day
from demo.verify import Verdict
from demo.workforce import WORKERS, Watched, Workforce, blows
from txbroker.drill.broker.broker_process import BrokerProcess

DEAD: Final = f"{FLIGHTS}.dead"
OF_LETTER: Final = "txbroker.dead."


@dataclass(frozen=True)
class DeadLetter:
    """A message of the topic of dead letters: which row it was, how often it failed, and why."""

    row: int
    attempts: int
    why: str


@dataclass(frozen=True)
class Work:
    """The results of the workers. ``handled`` are the rows of the table by worker, ``very_late`` those that had to be
    tried again, ``tried_again`` those that were.
    """

    rows: int
    watched: Watched
    handled: Mapping[str, int]
    very_late: int
    tried_again: int
    letters: Sequence[DeadLetter]
    verdict: Verdict

    @property
    def faults(self) -> list[str]:
        """Return why the work failed, as sentences; empty if it did not."""
        faults = [f"{kind}: {count:,} times" for kind, count in self.verdict.faults.items()]
        deaths, broker = len(self.watched.deaths), len(self.watched.broker_back_after)
        if (deaths, broker) != (2, 1):
            faults.append(f"2 workers and the broker were to be killed, {deaths} and {broker} were")
        if [letter.row for letter in self.letters] != [MALFORMED]:
            faults.append(f"the malformed row was to be the one dead letter, there are {list(self.letters)}")
        return faults


def work(
    broker: BrokerProcess,
    days: Sequence[Day],
    folder: Path,
    seed: int,
    tell: Callable[[str], None],
    advance: Callable[[int], None],
) -> Work:
    """Have the workers handle the flights, with kills on the way, and compare the database with the source.

    The server of PostgreSQL has a folder of its own, which it has to own. It is removed if all went well.
    """
    rows = [row for day in days for row in day.rows if row.topic == FLIGHTS]
    tell(
        f"{len(WORKERS)} workers of the group {GROUP} insert a row into PostgreSQL for each flight: {CONCURRENCY} "
        f"calls at once, batches of up to {BATCH}; what is {LATE // 60} hours late is not there at the first attempt"
    )
    server = PostgresqlServer(Path(tempfile.mkdtemp(prefix="txbroker-demo-", dir="/tmp")))
    try:
        server.start()
        database = server.create_database()
        with database.connect() as connection:
            connection.execute(TABLE)
            connection.commit()
            txbroker.create_decision_table(connection)
        with Workforce(broker, database.url, folder, blows(seed), tell, advance) as workforce:
            workforce.run()
        with database.connect() as connection:
            found = effects(connection)
    except BaseException:
        server.kill()
        tell(f"PostgreSQL's data are kept in {server.folder}")
        raise
    done = Work(
        rows=len(rows),
        watched=workforce.watched,
        handled=Counter(effect.worker for effect in found),
        very_late=sum(effect.departure.is_very_late for effect in found),
        tried_again=sum(effect.attempts > 0 for effect in found),
        letters=dead_letters(broker.address),
        verdict=compare(days, found),
    )
    if done.faults:
        server.kill()
        tell(f"PostgreSQL's data are kept in {server.folder}")
    else:
        server.stop()
        server.remove()
    return done


def dead_letters(url: str) -> list[DeadLetter]:
    """Return all letters in the topic of dead letters of the flights."""
    with txbroker.connect(url, client="demo") as connection:
        if DEAD not in [topic.name for topic in connection.topics()]:
            return []
        return [letter_of(message) for message in connection.consume(DEAD, start="earliest", follow=False)]


def letter_of(message: txbroker.Message) -> DeadLetter:
    """Return what a message of the topic of dead letters says."""

    def said(name: str) -> str:
        return (message.header(name) or b"").decode()

    return DeadLetter(int(said("row")), int(said(f"{OF_LETTER}attempts")), said(f"{OF_LETTER}why"))
