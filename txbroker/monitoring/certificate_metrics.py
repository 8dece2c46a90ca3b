"""The metrics of certificates: when they expire, and whether renewed ones were refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from txbroker.monitoring.exposition import Metric

NOT_AFTER: Final = Metric(
    "txbroker_certificate_not_after_seconds",
    "When the certificate of a listener, or one that signed it, expires, in seconds since 1970 UTC.",
)
RELOAD_FAILED: Final = Metric(
    "txbroker_certificate_reload_failed",
    "1 if files of certificates could not be taken when they were last read; the old ones are in use.",
)


def families(not_after: Mapping[str, float], has_failed: bool) -> Iterator[str]:
    """Yield the text of each metric; ``not_after`` is by listener."""
    yield from NOT_AFTER.all(({"listener": listener}, at) for listener, at in not_after.items())
    yield RELOAD_FAILED.only(has_failed)
