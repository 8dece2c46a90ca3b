"""What the rules say: who may do what on which things (decision 0053). Nothing is allowed that no rule allows.

A rule that denies wins over all that allow. Whoever may do anything with a thing may describe it, unless denied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, Final

from journal.folds.access import AccessFold
from journal.folds.groups import GroupsFold
from journal.folds.queues import QueuesFold
from journal.folds.streams import StreamsFold
from journal.formats.filenames import is_internal
from journal.parties import ADMINISTRATOR
from journal.records.access_entries import ROLE, Effect, Resource, Right, Rule
from journal.records.queue_entries import DEFAULT_EXCHANGE_NAME, exchange_of
from journal.transaction_states import TransactionNumber
from txbroker.broker.sessions.rights import Need
from txbroker.broker.sessions.things import Reads, Thing, resource_name
from txbroker.errors import AccessDenied, UnknownTransaction
from txbroker.groups.retries import target_of
from txbroker.wire.dead_letters import is_dead_topic
from txbroker.wire.messages import Attend, BeginMessages, Fetch, Send
from txbroker.wire.secret import Secret

if TYPE_CHECKING:
    from journal.engine.engine import Engine

OWNER: Final = "owner:"
"""Before a principal, the name by which rules know all transactions that it began."""


class AccessPolicy:
    """The rights of all principals, by the rules of this moment. ``denied`` counts refusals.

    ``member_of`` returns what a member of a group reads, by its number and secret; None if there is none.
    """

    def __init__(
        self,
        engine: Engine,
        access: AccessFold,
        streams: StreamsFold,
        groups: GroupsFold,
        member_of: Callable[[str, int, Secret], Reads | None],
        queues: QueuesFold,
    ) -> None:
        self._engine, self._queues = engine, queues
        self._access = access
        self._streams = streams
        self._groups = groups
        self._member_of = member_of
        self.denied = 0

    def rights_of(self, principal: str) -> PrincipalRights | None:
        """Return the rights of a principal; None if it may do everything."""
        if principal == ADMINISTRATOR or not self._access.demands_login:
            return None
        return PrincipalRights(self, principal, self.rules_of(principal))

    def rules_of(self, principal: str) -> list[Rule]:
        """Return the rules about a principal, its own and those of its roles."""
        user = self._access.users.get(principal)
        if user is None:
            return []
        holders = (principal, *(f"{ROLE}{role}" for role in dict.fromkeys(user.roles)))
        return [rule for holder in holders for rule in self._access.rules_of(holder)]

    def topic_of(self, partition: int) -> str | None:
        """Return the topic of a partition; None if there is none of that number."""
        store = self._engine.catalog.stores.get(partition)
        return None if store is None else store.topic

    def queue_of(self, partition: int) -> str | None:
        """Return the queue whose messages a partition has; None if it is no queue's."""
        queue = self._queues.by_partition.get(partition)
        return None if queue is None else queue.name

    def exchange_of(self, address: int) -> str | None:
        """Return the name by which rules know the exchange at an address; None if there is none."""
        exchange = self._queues.exchanges_by_number.get(exchange_of(address))
        return None if exchange is None else exchange.name or DEFAULT_EXCHANGE_NAME

    def table_of(self, stream: bytes) -> str | None:
        """Return the decision table of a stream; None if it is not known."""
        known = self._streams.streams.get(stream)
        return None if known is None else known.table

    def has_topic(self, name: str) -> bool:
        """Return whether there is a topic of that name."""
        return name in self._engine.catalog.topics

    def topics_of(self, group: str) -> Collection[str]:
        """Return the topics in which a group has positions or claims."""
        stores = self._engine.catalog.stores
        return {stores[number].topic for number in self._groups.find(group).partitions() if number in stores}

    def dead_topic_of(self, group: str, partition: int) -> str | None:
        """Return the topic that takes what a group gives up in a partition; None if nothing can be given up there."""
        topic = self.topic_of(partition)
        return None if topic is None or is_dead_topic(topic) else target_of(topic, self._groups.find(group))

    def reads_of(self, command: Attend | BeginMessages) -> Reads | None:
        """Return what the member that a request names reads; None if there is none with that secret."""
        return self._member_of(command.group, command.member, command.secret)

    def of_others(self, command: Any, principal: str) -> Thing | None:
        """Return the transaction that a request names, unless the principal began it."""
        table = self._engine.transactions.table
        if command.serial:
            if not command.session:
                return None  # of its own session
            number, shown = TransactionNumber(command.session, command.serial), ""
        elif command.xid is None:
            return None  # which is refused for that reason
        else:
            shown = str(command.xid)
            try:
                number = table.find(command.xid)
            except UnknownTransaction:
                return Thing(resource_name(command.xid.global_id), shown)
        ended = table.outcomes.find(number)
        found = table.live.get(number) or ended
        if found is None or (found is ended and found.owner is None and not ended.placements):
            return None  # nobody's: that is what will be said; one of which nothing has arrived has no owner
        owner = "" if found.owner is None else found.owner.principal  # who used the journal itself was nobody
        if owner == principal:
            return None
        name = None if found.xid is None else resource_name(found.xid.global_id)
        return Thing(name, shown or f"transaction {number}", also=f"{OWNER}{owner}" if owner else "")


