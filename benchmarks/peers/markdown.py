"""The report as Markdown: ratios, durability, forces, targets, missing systems, and every setting line by line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.figure_tables import machine, number
from benchmarks.peers.charts import ordered
from benchmarks.peers.contender import Measure
from benchmarks.peers.forces import Forces
from benchmarks.peers.goals import BY_KEY, GOALS, LOADS, OWN, Load, Result, Results, result


@dataclass
class System:
    """What the report says of a contender beside its figures."""

    name: str
    durability: str
    forced: bool
    version: str = ""
    settings: list[str] = field(default_factory=list)
    clients: list[str] = field(default_factory=list)
    forces: Forces | None = None
    trouble: list[str] = field(default_factory=list)
    """Why it is missing, or what failed; figures that were measured before are kept."""


@dataclass
class Run:
    """Everything that one run has found."""

    systems: dict[str, System]
    samples: dict[tuple[str, str], list[Measure]] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    idle: float | None = None
    """Processors that all servers together kept busy while they were idle."""

    def add(self, system: str, measures: Mapping[str, Measure]) -> None:
        """Add a sample. A key of ``load:suffix`` is another way of the same system to run that load."""
        for key, measure in measures.items():
            load, _, suffix = key.partition(":")
            name = f"{system}, {suffix}" if suffix else system
            self.samples.setdefault((load, name), []).append(measure)

    def results(self) -> Results:
        """Return the results of everything that was measured."""
        return {key: result(BY_KEY[key[0]], key[1], found) for key, found in self.samples.items()}

    def system(self, name: str) -> System:
        """Return the system of a figure, whatever its suffix."""
        return self.systems.get(name) or next(
            s for s in self.systems.values() if name.startswith(f"{s.name}, ")
        )

    def unforced(self) -> list[str]:
        """Return the names of systems whose answers promise less."""
        return [system.name for system in self.systems.values() if not system.forced]


def markdown(run: Run) -> str:
    """Return the whole report."""
    results = run.results()
    parts = [figures(load, run, results) for load in LOADS if any(key == load.key for key, _ in results)]
    return (
        "\n\n".join([*parts, targets(results), troubles(run), *map(described, run.systems.values())]) + "\n"
    )


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; columns that begin with ">" are numbers."""
    heads = [column.lstrip(">") for column in columns]
    rule = ["---:" if column.startswith(">") else "---" for column in columns]
    lines = ("".join(f" {cell} |" if cell else " |" for cell in row) for row in (heads, rule, *rows))
    return "\n".join(f"|{line}" for line in lines)


def milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else number(seconds * 1000)


def figures(load: Load, run: Run, results: Results) -> str:
    """Return one load: every system with what its answer promises."""
    own = results.get((load.key, OWN))
    rows = []
    for one in ordered(load, results):
        system = run.system(one.system)
        forces = "" if system.forces is None else f"{system.forces.each:.2f}"
        spread = f"{number(min(one.samples))} – {number(max(one.samples))}"
        name = f"**{one.system}**" if one.system == OWN else one.system
        latencies = milliseconds(one.p50), milliseconds(one.p99)
        rows.append((name, number(one.value), spread, *latencies, ratio(own, one), forces, system.durability))
    columns = (
        "system",
        f">{load.unit}",
        ">least – greatest",
        ">p50 ms",
        ">p99 ms",
        ">txbroker is",
        ">forces each",
    )
    return f"### {load.title}\n\n" + table((*columns, "on disk when acknowledged"), rows)


def ratio(own: Result | None, other: Result) -> str:
    """Return how many times better ours is: more of a rate, less of a latency."""
    if own is None or other.system == OWN:
        return ""
    times = other.value / own.value if own.load.by_latency else own.value / other.value
    return f"{times:.2f} ×"


def targets(results: Results) -> str:
    """Return each target, what it is compared with, and whether it is met."""
    rows = []
    for goal in GOALS:
        met = goal.is_met(results)
        verdict = {None: "not measured", True: "yes", False: "**no**"}[met]
        own, beside = goal.own(results), goal.beside(results)
        rows.append((BY_KEY[goal.load].title, goal.text, number(own), number(beside), verdict))
    return "### Targets\n\n" + table(("load", "target", ">txbroker", ">wanted", "met"), rows)


def troubles(run: Run) -> str:
    """Return what is missing and what failed."""
    rows = [
        (system.name, " ".join(what.split())[:600])
        for system in run.systems.values()
        for what in system.trouble
    ]
    if not rows:
        return "Nothing is missing, and nothing failed."
    return "### Missing or failed\n\n" + table(("system", "why"), rows)


def described(system: System) -> str:
    """Return a system with all of its settings."""
    lines = [
        f"### {system.name}: {system.version or 'missing'}",
        "",
        f"On disk when acknowledged: {system.durability}.",
    ]
    if system.forces is not None:
        calls = ", ".join(f"{count} {name}" for name, count in sorted(system.forces.calls.items())) or "none"
        lines += [
            "",
            f"Forces, counted by strace over {system.forces.acknowledged} requests one at a time: {calls}.",
        ]
    for title, said in (("Settings", system.settings), ("Clients", system.clients)):
        if said:
            lines += ["", f"{title}:", "", *(f"    {line}" for line in said)]
    return "\n".join(lines)


def document(run: Run) -> str:
    """Return the report as JSON, with every sample."""
    results = run.results()
    figures = [
        {
            "load": load, "system": name, "unit": one.load.unit, "value": one.value, "samples": one.samples,
            "measures": [measure._asdict() for measure in run.samples[load, name]],
        }
        for (load, name), one in results.items()
    ]  # fmt: skip
    targets = [
        {
            "load": goal.load, "target": goal.text, "own": goal.own(results),
            "wanted": goal.beside(results), "met": goal.is_met(results),
        }
        for goal in GOALS
    ]  # fmt: skip
    systems = [
        {**asdict(system), "forces": system.forces and system.forces._asdict()}
        for system in run.systems.values()
    ]
    found = {"machine": machine(), "options": run.options, "idle_processors": run.idle}
    return json.dumps({**found, "figures": figures, "targets": targets, "systems": systems}, indent=2)
