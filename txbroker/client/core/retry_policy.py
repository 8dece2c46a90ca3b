"""How a group tries messages again, as programs say it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from journal.arguments import seconds, text, whole, wrong_type, wrong_value
from journal.records.group_entries import MAX_ATTEMPTS, MAX_PAUSE, Ending, RetryRules
from txbroker.wire.dead_letters import DEAD_SUFFIX, is_dead_topic

ENDINGS: Final = {"dead_letter": Ending.DEAD_LETTER, "drop": Ending.DROP, "stop": Ending.STOP}


class RetryPolicy(NamedTuple):
    """How often and when a group tries messages again that were not handled. Times are in seconds.

    A message is tried ``attempts`` times at most (1 to 1,000). After the first failure it comes again after ``pause``
    seconds, after each further one after twice as long, up to ``longest`` (each is shortened at random, to a half at
    most; 366 days are the most). After the last one it goes to the topic of dead letters ("dead_letter"), is finished
    ("drop"), or stays and waits for an operator ("stop"): then nothing behind it, or of its key, is handed out, as the
    ``order`` of the consumer says. A message of a topic of dead letters has none to go to, and stops instead.
    ``dead_letter_topic`` is the topic that all dead letters of the group go to, whatever topic they are from; its name
    ends with ".dead". None: each goes to the topic of the name of its own with ".dead" behind it.
    """

    attempts: int = 5
    pause: float = 1.0
    longest: float = 300.0
    ending: str = "dead_letter"
    dead_letter_topic: str | None = None


def rules_of(policy: Any, state: str, wanted: str = "a RetryPolicy") -> RetryRules:
    """Return a policy as the broker keeps it; raises WrongType, WrongValue, which say ``state``."""
    if not isinstance(policy, RetryPolicy):
        raise wrong_type("retry", policy, wanted, state)
    attempts = whole("attempts", policy.attempts, state, least=1, most=MAX_ATTEMPTS)
    pause, longest = (
        round(seconds(name, getattr(policy, name), state) * 1e6) for name in ("pause", "longest")
    )
    if longest > MAX_PAUSE:
        raise wrong_value("longest", policy.longest, "366 days at most", state)
    if pause > longest:
        raise wrong_value("pause", policy.pause, f"longest={policy.longest:g} s at most", state)
    ending = ENDINGS.get(text("ending", policy.ending, state))
    if ending is None:
        raise wrong_value("ending", policy.ending, "'dead_letter', 'drop' or 'stop'", state)
    return RetryRules(attempts, pause, longest, ending, _target(policy.dead_letter_topic, state))


def _target(topic: str | None, state: str) -> str:
    """Return the topic of dead letters as the broker keeps it."""
    if topic is None:
        return ""
    if not is_dead_topic(text("dead_letter_topic", topic, state)):
        raise wrong_value(
            "dead_letter_topic", topic, f"None, or a name that ends with {DEAD_SUFFIX!r}", state
        )
    return topic


def policy_of(rules: RetryRules | None) -> RetryPolicy | None:
    """Return what the broker keeps as a policy."""
    if rules is None:
        return None
    [ending] = [name for name, value in ENDINGS.items() if value is rules.ending]
    return RetryPolicy(rules.attempts, rules.pause / 1e6, rules.longest / 1e6, ending, rules.target or None)
