"""The description of a consumer group for people and for programs: its members, and who has which partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise

from rich.console import RenderableType

from journal.quantities import Quantity, written
from txbroker.cli.output import age_text, count_text, table, visible
from txbroker.cli.retry_options import policy_text
from txbroker.client.core.results import GroupDescription, GroupMember, GroupPartition

Texts = Mapping[tuple[str, int], str]
"""Texts about partitions, by topic and index."""

KINDS = {"consumers": "Its consumers name their partitions.", "": "Nobody has read for it yet."}


def kind_text(group: GroupDescription) -> str:
    """Return a sentence on how the partitions of a group come to its consumers."""
    if group.kind != "members":
        return KINDS[group.kind]
    return f"The broker shares its partitions out to {count_text(len(group.members), 'member')}."


def members_table(group: GroupDescription) -> RenderableType:
    """Return the members as a table."""
    named = any(member.name for member in group.members)
    columns = ("member", "client", *(["static name"] if named else []), "address", "heard", "partitions")
    owned: dict[int | None, list[GroupPartition]] = {}
    for part in group.partitions:
        owned.setdefault(part.member, []).append(part)
    rows = [
        (
            str(member.number),
            member.client,
            *([member.name or None] if named else []),
            member.address or "(away)",
            f"{age_text(_micros(member.silent))} ago",
            places_text(owned.get(member.number, ())) or None,
        )
        for member in group.members
    ]
    return table(columns, rows, "It has no members now.")


def places_text(parts: Iterable[GroupPartition]) -> str:
    """Return topics and indexes of partitions, in ranges: ``orders 0-3, 7; payments 1``."""
    indexes: dict[str, list[int]] = {}
    for part in parts:
        indexes.setdefault(part.topic, []).append(part.partition)
    return "; ".join(f"{topic} {_ranges(sorted(found))}" for topic, found in sorted(indexes.items()))


def _ranges(numbers: list[int]) -> str:
    """Return ascending numbers, those that follow each other as a range."""
    ends = [index for index, (one, other) in enumerate(pairwise(numbers), 1) if other != one + 1]
    runs = [numbers[first:end] for first, end in pairwise([0, *ends, len(numbers)])]
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def partitions_table(group: GroupDescription, held: Texts, metadata: Texts) -> RenderableType:
    """Return the partitions as a table. ``held`` has the undecided transactions for which consumers wait."""
    labels = labels_of(group.members)
    waits = {place_of(part): waits_for(group, part, labels, held) for part in group.partitions}
    told: dict[str, Texts] = {
        "waiting": {
            place_of(part): age_text(_micros(part.waiting))
            for part in group.partitions
            if part.waiting is not None
        },
        "metadata": metadata,
        "waits for": {at: text for at, text in waits.items() if text},
    }
    if group.kind == "members":
        owners = {place_of(part): labels[part.member] for part in group.partitions if part.member in labels}
        told = {"waiting": told.pop("waiting"), "owner": owners, **told}
    told = {name: texts for name, texts in told.items() if texts}
    rows = [
        (
            part.topic,
            part.partition,
            part.position,
            part.lag,
            *(texts.get(place_of(part)) for texts in told.values()),
        )
        for part in group.partitions
        if part.position is not None or any(place_of(part) in texts for texts in told.values())
    ]
    return table(("topic", "partition", "offset", "lag", *told), rows, "It has no positions.")


def place_of(part: GroupPartition) -> tuple[str, int]:
    """Return the topic and the index of a partition."""
    return part.topic, part.partition


def labels_of(members: Iterable[GroupMember]) -> dict[int | None, str]:
    """Return a text for each member: its static name, or its client's if no other has that, else its number."""
    found = list(members)
    clients = Counter(member.client for member in found)
    return {
        member.number: member.name
        or (member.client if clients[member.client] == 1 else "")
        or str(member.number)
        for member in found
    }


def waits_for(
    group: GroupDescription, part: GroupPartition, labels: Mapping[int | None, str], held: Texts
) -> str:
    """Return what stands between a partition and its messages being read on; "" for nothing."""
    found = []
    if transaction := held.get(place_of(part)) or part.held_by:
        found.append(f"transaction {transaction}")
    if part.revoking:
        found.append(f"{labels.get(part.member, part.member)} to release it")
    if group.kind == "members" and part.member is None:
        left = f" for {age_text(_micros(part.kept))}"
        if not group.members:
            found.append("a member")
        elif part.kept_for and part.kept:
            found.append(f"{part.kept_for} to come back,{left}")
        elif part.kept:
            found.append(f"the member that had it,{left}")
        else:
            found.append("a member to get it")
    return "; ".join(found)


def settings_json(group: GroupDescription) -> dict[str, object]:
    """Return the settings of a group in JSON; ``expiry`` is in seconds, 0 for never, null for what the broker says."""
    retry = None if group.retry is None else group.retry._asdict()
    return {"retry": retry, "expiry": group.expiry, "tags": list(group.tags)}


def settings_text(group: GroupDescription) -> str:
    """Return what is said of a group as a whole, as sentences."""
    said = [policy_text(group.retry)]
    if group.expiry is not None:
        time = written(Quantity.DURATION, round(group.expiry * 1e6))
        said.append(
            f"It is deleted once nobody has used it for {time}." if group.expiry else "It never expires."
        )
    if group.tags:
        said.append(f"It reads only messages with the tag {' or '.join(map(visible, group.tags))}.")
    return " ".join(said)


def description_json(group: GroupDescription) -> dict[str, object]:
    """Return members and partitions in JSON; ``silent``, ``kept`` and ``waiting`` are µs."""
    return {
        "kind": group.kind or None,
        **settings_json(group),
        "members": [
            member._asdict() | {"silent": _micros(member.silent), "address": member.address or None}
            for member in group.members
        ],
        "partitions": [
            part._asdict()
            | {
                "kept": _micros(part.kept),
                "waiting": None if part.waiting is None else _micros(part.waiting),
            }
            for part in group.partitions
        ],
    }


def _micros(seconds: float) -> int:
    return round(seconds * 1e6)
