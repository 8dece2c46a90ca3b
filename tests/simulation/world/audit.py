"""The audit after each start: it asks for everything over the wire, and has the model judge all of it together."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from journal.transaction_states import State
from tests.simulation.clients.administrators import Administrator, access_of
from tests.simulation.clients.transactions import TransactionalClient
from tests.simulation.model.log_model import require
from tests.simulation.model.model import OPEN
from txbroker.wire import messages

if TYPE_CHECKING:
    from tests.simulation.world.world import World


class Auditor(TransactionalClient):
    """A client that waits for each answer. Only the reactor and the readers go on meanwhile, nothing is written, but
    what has come due.
    """

    def wait(self, *request: Any) -> tuple[Any, bytes, int]:
        """Ask, and return the answer with its data and the time of asking."""
        got: list[tuple[Any, bytes, int]] = []
        self.ask(*request, then=lambda *answer: got.append(answer))
        self.settle()
        require(got, "an answer comes", f"none to {request[0].__name__}")
        return got[0]

    def settle(self) -> None:
        """Let all answers come that need no write, or none but of what is placed."""
        world, connection = self.world, self.connection
        assert connection is not None
        while (
            connection.deliver(1 << 30)
            or world.reader.step(1 << 30)
            or (world.schedules and world.writer.step(1 << 30))
            or (world.amqp_clients and world.flusher.step(1 << 30))  # what is moved may need memory
            or world.reactor.turn()  # behind that: slices of a commit that is not forced come again each turn
            or self.take(1 << 30)
        ):
            pass


def audit(world: World, random: Random) -> None:
    """Every promise, after a start or at rest."""
    model = world.model
    auditor = Auditor(world, 99)
    if world.administrators:
        auditor.mechanism, auditor.facts = Administrator.mechanism, Administrator.facts
    auditor.connect()
    auditor.settle()
    if not auditor.ready:  # the very first welcome waits for a write
        world.pump()
        auditor.settle()
    require(auditor.ready, "a session", "none")
    answer, _, _ = auditor.wait(messages.DescribeTopics)
    topics = [each for each in answer.topics if each.name not in world.topics.dead]
    alive = world.topics.settle({each.name: [p.number for p in each.partitions] for each in topics})
    for each in topics:
        world.topics.named(each.name, each.id)
    starts = {p.number: p.start_offset for each in topics for p in each.partitions}
    queues = world.queues.partitions.values()
    _read_all(auditor, starts | {number: model.seen.starts[number] for number in queues})
    prepared = _transactions(auditor, random)
    for group in "gh":
        auditor.offsets_fetched(group, *auditor.wait(messages.FetchOffsets, group, None))
        auditor.group_described(group, *auditor.wait(messages.DescribeGroup, group))
    if world.settings.config.journal.outcome_archive:
        world.archive.read(auditor)
    for group in sorted(set(world.settings.members)):
        _members(auditor, group)
    if world.administrators:
        users, _, _ = auditor.wait(messages.ListUsers)
        world.access.found(access_of(users, auditor.wait(messages.ListRules)[0]))
    model.settle(alive | set(queues), prepared)
    if world.amqp_clients:
        found = auditor.wait(messages.ListQueues)[0].queues
        world.queues.settle({world.host.outside(each.name): each for each in found})
    world.members.settle()
    if world.settings.config.journal.outcome_archive:
        world.archive.settle()
        world.counts["archived outcomes"] = len(world.archive.entries)
    auditor.lost(0)
    auditor.world.connections[-1].deliver(1)
    world.reactor.turn()
    world.count("audits")
    world.check_log()


def _members(auditor: Auditor, group: str) -> None:
    """Ask where a group of members stands, and with which generations its partitions are claimed."""
    answer, _, since = auditor.wait(messages.FetchOffsets, group, None)
    members, homes = auditor.world.members, auditor.world.topics.homes
    found = {each.partition: each for each in answer.offsets}
    for key in [key for key in members.claims if key[0] == group and homes[key[1]].deleted is None]:
        require(key[1] in found, f"{key} has been claimed", "nobody has it")
        members.stands(key, found[key[1]].generation, since)
        members.begins(key, found[key[1]].offset or 0, homes[key[1]].retained, since)


def _read_all(auditor: Auditor, starts: dict[int, int]) -> None:
    model = auditor.model
    auditor.positions = dict(starts)
    while True:
        positions = [(number, at, 0) for number, at in auditor.positions.items()]
        floor = model.seen.floor(model.now, starts)
        if not auditor.fetched(positions, floor, *auditor.wait(messages.Fetch, positions, 1 << 20, 0)):
            break
    require(
        all(auditor.positions[number] == model.seen.ends[number] for number in starts),
        f"all can be read, to {dict(model.seen.ends)}", auditor.positions,
    )  # fmt: skip


def _transactions(auditor: Auditor, random: Random) -> set[tuple[int, int]]:
    """Ask for each transaction how it ended; return those that are prepared, which all must be listed."""
    model = auditor.model
    listed = _listed(auditor, [])
    for number, each in listed.items():
        begun: Any = model.transactions.get(number)
        require(begun, "transactions that were begun", f"{number} is listed")
        require(each.state is State.PREPARED, "only prepared ones are undecided now", each)
        require(
            each.prepared_age >= begun.age, f"{begun.name} is older than {begun.age} µs", each.prepared_age
        )
        begun.age = each.prepared_age
    prepared = set(listed)
    if prepared:
        again = set(_listed(auditor, [State.PREPARED]))
        require(again == prepared, f"the prepared ones are {prepared}", again)
    for intent in list(model.transactions.values()):
        if intent.state == OPEN or random.random() < 0.2:
            auditor.ask_outcome_of(intent)
    auditor.settle()
    return prepared


def _listed(auditor: Auditor, states: list[State]) -> dict[tuple[int, int], Any]:
    """All in these states, page by page."""
    found: dict[tuple[int, int], Any] = {}
    more, after = True, (0, 0)
    while more:
        listing, _, _ = auditor.wait(messages.ListTransactions, states, after, 3)
        found |= {(each.session, each.serial): each for each in listing.transactions}
        more, after = listing.more, max(found, default=after)
    return found
