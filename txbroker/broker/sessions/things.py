"""The things that requests name, and on which rights are needed."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

from journal.formats.envelope import SCHEDULE_TOPIC
from journal.records.group_entries import GroupPositions, Settled
from journal.records.queue_entries import DEFAULT_EXCHANGE_NAME, QUEUE_GROUP
from journal.xid import Xid
from txbroker.wire.messages import (
    AddOffsets,
    AlterGroup,
    Attend,
    BeginMessages,
    Bind,
    ClaimPartitions,
    ClaimStream,
    Commit,
    CommitOffsets,
    Consume,
    DeclareExchange,
    DeclareQueue,
    DescribeTopics,
    Fetch,
    FetchOffsets,
    GiveBack,
    ListExchanges,
    ListQueues,
    ListStreams,
    ListTransactions,
    OffsetsForTime,
    OpenProducer,
    Prepare,
    Purge,
    ReleaseParked,
    ReleaseStream,
    TakeMessages,
    Unbind,
)


class Thing(NamedTuple):
    """A thing that a right is needed on. ``name`` None: none is known by what the request says of it.

    ``shown`` is what a refusal calls it: what the request has said, and nothing that it has not. ``is_prefix``: all
    things whose names begin so are meant. ``also`` is another name of it, for rules.
    """

    name: str | None
    shown: str
    is_prefix: bool = False
    also: str = ""


class Reads(Protocol):
    """What a member of a group reads: the topics of these names, and those whose names match a pattern."""

    @property
    def topics(self) -> Collection[str]:
        """The names of topics."""

    @property
    def pattern(self) -> str:
        """Shell wildcards; "" matches none."""


class Places(Protocol):
    """What a request's numbers mean, for the principal that asks."""

    def topic_of(self, partition: int) -> str | None:
        """Return the topic of a partition; None if there is none of that number."""

    def queue_of(self, partition: int) -> str | None:
        """Return the queue whose messages a partition has; None if it is no queue's."""

    def exchange_of(self, address: int) -> str | None:
        """Return the name by which rules know the exchange at an address; None if there is none."""

    def table_of(self, stream: bytes) -> str | None:
        """Return the decision table of a stream; None if it is not known."""

    def of_others(self, command: Any) -> Thing | None:
        """Return the transaction that a request names; None if it is the principal's own, or its number is nobody's."""

    def has_topic(self, name: str) -> bool:
        """Return whether there is a topic of that name."""

    def topics_of(self, group: str) -> Collection[str]:
        """Return the topics in which a group has positions or claims."""

    def dead_topic_of(self, group: str, partition: int) -> str | None:
        """Return the topic that takes what a group gives up in a partition; None if nothing can be given up there."""

    def reads_of(self, command: Attend | BeginMessages) -> Reads | None:
        """Return what the member that a request names reads; None if there is none with that secret."""


Things = Callable[[Any, Places], Iterable[Thing]]


# -- the things that are meant ------------------------------------------------------------------


def partition_of(number: int, places: Places) -> Thing:
    """Return the topic of a partition, as what a right is needed on."""
    return Thing(places.topic_of(number), f"the topic of partition {number}")


def named(name: str) -> Thing:
    """Return the thing of that name."""
    return Thing(name, name)


