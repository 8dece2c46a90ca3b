"""The options that say how a group tries messages again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from journal.arguments import NOTHING_CHANGED
from journal.errors import WrongValue
from journal.quantities import duration
from journal.records.group_entries import MAX_ATTEMPTS
from txbroker.cli.arguments import Parsed
from txbroker.client.core.retry_policy import ENDINGS, RetryPolicy, rules_of

F = TypeVar("F", bound=Callable[..., Any])

NAMES: Final = ("attempts", "pause", "longest", "ending", "dead_letter_topic")
USUAL: Final = RetryPolicy()
AFTERWARDS: Final = {
    "dead_letter": "goes to the dead letters",
    "drop": "is finished",
    "stop": "waits for an operator",
}


def retry_options(command: F) -> F:
    """Add the options of a policy, and --no-retry."""
    options = (
        click.option(
            "--attempts",
            type=click.IntRange(1, MAX_ATTEMPTS),
            help=f"How often a message is tried at most. Usual: {USUAL.attempts}.",
        ),
        click.option(
            "--pause",
            type=Parsed("duration", duration),
            help=f"The pause after the first failure; each further one doubles it. Usual: {USUAL.pause:g}s.",
        ),
        click.option(
            "--longest",
            type=Parsed("duration", duration),
            help=f"The longest pause. Usual: {USUAL.longest / 60:g}m.",
        ),
        click.option(
            "--ending",
            type=click.Choice(list(ENDINGS)),
            help=f"What becomes of a message after the last attempt. Usual: {USUAL.ending}.",
        ),
        click.option(
            "--dead-letter-topic",
            metavar="TOPIC",
            help="Where all dead letters of the group go; the name ends with .dead. Usual: each to TOPIC.dead.",
        ),
        click.option("--no-retry", is_flag=True, help="Have nothing tried again by itself."),
    )
    for each in reversed(options):
        command = each(command)
    return command


def said_in(choices: dict[str, Any]) -> dict[str, Any]:
    """Return what the options say, without --no-retry; raises UsageError if they say both."""
    said = {name: choices[name] for name in NAMES if choices[name] is not None}
    if said and choices["no_retry"]:
        raise click.UsageError(f"say --no-retry, or --{next(iter(said))}")
    return said


def policy_in(choices: dict[str, Any], before: RetryPolicy | None = None) -> RetryPolicy | None:
    """Return the policy that the options say: what is not said as ``before``, or as usual. None if they say none."""
    said = said_in(choices)
    if not said:
        return None
    for name in ("pause", "longest"):
        if name in said:
            said[name] /= 1e6
    if not said.get("dead_letter_topic", "-"):
        said["dead_letter_topic"] = None
    policy = (before or USUAL)._replace(**said)
    try:
        rules_of(policy, NOTHING_CHANGED)
    except WrongValue as error:
        raise click.UsageError(f"--{error}") from error
    return policy


def retry_in(choices: dict[str, Any]) -> RetryPolicy | bool:
    """Return what the options say to a worker: the policy, False for --no-retry, True for none of them."""
    return policy_in(choices) or not choices["no_retry"]


def policy_text(policy: RetryPolicy | None) -> str:
    """Return a sentence on how a group tries messages again."""
    if policy is None:
        return "A message that fails comes again when its program says so."
    ending = AFTERWARDS[policy.ending]
    if policy.ending == "dead_letter" and policy.dead_letter_topic is not None:
        ending = f"goes to {policy.dead_letter_topic}"
    if policy.attempts == 1:
        return f"A message that fails {ending}."
    return (
        f"A message that fails comes again after {policy.pause:g} s, then after twice as long each time, up to "
        f"{policy.longest:g} s. After {policy.attempts} attempts it {ending}."
    )
