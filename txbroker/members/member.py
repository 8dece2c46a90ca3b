"""A member of a consumer group, as its broker knows it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from fnmatch import translate
from typing import Protocol

import msgspec

from txbroker.errors import UnknownMember
from txbroker.wire.dead_letters import is_dead_topic
from txbroker.wire.requests import BegunMessages
from txbroker.wire.secret import Secret


class MemberSession(Protocol):
    """The part of a session that its members need. ``is_open`` is false once its connection is gone;
    ``is_read()`` says whether requests that its peer has sent would be read now; ``parked`` is the number of those that
    were read and wait.
    """

    number: int
    client: str
    peer: str
    deliver: Callable[[bytes], None]
    parked: int
    members: dict[Member, None]
    is_read: Callable[[], bool]

    @property
    def is_open(self) -> bool:
        """Whether the session goes on."""


@dataclass(slots=True, eq=False, repr=False)
class Member:
    """A member. Times are µs of journal time.

    ``session`` is None while its connection is gone, since ``heard``. ``owned`` are its partitions by number, with the
    generations of their claims; ``asked`` those of them that are asked back, with the time by which they are
    taken. ``told`` are those that the last answer gave to it: a request that does not show them may have been sent
    before that answer came, so it does not release them. ``waiting`` is the correlation of its unanswered request.
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
    matches: Callable[[str], object]
    client: str = ""
    peer: str = ""
    session: MemberSession | None = None
    owned: dict[int, int] = field(default_factory=dict)
    asked: dict[int, int] = field(default_factory=dict)
    waiting: int | None = None
    shown: dict[int, int] = field(default_factory=dict)
    """What its unanswered request says that it has."""
    told: frozenset[int] = frozenset()
    releasing: AbstractSet[int] = frozenset()
    """What its unanswered request says that it is about to release."""
    answer_at: int = 0
    begun: bytes = b""
    """What it is handling, as it has last said: encoded, because it is much less than as objects."""

    def lost_at(self, grace: int) -> int:
        """Return when the member is lost if nothing more is heard of it."""
        return self.heard + (self.session_timeout if self.session is not None else grace)

    def reads(self, topic: str) -> bool:
        """Return whether it reads a topic of that name."""
        return topic in self.topics or bool(self.matches(topic))

    def handles(self, begun: list[BegunMessages]) -> None:
        """Note what it is handling."""
        self.begun = _PACK(begun)

    def handled(self) -> list[BegunMessages]:
        """Return what it is handling."""
        return _UNPACK(self.begun) if self.begun else []


_PACK = msgspec.msgpack.Encoder().encode
_UNPACK = msgspec.msgpack.Decoder(list[BegunMessages]).decode


def unknown_member(group: str, number: int) -> UnknownMember:
    """Return the refusal of a request that shows no member's secret."""
    return UnknownMember(
        f"group {group!r} has no member {number} with that secret: it has left, was not heard of in time, or "
        "the broker was started again. Its partitions may be others' by now; join again"
    )


def matcher(pattern: str) -> Callable[[str], object]:
    """Return what says whether a topic's name matches a pattern of shell wildcards; none matches an empty one.

    A topic of dead letters matches no pattern: who reads all topics would read what it has given up.
    """
    matches = re.compile(translate(pattern)).match
    return lambda topic: not is_dead_topic(topic) and matches(topic)


def wishes_of(members: Iterable[Member], topics: Collection[str]) -> dict[int, list[str]]:
    """Return which of these topics each member reads, by the member's number."""
    matching: dict[str, list[str]] = {"": []}
    found = {}
    for member in members:
        matched = matching.get(member.pattern)
        if matched is None:
            matched = matching[member.pattern] = [topic for topic in topics if member.matches(topic)]
        found[member.number] = [*matched, *(each for each in member.topics if each in topics)]
    return found
