"""The common base of all kinds of journal records."""

from __future__ import annotations

import msgspec


class Record(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A decision already taken: it carries its results, and replaying it needs nothing else."""
