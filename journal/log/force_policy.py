"""When a partition's tail is written to its segment and forced. Durability never waits for it."""

from __future__ import annotations

from zope.interface import implementer

from journal.interfaces import IForcePolicy
from journal.settings import TopicSettings, check_setting

_DEFAULT = TopicSettings()


@implementer(IForcePolicy)
class ForcePolicy:
    """Due after ``messages`` unflushed messages or when the oldest is ``interval`` µs old, whichever comes first.

    Raises :class:`journal.errors.InvalidSetting` for values out of range.
    """

    __slots__ = ("interval", "messages")

    def __init__(
        self, messages: int = _DEFAULT.force_messages, interval: int = _DEFAULT.force_interval
    ) -> None:
        check_setting("force_messages", messages)
        check_setting("force_interval", interval)
        self.messages = messages
        self.interval = interval

    @classmethod
    def of(cls, settings: TopicSettings) -> ForcePolicy:
        """Return the policy of a topic's settings."""
        return cls(settings.force_messages, settings.force_interval)

    def due(self, messages: int, age: int) -> bool:
        """Return whether a tail is due that has ``messages`` unflushed messages, the oldest ``age`` µs old."""
        return messages >= self.messages or (messages > 0 and age >= self.interval)
