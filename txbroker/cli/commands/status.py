"""``txbroker status``: the broker's counters and gauges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

import journal
from journal.formats.version import PROGRAM
from txbroker.cli.invocation import Command, Invocation, pass_invocation
from txbroker.cli.output import age_text, emit, facts, size_text

GROUPS: Final = {
    "Broker": (
        "version",
        "format",
        "build",
        "client_version",
        "client_build",
        "uptime",
        "start",
        "disk_full",
        "disk_bytes_free",
        "disk_bytes_needed",
        "sessions",
        "requests_parked",
        "bytes_parked",
    ),
    "Access": ("access_enabled", "users", "logins", "logins_refused", "access_denied"),
    "Transactions": (
        "transactions_in_doubt",
        "transactions_restored",
        "restored_as_copy",
        "oldest_in_doubt_age",
        "transactions_orphaned",
        "orphans_ended",
        "outcomes_forced",
        "outcomes_contradicted",
        "transactions_active",
    ),
    "Messages in": ("messages_in", "bytes_in", "repeated_sends", "producers", "streams"),
    "Messages for later": (
        "scheduled_waiting",
        "scheduled_held",
        "scheduled_bytes",
        "scheduled_placed",
        "scheduled_gone",
        "scheduled_next_in",
        "schedule_holds",
    ),
    "Messages out": ("fetches", "fetches_waiting", "bytes_out"),
    "Queues": (
        "queues",
        "exchanges",
        "queue_messages",
        "queue_unacknowledged",
        "queue_consumers",
        "queue_unrouted",
        "queue_expired",
        "queue_dropped",
        "queue_circles",
        "queue_dead_letters_refused",
        "queue_timed_out",
    ),
    "Groups": ("groups", "members", "dead_letters_moved", "dead_letters_waiting"),
    "Storage": (
        "topics",
        "partitions",
        "pending_bytes",
        "unflushed_bytes",
        "pins",
        "segments_compacted",
        "bytes_compacted",
    ),
    "Memory": (
        "pool_bytes_used",
        "pool_bytes_kept",
        "pool_bytes_fragmented",
        "pool_chunks",
        "pool_buffers_lost",
    ),
    "Scrubber": ("scrubbed_bytes", "scrub_passes", "scrub_age", "scrub_findings"),
    "Journal": ("last_lsn", "forced_lsn", "checkpoint_lsn", "slow_forces", "longest_force"),
}


@click.command(cls=Command)
@pass_invocation
def status(invocation: Invocation) -> None:
    """Show the broker's counters and gauges.

    Four of them tell the versions of broker and client and whether they run compiled modules; format is the number
    of the data directory's format: while it is the same, an older version can start there again.
    """
    with invocation.connect() as broker:
        values = {**broker.status(), "client_version": PROGRAM, "client_build": journal.BUILD.value}
    emit(invocation.as_json, values, lambda: facts(grouped(values)))


def grouped(values: Mapping[str, float | str]) -> list[tuple[str, object]]:
    """Return the values for people, under headings; unknown ones of a newer broker come last."""
    rest = [name for name in sorted(values) if not any(name in names for names in GROUPS.values())]
    lines: list[tuple[str, object]] = []
    for heading, names in {**GROUPS, "Other": rest}.items():
        known = [(f"  {name}", value_text(name, values[name])) for name in names if name in values]
        if known:
            lines += [(heading, ""), *known]
    return lines


def value_text(name: str, value: float | str) -> object:
    """Return a value for people; a word of its name gives its unit."""
    words = name.split("_")
    if not isinstance(value, int):
        return value
    if "bytes" in words:
        return size_text(value)
    if name == "outcomes_contradicted" and value:
        return f"{value:,}: DAMAGE, see 'txbroker transactions list --damaged'"
    if words[-1] in ("uptime", "age", "us", "micros", "force"):
        return age_text(value) if value >= 0 else None
    if words[-1] == "lsn":
        return str(value)  # as in file names and messages
    return bool(value) if name == "disk_full" else value
