"""Participants in memory with PEP 249's TPC methods, for stepping through every crash and retry.

What is prepared survives; what is not is gone when its connection is. A participant refuses what no real one takes:
a second prepare of an xid, the commit of one that it does not know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Died(BaseException):
    """The coordinator's process ends here: nothing after it is run."""


class Unreachable(Exception):
    """The participant's answer is lost, or it got no question."""


class Participant:
    """A resource with prepared, committed and rolled back transactions, by xid."""

    def __init__(self, name: str, at: Callable[[str], None]) -> None:
        self.name = name
        self.at = at
        self.prepared: dict[Any, list[int]] = {}
        self.committed: dict[Any, list[int]] = {}
        self.rolled_back: set[Any] = set()
        self.contradictions: list[str] = []

    def connect(self) -> Connection:
        return Connection(self)


class Connection:
    """What PEP 249 wants of one. ``at(moment)`` is called before and after each request has its effect."""

    def __init__(self, participant: Participant) -> None:
        self._participant = participant
        self._xid: Any = None
        self._is_prepared = False
        self.work: list[int] = []

    def xid(self, *parts: Any) -> Any:
        return parts

    def tpc_begin(self, xid: Any) -> None:
        self._xid, self._is_prepared, self.work = xid, False, []

    def _effect(self, what: str, effect: Callable[[], None]) -> None:
        at, name = self._participant.at, self._participant.name
        at(f"before {what} {name}")
        effect()
        at(f"after {what} {name}")

    def tpc_prepare(self) -> None:
        participant = self._participant
        known = (*participant.prepared, *participant.committed, *participant.rolled_back)
        assert self._xid not in known, "an xid was used twice"

        def effect() -> None:
            participant.prepared[self._xid] = self.work

        self._effect("prepare", effect)
        self._is_prepared = True

    def tpc_commit(self, xid: Any = None) -> None:
        participant, target = self._participant, xid or self._xid

        def effect() -> None:
            if xid is None and not self._is_prepared:
                participant.committed[target] = self.work
            elif target in participant.prepared:
                participant.committed[target] = participant.prepared.pop(target)
            elif target in participant.rolled_back:
                participant.contradictions.append(f"commit of {target}, which was rolled back")

        self._effect("commit", effect)

    def tpc_rollback(self, xid: Any = None) -> None:
        participant, target = self._participant, xid or self._xid

        def effect() -> None:
            if target in participant.committed:
                participant.contradictions.append(f"roll-back of {target}, which was committed")
            elif participant.prepared.pop(target, None) is not None:
                participant.rolled_back.add(target)

        self._effect("rollback", effect)

    def tpc_recover(self) -> list[Any]:
        self._participant.at(f"recover {self._participant.name}")
        return list(self._participant.prepared)

    def close(self) -> None:
        """What is not prepared is gone with it."""
