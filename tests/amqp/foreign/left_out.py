"""What of a foreign suite is not expected to pass, each with its reason: the files left_out/SUITE.toml.

``cases`` is how many cases the suite has, so that none is lost unseen. Each ``[[left_out]]`` has a ``reason`` and
patterns of ``cases``, in which ``*`` stands for anything; ``broker`` says that it is so with that broker only. A
pattern must match a case, and what it matches must not pass: the tables stay true. ``[[either]]`` are cases that pass
on some days only.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).with_name("left_out")


@dataclass(frozen=True)
class LeftOut:
    """Cases that are left out for one reason."""

    reason: str
    patterns: tuple[str, ...]

    def matches(self, pattern: str, outcomes: Iterable[str]) -> list[str]:
        """Return the cases that the pattern stands for."""
        wanted = re.compile(".*".join(re.escape(part) for part in pattern.split("*")), re.DOTALL)
        return [case for case in outcomes if wanted.fullmatch(case)]


@dataclass(frozen=True)
class Expectation:
    """What a suite should give with one broker."""

    cases: int
    left_out: tuple[LeftOut, ...] = ()
    either: tuple[LeftOut, ...] = ()

    def complaints(self, outcomes: Mapping[str, str]) -> list[str]:
        """Return how the outcomes, ``passed`` or what else, differ from what is expected; one line for each."""
        found = []
        if len(outcomes) != self.cases:
            found.append(f"{len(outcomes)} cases ran, the table says {self.cases}")
        excused: set[str] = set()
        for entry in self.left_out:
            for pattern in entry.patterns:
                matched = entry.matches(pattern, outcomes)
                excused.update(matched)
                if not matched:
                    found.append(f"no case is named {pattern} (left out: {entry.reason})")
                found += [
                    f"{case} passes, and is left out: {entry.reason}"
                    for case in matched
                    if outcomes[case] == "passed"
                ]
        for entry in self.either:
            for pattern in entry.patterns:
                excused.update(entry.matches(pattern, outcomes))
        found += [
            f"{case}: {outcome}"
            for case, outcome in outcomes.items()
            if outcome != "passed" and case not in excused
        ]
        return found


def expectation(suite: str, broker: str) -> Expectation:
    """Read the table of a suite for one broker."""
    table = tomllib.loads((FOLDER / f"{suite}.toml").read_text())
    left_out, either = (
        tuple(
            LeftOut(entry["reason"], tuple(entry["cases"]))
            for entry in table.get(name, [])
            if entry.get("broker", broker) == broker
        )
        for name in ("left_out", "either")
    )
    return Expectation(table["cases"], left_out, either)
