"""``txbroker status``: the broker's counters and gauges."""

from __future__ import annotations

import click

from txbroker.cli.invocation import Command, Invocation, pass_invocation
from txbroker.cli.output import age_text, emit, facts, size_text


@click.command(cls=Command)
@pass_invocation
def status(invocation: Invocation) -> None:
    """Show what the broker counts and measures."""
    with invocation.connect() as broker:
        values = dict(broker.status())
    emit(
        invocation.as_json,
        values,
        lambda: facts((name, value_text(name, value)) for name, value in sorted(values.items())),
    )


def value_text(name: str, value: float | str) -> object:
    """A value for people: the unit is told by the end of its name."""
    if isinstance(value, int) and name.endswith("_bytes"):
        return size_text(value)
    if isinstance(value, int) and name.endswith(("_us", "_micros")):
        return age_text(value)
    return value
