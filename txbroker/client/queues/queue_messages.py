"""Messages of queues in the clients: their names, what settles them, and what becomes of them with a transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final
from weakref import WeakKeyDictionary

from journal.arguments import wrong_type
from journal.formats.offset_set_bytes import encode_offsets, within_spans
from journal.offset_set import OffsetSet
from journal.records.group_entries import PartitionOffset, Settled, finishing
from journal.records.queue_entries import QUEUE_GROUP
from txbroker import errors
from txbroker.client.core.core import Core
from txbroker.client.core.phase import Phase
from txbroker.client.core.positions import Joined
from txbroker.client.core.results import QUEUE_PREFIX, Message
from txbroker.wire.messages import GiveBack

_ON_SETTLED: Final[WeakKeyDictionary[Core, list[Callable[[int, OffsetSet], None]]]] = WeakKeyDictionary()


def offsets_of(messages: Sequence[Message]) -> OffsetSet:
    """Return their offsets."""
    found = OffsetSet()
    for each in messages:
        found.add(each.offset)
    return found


def settled_of(partition: int, messages: Sequence[Message]) -> list[Settled]:
    """Return what acknowledges messages of one queue."""
    return finishing(partition, offsets_of(messages))


def by_queue(what: object) -> dict[int, list[Message]]:
    """Return messages of queues by the numbers of their partitions; raises WrongType, Misuse."""
    given = what if isinstance(what, (list, tuple)) else [what]
    found: dict[int, list[Message]] = {}
    for each in given:
        if not isinstance(each, Message):
            raise wrong_type("message", each, "a Message of a queue, or a list of them")
        if not each.topic.startswith(QUEUE_PREFIX):
            raise errors.Misuse(
                f"a message of topic {each.topic!r} is none of a queue; nothing was acknowledged. Finish it with done()"
            )
        found.setdefault(each.partition, []).append(each)
    return found


def check_session(core: Core, found: Mapping[int, Sequence[Message]]) -> None:
    """Raise DeliveryLost for messages that came in a session which has ended."""
    for each in (each for messages in found.values() for each in messages):
        if each.generation != core.session or core.phase is not Phase.OPEN:
            raise errors.DeliveryLost(
                f"message {each.offset} of {each.topic!r} came in a session that has ended, and is delivered again; "
                "nothing was acknowledged. What was done for it must not count"
            )


def give_back(core: Core, session: int, partition: int, offsets: OffsetSet, *, counted: bool) -> None:
    """Have the broker give messages to others that were taken in that session, as far as they are not settled."""
    if core.phase is Phase.OPEN and core.session == session:
        for some in within_spans(offsets):
            base = some.first
            core.post(GiveBack(core.correlation(), partition, encode_offsets(some, base), base, counted))


def on_settled(core: Core) -> list[Callable[[int, OffsetSet], None]]:
    """Return what is called with the number of a queue's partition and offsets that its readers need not give back."""
    return _ON_SETTLED.setdefault(core, [])


def settled(core: Core, partition: int, messages: Sequence[Message]) -> None:
    """Let the connection's readers know that these are not theirs any more: they must not give them back."""
    for callback in on_settled(core):
        callback(partition, offsets_of(messages))


async def acknowledge_with(transaction: Joined, core: Core, what: Message | Sequence[Message]) -> None:
    """Have messages acknowledged if a transaction commits; if it is rolled back they are returned, with an attempt
    counted for each. Raises WrongType, Misuse.
    """
    found = by_queue(what)
    check_session(core, found)
    await transaction.add_offsets(
        QUEUE_GROUP, [], [some for each in found.items() for some in settled_of(*each)]
    )
    for partition, messages in found.items():
        transaction.joined_by(_Acknowledged(core, partition, messages))
        settled(core, partition, messages)


class _Acknowledged:
    """Messages of one queue that a transaction acknowledges."""

    group = QUEUE_GROUP

    def __init__(self, core: Core, partition: int, messages: Sequence[Message]) -> None:
        self._core, self._partition = core, partition
        self._session, self._offsets = messages[0].generation, offsets_of(messages)

    def settlement(self) -> tuple[list[PartitionOffset], list[Settled]]:
        """Return nothing more: they were added."""
        return [], []

    def settle(self, committed: bool) -> None:
        """The transaction is decided."""
        if not committed:
            give_back(self._core, self._session, self._partition, self._offsets, counted=True)

    def discard(self) -> None:
        """Nobody here knows how the transaction ends: the broker does."""

    def fenced(self) -> None:
        """The transaction is refused; what it has not lost is returned when it is rolled back."""
