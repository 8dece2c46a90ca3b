"""The model of users and rules over time: at each moment they are as the last change has left them, which may be on its
way, and after a crash each change that was answered is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.simulation.model.access.right_model import Need
from tests.simulation.model.access.rule_model import ADMINISTRATOR, Access
from tests.simulation.model.log_model import require
from tests.simulation.model.model import NEVER, Model


@dataclass(eq=False)
class Change:
    """A change that an administrator asks for. ``refusal`` is the error that it must be refused with, "" for none.

    ``ends`` says of a principal whether its sessions end with it.
    """

    name: str
    after: Access
    refusal: str
    ends: Callable[[str], bool]
    asked: int = NEVER
    done: int = NEVER


@dataclass
class AccessModel:
    """One change is under way at a time, so that there are at most two states in which access may be."""

    model: Model
    changes: list[Change] = field(default_factory=list)
    """Those that have happened, and behind them the one that is under way."""
    is_open: bool = False
    """Whether the last of them is under way."""
    principals: dict[int, str] = field(default_factory=dict)
    """Whose each session is."""

    def __post_init__(self) -> None:
        self.changes.append(Change("nothing", Access(), "", lambda _: False, 0, 0))

    @property
    def last(self) -> Access:
        """How access is, if what is under way happens."""
        return self.changes[-1].after

    def during(self, since: int) -> list[Access]:
        """Each state in which access may have been from a moment on until now."""
        first = max(place for place, change in enumerate(self.changes) if change.done < since)
        return [change.after for change in self.changes[first:]]

    # -- changes ----------------------------------------------------------------------------------

    def ask(self, change: Change) -> None:
        """An administrator asks for a change; all before it are known to have happened or not."""
        assert not self.is_open
        change.asked, self.is_open = self.model.now, True
        self.changes.append(change)

    def done(self) -> None:
        """The change that was under way has happened."""
        change = self.changes[-1]
        require(not change.refusal, f"{change.name} is refused with {change.refusal}", "it has happened")
        change.done, self.is_open = self.model.now, False

    def refused(self, error: str) -> None:
        """The change that was under way has not happened."""
        change = self.changes.pop()
        self.is_open = False
        if error not in ("DiskFull", "MemoryExhausted"):
            require(error == change.refusal, f"{change.name}: {change.refusal or 'it happens'}", error)

    def found(self, access: Access) -> None:
        """All users and rules were read, and nothing can happen any more that was asked for before."""
        if self.is_open and access == self.last and not self.changes[-1].refusal:
            self.done()
        elif self.is_open:
            self.changes.pop()
            self.is_open = False
        require(access == self.last, f"users and rules are {self.last}", access)

    def read(self, access: Access, since: int) -> None:
        """Somebody who asked at ``since`` was told of all users and rules."""
        possible = self.during(since)
        require(access in possible, f"users and rules are one of {possible}", access)

    # -- who comes in, and who is to be outside --------------------------------------------------------

    def came_in(self, session: int, principal: str, certificate: str, since: int) -> None:
        """Who asked at ``since`` got a session; by no certificate, if it is ""."""
        self.principals[session] = principal
        possible = self.during(since)
        if principal == ADMINISTRATOR:
            return
        if not certificate:
            require(
                not all(each.is_on for each in possible), "one has to log in", f"{principal} came in without"
            )
            return
        users = {each.user_of(certificate) for each in possible}
        require(principal in users, f"{certificate} lets in one of {users}", f"it let in {principal}")

    def stayed_outside(self, certificate: str, before: str, since: int) -> None:
        """Who asked at ``since``, and has shown a session of the principal ``before``, was not let in."""
        possible = self.during(since)
        if not certificate:
            require(any(each.is_on for each in possible), "nobody has to log in", "a login was refused")
            return
        users = {each.user_of(certificate) for each in possible}
        refused = None in users or (before and users != {before})
        require(refused, f"{certificate} lets in {users}", f"the login of one who was {before!r} was refused")

    def answered(self, principal: str, login: tuple[int, int], since: int) -> None:
        """A request that was sent at ``since`` was answered in a session whose login was asked and answered so."""
        over = [
            each.name
            for each in self.changes
            if each.ends(principal) and login[1] < each.asked and each.done < since
        ]
        require(not over, f"the sessions of {principal} ended with {over}", f"that of {login} goes on")

    def sent_away(self, principal: str, login: tuple[int, int]) -> None:
        """A session was ended because of a change."""
        asked = [each for each in self.changes if each.ends(principal) and each.done > login[0]]
        require(asked, f"nothing ends a session of {principal}", "it was ended")

    # -- what they may do ---------------------------------------------------------------------------------

    def allowed(self, principal: str, what: str, needs: list[Need], since: int) -> None:
        """A request that was sent at ``since`` was carried out."""
        for access in self.during(since):
            if all(need.may_be_met(access, principal) for need in needs):
                return
        require(False, f"{principal} may not {what}: it needs {needs}", "it was carried out")

    def denied(self, principal: str, what: str, needs: list[Need], since: int) -> None:
        """A request that was sent at ``since`` was refused for lack of a right."""
        for access in self.during(since):
            if any(need.may_be_missing(access, principal) for need in needs):
                return
        require(False, f"{principal} may {what}: it needs {needs}", "it was refused")
