"""Durations, sizes and counts as people write them in configuration files, options and settings: one grammar for all.

::

    duration = 1*( digits ( "us" / "ms" / "s" / "m" / "h" / "d" / "w" ) ) / "0"    ; 500ms, 90s, 1h30m, 7d
    size     = digits [ "B" / "KiB" / "MiB" / "GiB" / "TiB" ]                      ; 65536, 64KiB
    count    = digits

In Python a duration is a number of seconds or a ``timedelta``, and a size a number of bytes. Within the program, on the
wire and in records a duration is a number of µs.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Final, get_args, get_type_hints

import msgspec

from journal.constants import KIB, MIB
from journal.errors import InvalidSetting


class Quantity(StrEnum):
    """The kind of quantity that a number is."""

    DURATION = "duration"
    SIZE = "size"
    COUNT = "whole number"


Micros = Annotated[int, msgspec.Meta(extra={"quantity": Quantity.DURATION})]
"""The type of a field that holds a duration in µs."""
Bytes = Annotated[int, msgspec.Meta(extra={"quantity": Quantity.SIZE})]
"""The type of a field that holds a size in bytes."""

TIME_UNITS: Final = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
"""In µs."""
SIZE_UNITS: Final = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": 1024 * MIB, "TiB": 1024 * 1024 * MIB}
"""In bytes."""

LONGEST: Final = 36_600 * TIME_UNITS["d"]
"""µs in a hundred years: nothing takes longer."""
LARGEST: Final = 1 << 62
"""Bytes, or another unit; a larger number does not fit into its field."""

_DURATION = re.compile(r"(?:\d{1,20}(?:us|ms|s|m|h|d|w))+", re.ASCII)
_SIZE = re.compile(r"(\d{1,20})(B|KiB|MiB|GiB|TiB)?", re.ASCII)
_WRITTEN_IN = ("d", "h", "m", "s", "ms", "us")


@cache
def quantities_of(part: type[msgspec.Struct]) -> dict[str, Quantity]:
    """Return the quantity of the number in each field, by the field's type; fields that hold no number are left out."""
    found = {}
    for field, hint in get_type_hints(part, include_extras=True).items():
        kinds = (hint, *get_args(hint))
        marks = [mark.extra["quantity"] for kind in kinds for mark in getattr(kind, "__metadata__", ())]
        if marks or int in kinds:
            found[field] = marks[0] if marks else Quantity.COUNT
    return found


# -- as text ---------------------------------------------------------------------------------------


def duration(text: str) -> int:
    """Return ``7d``, ``90s``, ``1h30m`` in µs; raises ``ValueError``, for a bare number too, unless it is 0."""
    if text == "0":
        return 0
    if not _DURATION.fullmatch(text):
        wrong = (
            f"has no unit: write '{text}s' for seconds, or" if _is_bare(text) else "is not a duration: write"
        )
        raise ValueError(
            f"{text!r} {wrong} a number with a unit, like 90s, 1h30m or 7d ({', '.join(TIME_UNITS)})"
        )
    total = sum(int(number) * TIME_UNITS[unit] for number, unit in re.findall(r"(\d+)([a-z]+)", text))
    return _within(text, total, LONGEST, written(Quantity.DURATION, LONGEST))


def size(text: str) -> int:
    """Return ``65536``, ``64KiB``, ``1GiB`` in bytes; raises ``ValueError``."""
    match = _SIZE.fullmatch(text)
    if not match:
        raise ValueError(
            f"{text!r} is not a size: write a number of bytes, or one with a unit, like 65536, 64KiB or 1GiB "
            f"({', '.join(SIZE_UNITS)})"
        )
    return _within(text, int(match[1]) * SIZE_UNITS[match[2] or "B"], LARGEST, "4194304TiB")


def count(text: str) -> int:
    """Return ``500`` as a number; raises ``ValueError``."""
    if not _is_bare(text):
        raise ValueError(f"{text!r} is not a whole number: write one without a unit, like 500")
    return _within(text, int(text), LARGEST, str(LARGEST))


def _within(text: str, number: int, most: int, at_most: str) -> int:
    if number > most:
        raise ValueError(f"{text!r} is too much: it can be {at_most} at most")
    return number


_READ: Final = {Quantity.DURATION: duration, Quantity.SIZE: size, Quantity.COUNT: count}


def read(quantity: Quantity, value: object) -> int:
    """Return the number in µs or bytes for text, or for a number in a file: a size, a count, or a duration of 0.

    Raises ``ValueError``.
    """
    if isinstance(value, str):
        return _READ[quantity](value)
    if type(value) is int and value >= 0:
        return _READ[quantity](str(value))
    raise ValueError(f"{value!r} is not a {quantity}: write one like {_LIKE[quantity]}")


_LIKE: Final = {Quantity.DURATION: '"90s" or "7d"', Quantity.SIZE: '"64KiB" or 65536', Quantity.COUNT: "500"}


def written(quantity: Quantity, value: int) -> str:
    """Return the number exactly as :func:`read` takes it; it must not be negative."""
    if quantity is Quantity.SIZE:
        unit = next(unit for unit in reversed(SIZE_UNITS) if value % SIZE_UNITS[unit] == 0) if value else "B"
        return str(value) if unit == "B" else f"{value // SIZE_UNITS[unit]}{unit}"
    if quantity is Quantity.COUNT:
        return str(value)
    parts = ""
    for unit in _WRITTEN_IN:
        many, value = divmod(value, TIME_UNITS[unit])
        parts += f"{many}{unit}" if many else ""
    return parts or "0s"


def _is_bare(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 20


# -- in Python -------------------------------------------------------------------------------------


def micros(value: object) -> int:
    """Return seconds, or a ``timedelta``, as µs, to the nearest; raises ``ValueError`` for anything else."""
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(
            f"{value!r} is not a duration: in Python that is a number of seconds or a datetime.timedelta"
        )
    return round(value * 1_000_000)


# -- ranges ----------------------------------------------------------------------------------------


def check_range(
    name: str,
    value: object,
    quantity: Quantity,
    bounds: tuple[int, int],
    *,
    optional: bool = False,
    state: str = "nothing was changed",
) -> None:
    """Raise :class:`InvalidSetting` unless ``value`` is an int within ``bounds`` (inclusive), or None where
    optional.
    """
    least, greatest = bounds
    if (value is None and optional) or (type(value) is int and least <= value <= greatest):
        return
    raise InvalidSetting(
        f"setting {name} is {shown(quantity, value)}, it must be a {quantity} from {written(quantity, least)} to "
        f"{written(quantity, greatest)}{' or None' if optional else ''}; {state}"
    )


def shown(quantity: Quantity, value: Any) -> str:
    """Return any value as text for an error."""
    return written(quantity, value) if type(value) is int and value >= 0 else repr(value)