def the_broker(command: Any, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    """Return the broker itself."""
    return (Thing("", ""),)


def by_name(command: Any, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    """Return what a request names."""
    return (named(command.name),)


def by_name_if_any(command: OpenProducer, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    """Return what a request names, if it does."""
    return (named(command.name),) if command.name else ()


def by_names_if_any(command: DescribeTopics, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    """Return what a request names, if it does."""
    return map(named, command.names or ())


def by_group(command: Any, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    """Return the group that a request names."""
    return (named(command.group),)


def by_readers(command: Fetch, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    """Return the groups for which a fetch reads."""
    return (named(reader.group) for reader in command.readers)


def groups_of_positions(command: Any, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    """Return the groups whose positions a request moves."""
    return (named(each.group) for each in command.positions if not is_of_queues(each))


def by_partition(command: Any, places: Places) -> Iterable[Thing]:
    """Return the topic of the partition that a request names."""
    return (partition_of(command.partition, places),)


def by_partitions(
    command: OffsetsForTime | ClaimPartitions | FetchOffsets, places: Places
) -> Iterable[Thing]:
    """Return the topics of the partitions that a request names."""
    return (partition_of(number, places) for number in dict.fromkeys(command.partitions or ()))


def fetched(command: Fetch, places: Places) -> Iterable[Thing]:
    """Return the topics that a fetch reads."""
    return (partition_of(number, places) for number, _, _ in command.positions)


def purged(command: Purge, places: Places) -> Iterable[Thing]:
    """Return the topics that a purge empties."""
    return (partition_of(number, places) for number, _ in command.starts)


def sent_to(command: Any, places: Places) -> Iterable[Thing]:
    """Return the topic to which a request sends; of what is scheduled, the judge of the schedule looks at the topic."""
    return _but_scheduled((command.partition,), places)


def sent_runs(command: Prepare | Commit, places: Places) -> Iterable[Thing]:
    """Return the topics to which a deciding request sends, in the same way."""
    return _but_scheduled((number for number, _ in command.runs), places)


def _but_scheduled(numbers: Iterable[int], places: Places) -> Iterable[Thing]:
    found = (partition_of(number, places) for number in numbers if number >= 0)
    return (thing for thing in found if thing.name != SCHEDULE_TOPIC)


def exchange_sent_to(command: Any, places: Places) -> Iterable[Thing]:
    """Return the exchange to which a request sends, if it is one."""
    return _exchanges((command.partition,), places)


def exchanges_of_runs(command: Prepare | Commit, places: Places) -> Iterable[Thing]:
    """Return the exchanges to which a deciding request sends."""
    return _exchanges((number for number, _ in command.runs), places)


def _exchanges(addresses: Iterable[int], places: Places) -> Iterable[Thing]:
    return (exchange_at(each, places) for each in dict.fromkeys(addresses) if each < 0)


def exchange_at(address: int, places: Places) -> Thing:
    """Return the exchange at an address, as what a right is needed on."""
    return Thing(places.exchange_of(address), f"the exchange at {address}")


def exchange_named(name: str) -> Thing:
    """Return the exchange of that name, as rules know it."""
    return named(name or DEFAULT_EXCHANGE_NAME)


def declared_exchange(command: Any, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    """Return the exchange that a request names."""
    return (exchange_named(command.name),)


def dead_letter_exchange(command: DeclareQueue, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    """Return the exchange that takes the dead letters of the queue that is declared."""
    name = command.settings.dead_letter_exchange
    return () if name is None else (exchange_named(name),)


def alternate_exchange(command: DeclareExchange, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    """Return the exchange that takes what the declared one finds no way for."""
    name = command.settings.alternate
    return () if name is None else (exchange_named(name),)


def binding_source(command: Bind | Unbind, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    """Return the exchange that a binding is of."""
    return (exchange_named(command.binding.exchange),)


def bound_queue(command: Bind | Unbind, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    """Return the queue that a binding leads to, if it is one."""
    return () if command.binding.to_exchange else (named(command.binding.destination),)


def bound_exchange(command: Bind | Unbind, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    """Return the exchange that a binding leads to, if it is one."""
    return (exchange_named(command.binding.destination),) if command.binding.to_exchange else ()


def queue_of_partition(command: TakeMessages | GiveBack | Consume, places: Places) -> Iterable[Thing]:
    """Return the queue of the partition that a request names."""
    return (Thing(places.queue_of(command.partition), f"of partition {command.partition}"),)


def queues_settled(command: Any, places: Places) -> Iterable[Thing]:
    """Return the queues in which a request acknowledges messages, or returns some."""
    numbers = [each.partition for part in parts_of(command) if is_of_queues(part) for each in part.settled]
    return (Thing(places.queue_of(each), f"of partition {each}") for each in dict.fromkeys(numbers))


def is_of_queues(part: GroupPositions | CommitOffsets | AddOffsets) -> bool:
    """Return whether this is what was acknowledged in queues, which are judged by their own names."""
    return part.group == QUEUE_GROUP


def settling_group(command: CommitOffsets | AddOffsets, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    """Return the group that a request names, unless it is that of the queues."""
    return () if is_of_queues(command) else (named(command.group),)


def listed_queues(command: ListQueues | ListExchanges, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    """Return the queues or exchanges that a request names, if it does."""
    return map(named if type(command) is ListQueues else exchange_named, command.names or ())


def moved(command: Any, places: Places) -> Iterable[Thing]:
    """A position tells what is in its topic: where it ends, and, in a dead letter, what the message was."""
    parts = [part for part in parts_of(command) if not is_of_queues(part)]
    numbers = [each.partition for part in parts for each in part.offsets]
    numbers += [each.partition for part in parts for each in part.settled]
    return (partition_of(number, places) for number in dict.fromkeys(numbers))


def dead_topics(command: Any, places: Places) -> Iterable[Thing]:
    """Return the topics that take what a request gives up."""
    return map(named, taking(command, places))


def missing_dead_topics(command: Any, places: Places) -> Iterable[Thing]:
    """Those that the broker would make."""
    return (named(name) for name in taking(command, places) if not places.has_topic(name))


def taking(command: Any, places: Places) -> Iterable[str]:
    """Yield the topics that take what a request gives up, or what is given up by the rules that it sets."""
    if type(command) is AlterGroup:
        retry = command.settings.retry
        found = {retry.target if retry is not None else None}
    elif type(command) is ReleaseParked:
        found = {places.dead_topic_of(command.group, command.partition)}
    else:
        found = {
            places.dead_topic_of(part.group, each.partition)
            for part in parts_of(command)
            if not is_of_queues(part)
            for each in part.settled
            if is_given_up(each)
        }
    return sorted(name for name in found if name)


def topics_of_group(command: AlterGroup, places: Places) -> Iterable[Thing]:
    """What is in these could be read in the topic that takes dead letters."""
    return (Thing(name, f"of group {command.group}") for name in places.topics_of(command.group))


def attended(command: Attend | BeginMessages, places: Places) -> Iterable[Thing]:
    """All partitions that a member has, or is given, are of topics that it reads; others' are passed over."""
    reads = places.reads_of(command)
    return () if reads is None else joined(reads, places)


def joined(command: Reads, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    """All that a pattern could match begins with what stands before its first wildcard."""
    yield from map(named, command.topics)
    if command.pattern:
        literal = re.split(r"[*?[]", command.pattern, maxsplit=1)[0]
        yield Thing(literal, f"{literal}*", is_prefix=literal != command.pattern)


def by_xid(command: Prepare, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    """Return the transaction of a request's xid."""
    return (xid_thing(command.xid),)


def of_others(command: Any, places: Places) -> Iterable[Thing]:
    """Return the transaction that a request names, if it is another's."""
    found = places.of_others(command)
    return () if found is None else (found,)


def listed_transactions(command: ListTransactions, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    """A list is whole, or refused: who concludes something from what is not in it would be wrong."""
    if command.own:
        return ()
    prefix = resource_name(command.global_prefix)
    return (Thing(prefix, f"{prefix}*", is_prefix=True),)


def by_table(command: ClaimStream, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    """Return the blocks of the decision table that a request names."""
    return (rows_of(command.table),)


def table_of_stream(command: ReleaseStream, places: Places) -> Iterable[Thing]:
    """Return the blocks of the table of a stream; none for one that is not known: it is released already."""
    table = places.table_of(command.stream)
    return () if table is None else (rows_of(table),)  # one that is not known is released already


def table_of_delivery(command: Commit, places: Places) -> Iterable[Thing]:
    """Return the blocks of the table of a delivery's stream; none for one that is not known: that is refused anyway."""
    assert command.delivery is not None
    table = places.table_of(command.delivery.stream)
    return () if table is None else (rows_of(table),)  # which is refused for that reason


def listed_streams(command: ListStreams, places: Places) -> Iterable[Thing]:  # noqa: ARG001
    """Return the blocks of the tables whose streams are listed."""
    return (rows_of(command.table) if command.table else Thing("", "*", is_prefix=True),)


def rows_of(table: str) -> Thing:
    """A decision table's blocks: their xids, and the streams of its outbox, begin with its identity."""
    prefix = f"{resource_name(table.encode())}-"
    return Thing(prefix, f"{prefix}*", is_prefix=True)


def resource_name(global_id: bytes) -> str:
    """Return the name by which rules know transactions of a global id, or of ids that begin so.

    Letters, digits and ``._-`` are themselves, other bytes ``%XX``: so what begins alike is named alike.
    """
    return quote(global_id, safe="").replace("~", "%7E")


def xid_thing(xid: Xid) -> Thing:
    """Return the transaction of an xid, as what a right is needed on."""
    return Thing(resource_name(xid.global_id), str(xid))


def parts_of(command: Any) -> Sequence[GroupPositions | CommitOffsets | AddOffsets]:
    """Return what a request moves and settles, group by group."""
    return command.positions if isinstance(command, Prepare | Commit) else (command,)


def is_given_up(settled: Settled) -> bool:
    """Return whether messages are said to be dead."""
    return any(each.dead for each in settled.retried)
