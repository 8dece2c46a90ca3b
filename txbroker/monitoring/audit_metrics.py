"""The metrics of the audit: whether it can be written, and what was lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from txbroker.monitoring.exposition import COUNTER, Metric

FAILED: Final = Metric(
    "txbroker_audit_failed", "1 while the audit cannot be written: its lines wait in memory."
)
LOST: Final = Metric("txbroker_audit_lines_lost_total", "Lines of the audit that found no room.", COUNTER)


def families(has_failed: bool, lost: int) -> Iterator[str]:
    """Yield the text of each metric."""
    yield FAILED.only(has_failed)
    yield LOST.only(lost)
