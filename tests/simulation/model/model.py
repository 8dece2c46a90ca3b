"""The model judges requests and answers by what must hold. It knows nothing of engines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from tests.simulation.model.gap_model import Gaps
from tests.simulation.model.intent_model import DONE, NEVER, OPEN, VOID, Intent
from tests.simulation.model.log_model import Floor, Logs, require

__all__ = ["DONE", "NEVER", "OPEN", "VOID", "Intent", "Model"]


class Model:
    """``forgetful``: the broker may forget any outcome. ``orphans``: what its policy does with prepared ones."""

    def __init__(self, forgetful: bool = False, orphans: str = "") -> None:
        self.now = 0
        self.forgetful, self.orphans = forgetful, orphans
        self.seen = Logs()
        self.gaps = Gaps(self.seen)
        self.open: list[Intent] = []
        self.transactions: dict[tuple[int, int], Intent] = {}
        self.numbers: dict[str, set[object]] = defaultdict(set)
        self.forgettable: dict[int, int] = defaultdict(int)

    def tick(self) -> int:
        """Time goes on with every request and answer."""
        self.now += 1
        return self.now

    def fresh(self, kind: str, number: object) -> None:
        """A number was given to somebody."""
        require(number not in self.numbers[kind], f"no {kind} is used twice", f"{number} again")
        self.numbers[kind].add(number)

    # -- what is asked ------------------------------------------------------------------------------

    def ask(self, intent: Intent, what: str = "commit") -> None:
        """Somebody asks for it; outside transactions again after a refusal, too."""
        if not intent.asked:
            self.open.append(intent)
        intent.asked.add(what)
        intent.attempts += 1
        if what == "commit" or (what == "prepare" and self.orphans == "commit"):
            intent.asked_at = min(intent.asked_at, self.now)
        if intent.state == VOID and intent.number is None:
            intent.state = OPEN

    def put_into(self, intent: Intent, partition: int, values: Iterable[bytes]) -> None:
        """Messages are part of it."""
        for value in values:
            intent.values.setdefault(partition, []).append(value)
            self.seen.owners[value] = intent

    # -- what is answered -----------------------------------------------------------------------------

    def done(self, intent: Intent, bases: Mapping[int, int] | None = None) -> None:
        """It has happened, with its messages from these offsets on."""
        asked = "commit" in intent.asked or (self.orphans == "commit" and "prepare" in intent.asked)
        require(asked, f"{intent.name} has no effect, nobody asked", "it has")
        require(intent.state != VOID and not intent.doomed, f"{intent.name} did not happen", "it did")
        if intent.state == OPEN:
            intent.state, intent.ended_at = DONE, self.now
        for partition, base in (bases or {}).items():
            for offset, value in enumerate(intent.values.get(partition, ()), base):
                self.seen.put(partition, offset, value)
        intent.happened(bases or {})

    def void(self, intent: Intent) -> None:
        """It has not happened, and nothing that was asked so far will make it."""
        require(intent.state != DONE, f"{intent.name} happened", "it did not")
        kept = intent.prepared_at <= self.now and not (
            "rollback" in intent.asked or self.orphans == "rollback"
        )
        require(not kept, f"{intent.name} is prepared and nobody asked to roll it back", "rolled back")
        if intent.state == OPEN:
            intent.state, intent.ended_at = VOID, self.now

    def refused(self, intent: Intent) -> None:
        """One attempt has surely done nothing; earlier ones may have."""
        intent.attempts -= 1
        if not intent.attempts and intent.state == OPEN and intent.number is None:
            self.void(intent)

    def prepared(self, intent: Intent, since: int) -> None:
        """It was seen to be prepared at some moment after ``since``."""
        require("prepare" in intent.asked, f"{intent.name} is not prepared, nobody asked", "prepared")
        require(intent.ended_at > since, f"{intent.name} has ended ({intent.state})", "prepared")
        intent.prepared_at = min(intent.prepared_at, self.now)

    def unprepared(self, intent: Intent, since: int) -> None:
        """It was seen to be active, or to have an xid that nobody knows, at some moment after ``since``."""
        require(intent.prepared_at > since, f"{intent.name} was prepared", "it is active, or unknown")

    def forgotten(self, intent: Intent) -> None:
        """How it ended is said to be forgotten: nobody but its client or an operator may have allowed that."""
        session, serial = intent.number or (0, 0)
        allowed = self.forgetful or self.forgettable[session] >= serial
        require(allowed, f"how {intent.name} ended is remembered, nobody has seen it", "OutcomeForgotten")
        intent.ended_at = min(intent.ended_at, self.now)  # somehow: its logs will tell

    def saw(
        self, partition: int, start: int, end: int, offset: int, values: Sequence[bytes | None], since: Floor
    ) -> None:
        """A reader got these messages, None for a gap."""
        for owner in self.seen.saw(partition, start, end, offset, values, since):
            self.done(owner)
        self.gaps.saw(partition, offset, values)

    def one_moment(self, ends: Mapping[int, int]) -> None:
        """One answer said that these logs end there: no transaction may be in one of them and not in another."""
        for intent in self.transactions.values():
            if len(intent.values) > 1 and intent.state == DONE:
                self.seen.at_once(intent, ends)

    def settle(self, alive: set[int], prepared: set[tuple[int, int]]) -> None:
        """Nothing is under way and all was read: each intent has happened wholly or not at all, or is prepared."""
        for intent in self.open:
            there = self.seen.there(intent, alive)
            require(all(there) or not any(there), f"{intent.name} is there wholly or not at all", there)
            intent.attempts = int(intent.vague)  # an earlier one may have happened, and nobody can see it
            if intent.number in prepared:
                self.prepared(intent, self.now - 1)
            elif intent.state == OPEN and not intent.vague and (intent.values or intent.ended_at > self.now):
                self.void(intent)  # if how it ended is forgotten, and it has no messages, no log tells
            require(intent.state != DONE or all(there), f"{intent.name} happened: all of it is there", there)
        self.open = [intent for intent in self.open if intent.state == OPEN]
        self.seen.look_again()
        for partition in alive:
            self.seen.check_order(partition, self.gaps.check(partition))