class PrincipalRights:
    """The rights of a principal, as long as no rule about it changes."""

    def __init__(self, policy: AccessPolicy, principal: str, rules: list[Rule]) -> None:
        self._policy = policy
        self.principal = principal
        self._rules = rules
        self._topics: dict[tuple[Right, str], bool] = {}
        self._written: set[int] = set()
        self._read: set[int] = set()
        self._groups: set[str] = set()
        self.topic_of, self.table_of = policy.topic_of, policy.table_of
        self.queue_of, self.exchange_of = policy.queue_of, policy.exchange_of
        self.has_topic, self.topics_of = policy.has_topic, policy.topics_of
        self.dead_topic_of, self.reads_of = policy.dead_topic_of, policy.reads_of

    def of_others(self, command: Any) -> Thing | None:
        """Return the transaction that a request names, unless it is the principal's own."""
        return self._policy.of_others(command, self.principal)

    def knows(self, command: Any) -> bool:
        """Return whether a request like this was allowed before, of the kinds that come by the thousand.

        A partition is one topic's for good, and with the next rule there is another object. 0.4 µs instead of 4
        for each send.
        """
        kind = type(command)
        if kind is Send:
            return command.partition in self._written
        if kind is Fetch:
            for number, _, _ in command.positions:
                if number not in self._read:
                    return False
            return all(reader.group in self._groups for reader in command.readers)
        return False

    def learn(self, command: Any) -> None:
        """Note that a request was allowed: of partitions that there are, which bounds how much is noted."""
        kind = type(command)
        if kind is Send and self.topic_of(command.partition) is not None:
            self._written.add(command.partition)
        elif kind is Fetch:
            numbers = (number for number, _, _ in command.positions)
            self._read.update(number for number in numbers if self.topic_of(number) is not None)
            self._groups.update(reader.group for reader in command.readers if len(self._groups) < MOST_KEPT)

    def judge(self, need: Need, command: Any) -> None:
        """Raise AccessDenied if the principal has not the right, on one of the things that the request names."""
        for thing in need.things(command, self):
            if not self.allows(need.right, need.resource, thing):
                self._policy.denied += 1
                raise denied(self.principal, need.right, need.resource, thing.shown)

    def allows(self, right: Right, resource: Resource, thing: Thing) -> bool:
        """Return whether the principal has the right on a thing."""
        name = thing.name
        if resource is not Resource.TOPIC or name is None or thing.is_prefix:
            return decided(self._rules, right, resource, thing)
        known = self._topics.get((right, name))
        if known is None:
            known = decided(self._rules, right, resource, thing)
            if len(self._topics) < MOST_KEPT:
                self._topics[right, name] = known
        return known


MOST_KEPT: Final = 10_000
"""Most names of topics for which a principal's rights are kept; what is beyond is judged each time."""


def decided(rules: list[Rule], right: Right, resource: Resource, thing: Thing) -> bool:
    """Return whether rules allow a right on a thing, and none denies it."""
    found = list(matching(rules, right, resource, thing))
    return bool(found) and all(rule.effect is Effect.ALLOW for rule in found)


def matching(rules: list[Rule], right: Right, resource: Resource, thing: Thing) -> Iterator[Rule]:
    """Yield the rules that allow a right on a thing, or on all things that are meant, or deny it on some of them."""
    for rule in rules:
        if rule.resource is resource:
            if rule.effect is Effect.DENY:
                if right in rule.rights and _touches(rule, thing):
                    yield rule
            elif (right in rule.rights or right is Right.DESCRIBE) and _covers(rule, thing):
                yield rule


def _covers(rule: Rule, thing: Thing) -> bool:
    """Whether a rule is about all that is meant. The broker's own topics are meant only by one that says so."""
    if rule.resource is Resource.BROKER:
        return True
    name = _name_for(rule, thing)
    if not name:
        return rule.is_prefix and not rule.pattern
    return (rule.is_prefix or not thing.is_prefix) and _means(rule, name)


def _name_for(rule: Rule, thing: Thing) -> str | None:
    """The name of a thing that a rule goes by: a transaction's owner only if the rule speaks of owners."""
    return (
        thing.also if rule.resource is Resource.TRANSACTION and rule.pattern.startswith(OWNER) else thing.name
    )


def _means(rule: Rule, name: str) -> bool:
    if rule.resource is Resource.TOPIC and is_internal(name) and not is_internal(rule.pattern):
        return False
    return _fits(rule, name)


def _fits(rule: Rule, name: str) -> bool:
    return name.startswith(rule.pattern) if rule.is_prefix else name == rule.pattern


def _touches(rule: Rule, thing: Thing) -> bool:
    """Whether a rule is about some of what is meant."""
    if rule.resource is Resource.BROKER or thing.name is None:
        return True
    if thing.is_prefix and rule.pattern.startswith(thing.name):
        return True
    return _fits(rule, _name_for(rule, thing) or "")


def denied(principal: str, right: Right, resource: Resource, shown: str) -> AccessDenied:
    """Return the refusal of a request for lack of a right."""
    named = shown.removeprefix(f"the {resource.value} ").removeprefix(f"{resource.value} ")
    what = " ".join(filter(None, (resource.value, named)))
    return AccessDenied(
        f"{principal} has not the right to {right.value} {what}; nothing was done, and this does not say whether there "
        f"is such a thing. An administrator may allow it: txbroker access allow {principal} {right.value} "
        f"{resource.value}" + (" NAME" if resource is not Resource.BROKER else ""),
        right.value,
        what,
    )
