"""From where on everything in a log has been decided by something that can still be read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from spark.audit.entries import COMMIT, NEVER
from spark.audit.facts import Fact, What


class Known(NamedTuple):
    """How far the journal and the archive tell of everything.

    Every message that was decided at LSN ``since`` or later has a claim. Of commits below LSN ``commits`` the records
    are needed, for the archive was not on: ``turned`` is when it was turned on, if the journal knows.
    """

    since: int
    commits: int
    turned: bool

    @classmethod
    def of(cls, archives: bool, first_lsn: int, turned: int | None, gap: int | None) -> Known:
        """From whether outcomes are archived, and the highest LSNs of such facts, None without any."""
        commits = NEVER if not archives else turned or 0
        return cls(max(first_lsn, gap or 0), commits, turned is not None)

    def needs(self, claim: Fact) -> bool:
        """Whether a claim says what no other one does."""
        return claim.kind != COMMIT or claim.lsn < self.commits


def highest(facts: Iterable[Fact], what: What) -> int | None:
    """The highest LSN of facts of a kind."""
    return max((fact.lsn for fact in facts if fact.what == what), default=None)
