"""The settings of groups, judged: which of a request's replace those of the group, and whether they can be had."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from journal.formats.filenames import check_topic_name
from journal.message_headers import MAX_TAG, MAX_TAGS
from journal.records.group_entries import LEAST_EXPIRY, LONGEST_EXPIRY, NO_SETTINGS, GroupSettings, RetryRules
from journal.words import count_text
from txbroker.errors import GroupSettingsConflict, InvalidSetting
from txbroker.wire.dead_letters import DEAD_SUFFIX, is_dead_topic
from txbroker.wire.messages import AlterGroup, Whether

SAID: Final = {
    "retry": "tries messages again by another policy",
    "expiry": "has another time of expiry",
    "tags": "reads messages of other tags",
}


def changed_settings(
    name: str, known: GroupSettings, command: AlterGroup, *, is_in_use: bool
) -> GroupSettings:
    """Return what the settings of a group become; raises GroupSettingsConflict, InvalidSetting, InvalidName.

    A group that ``is_in_use`` gets no filter from a program that only brings one: its others would lose messages.
    """
    changes = {}
    for each in dict.fromkeys(command.changed):
        if each not in NO_SETTINGS.__struct_fields__:
            raise InvalidSetting(
                f"a group has no setting {each!r}, but {', '.join(NO_SETTINGS.__struct_fields__)}; nothing has changed"
            )
        there, none, wanted = (getattr(settings, each) for settings in (known, NO_SETTINGS, command.settings))
        if there != none and command.whether is Whether.NONE:
            continue
        is_theirs = each == "tags" and is_in_use and there != wanted
        if (there not in (none, wanted) or is_theirs) and command.whether is Whether.NONE_OR_SAME:
            raise GroupSettingsConflict(
                f"group {name!r} {SAID[each]} ({_text(there)}, not {_text(wanted)}); nothing has changed. Give the "
                "same or none, or alter the group's"
            )
        changes[each] = wanted
    settings = replace(known, **changes)
    _check(settings)
    return settings


def _check(settings: GroupSettings) -> None:
    rules, expiry = settings.retry, settings.expiry
    if rules is not None and rules.pause > rules.longest:
        raise InvalidSetting(
            f"the first pause of {rules.pause} µs is above the longest, {rules.longest} µs; nothing has changed"
        )
    if rules is not None and rules.target:
        check_topic_name(rules.target)
        if not is_dead_topic(rules.target):
            raise InvalidSetting(
                f"the topic {rules.target!r} is not one of dead letters: the name of such ends with {DEAD_SUFFIX!r}; "
                "nothing has changed"
            )
    if expiry and not LEAST_EXPIRY <= expiry <= LONGEST_EXPIRY:
        raise InvalidSetting(
            f"a group that is deleted after {expiry} µs without use: {LEAST_EXPIRY} to {LONGEST_EXPIRY} are possible, "
            "0 is never; nothing has changed"
        )
    _check_tags(settings.tags)


def _check_tags(tags: list[str]) -> None:
    """Raise InvalidSetting for what no message has as its tags, and for an order that is not the only one."""
    if len(tags) > MAX_TAGS or any(not 1 <= len(tag.encode()) <= MAX_TAG for tag in tags):
        raise InvalidSetting(
            f"a group filters by at most {MAX_TAGS} tags, each of 1 to {MAX_TAG} bytes in UTF-8; nothing has changed"
        )
    if tags != sorted(set(tags)):
        raise InvalidSetting("the tags of a group are sorted, each comes once; nothing has changed")


def _text(value: object) -> str:
    if isinstance(value, RetryRules):
        return _rules(value)
    return "none" if value is None else str(value)


def _rules(rules: RetryRules) -> str:
    ending = rules.ending.name.lower().replace("_", " ")
    return (
        f"{count_text(rules.attempts, 'attempt')} with pauses of {rules.pause / 1e6:g} s to {rules.longest / 1e6:g} s, "
        f"then {ending}{f' to {rules.target}' if rules.target else ''}"
    )
