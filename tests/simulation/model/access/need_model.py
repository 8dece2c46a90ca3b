"""The model of what requests need: on which things which rights, as far as it is known what their numbers mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.simulation.model.access.right_model import Need
from tests.simulation.model.access.rule_model import Meant
from tests.simulation.model.model import Intent, Model
from tests.simulation.model.topic_model import TopicModel

_NOTHING = ("Hello", "Login", "Ping", "Cancel", "ListGroups", "DescribeTopics")
_NAMED = {
    "CreateTopic": ("topic", "name", ["create"]), "DeleteTopic": ("topic", "name", ["delete"]),
    "AlterTopic": ("topic", "name", ["alter"]), "AddOffsets": ("group", "group", ["read"]),
    "CommitOffsets": ("group", "group", ["read"]), "ClaimPartitions": ("group", "group", ["read"]),
    "FetchOffsets": ("group", "group", ["describe"]), "DescribeGroup": ("group", "group", ["describe"]),
    "DeleteGroup": ("group", "group", ["delete"]), "AlterGroup": ("group", "group", ["read", "alter"]),
}  # fmt: skip
"""What is named in which field, and the rights that are needed on it."""

_ON_BROKER = dict.fromkeys(("AskStatus", "ListSessions"), "describe") | dict.fromkeys(
    ("AlterUser", "RemoveUser", "ListUsers", "AlterRule", "ListRules", "SwitchAccess", "CheckAccess"), "administer"
)  # fmt: skip


class NeedModel:
    """Says of a request what it needs. ``principals`` are those of sessions, by number.

    ``names`` are what rules call transactions, by their numbers; no two are the same.
    """

    def __init__(self, model: Model, topics: TopicModel, principals: Mapping[int, str]) -> None:
        self._model = model
        self._topics = topics
        self._principals = principals
        self.names: dict[tuple[int, int], str] = {}

    def of(self, kind: str, request: Any, principal: str, since: int) -> list[Need]:
        """What a request of this kind needs that somebody sent at ``since``."""
        if kind == "Timed":
            return self.of(type(request.request).__name__, request.request, principal, since)
        return [] if kind in _NOTHING else list(self._of(kind, request, principal, since))

    def _of(self, kind: str, request: Any, principal: str, since: int) -> Iterator[Need]:
        if kind in _NAMED:
            resource, field, rights = _NAMED[kind]
            for right in rights:
                yield Need(right, resource, [Meant(getattr(request, field))])
            yield from self._on_positions(kind, request)
        elif kind in _ON_BROKER:
            yield Need(_ON_BROKER[kind], "broker", [Meant("")])
        elif kind == "OpenProducer":
            yield from [Need("write", "producer", [Meant(request.name)])] if request.name else []
        elif kind in ("Send", "Add"):
            yield self._on_partition("write", request.partition)
        elif kind == "FindMessages":
            yield self._on_partition("read", request.partition)
        elif kind in ("Fetch", "OffsetsForTime"):
            numbers = [p for p, *_ in request.positions] if kind == "Fetch" else request.partitions
            for number in numbers:
                yield self._on_partition("read" if kind == "Fetch" else "describe", number)
        else:
            yield from self._on_transactions(kind, request, principal, since)

    def _on_transactions(self, kind: str, request: Any, principal: str, since: int) -> Iterator[Need]:
        if kind == "ListTransactions":
            prefix = Meant(request.global_prefix.decode(), is_prefix=True)
            yield from [] if request.own else [Need("describe", "transaction", [prefix])]
            return
        if kind == "Prepare":
            yield Need("prepare", "transaction", [_named(request.xid)])
        elif kind in ("Forget", "ShowTransaction"):
            yield self._on_others("decide" if kind == "Forget" else "describe", request, principal, since)
        elif kind in ("Commit", "Rollback") and request.operator:
            yield self._on_others("force", request, principal, since)
        elif request.session or not request.serial:
            right = "describe" if kind == "AskOutcome" else "decide"
            yield self._on_others(right, request, principal, since)
        for number, _ in getattr(request, "runs", ()):
            yield self._on_partition("write", number)
        for each in getattr(request, "positions", ()):
            yield Need("read", "group", [Meant(each.group)])
            yield from self._on_positions(kind, each)

    def _on_positions(self, kind: str, part: Any) -> Iterator[Need]:
        """Of a part of a request that names positions of a group: each is in a topic."""
        if kind in ("FetchOffsets", "ClaimPartitions"):
            for number in part.partitions or ():
                yield self._on_partition("read" if kind == "ClaimPartitions" else "describe", number)
        elif kind in ("CommitOffsets", "AddOffsets", "Prepare", "Commit"):
            for each in (*part.offsets, *part.settled):
                yield self._on_partition("read", each.partition)

    def _on_partition(self, right: str, number: int) -> Need:
        """On its topic; once that may be deleted, on whatever it was."""
        topic = self._topics.homes.get(number)
        unknown: list[Meant | None] = [Meant(None)]
        if topic is None:
            return Need(right, "topic", unknown)
        return Need(right, "topic", [Meant(topic.name), *(unknown if topic.deleted is not None else [])])

    def _on_others(self, right: str, request: Any, principal: str, since: int) -> Need:
        """On the transaction that is named, unless the principal has begun it: its own it may always end."""
        if request.serial and not request.session:
            return Need(right, "transaction", [None])
        by_xid = not request.serial
        number = self._number(request.xid) if by_xid else (request.session, request.serial)
        begun = self._model.transactions.get(number)
        is_known = begun is not None and self._is_known(begun, since)
        things: list[Meant | None] = []
        if not is_known:
            things.append(_named(request.xid) if by_xid else None)
        if begun is not None:
            owner = self._principals[number[0]]
            of_others: list[Meant | None] = [Meant(self.names[number], also=f"owner:{owner}")]
            if not is_known and not by_xid:
                of_others.append(Meant(None, also=f"owner:{owner}"))  # none of its requests has told its xid
            things += [None] if owner == principal else of_others
        return Need(right, "transaction", things)

    def _number(self, xid: Any) -> tuple[int, int]:
        name = _named(xid).name
        return next((number for number, known in self.names.items() if known == name), (0, 0))

    def _is_known(self, begun: Intent, since: int) -> bool:
        """Whether the broker has surely known it, and its xid, from a moment on until now."""
        session, serial = begun.number or (0, 0)
        model = self._model
        is_kept = not model.forgetful and model.forgettable[session] < serial
        may_end = begun.asked & {"commit", "rollback"} or model.orphans
        return begun.prepared_at < since and (is_kept or not may_end)


def _named(xid: Any) -> Meant:
    return Meant(xid.global_id.decode())
