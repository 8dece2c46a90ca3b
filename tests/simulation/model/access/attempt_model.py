"""The model of attempts: who was refused for lack of a right has not asked at all."""

from __future__ import annotations

from collections import Counter

from tests.simulation.model.model import NEVER, Intent, Model


class AttemptModel:
    """How many requests to prepare or end each transaction were not refused so, and may have done it."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._attempts: Counter[tuple[Intent, str]] = Counter()

    def asked(self, begun: Intent, what: str) -> None:
        """Somebody asks to prepare or end a transaction."""
        self._attempts[begun, what] += 1

    def refused(self, begun: Intent, what: str) -> None:
        """One of these requests has surely had no effect. If it was the only one, nobody has asked."""
        self._attempts[begun, what] -= 1
        if not self._attempts[begun, what] and not self._model.orphans:
            begun.asked.discard(what)
            if what == "commit":
                begun.asked_at = NEVER

    def is_only(self, begun: Intent, what: str) -> bool:
        """Whether nobody has asked for the same but once."""
        return self._attempts[begun, what] == 1
