"""Transactions for programs. All of it is pure."""

from __future__ import annotations

from itertools import chain, islice, zip_longest

from txbroker.cli.output import bytes_json
from txbroker.cli.transactions.words import cause_text, number_of, state_name
from txbroker.client.core.results import Message, TransactionDetails
from txbroker.wire.messages import CoordinatorWord, Policy, TransactionInfo

SHOWN_MESSAGES = 20


def preview(shown: TransactionDetails) -> list[Message]:
    """Return its first messages by topic and partition, some of each if there is room, in the order of sending."""
    places: dict[tuple[str, int], list[Message]] = {}
    for message in shown.messages:
        places.setdefault((message.topic, message.partition), []).append(message)
    rounds = chain.from_iterable(zip_longest(*places.values()))
    chosen = {id(message) for message in islice(filter(None, rounds), SHOWN_MESSAGES)}
    return [message for place in sorted(places) for message in places[place] if id(message) in chosen]


def transaction_json(info: TransactionInfo) -> dict[str, object]:
    """Return a transaction in JSON; ``age`` and ``prepared_age`` in µs, times in µs since 1970 or null."""
    return {
        "number": number_of(info),
        "xid": None if info.xid is None else str(info.xid),
        "state": state_name(info.state),
        "owner": info.owner,
        "address": info.address,
        "principal": info.principal,
        "age": info.age,
        "prepared_age": info.prepared_age,
        "messages": info.messages,
        "bytes": info.bytes,
        "topics": info.topics,
        "groups": info.groups,
        "began": info.began or None,
        "prepared": info.prepared or None,
        "restored": info.restored,
        "ended": info.ended or None,
        "policy": policy_json(info.policy),
        "cause": cause_text(info),
        "by": info.by,
        "by_principal": info.by_principal,
        "why": info.why,
        "forced": info.heuristic,
        "coordinator": told_json(info.told),
        "damage": info.contradicted,
    }


def policy_json(policy: Policy | None) -> dict[str, object] | None:
    """Return the orphan policy's next action, or null."""
    if policy is None:
        return None
    return {
        "action": policy.action,
        "due_in": policy.due_in,
        "done": policy.done,
        "obstacle": policy.obstacle or None,
    }


def told_json(told: CoordinatorWord | None) -> dict[str, object] | None:
    """Return a coordinator's decision after a heuristic outcome, or null."""
    if told is None:
        return None
    return {
        "decided": state_name(told.decided),
        "at": told.wall,
        "by": told.by,
        "by_principal": told.by_principal,
    }


def shown_json(shown: TransactionDetails) -> dict[str, object]:
    """Return a transaction in JSON with its contents, the first messages, and where they went."""
    return transaction_json(shown.transaction) | {
        "partitions": [at._asdict() for at in shown.contents],
        "content": [
            {
                "topic": m.topic,
                "partition": m.partition,
                "key": bytes_json(m.key),
                "value": bytes_json(m.value),
                "headers": len(m.headers),
                "timestamp": m.timestamp,
            }
            for m in preview(shown)
        ],
        "obstacle": shown.obstacle or None,
        "offsets": [moved._asdict() for moved in shown.offsets],
        "placements": [run._asdict() for run in shown.runs],
    }
