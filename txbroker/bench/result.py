"""The result of a measurement, for people and as JSON."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from txbroker.bench.histogram import Histogram, Packed, Percentiles
from txbroker.bench.phases import Phase, Phases
from txbroker.bench.plan import Kind, Plan
from txbroker.bench.tally import Counted
from txbroker.bench.verification import Verification

BUSY = 0.9
"""A process of the generator that is busier than this may be the bottleneck itself."""

FORMAT = 1
"""The version of the JSON; it changes when a field's meaning does."""


class Throughput(msgspec.Struct, frozen=True):
    """Operations a second over the whole time, and their spread by whole seconds."""

    mean: float
    least: int
    median: float
    greatest: int
    deviation: float
    by_second: list[int]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of a run. Latencies in µs; ``histograms`` are HdrHistogram's V2 encoding in base64.

    ``builds`` says of broker and client whether they ran compiled modules (``journal/compiled.py``).

    ``trouble`` says what went wrong after the measuring: the figures are whole, what was acknowledged is perhaps not
    read back, and a topic of the run's own perhaps not removed.
    """

    format: int = FORMAT
    began: str
    plan: Plan
    server: str
    builds: dict[str, str]
    interrupted: bool
    seconds: float
    operations: int
    unit: str
    messages: int
    bytes: int
    throughput: Throughput
    latency: Percentiles | None
    delivered: Percentiles | None
    phases: dict[str, list[Phase]]
    errors: dict[str, int]
    verification: Verification | None
    generator_busy: list[float]
    histograms: dict[str, Packed]
    notes: list[str]
    trouble: str = ""

    @property
    def sound(self) -> bool:
        """Return whether everything that was acknowledged was found, as far as it was read back."""
        return self.verification is None or self.verification.sound


def spread(seconds: Mapping[int, int], whole: float, done: int) -> Throughput:
    """Return operations by second as figures; an incomplete last second counts for the mean only."""
    counts = [seconds.get(second, 0) for second in range(int(whole + 1e-6))]
    shown = counts or [done]
    return Throughput(
        done / whole if whole else 0.0,
        min(shown),
        statistics.median(shown),
        max(shown),
        statistics.pstdev(shown),
        counts,
    )


def merged(parts: Sequence[Packed]) -> Histogram:
    """Return the histograms of several processes as one."""
    whole = Histogram()
    for part in parts:
        whole.add(part)
    return whole


def phases_of(parts: Sequence[Counted]) -> dict[str, list[Phase]]:
    """Return the phases of all processes, by request."""
    whole: dict[str, Phases] = {}
    for part in parts:
        for request, packed in part.phases.items():
            whole.setdefault(request, Phases()).add(packed)
    return {request: phases.rows() for request, phases in whole.items()}


def report_of(
    plan: Plan,
    parts: Sequence[Counted],
    *,
    began: str,
    server: str,
    builds: dict[str, str],
    interrupted: bool,
    verification: Verification | None,
    trouble: str = "",
) -> Report:
    """Return the report made of the figures of all processes."""
    latency = merged([part.latency for part in parts])
    delivered = merged([part.delivered for part in parts if part.delivered is not None])
    seconds: Counter[int] = Counter()
    errors: Counter[str] = Counter()
    for part in parts:
        seconds.update(part.seconds)
        errors.update(part.errors)
    done = sum(part.done for part in parts)
    # Operations that began in time end after it; those of a closed loop count in the seconds that they took.
    ended = max((part.ended for part in parts), default=0.0)
    whole = ended if plan.seconds is None or interrupted else max(plan.seconds, ended if plan.rate else 0.0)
    histograms = {"latency": latency.packed()}
    if delivered.count:
        histograms["delivered"] = delivered.packed()
    return Report(
        began=began,
        plan=plan,
        server=server,
        builds=builds,
        interrupted=interrupted,
        seconds=whole,
        operations=done,
        unit=plan.unit,
        messages=sum(part.messages for part in parts),
        bytes=sum(part.bytes for part in parts),
        throughput=spread(seconds, whole, done),
        latency=latency.percentiles(),
        delivered=delivered.percentiles(),
        phases=phases_of(parts),
        errors=dict(errors),
        verification=verification,
        generator_busy=[round(part.busy, 3) for part in parts],
        histograms=histograms,
        notes=_notes(plan, parts, errors, interrupted),
        trouble=trouble,
    )


def _notes(plan: Plan, parts: Sequence[Counted], errors: Mapping[str, int], interrupted: bool) -> list[str]:
    """Return what a reader of the figures should know."""
    notes = []
    if interrupted:
        notes.append("Stopped with Ctrl-C: these are the figures so far")
    if any(part.busy > BUSY for part in parts):
        notes.append(
            "The generator used its processor up: these are its figures rather than the broker's. More --processes, "
            "if this machine has processors left"
        )
    if not plan.rate and plan.kind in (Kind.LATENCY, Kind.TRANSACTIONS, Kind.PRODUCE):
        notes.append(
            "Closed loop: a client that waits for a slow answer sends nothing meanwhile, so what others would have met "
            "is not in the percentiles. With --rate it is"
        )
    if errors and not any(part.done for part in parts):
        notes.append("Nothing was measured: every operation failed")
    elif errors:
        notes.append("Operations that failed are in no latency")
    return notes
