"""How a group tries messages again, as programs say it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from journal.arguments import seconds, text, whole, wrong_type, wrong_value
from journal.formats.group_entries import MAX_ATTEMPTS, MAX_PAUSE, Ending, RetryRules
from txbroker.wire.messages import AlterGroup, Done, Whether

if TYPE_CHECKING:
    from txbroker.client.core.core import Core

ENDINGS: Final = {"dead_letter": Ending.DEAD_LETTER, "drop": Ending.DROP, "stop": Ending.STOP}


class RetryPolicy(NamedTuple):
    """How often and when a group tries messages again that were not handled. Times are in seconds.

    A message is tried ``attempts`` times at most (1 to 1,000). After the first failure it comes again after ``pause``
    seconds, after each further one after twice as long, up to ``longest`` (each is shortened at random, to a half at
    most; 366 days are the most). After the last one it goes to the topic of dead letters ("dead_letter"), is finished
    ("drop"), or stays and waits for an operator ("stop"): then nothing behind it, or of its key, is handed out, as the
    ``order`` of the consumer says. A message of a topic of dead letters has none to go to, and stops instead.
    """

    attempts: int = 5
    pause: float = 1.0
    longest: float = 300.0
    ending: str = "dead_letter"


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
    return RetryRules(attempts, pause, longest, ending)


def policy_of(rules: RetryRules | None) -> RetryPolicy | None:
    """Return what the broker keeps as a policy."""
    if rules is None:
        return None
    [ending] = [name for name, value in ENDINGS.items() if value is rules.ending]
    return RetryPolicy(rules.attempts, rules.pause / 1e6, rules.longest / 1e6, ending)


async def bring_policy(core: Core, group: str, policy: RetryPolicy | bool, state: str) -> None:
    """Have a group try messages again by a policy, if it has none: by this one, True for the one of
    :class:`RetryPolicy` without arguments. False brings none.

    Raises RetryPolicyConflict if the group has another one than the one that was given.
    """
    if policy is False:
        return
    given, whether = (RetryPolicy(), Whether.NONE) if policy is True else (policy, Whether.NONE_OR_SAME)
    request = AlterGroup(core.correlation(), group, rules_of(given, state), whether)
    await core.request(request, Done)


async def alter_policy(core: Core, group: str, policy: RetryPolicy | None, state: str) -> None:
    """Have a group try messages again by a policy, or by none."""
    rules = None if policy is None else rules_of(policy, state, "a RetryPolicy or None")
    await core.request(AlterGroup(core.correlation(), group, rules), Done)
