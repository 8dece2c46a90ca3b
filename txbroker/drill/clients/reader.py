"""The role ``reader`` looks at all partitions again and again, and writes to the ledger what it sees."""

from __future__ import annotations

from array import array
from contextlib import suppress

from crc32c import crc32c

import txbroker
from txbroker.client.core.results import Message
from txbroker.drill.clients.ledger import HalfSeen, Saw, WentBack
from txbroker.drill.clients.life import EXPECTED, Life
from txbroker.drill.clients.messages import identity_of

STEP_BYTES = 1 << 18


def checksum_of(value: bytes | None) -> int:
    """Return what a reader remembers of a message."""
    return crc32c(value or b"")


def digest_of(checksums: array[int]) -> int:
    """Return what a reader's ledger says about a run of messages."""
    return crc32c(checksums.tobytes())


def look(life: Life) -> None:
    """Run the role ``reader``."""
    connection = life.connect()
    looking: Looking | None = None
    while life.goes_on():
        # The broker was killed: the ledger has what was seen so far, the rest is read again.
        with suppress(*EXPECTED):
            looking = looking or Looking(life, connection)
            looking.look()
        life.pause()
    life.drop(connection)


class Looking:
    """The looks of one life. They begin at a random offset of what is there already, so that old segments are
    read too.
    """

    def __init__(self, life: Life, connection: txbroker.Connection) -> None:
        self._life = life
        self._connection = connection
        self._number = 0
        self._new_from = self._ends()
        self._positions = [int(end * life.chance.random()) for end in self._new_from]
        self._incomplete: dict[tuple[str, int], tuple[int, int, int]] = {}
        """Transactions that were seen in part: how many messages, of how many, in which look first."""

    def _ends(self) -> list[int]:
        plan = self._life.plan
        described = {
            topic.name: topic for topic in self._connection.topics({topic for topic, _ in plan.layout})
        }
        return [described[topic].partitions[index].high_watermark for topic, index in plan.layout]

    def look(self) -> None:
        """Read every partition up to its end at the start of the look; transactions seen in part before must be
        whole now.
        """
        ends = self._ends()
        for place, end in enumerate(ends):
            if end < self._positions[place]:
                self._life.ledger.write(WentBack(place=place, seen=self._positions[place], end=end))
                self._positions[place] = end
        self._number += 1
        for place, end in enumerate(ends):
            self._read(place, end)
        if not self._life.goes_on():
            return  # not all has been read
        for (sender, operation), (seen, together, first) in list(self._incomplete.items()):
            if first < self._number:
                entry = HalfSeen(sender=sender, operation=operation, seen=seen, together=together)
                self._life.ledger.write(entry)
                del self._incomplete[sender, operation]

    def _read(self, place: int, end: int) -> None:
        topic, partition = self._life.plan.layout[place]
        while self._positions[place] < end and self._life.goes_on():
            messages = self._connection.read(topic, partition, self._positions[place], STEP_BYTES)
            if not messages:
                return
            checksums = array("I", (checksum_of(message.value) for message in messages))
            first = messages[0].offset
            self._life.ledger.write(
                Saw(place=place, first=first, count=len(messages), digest=digest_of(checksums))
            )
            for message in messages:
                self._note(place, message)
            self._positions[place] = messages[-1].offset + 1

    def _note(self, place: int, message: Message) -> None:
        identity = identity_of(message.value)
        if identity is None or identity.together == 1 or message.offset < self._new_from[place]:
            return
        whose = identity.sender, identity.operation
        seen, _, first = self._incomplete.get(whose, (0, 0, self._number))
        if seen + 1 == identity.together:
            del self._incomplete[whose]
        else:
            self._incomplete[whose] = (seen + 1, identity.together, first)
