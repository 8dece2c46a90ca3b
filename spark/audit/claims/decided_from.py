"""The offset of each log from which on every message is decided by something that can still be read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from spark.audit.claims.entries import COMMIT, NEVER
from spark.audit.claims.facts import Fact, What


class Known(NamedTuple):
    """The range of LSNs in which journal and archive claim everything.

    Every message that was decided at LSN ``since`` or later has a claim. Of commits below LSN ``commits`` the records
    are needed, for the archive was not on; ``turned`` says whether the journal knows when it was turned on. ``whole``
    says that all of the journal could be read, so that nothing behind the logs' ends is there but what it holds.
    """

    since: int
    commits: int
    turned: bool
    whole: bool

    @classmethod
    def of(cls, archives: bool, first_lsn: int, turned: int | None, gap: int | None) -> Known:
        """Return the range, from whether outcomes are archived, and from the highest LSNs of such facts, None without
        any.
        """
        commits = NEVER if not archives else turned or 0
        return cls(max(first_lsn, gap or 0), commits, turned is not None, gap is None)

    def needs(self, claim: Fact) -> bool:
        """Return whether a claim says something that no other one does."""
        return claim.kind != COMMIT or claim.lsn < self.commits


def highest(facts: Iterable[Fact], what: What) -> int | None:
    """Return the highest LSN of facts of a kind."""
    return max((fact.lsn for fact in facts if fact.what == what), default=None)
