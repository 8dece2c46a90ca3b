"""A report as tables: names and values, and the phases of requests."""

from __future__ import annotations

from collections.abc import Iterator

from txbroker.bench.histogram import Percentiles
from txbroker.bench.plan import Kind, Plan
from txbroker.bench.result import Report

PHASE_COLUMNS = ("request", "phase", "share", "p50 ms", "p99 ms")

ADVICE = {
    "client queue": "messages wait in the client: for the batch before, for linger, or because it is full",
    "network": "the network, or a broker whose one processor is full: see its processor time",
    "judge": "checking and copying in the broker: larger batches, fewer partitions in a transaction",
    "wait for group": "the group before is being forced: a faster disk, or larger batches",
    "write": "writing the journal: the disk's bandwidth, or a busy interpreter that does not give way",
    "force": "fdatasync: the disk. More clients or larger batches share it",
    "publish": "the way back from the disk, and readers that are woken before answers go out",
    "answer": "answers of the same group that come before: many small requests; batch them",
}
"""What it means that a phase takes longest."""


def milliseconds(micros: float) -> str:
    """Return µs as ms, with as many digits as are significant."""
    value = micros / 1000
    return f"{value:.3f}" if value < 10 else f"{value:.1f}" if value < 1000 else f"{value:,.0f}"


def _percentiles(found: Percentiles | None) -> str:
    if found is None:
        return "none"
    values = (
        f"p50 {milliseconds(found.p50)}",
        f"p90 {milliseconds(found.p90)}",
        f"p99 {milliseconds(found.p99)}",
        f"p99.9 {milliseconds(found.p999)}",
        f"max {milliseconds(found.max)} ms",
    )
    return ", ".join(values)


def what_was_done(plan: Plan) -> str:
    """Return the work that was done, in one line."""
    loop = f"{plan.rate:,.0f} {plan.unit}/s, open loop" if plan.rate else f"closed loop, depth {plan.depth}"
    parts = [f"{plan.kind.value}, {plan.clients} client{'s' * (plan.clients > 1)}"]
    if plan.kind is not Kind.CONSUME:  # it reads messages of any size
        parts.append(f"{plan.size} B")
    if plan.kind is Kind.TRANSACTIONS:
        phases = "two phases" if plan.two_phase else "one phase"
        parts.append(f"{plan.messages} messages for {plan.touched} partitions in {phases}")
    if plan.kind is not Kind.CONSUME:
        parts.append(loop)
    return ", ".join([*parts, f"{plan.partitions} partition{'s' * (plan.partitions > 1)}"])


def rows_of(report: Report) -> Iterator[tuple[str, str]]:
    """Return names and values."""
    yield "work", what_was_done(report.plan)
    throughput, unit = report.throughput, report.unit
    yield unit, f"{report.operations:,} in {report.seconds:.2f} s"
    yield (
        f"{unit}/s",
        f"{throughput.mean:,.0f} (by second {throughput.least:,} to {throughput.greatest:,}, "
        f"median {throughput.median:,.0f}, deviation {throughput.deviation:,.0f})",
    )
    if unit != "messages":
        yield "messages/s", f"{report.messages / report.seconds:,.0f}" if report.seconds else "none"
    if report.plan.kind is Kind.CONSUME and report.messages:
        yield "mean size", f"{report.bytes / report.messages:,.0f} B"
    yield "MB/s", f"{report.bytes / report.seconds / 1e6:,.2f}" if report.seconds else "none"
    what = "fetch" if report.plan.kind is Kind.CONSUME else "latency"
    yield what, _percentiles(report.latency)
    if report.plan.kind is Kind.LATENCY:
        yield "until a consumer has it", _percentiles(report.delivered)
    yield "errors", ", ".join(f"{kind} {count:,}" for kind, count in report.errors.items()) or "none"
    yield "verified", _verified(report)
    yield "build", ", ".join(f"{side}: {build}" for side, build in report.builds.items())
    yield "generator busy", ", ".join(f"{busy:.0%}" for busy in report.generator_busy)


def _verified(report: Report) -> str:
    found = report.verification
    if found is None:
        return "no"
    if found.sound:
        more = (
            f"; {found.unacknowledged:,} more are there, whose answers were lost"
            if found.unacknowledged
            else ""
        )
        return f"all {found.acknowledged:,} acknowledged messages are there, once{more}"
    return f"BROKEN: of {found.acknowledged:,} acknowledged {found.missing:,} are missing, {found.twice:,} there twice"


def phase_rows(report: Report) -> list[tuple[str, str, str, str, str]]:
    """Return the phases as rows."""
    return [
        (request, row.phase, f"{row.share:.1%}", milliseconds(row.p50), milliseconds(row.p99))
        for request, rows in report.phases.items()
        for row in rows
    ]


def largest_phases(report: Report) -> Iterator[str]:
    """Return what the longest phase of each request means."""
    for request, rows in report.phases.items():
        if rows:
            largest = max(rows, key=lambda row: row.share)
            yield f"{request}: most of the time ({largest.share:.0%}) goes to {largest.phase}: {ADVICE[largest.phase]}."
