"""The model of quotas: of nobody there is more than one of the quotas allows that it may have had meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.model.access.access_model import AccessModel
from tests.simulation.model.log_model import require
from tests.simulation.model.model import DONE, NEVER, OPEN, VOID, Intent
from tests.simulation.model.topic_model import Topic, TopicModel


@dataclass(eq=False)
class Opening:
    """Somebody asks for a producer, of this name if it has one."""

    name: str
    principal: str
    asked: int
    answered: int = NEVER


@dataclass
class QuotaModel:
    """What each principal has, at least and at most."""

    access: AccessModel
    topics: TopicModel
    makers: dict[Topic, str] = field(default_factory=dict)
    """Whose each topic is."""
    openings: list[Opening] = field(default_factory=list)
    """All that were not refused."""

    def made(self, name: str, principal: str, present: int, since: int) -> None:
        """One more was made for who asked at ``since``, while so many were surely there."""
        limits = self._limits(name, principal, since)
        fits = any(limit is None or present < limit for limit in limits)
        require(fits, f"{principal} has at most {limits} {name}", f"one more than {present}")

    def refused(self, name: str, principal: str, limit: int, most: int, since: int) -> None:
        """Who asked at ``since`` got no more, because there were ``limit``; there may have been ``most``."""
        limits = self._limits(name, principal, since)
        require(limit in limits, f"the quota {name} of {principal} is one of {limits}", limit)
        require(most >= limit, f"{principal} may have {most} {name} at most", f"{limit} are said to be there")

    def _limits(self, name: str, principal: str, since: int) -> list[int | None]:
        users = [access.users.get(principal) for access in self.access.during(since)]
        return [None if user is None else user.quotas.get(name) for user in users]

    # -- how many there are: surely from a moment on until now, and at most ----------------------------------

    def prepared(self, principal: str, since: int, but: Intent) -> tuple[int, int]:
        """Its transactions that are prepared."""
        model = self.access.model
        others = [
            each for number, each in model.transactions.items()
            if each is not but and self.access.principals[number[0]] == principal
        ]  # fmt: skip
        surely = [each for each in others if each.state == OPEN and each.prepared_at < since]
        ending = [each for each in surely if each.asked & {"commit", "rollback"} or each.ended_at != NEVER]
        least = 0 if model.orphans else len(surely) - len(ending)
        return least, sum("prepare" in each.asked and each.ended_at >= since for each in others)

    def made_topics(self, principal: str, since: int, but: Topic | None) -> tuple[int, int]:
        """The topics that it has made and that are there."""
        own = [each for each in self.topics.topics if each is not but and self.makers.get(each) == principal]
        made = [each for each in own if each.created.state == DONE and each.created.ended_at < since]
        least = sum(each.deleted is None for each in made)
        gone = [
            each for each in own if each.gone and each.deleted is not None and each.deleted.ended_at < since
        ]
        return least, sum(each.created.state != VOID for each in own) - len(gone)

    def producers(self, principal: str, since: int, but: Opening) -> tuple[int, int]:
        """Its producers; one with a name is whose who opened it last."""
        others = [each for each in self.openings if each is not but]
        own = [each for each in others if each.principal == principal]
        foreign = {each.name for each in others if each.principal != principal}
        surely = [
            each for each in own if each.answered < since and (not each.name or each.name not in foreign)
        ]
        return _count(surely), _count(own)


def _count(openings: list[Opening]) -> int:
    """How many producers these are."""
    return sum(not each.name for each in openings) + len({each.name for each in openings if each.name})
