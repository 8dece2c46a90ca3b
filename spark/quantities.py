"""Times and sizes in options: the grammar of :mod:`journal.quantities`, and the forms of Spark's own settings.

In Spark's own settings a plain number has the unit of the setting, and a size may end in ``k``, ``m``, ``g`` or ``t``,
in either case. Here a plain number is seconds or bytes, and ``64k`` is ``64KiB``.
"""

from __future__ import annotations

import re
from typing import Final

from journal import quantities

_SECONDS: Final = re.compile(r"\d{1,12}(?:\.\d{1,6})?", re.ASCII)
_SIZE: Final = re.compile(r"(\d{1,20})([kmgt]?)(?:i?b)?", re.ASCII | re.IGNORECASE)


def micros(text: str) -> int:
    """Return ``30s``, ``1h30m``, ``500ms``, or ``2.5`` for seconds, in µs; raises ``ValueError``."""
    text = text.strip().lower()
    return round(float(text) * 1_000_000) if _SECONDS.fullmatch(text) else quantities.duration(text)


def size(text: str) -> int:
    """Return ``65536``, ``64KiB`` or ``64k`` in bytes; raises ``ValueError``."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return quantities.size(text)
    return quantities.size(f"{found[1]}{found[2].upper()}iB" if found[2] else found[1])
