"""The settings of a group, as programs say them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from msgspec.structs import replace

from journal.arguments import seconds, wrong_value
from journal.message_headers import GivenTags, message_tags
from journal.records.group_entries import LEAST_EXPIRY, LONGEST_EXPIRY, NO_SETTINGS, GroupSettings
from txbroker.client.core.retry_policy import RetryPolicy, rules_of
from txbroker.wire.messages import AlterGroup, Done, Whether

if TYPE_CHECKING:
    from txbroker.client.core.core import Core


class GroupChoices(TypedDict, total=False):
    """The settings of a group that can be changed.

    ``retry`` is how it tries messages again, None if each retry says it. ``expiry`` is the time in seconds after which
    the group is deleted if nobody uses it, from a minute to ten years: 0 for never, None for what the broker's setting
    ``group_expiry`` says. ``tags`` are those of which a message has one if it is for the group: a str, or a list of up
    to 16; None or [] for all messages.
    """

    retry: RetryPolicy | None
    expiry: float | None
    tags: GivenTags


def settings_of(choices: GroupChoices, state: str) -> GroupSettings:
    """Return settings as the broker keeps them; raises WrongType, WrongValue, which say ``state``."""
    values: dict[str, Any] = dict(choices)
    if values.get("retry") is not None:
        values["retry"] = rules_of(values["retry"], state, "a RetryPolicy or None")
    if values.get("expiry") is not None:
        values["expiry"] = _expiry(values["expiry"], state)
    if "tags" in values:
        values["tags"] = [] if values["tags"] is None else sorted(message_tags(values["tags"], state))
    return replace(NO_SETTINGS, **values)


def _expiry(value: float, state: str) -> int:
    expiry = round(seconds("expiry", value, state) * 1e6)
    if expiry and not LEAST_EXPIRY <= expiry <= LONGEST_EXPIRY:
        raise wrong_value("expiry", value, "0 for never, 60 s to ten years, or None", state)
    return expiry


async def alter_settings(core: Core, group: str, choices: GroupChoices, state: str) -> None:
    """Change settings of a group, whatever they were."""
    request = AlterGroup(core.correlation(), group, settings_of(choices, state), list(choices))
    await core.request(request, Done)


async def bring_policy(core: Core, group: str, policy: RetryPolicy | bool, state: str) -> None:
    """Have a group try messages again by a policy, if it has none: by this one, True for the one of
    :class:`RetryPolicy` without arguments. False brings none.

    Raises GroupSettingsConflict if the group has another one than the one that was given.
    """
    if policy is False:
        return
    given, whether = (RetryPolicy(), Whether.NONE) if policy is True else (policy, Whether.NONE_OR_SAME)
    settings = settings_of({"retry": given}, state)
    await core.request(AlterGroup(core.correlation(), group, settings, ["retry"], whether), Done)


async def bring_tags(core: Core, group: str, tags: GivenTags, state: str) -> None:
    """Have a new group filter by tags; None brings none.

    Raises GroupSettingsConflict if the group filters by others, or has been read without a filter.
    """
    if tags is not None:
        settings = settings_of({"tags": tags}, state)
        request = AlterGroup(core.correlation(), group, settings, ["tags"], Whether.NONE_OR_SAME)
        await core.request(request, Done)
