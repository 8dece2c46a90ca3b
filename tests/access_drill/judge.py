"""The judge: reads all notes when the drill is over, and says what was wrong in each answer, and in what is stored.

An act took from one moment to another, and a change of users or rules, too. So an answer is right if it is right by one
of the standings that may have held meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from tests.access_drill.acts import Act, Block, Notes, Result
from tests.access_drill.rules_model import Need, Standing
from tests.access_drill.scene import TOPICS
from tests.access_drill.timeline import Timeline

EXPECTED = {
    "delete topic": {"UnknownTopic"},
    "move group": {"PositionMoved", "GenerationFenced", "UnknownTopic"},
    "commit at once": {"TransactionRolledBack"},
    "prepare": {"TransactionRolledBack", "LimitExceeded"},
    "end own": {"UnknownTransaction", "OutcomeForgotten"},
    "end another's": {
        "UnknownTransaction",
        "OutcomeForgotten",
        "TransactionRolledBack",
        "TransactionConflict",
    },
}
"""What an act may be refused for beside a right: others do the same, and a session that ends rolls back."""


class Judge:
    """Judges a drill by its notes, its timeline, and what the broker has in the end."""

    def __init__(self, notes: Notes, timeline: Timeline) -> None:
        self._notes, self._timeline = notes, timeline
        self._blocks = {block.xid: block for block in notes.blocks}

    def judge(self, stored: Counter[str], topics: Iterable[str]) -> Iterator[str]:
        """Yield what is wrong. ``stored`` counts the texts of all messages, ``topics`` has the names of all topics."""
        for act in self._notes.acts:
            for wrong in self._of_act(act):
                yield f"{act.who}, {act.what}, {act.began:.3f} to {act.ended:.3f}, {act.result.value}: {wrong}"
        yield from self._of_messages(stored)
        yield from self._of_topics(set(topics))

    # -- answers ------------------------------------------------------------------------------------

    def _of_act(self, act: Act) -> Iterator[str]:
        standings = list(self._timeline.between(act.began, act.ended))
        match act.result:
            case Result.DONE:
                yield from self._of_done(act, standings)
            case Result.DENIED:
                yield from self._of_denied(act, standings)
            case Result.OUT:
                if all(each.lets_in(act.who, shown) for each in standings for shown in act.shown):
                    yield f"it was not let in, though all of {act.shown} did that all the time ({act.error})"
            case Result.REFUSED:
                yield from self._of_refused(act, standings)

    def _of_done(self, act: Act, standings: list[Standing]) -> Iterator[str]:
        if act.what.startswith("log in") or act.what == "open producer":
            if not any(each.lets_in(act.who, shown) for each in standings for shown in act.shown):
                yield f"it was let in with {act.shown}"
        elif all(act.who not in each.accounts for each in standings):
            yield "there was no such user"
        for need in act.needs:
            if need.hard and not any(each.allows(act.who, need) for each in standings):
                yield f"it was not allowed: {need}"
        if act.what == "list topics":
            yield from _of_list(act, standings)
        elif act.what == "list prepared":
            yield from self._of_prepared(act)
        elif act.what == "prepare":
            yield from self._of_quota(act, standings, refused=False)

    def _of_denied(self, act: Act, standings: list[Standing]) -> Iterator[str]:
        if all(act.who not in each.accounts for each in standings):
            yield "there was no such user, and its session went on"
        needs = [each for each in self._needs(act) if (each.right, each.kind) == (act.right, act.kind)]
        if not needs:
            yield f"it was refused for lack of {act.right} on a {act.kind}, which it does not need"
        elif all(each.allows(act.who, need) for each in standings for need in needs):
            yield f"it was refused, though it was allowed all the time: {needs}"

    def _needs(self, act: Act) -> list[Need]:
        """What an act needs. What is over has no owner any more, so rules about owners do not count then."""
        block = self._blocks.get(act.xid)
        if act.what not in ("end own", "end another's") or block is None:
            return act.needs
        may_be_gone = any(each is not act and each.began < act.ended for each in block.decisions)
        unsure = block.prepare.result is not Result.DONE or block.prepare.ended > act.began
        return (
            act.needs if not (may_be_gone or unsure) else [*act.needs, Need("decide", "transaction", act.xid)]
        )

    def _of_refused(self, act: Act, standings: list[Standing]) -> Iterator[str]:
        kind = act.error.split(":")[0]
        block = self._blocks.get(act.xid)
        if kind not in EXPECTED.get(act.what, ()):
            yield f"nobody expected {act.error}"
        elif kind == "LimitExceeded":
            yield from self._of_quota(act, standings, refused=True)
        elif act.what == "end own" and block is not None and _has_to_end(act, block):
            yield f"what was prepared could not be ended: {act.error}"

    def _of_prepared(self, act: Act) -> Iterator[str]:
        """A list is whole: what was surely prepared all the time is in it."""
        listed = set(act.found)
        for block in self._notes.blocks:
            is_there = block.prepare.result is Result.DONE and block.prepare.ended < act.began
            if (
                is_there
                and block.first_try > act.ended
                and block.xid.startswith(act.xid)
                and block.xid not in listed
            ):
                yield f"the list of transactions {act.xid}* lacks {block.xid}, and does not say so"

    def _of_quota(self, act: Act, standings: list[Standing], refused: bool) -> Iterator[str]:
        """How many others of the user were surely, or perhaps, prepared while this was asked for."""
        others = [each for each in self._notes.blocks if each.owner == act.who and each.prepare is not act]
        surely = [
            each
            for each in others
            if each.prepare.result is Result.DONE
            and each.prepare.ended < act.began
            and each.first_try > act.ended
        ]
        perhaps = [
            each
            for each in others
            if each.prepare.result in (Result.DONE, Result.UNKNOWN)
            and each.prepare.began < act.ended
            and each.surely_over > act.began
        ]
        quotas = [each.accounts[act.who].prepared for each in standings if act.who in each.accounts]
        if refused and all(each is None or each > len(perhaps) for each in quotas):
            yield f"it was refused for a quota of {quotas} with {len(perhaps)} prepared ({act.error})"
        if not refused and all(each is not None and each <= len(surely) for each in quotas):
            yield f"{len(surely)} others were prepared, and the quota was {quotas}"

    # -- what is stored -----------------------------------------------------------------------------

    def _of_messages(self, stored: Counter[str]) -> Iterator[str]:
        owners = {text: act for act in self._notes.acts for text in act.messages}
        for text, times in stored.items():
            if text not in owners:
                yield f"message {text} is stored, and nobody has sent it"
            elif times > 1:
                yield f"message {text} is stored {times} times"
        prepared = {block.prepare.messages[0]: block for block in self._notes.blocks}
        for act in self._notes.acts:
            if not act.messages:
                continue
            kept = sum(stored[text] > 0 for text in act.messages)
            block = prepared.get(act.messages[0])
            wanted = _wanted(act, block)
            if wanted is not None and kept != wanted * len(act.messages):
                yield f"{act.who}, {act.what}, {act.result.value}: {kept} of {act.messages} are stored"
            elif kept not in (0, len(act.messages)):
                yield f"{act.who}, {act.what}: of {act.messages} {kept} are stored, and not all"

    def _of_topics(self, topics: set[str]) -> Iterator[str]:
        """What was refused is not there, and what was made is, unless somebody may have deleted it."""
        deleted = {
            name
            for act in self._notes.acts
            if act.what == "delete topic" and act.result in (Result.DONE, Result.UNKNOWN)
            for name in act.found
        }
        surely = {
            act.found[0]
            for act in self._notes.acts
            if act.what == "delete topic" and act.result is Result.DONE
        }
        for act in self._notes.acts:
            if act.made and act.result is Result.DONE and act.made not in topics and act.made not in deleted:
                yield f"topic {act.made} was made, and is not there"
            if act.made and act.made in topics and (act.result in (Result.DENIED, Result.REFUSED)):
                yield f"topic {act.made} is there, and making it was refused"
        yield from (f"topic {name} is there, and was deleted" for name in sorted(surely & topics))


def _has_to_end(act: Act, block: Block) -> bool:
    """Whether it was surely prepared, and nobody else may have ended it."""
    alone = all(each is act or each.began >= act.ended for each in block.decisions)
    return alone and block.prepare.result is Result.DONE


def _wanted(act: Act, block: Block | None) -> int | None:
    """Return whether the messages of an act are to be stored; None if that is open."""
    if block is None:
        return {Result.DONE: 1, Result.UNKNOWN: None}.get(act.result, 0)
    if act.result is Result.DONE:
        return int(block.commits)
    return None if act.result is Result.UNKNOWN and block.commits else 0


def _of_list(act: Act, standings: list[Standing]) -> Iterator[str]:
    for name in act.found:
        need = Need("describe", "topic", name)
        if not any(each.allows(act.who, need) for each in standings):
            yield f"the list has topic {name}"
    for name in set(TOPICS) - set(act.found):
        if all(each.allows(act.who, Need("describe", "topic", name)) for each in standings):
            yield f"the list lacks topic {name}"
        elif not act.has_others:
            yield f"the list lacks topic {name}, and does not say that there are others"
