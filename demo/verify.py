"""The verification of the demo compares the messages that were read back with the rows of the source, byte by byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from demo.source import Day, Row
from journal.message_headers import Headers, last_value

EXAMPLES = 3
"""How many faults of each kind are shown."""


class ReadMessage(Protocol):
    """A message as a consumer receives it."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...


def headers_for(row: Row) -> Headers:
    """Return the headers of a message that carries this row."""
    return (("day", row.day.encode()), ("row", b"%d" % row.number))


@dataclass
class Verdict:
    """The result of a verification. Every fault is counted; the first few of each kind are shown."""

    rows: Counter[str] = field(default_factory=Counter)
    """Messages read, by topic."""
    faults: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Return whether every promise held."""
        return not self.faults

    def fault(self, kind: str, example: str) -> None:
        """Count a fault, and keep it if it is among the first of its kind."""
        self.faults[kind] += 1
        if self.faults[kind] <= EXAMPLES:
            self.examples.append(f"{kind}: {example}")


class Verifier:
    """The verifier takes messages in the order of reading, and reports at the end what is wrong with them."""

    def __init__(self, days: Iterable[Day]) -> None:
        self._days = list(days)
        rows = [row for day in self._days for row in day.rows]
        self._rows = {(row.topic, row.number): row for row in rows}
        self._place = {(row.topic, row.number): place for place, row in enumerate(rows)}
        self._times_read: Counter[tuple[str, int]] = Counter()
        self._last_row: dict[tuple[str, bytes], Row] = {}
        self._home: dict[tuple[str, bytes], int] = {}
        self._next_offset: dict[tuple[str, int], int] = {}
        self._verdict = Verdict()

    def take(self, messages: Iterable[ReadMessage]) -> None:
        """Take the next messages; those of one partition must come in the order of reading."""
        for message in messages:
            self._verdict.rows[message.topic] += 1
            self._check_offset(message)
            row = self._row_of(message)
            if row is not None:
                self._times_read[row.topic, row.number] += 1
                self._check_order(row, message)

    def verdict(self) -> Verdict:
        """Return the verdict, once all messages have been taken."""
        for (topic, number), times in self._times_read.items():
            if times > 1:
                self._verdict.fault("read twice", f"row {number} of {topic} came {times} times")
        for day in self._days:
            self._check_day(day)
        return self._verdict

    def _check_offset(self, message: ReadMessage) -> None:
        place = message.topic, message.partition
        expected = self._next_offset.get(place, 0)
        if message.offset != expected:
            self._verdict.fault("offsets broken", f"{place} gave {message.offset} where {expected} was due")
        self._next_offset[place] = message.offset + 1

    def _row_of(self, message: ReadMessage) -> Row | None:
        where = f"{message.topic}-{message.partition} offset {message.offset}"
        number = last_value(message.headers, "row") or b""
        row = self._rows.get((message.topic, int(number))) if number.isdigit() else None
        if row is None:
            self._verdict.fault("not in the source", f"{where} says it is row {number!r}")
        elif (message.value, message.key, message.headers) != (row.line, row.key, headers_for(row)):
            self._verdict.fault("altered", f"{where} is not row {row.number} byte for byte")
            return None
        return row

    def _check_order(self, row: Row, message: ReadMessage) -> None:
        whose = row.topic, row.key
        last = self._last_row.get(whose)
        if last is not None and self._place_of(row) < self._place_of(last):
            said = f"row {row.number} of {row.topic} {row.key.decode()} came after row {last.number}"
            self._verdict.fault("out of order", said)
        self._last_row[whose] = row
        if self._home.setdefault(whose, message.partition) != message.partition:
            self._verdict.fault("key in two partitions", f"{row.topic} {row.key.decode()}")

    def _place_of(self, row: Row) -> int:
        return self._place[row.topic, row.number]

    def _check_day(self, day: Day) -> None:
        missing = [row for row in day.rows if not self._times_read[row.topic, row.number]]
        for row in missing:
            self._verdict.fault("missing", f"row {row.number} of {row.topic}, {day.name}")
        if missing and len(missing) < len(day.rows):
            self._verdict.fault(
                "half a day", f"{day.name}: {len(day.rows) - len(missing)} of {len(day.rows)} rows"
            )
