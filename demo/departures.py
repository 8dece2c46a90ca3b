"""The effect of a flight's row: one row in the table of departures, which workers write and the demo compares.

The table has no unique key, so that a row whose effect came twice is there twice. ``place`` numbers the inserts: what
is handled one after another has rising places.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import psycopg

from demo.source import FLIGHTS, Day, Row
from demo.verify import Verdict

LATE: Final = 480
"""A flight that left so many minutes late or more is not there yet at the first attempt.

About seventy are. Each holds up its carrier until it comes again, and has its batch handled one row at a time.
"""

MALFORMED: Final = 0
"""The number of the malformed row; those of the source count from 1."""

TABLE: Final = """
CREATE TABLE departures (
    place bigint GENERATED ALWAYS AS IDENTITY, number integer, day text, carrier text, flight integer, origin text,
    destination text, late integer, worker text, attempts integer)
"""
_INSERT: Final = """
INSERT INTO departures (number, day, carrier, flight, origin, destination, late, worker, attempts)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
_SELECT: Final = """
SELECT number, day, carrier, flight, origin, destination, late, worker, attempts FROM departures ORDER BY place
"""

Database = psycopg.Connection[tuple[Any, ...]]


class MalformedRow(ValueError):
    """A line that is no flight."""


class NotLeftYet(Exception):
    """A flight is so late that it has not left at the first attempt."""


class Departure(NamedTuple):
    """A flight as a row of the table: ``late`` is in minutes, None if it never left. ``number`` is that of its row."""

    number: int
    day: str
    carrier: str
    flight: int
    origin: str
    destination: str
    late: int | None

    @property
    def is_very_late(self) -> bool:
        """Whether it is not there at the first attempt."""
        return self.late is not None and self.late >= LATE


class Effect(NamedTuple):
    """A row of the table: what it says, which worker wrote it, and how often the row had failed before."""

    departure: Departure
    worker: str
    attempts: int


def departure_of(number: int, line: bytes) -> Departure:
    """Return what the table is to hold of a row of flights; raises MalformedRow."""
    fields = line.decode().split(",")
    try:
        year, month, day, _, _, late, _, _, _, carrier, flight, _, origin, destination, *_ = fields
        return Departure(
            number, f"{int(year):04}-{int(month):02}-{int(day):02}", carrier, int(flight), origin, destination,
            None if late == "NA" else int(late),
        )  # fmt: skip
    except ValueError as error:
        raise MalformedRow(f"row {number} is no flight: {line.decode()!r} ({error})") from None


def with_malformed(days: Sequence[Day]) -> tuple[list[Day], Row]:
    """Return the days with a malformed row in the middle of them, and that row: a line that ends too early."""
    spoilt = list(days)
    middle = len(spoilt) // 2
    day = spoilt[middle]
    flights = [row for row in day.rows if row.topic == FLIGHTS]
    whole = flights[len(flights) // 2]
    row = whole._replace(number=MALFORMED, line=whole.line[: len(whole.line) // 2])
    place = day.rows.index(whole)
    spoilt[middle] = Day(day.name, [*day.rows[:place], row, *day.rows[place:]])
    return spoilt, row


def insert(database: Database, effects: Iterable[Effect]) -> None:
    """Insert rows into the table, in order."""
    with database.cursor() as cursor:
        cursor.executemany(
            _INSERT, [(*departure, worker, attempts) for departure, worker, attempts in effects]
        )


def effects(database: Database) -> list[Effect]:
    """Return all rows of the table, in the order in which they were inserted."""
    found = database.execute(_SELECT).fetchall()
    return [Effect(Departure(*row[:7]), row[7], row[8]) for row in found]


def compare(days: Iterable[Day], found: Iterable[Effect]) -> Verdict:
    """Compare the table with the source: each flight's row must be there once, as the source has it, behind those that
    its carrier had before; and what is very late must have failed before.
    """
    wanted = {
        row.number: departure_of(row.number, row.line)
        for day in days for row in day.rows if row.topic == FLIGHTS and row.number != MALFORMED
    }  # fmt: skip
    verdict, there, last = Verdict(), set[int](), dict[str, int]()
    for departure, worker, attempts in found:
        verdict.rows[FLIGHTS] += 1
        number, carrier = departure.number, departure.carrier
        if departure != wanted.get(number):
            verdict.fault("effect is not that of the row", f"{departure} for {wanted.get(number)}")
            continue
        if number in there:
            verdict.fault("effect twice", f"row {number}, the second time by {worker}")
            continue
        there.add(number)
        if departure.is_very_late and not attempts:
            verdict.fault("late row not tried again", f"row {number}, by {worker}")
        if number < last.get(carrier, 0):
            verdict.fault("effects out of order", f"row {number} of {carrier} came after row {last[carrier]}")
        last[carrier] = number
    for number in sorted(wanted.keys() - there):
        verdict.fault("effect missing", f"row {number}, {wanted[number].day}")
    return verdict
