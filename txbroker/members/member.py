"""A member of a consumer group, as its broker knows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Protocol

from txbroker.wire.secret import Secret


class MemberSession(Protocol):
    """The part of a session that its members need. ``heard_by`` is explained by :func:`silence`."""

    number: int
    client: str
    peer: str
    deliver: Callable[[bytes], None]
    members: dict[Member, None]
    is_read: Callable[[], bool]


@dataclass(slots=True, eq=False)
class Member:
    """A member. Times are µs of journal time.

    ``session`` is None while its connection is gone, since ``heard``. ``owned`` are its partitions by number, with the
    generations of their claims; ``asked`` those of them that are asked back, with the time by which they are
    taken. ``told`` says of which ``asked`` ones the client has acknowledged. ``waiting`` is the correlation of its
    unanswered request.
    """

    number: int
    secret: Secret
    nonce: bytes
    group: str
    name: str
    topics: frozenset[str]
    pattern: str
    session_timeout: int
    max_handover: int
    start: str | int | None
    heard: int
    client: str = ""
    peer: str = ""
    session: MemberSession | None = None
    owned: dict[int, int] = field(default_factory=dict)
    asked: dict[int, int] = field(default_factory=dict)
    waiting: int | None = None
    shown: dict[int, int] = field(default_factory=dict)
    """What its unanswered request says that it has."""
    releasing: frozenset[int] = frozenset()
    """What its unanswered request says that it is about to release."""
    answer_at: int = 0

    def reads(self, topic: str) -> bool:
        """Return whether the member reads that topic."""
        return topic in self.topics or (bool(self.pattern) and fnmatchcase(topic, self.pattern))

    def lost_at(self, grace: int) -> int:
        """Return when the member is lost if nothing more is heard of it."""
        return self.heard + (self.session_timeout if self.session is not None else grace)
