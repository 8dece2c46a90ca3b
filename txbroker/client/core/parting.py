"""The end of a connection that the broker has announced (GoingAway): its reason, and when the next one is made."""

from __future__ import annotations

from typing import NamedTuple

from txbroker.client.core.options import Options
from txbroker.wire.messages import GoingAway


class Parting(NamedTuple):
    """What the broker has said; ``pause`` is how many seconds after the end of this connection the next one is made."""

    reason: str
    pause: float


def parting(said: GoingAway, options: Options) -> Parting:
    """Return what it means for a client, which is bounded by its own options, whatever the broker says."""
    pause = min(max(said.after, 0) / 1e6, options.longest_pause)
    return Parting(f"the broker said: {said.reason[:200]!r}", pause)
