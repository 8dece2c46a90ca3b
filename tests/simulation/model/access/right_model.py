"""A right that a request needs, as far as it is known on what."""

from __future__ import annotations

from typing import NamedTuple

from tests.simulation.model.access.rule_model import Access, Meant


class Need(NamedTuple):
    """A right on one of several things, of which it is not known which one it is. None: nothing is needed then."""

    right: str
    resource: str
    things: list[Meant | None]

    def may_be_met(self, access: Access, principal: str) -> bool:
        """Whether somebody has what is needed, in one of the cases."""
        return any(
            each is None or access.allows(principal, self.right, self.resource, each) for each in self.things
        )

    def may_be_missing(self, access: Access, principal: str) -> bool:
        """Whether somebody lacks what is needed, in one of the cases."""
        return any(
            each is not None and not access.allows(principal, self.right, self.resource, each)
            for each in self.things
        )
