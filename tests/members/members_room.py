"""A room with clients that are members of groups, and follow the rules of attending unless a test lets them not."""

from __future__ import annotations

from itertools import count
from typing import Any

from journal.records.group_entries import PartitionOffset
from tests.support.broker_room import Peer, Room
from txbroker.wire import messages

SECOND = 1_000_000
NONCES = count(1)


class MembersRoom(Room):
    """A room whose two clocks go together."""

    def wait(self, seconds: float) -> None:
        """Let time pass, in steps of 0.1 s."""
        for _ in range(round(seconds * 10)):
            self.clock.advance(SECOND // 10)
            self.timers.advance(0.1)
            self.engine.sync()

    def member(self, *topics: str, peer: Peer | None = None, **named: Any) -> Client:
        return Client(self, peer or self.peer(), topics or ("orders",), named)

    def generation(self, number: int, group: str = "g") -> int:
        return self.broker.groups.find(group).generation(number)


class Client:
    """A member's client. ``owned`` is what it was told, ``revoked`` what it is asked for."""

    def __init__(self, room: MembersRoom, peer: Peer, topics: tuple[str, ...], named: dict[str, Any]) -> None:
        self.room = room
        self.peer = peer
        self.nonce = named.pop("nonce", next(NONCES).to_bytes(16))
        self.group = named.pop("group", "g")
        self.owned: dict[int, int] = {}
        self.revoked: set[int] = set()
        self.lost: set[int] = set()
        self.asked: int | None = None
        joined = peer.ask(messages.JoinGroup, self.group, self.nonce, list(topics), **named)
        self.refused = joined if isinstance(joined, messages.Refused) else None
        if self.refused is None:
            self.number, self.secret = joined.member, joined.secret
            self.attend()

    def attend(self) -> None:
        """Attend with what it has now; what it is asked for is about to be released."""
        self.asked = self.peer.tell(
            messages.Attend,
            self.group,
            self.number,
            self.secret,
            list(self.owned.items()),
            list(self.revoked),
        )
        self.room.engine.sync()

    def take(self) -> Any:
        """Take the answer to the attendance, if there is one, and attend again, until there is none."""
        answer = None
        while self.asked is not None and (told := self.peer.answer(self.asked)) is not None:
            answer, self.asked = told, None
            if isinstance(told, messages.Refused):
                break
            for each in told.assigned:
                self.owned[each.partition] = each.generation
            for number in told.lost:
                self.owned.pop(number, None)
                self.revoked.discard(number)
                self.lost.add(number)
            self.revoked.update(told.revoked)
            self.attend()
        return answer

    def release(self, *numbers: int) -> None:
        """Release what was asked back: these, or all."""
        for number in numbers or list(self.revoked):
            self.revoked.discard(number)
            self.owned.pop(number, None)
        self.attend()

    def commit(self, number: int, offset: int, generation: int | None = None) -> Any:
        known = self.owned.get(number, 0) if generation is None else generation
        return self.peer.ask(messages.CommitOffsets, self.group, [PartitionOffset(number, offset, known)])


def settle(room: MembersRoom, *clients: Client, seconds: float = 2) -> None:
    """Let time pass while these clients do what they are told."""
    for _ in range(round(seconds * 10)):
        room.wait(0.1)
        for client in clients:
            client.take()
            if client.revoked:
                client.release()
                client.take()
