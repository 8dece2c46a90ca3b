"""The requests that `python -m benchmarks.holds` measures, each as large as allowed, and larger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, Protocol

from crc32c import crc32c

from benchmarks.harness.frames import TINY
from journal.constants import MAX_REQUEST_DATA, MAX_REQUEST_ENTRIES, MAX_REQUEST_MESSAGES, MIB
from journal.formats import frame
from journal.records.group_entries import PartitionOffset
from journal.settings import TopicSettings
from journal.transaction_states import State, Totals
from journal.xid import Xid
from txbroker.broker.sessions.settings import BrokerSettings
from txbroker.wire import messages as commands
from txbroker.wire.codec import encode

LIMIT: Final = MAX_REQUEST_ENTRIES
OVER: Final = 10_000
MOST: Final = BrokerSettings().max_topic_partitions
WALL: Final = 1_700_000_000_000_000
XID: Final = Xid(1, b"holds", b"b")
FULL: Final = TINY * MAX_REQUEST_MESSAGES
HUGE: Final = frame.encode(bytes(MAX_REQUEST_DATA - 100), 1)


class Scene(NamedTuple):
    """A request by name, made just before it is measured."""

    name: str
    request: Callable[[], bytes]


class Client(Protocol):
    """The client that sends the requests."""

    serial: int
    session: int
    engine: Any
    serving: Any

    def create(self, name: str, partitions: int) -> list[int]:
        """Create a topic."""

    def add(self, data: bytes) -> None:
        """Send a request that is not answered."""


Adds = list[tuple[int, bytes, int]]
"""A partition, frames, and how many messages they are."""


def adds(client: Client, parts: Adds, xid: Xid | None = None) -> tuple[bytes, Totals]:
    """Return the adds of a new transaction, and its totals."""
    client.serial += 1
    run, messages, checksum = [], 0, 0
    for partition, frames, count in parts:
        run.append(encode(commands.Add(2, client.serial, partition, xid), frames))
        messages += count
        checksum = crc32c(frames, checksum)
    return b"".join(run), Totals(messages, len(parts), checksum)


def always(kind: Callable[..., commands.Request], *fields: Any) -> Callable[[], bytes]:
    """Return a function that makes a request of that kind, with nothing to prepare."""
    return lambda: encode(kind(2, *fields))


def topics(client: Client, some: list[int]) -> Iterator[Scene]:
    """Return requests about messages and topics. They leave a topic of many partitions."""
    names = [f"n{number}" for number in range(100_000)]
    yield Scene("Ping", always(commands.Ping))
    yield Scene("Send of 16 MiB in one frame", lambda: encode(commands.Send(2, some[0]), HUGE))
    yield Scene("Send of 4,096 tiny frames", lambda: encode(commands.Send(2, some[0]), FULL))
    yield Scene("CreateTopic of 10,000", always(commands.CreateTopic, "many", OVER, TopicSettings()))
    yield Scene("CreateTopic of 1,000", always(commands.CreateTopic, "many", MOST, TopicSettings()))
    for number in range(5):
        client.create(f"more {number}".replace(" ", "-"), MOST)
    yield Scene("DescribeTopics with them", always(commands.DescribeTopics))
    yield Scene("DescribeTopics of 4,096 names", always(commands.DescribeTopics, names[:LIMIT]))
    yield Scene("DescribeTopics of 100,000 names", always(commands.DescribeTopics, names))
    numbers = [store.number for store in client.engine.catalog.topics["many"].partitions]
    yield Scene(
        "Fetch of 1,000 partitions", always(commands.Fetch, [(number, 0, 0) for number in numbers[:1000]])
    )
    yield Scene("OffsetsForTime of 4,096", always(commands.OffsetsForTime, numbers[:LIMIT], WALL))
    yield Scene("OffsetsForTime of 200,000", always(commands.OffsetsForTime, some[:1] * 200_000, WALL))


def groups(client: Client, numbers: list[int]) -> Iterator[Scene]:
    """Return requests about positions and claims. They leave a group."""
    offsets = [PartitionOffset(number, 0, 0, "m" * 80) for number in numbers]
    yield Scene("CommitOffsets of 4,096", always(commands.CommitOffsets, "g", offsets[:LIMIT]))
    yield Scene("CommitOffsets of 6,000", always(commands.CommitOffsets, "g", offsets))
    yield Scene("ClaimPartitions of 4,096", always(commands.ClaimPartitions, "h", "m", numbers[:LIMIT]))
    yield Scene("ClaimPartitions of 6,000", always(commands.ClaimPartitions, "h", "m", numbers))
    yield Scene("FetchOffsets of 4,096", always(commands.FetchOffsets, "g", numbers[:LIMIT]))
    yield Scene("FetchOffsets of 6,000", always(commands.FetchOffsets, "g", numbers))
    yield Scene("FetchOffsets of a group", always(commands.FetchOffsets, "g"))
    yield Scene("ListGroups", always(commands.ListGroups))
    found = client.serving.broker.groups.groups
    yield Scene("DeleteGroup", lambda: encode(commands.DeleteGroup(2, "g", found["g"].id)))


def large_commits(client: Client, some: list[int], numbers: list[int]) -> Iterator[Scene]:
    """Return commits in one phase, whose adds come with them."""

    def commit(parts: Adds) -> Callable[[], bytes]:
        def made() -> bytes:
            sent, totals = adds(client, parts)
            return sent + encode(commands.Commit(3, 0, client.serial, None, totals))

        return made

    one: Adds = [(some[0], FULL, MAX_REQUEST_MESSAGES)]
    yield Scene("Add of 4,096 tiny frames and its commit", commit(one))
    yield Scene("commit of 4 MiB of tiny frames", commit(one * 28))
    yield Scene("commit of 16 MiB of tiny frames", commit(one * 113))
    yield Scene("commit of 32 MiB of tiny frames", commit(one * 230))
    yield Scene("commit of 32 MiB in two frames", commit([(number, HUGE, 1) for number in some[:2]]))
    yield Scene("commit over 4,096, with its adds", commit([(n, TINY, 1) for n in numbers]))
    yield Scene("commit of 100,000 adds", commit([(some[0], TINY, 1)] * 100_000))


def wide_transactions(client: Client, numbers: list[int]) -> Iterator[Scene]:
    """Return all requests about a transaction that has messages for many partitions, which exist before."""

    def added(end: Callable[[Totals], bytes], xid: Xid | None = None) -> Callable[[], bytes]:
        def made() -> bytes:
            sent, totals = adds(client, [(number, TINY, 1) for number in numbers], xid)
            client.add(sent)
            return end(totals)

        return made

    def by_serial(kind: Callable[..., commands.Request], *fields: Any) -> Callable[[], bytes]:
        return lambda: encode(kind(2, 0, client.serial, *fields))

    def commit(totals: Totals) -> bytes:
        return encode(commands.Commit(3, 0, client.serial, None, totals))

    def prepare(totals: Totals) -> bytes:
        return encode(commands.Prepare(3, client.serial, XID, totals))

    yield Scene("commit over 4,096", added(commit))
    yield Scene("Rollback over 4,096", added(lambda _: by_serial(commands.Rollback)()))
    yield Scene("Prepare over 4,096", added(prepare, XID))
    yield Scene("ShowTransaction", by_serial(commands.ShowTransaction, None, MIB))
    yield Scene("ListTransactions", always(commands.ListTransactions))
    yield Scene("Commit, second phase", by_serial(commands.Commit))
    yield Scene("ListTransactions, ended", always(commands.ListTransactions, [State.COMMITTED]))
    yield Scene("AskOutcome", by_serial(commands.AskOutcome))
    yield Scene("Forget", lambda: encode(commands.Forget(3, client.session, client.serial, XID)))
    yield Scene("AskStatus", always(commands.AskStatus))
    known = client.engine.catalog.topics
    yield Scene("DeleteTopic of 1,000", lambda: encode(commands.DeleteTopic(2, "many", known["many"].id)))


def scenes(client: Client) -> Iterator[Scene]:
    """Return all scenes, in an order in which each finds what it needs."""
    some = client.create("some", 3)
    yield from topics(client, some)
    numbers = sorted(client.engine.catalog.stores)
    yield from groups(client, numbers)
    yield from large_commits(client, some, numbers[:LIMIT])
    yield from wide_transactions(client, numbers[:LIMIT])
