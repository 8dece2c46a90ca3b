"""Transactions in words and sentences, for tables, questions and answers. All of it is pure."""

from __future__ import annotations

from collections.abc import Sequence

from journal.parties import with_principal
from journal.transaction_states import State, TransactionNumber
from txbroker.cli.output import age_text, count_text, size_text, time_text, visible
from txbroker.wire.messages import CoordinatorWord, TransactionInfo

DAMAGE = "DAMAGE"
"""The word for an heuristic outcome that went one way while its coordinator decided the other."""


def number_of(info: TransactionInfo) -> str:
    """Return its number, as arguments take it."""
    return str(TransactionNumber(info.session, info.serial))


def state_name(state: State) -> str:
    """Return a state as options and JSON have it."""
    return state.name.lower().replace("_", "-")


def state_text(info: TransactionInfo) -> str:
    """Return its state for people; a heuristic outcome is marked, and a contradicted one, too."""
    mark = " (forced)" if info.heuristic else " (restored)" if info.restored else ""
    return state_name(info.state) + mark + (f", {DAMAGE}" if info.contradicted else "")


def has_ended(info: TransactionInfo) -> bool:
    """Return whether it is decided."""
    return info.state in (State.COMMITTED, State.ROLLED_BACK)


def waiting(info: TransactionInfo) -> int:
    """Return the µs for which it has been in its state: prepared, or undecided, or decided."""
    return info.age if info.prepared_age is None else info.prepared_age


def cause_text(info: TransactionInfo) -> str | None:
    """Return the cause of its end."""
    return None if info.cause is None else info.cause.name.lower().replace("_", "-")


def next_text(info: TransactionInfo) -> str:
    """Return what will happen to it by itself, in a word or two."""
    if info.contradicted:
        return DAMAGE
    if info.state is not State.PREPARED:
        return "–" if has_ended(info) else "rollback at its time-out"
    policy = info.policy
    if info.restored:
        return "a person decides"
    if policy is None:
        return "nothing"
    if policy.done:
        return "nothing: damaged" if policy.obstacle else "nothing: alerted"
    return f"{policy.action} in {age_text(policy.due_in)}" if policy.due_in else f"{policy.action} now"


def next_sentence(info: TransactionInfo) -> str:
    """Return what will happen to it by itself, in full."""
    if has_ended(info):
        return ended_sentence(info)
    if info.state is not State.PREPARED:
        return "It is rolled back when its connection ends or transaction_timeout is over, unless it is ended before."
    holds = "Until somebody decides, it keeps its messages, its xid and the positions that it moves."
    policy = info.policy
    if info.restored:
        return (
            "It was prepared when the backup was made from which the data are restored, and may have been committed "
            "since: its coordinator can commit it, unless this broker was restored as a copy, and only a person can "
            f"roll it back. {holds}"
        )
    if policy is None:
        return f"Nothing happens by itself: there is no orphan policy. {holds}"
    if policy.obstacle:
        return f"The orphan policy wants to {policy.action} it and cannot: {policy.obstacle} {holds}"
    if policy.done:
        return f"Nothing more happens by itself: the orphan policy has given its alert. {holds}"
    when = f"in {age_text(policy.due_in)}" if policy.due_in else "now"
    what = {"alert": "says so in the log", "rollback": "rolls it back", "commit": "commits it"}[policy.action]
    return f"The orphan policy {what} {when}. {holds}"


def ended_sentence(info: TransactionInfo) -> str:
    """Return what is left to do about one that has ended."""
    if not info.heuristic:
        return "It has ended as it should; how is remembered until its client has seen it."
    if info.told is None:
        return (
            "Its coordinator has not come back yet. When it does, it is told who forced this and why; if it has "
            f"decided otherwise, that is {DAMAGE}, shown here and in `status`."
        )
    if not info.contradicted:
        return "Its coordinator has decided the same: all is well, it can be forgotten."
    return (
        f"{DAMAGE}: {told_text(info.told)}. What else took part in it (a database, another broker) disagrees with this "
        "broker. Make them agree by hand, then forget it."
    )


def told_text(told: CoordinatorWord) -> str:
    """What its coordinator decided, and when."""
    place = by_text(told) or "an unknown place"
    return f"its coordinator decided to {decision(told.decided)} at {time_text(told.wall)}, from {place}"


def owner_text(info: TransactionInfo) -> str:
    """The name of the client that began it, with its session's principal where that says something."""
    return with_principal(info.owner, info.principal)


def by_text(said: TransactionInfo | CoordinatorWord) -> str:
    """Return the name of the actor that decided from elsewhere, with its principal, too."""
    return with_principal(said.by, said.by_principal)


def decision(state: State) -> str:
    """Return a decision as a verb."""
    return "commit" if state is State.COMMITTED else "roll back"


# -- in a sentence ----------------------------------------------------------------------------------


def summary(info: TransactionInfo) -> str:
    """Return a transaction in a sentence."""
    parts = [f"Transaction {number_of(info)}"]
    if info.xid is not None:
        parts.append(f"(xid {info.xid})")
    if info.owner:
        parts.append(f"of {owner_text(info)}")
    ended = has_ended(info)
    since = "ended" if ended else "began"
    state = f"is {state_text(info)}; it {since} {age_text(info.age)} ago"
    if info.prepared_age is not None:
        state = f"was prepared {age_text(info.prepared_age)} ago"
    holds = [f"{count_text(info.messages, 'message')} ({size_text(info.bytes)})"]
    holds += [f"for {', '.join(info.topics)}"] if info.topics else []
    holds += [f"and offsets of {', '.join(info.groups)}"] if info.groups else []
    parts.append(f"{state} and {'held' if ended else 'holds'} {' '.join(holds)}.")
    if ended and info.heuristic:
        parts.append(f"It was forced by {by_text(info) or 'the orphan policy'}: {info.why}.")
        if info.told is None:
            parts.append("Its coordinator has not been heard of.")
        else:
            parts.append(
                f"{DAMAGE}: {told_text(info.told)}." if info.contradicted else "Its coordinator agrees."
            )
    return visible(" ".join(parts))


def totals(infos: Sequence[TransactionInfo]) -> str:
    """Return the totals over some transactions."""
    messages, size = sum(info.messages for info in infos), sum(info.bytes for info in infos)
    oldest = age_text(max(map(waiting, infos), default=0))
    what = f"{count_text(len(infos), 'transaction')}, {count_text(messages, 'message')} ({size_text(size)})"
    return f"{what}, the oldest {oldest}"
