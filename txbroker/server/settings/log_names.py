"""The forms and levels of the log, as the settings name them."""

from __future__ import annotations

from enum import StrEnum


class LogFormat(StrEnum):
    """The forms of a line of the log."""

    TEXT = "text"
    JSON = "json"


class Level(StrEnum):
    """The least level of what is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARN = "warn"
    ERROR = "error"
