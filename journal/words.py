"""Ranges and counts in words, the same in every error, finding and table."""

from __future__ import annotations


def span(what: str, first: int, last: int | None) -> str:
    """Return ``offset 3``, ``offsets 3 to 5``, or ``offsets from 3 on`` if ``last`` is None. Both ends are inclusive.

    An empty range is named as empty, and never as one that ends before it begins.
    """
    if last is None:
        return f"{what}s from {first} on"
    if last < first:
        return f"no {what}s"
    return f"{what} {first}" if first == last else f"{what}s {first} to {last}"


def count_text(count: int, noun: str) -> str:
    """Return ``1 message``, ``2,000 messages``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
