"""The parts of charts: elements of SVG and HTML, scales, and round values for an axis."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from markupsafe import Markup


def element(name: str, content: str = "", /, **attributes: object) -> Markup:
    """Return an element, with its content escaped unless it is ``Markup``.

    An attribute is named as in HTML, but with ``_`` for ``-`` and one at its end where Python has a word of that name:
    ``class_``. One that is None is left out.
    """
    told = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), value)
        for key, value in attributes.items()
        if value is not None
    )
    if not content and name not in ("div", "i"):
        return Markup("<{}{}/>").format(Markup(name), told)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), told, content)


def together(parts: Iterable[str]) -> Markup:
    """Return elements one below the other."""
    return Markup("\n").join(parts)


def titled(text: str) -> Markup:
    """Return the text that a shape shows when the pointer is on it."""
    return element("title", text)


class Scale(NamedTuple):
    """A scale maps a value to a coordinate."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the coordinate of a value."""
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return round(self.start + share * (self.end - self.start), 1)


def ticks(high: float, wanted: int = 5) -> list[float]:
    """Return round values from 0 on, the last of them at or above ``high``."""
    step = 10.0 ** math.floor(math.log10(max(high, 1e-6) / wanted))
    step *= next(factor for factor in (1, 2, 2.5, 5, 10) if step * factor * wanted >= high * 0.999)
    return [round(number * step, 6) for number in range(math.ceil(high / step - 1e-9) + 1)]
