"""The members of a dialogue's groups: what their clients have been told, by the names that a script gives them."""

from __future__ import annotations

from typing import Any

from txbroker.wire import messages
from txbroker.wire.secret import Secret


class Membership:
    """A member as its client knows it."""

    def __init__(self, joined: messages.Joined) -> None:
        self.number, self.secret = joined.member, joined.secret
        self.owned: dict[int, int] = {}
        self.revoked: set[int] = set()

    def learn(self, told: messages.Attended) -> None:
        self.owned.update((each.partition, each.generation) for each in told.assigned)
        self.revoked.update(told.revoked)
        for number in told.lost:
            self.owned.pop(number, None)
        self.revoked &= self.owned.keys()

    def shown(self, how: str) -> list[tuple[int, int]]:
        """What it says that it has: "all", what is "kept" of it, or "none"."""
        left_out = {"all": set(), "kept": self.revoked, "none": self.owned.keys()}[how]
        return [pair for pair in self.owned.items() if pair[0] not in left_out]


class Members:
    """All members of a dialogue. A name that no member has stands for one that the broker does not know."""

    def __init__(self, unknown: int) -> None:
        self._known: dict[str, Membership] = {}
        self._nobody = Membership(messages.Joined(0, unknown, Secret(bytes(16))))

    def joined(self, name: str, told: messages.Joined) -> None:
        self._known[name] = Membership(told)

    def learn(self, name: str, told: messages.Attended) -> None:
        self._known[name].learn(told)

    def field(self, name: str, value: Any) -> Any:
        """The value of a request's field of that name, which a script gives by names of members."""
        alias, how = value if isinstance(value, list) else (value, "all")
        member = self._known.get(alias, self._nobody)
        match name:
            case "member":
                return member.number
            case "secret":
                return member.secret
            case "owned":
                return member.shown(how)
        return sorted(member.revoked)

    def name_of(self, number: int) -> str | int:
        return next((alias for alias, each in self._known.items() if each.number == number), number)
