"""Tables of damages: each is a function that does it to a directory, with what the audit must name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from journal.formats.frame import HEADER_BYTES
from journal.records.outcome_entry import OUTCOMES_TOPIC, ArchivedOutcome, unpack
from spark.audit.claims.facts import Fact, What
from tests.spark.audit.audited import audited
from tests.spark.damages.forger import held
from tests.spark.damages.forgeries import documented

Named = dict[str, object]
Damage = Callable[..., Named]
"""Of a path, and of what a table of its own has besides."""


class Damages:
    """One table. A decorator takes a damage into it."""

    def __init__(self) -> None:
        self.done: dict[str, Damage] = {}
        self._harmless: set[str] = set()

    def __call__(self, name: str, harmless: bool = False) -> Callable[[Damage], Damage]:
        """``harmless``: nothing rests on it, or a crash may leave it so; it is named, and is no violation."""
        assert name not in self.done
        if harmless:
            self._harmless.add(name)

        def take(function: Damage) -> Damage:
            self.done[name] = function
            return function

        return take

    def check(self, name: str, path: Path) -> None:
        """Do it, and see it found and named; by what docs/spark.md says, if that has it."""
        kind = self.kind(name, path)
        assert kind == documented().get(name, (kind, ""))[0], (
            "python -m tests.spark.damages.forgeries writes the table"
        )

    def kind(self, name: str, path: Path, *more: object) -> str:
        """Do it, see it found and named, and return the kind of what has found it."""
        wanted = self.done[name](path, *more)
        found = [fact for fact in audited(path) if fact.what in (What.VIOLATION, What.NOTICE)]
        assert (What.VIOLATION in {fact.what for fact in found}) == (name not in self._harmless), found[:10]
        fitting = [fact for fact in found if _fits(fact, wanted)]
        assert fitting, (wanted, found[:10])
        return fitting[0].kind


def _fits(fact: Fact, wanted: Named) -> bool:
    return all(
        str(value) in fact.text if name == "says" else getattr(fact, name) == value
        for name, value in wanted.items()
    )


def outcomes(path: Path) -> list[Any]:
    """The entries of the outcome archive, in their order."""
    found: list[ArchivedOutcome] = [
        unpack(each.entry.frame[HEADER_BYTES:]) for each in held(path, OUTCOMES_TOPIC)
    ]
    return found
