"""The option ``where``: conditions on topic, partition, offset and time, as in SQL, joined by AND.

Spark's own filters on these columns are not taken over: up to 4.3 it keeps what a reader makes of the filters of one
query with the DataFrame, and uses it for the next query of that DataFrame that has none, which then lacks rows
(docs/decisions/0020-filters-are-an-option.md).
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from spark.source.options import refused
from spark.source.pushdown import NUMBERS, Wanted

_AND = re.compile(r"\s+AND\s+", re.IGNORECASE)
_LITERAL = r"(?:-?\d{1,19}|'[^']*')"
_CONDITION = re.compile(
    rf"(?P<column>\w+)\s*(?:(?P<operator>>=|<=|=|<|>)\s*(?P<value>{_LITERAL})"
    rf"|IN\s*\(\s*(?P<values>{_LITERAL}(?:\s*,\s*{_LITERAL})*)\s*\))",
    re.IGNORECASE,
)
_FILTERS: dict[str, type[Any]] = {
    "=": EqualTo,
    "<": LessThan,
    "<=": LessThanOrEqual,
    ">": GreaterThan,
    ">=": GreaterThanOrEqual,
}
_WANTED = (
    "wanted are conditions joined by AND, such as topic = 'orders' AND partition IN (0, 3) AND offset >= 100 AND "
    "timestamp < '2026-01-31T12:00:00+00:00'"
)


def conditions(text: str) -> Wanted:
    """Return the conditions of a text; "" selects everything. Raises :class:`journal.errors.InvalidSetting`."""
    wanted = Wanted()
    found = [_condition(text, part) for part in _AND.split(text.strip())] if text.strip() else []
    if list(wanted.take(found)):
        raise refused("where", text, f"a value is not of its column's type; {_WANTED}")
    return wanted


def _condition(text: str, part: str) -> Filter:
    found = _CONDITION.fullmatch(part.strip())
    if found is None:
        raise refused("where", text, f"{part.strip()!r} is not understood; {_WANTED}")
    column = found["column"].lower()
    if column not in ("topic", *NUMBERS):
        raise refused("where", text, f"{found['column']!r} is no column that can be chosen by; {_WANTED}")
    if found["values"] is not None:
        values = tuple(_value(text, column, each) for each in re.findall(_LITERAL, found["values"]))
        return In((column,), values)
    condition: Filter = _FILTERS[found["operator"]]((column,), _value(text, column, found["value"]))
    return condition


def _value(text: str, column: str, literal: str) -> Any:
    if not literal.startswith("'"):
        return int(literal)
    if column != "timestamp":
        return literal[1:-1]
    try:
        time = datetime.fromisoformat(literal[1:-1])
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise refused("where", text, f"{literal} is no time with its zone; {_WANTED}")
    return time
