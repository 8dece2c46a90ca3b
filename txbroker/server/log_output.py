"""The log: as text or as JSON, to standard output or to files that are kept in a bounded number.

What twistd does by itself stays as it is unless a setting says otherwise: text, to standard output or ``twistd.log``.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from typing import IO, Any, Final

from twisted.logger import (
    FileLogObserver,
    FilteringLogObserver,
    ILogObserver,
    LogEvent,
    LogLevel,
    LogLevelFilterPredicate,
    formatEvent,
    formatEventAsClassicLogText,
)
from twisted.python.failure import Failure
from twisted.python.logfile import LogFile

from txbroker.errors import InvalidSetting
from txbroker.server.settings.config import ServiceSettings
from txbroker.server.settings.log_names import Level, LogFormat

MODE: Final = 0o640


class KeptFiles(LogFile):
    """A log file that is begun anew when it is full; so many older ones are kept, ``.1`` is the newest."""

    def __init__(self, path: str, size: int, kept: int) -> None:
        directory, name = os.path.split(os.path.abspath(path))
        super().__init__(name, directory, size, MODE, kept)  # type: ignore[no-untyped-call]

    def reopen(self) -> None:
        """Go on in the file of the name, made anew if it was moved away. After ``OSError`` it goes on as before."""
        former = self._file
        self._openFile()  # type: ignore[no-untyped-call]
        former.close()


def is_set(settings: ServiceSettings) -> bool:
    """Return whether the settings say something of the log that twistd does not do by itself."""
    return bool(settings.log_file) or (settings.log_format, settings.log_level) != (
        LogFormat.TEXT,
        Level.INFO,
    )


def observer_of(settings: ServiceSettings, output: IO[str] | KeptFiles | None = None) -> ILogObserver:
    """Return what writes the log as the settings say: to ``output``, to their file, or to standard output.

    Raises InvalidSetting if the file cannot be opened.
    """
    target: Any = output or files_of(settings) or sys.stdout
    form = json_line if settings.log_format is LogFormat.JSON else formatEventAsClassicLogText
    least = LogLevelFilterPredicate(LogLevel.levelWithName(settings.log_level.value))
    return FilteringLogObserver(FileLogObserver(target, form), [least])


def files_of(settings: ServiceSettings) -> KeptFiles | None:
    """Return the open log file, if the settings name one. Raises InvalidSetting if it cannot be opened."""
    if not settings.log_file:
        return None
    try:
        return KeptFiles(settings.log_file, settings.log_file_bytes, settings.log_files)
    except OSError as error:
        raise InvalidSetting(
            f"log_file {settings.log_file} cannot be opened: {error.strerror}; nothing was started"
        ) from error


def json_line(event: LogEvent) -> str:
    """Return an event as one line of JSON: when, how serious, from where, what; and the traceback of a failure.

    The time is the wall clock's, in UTC.
    """
    level = event.get("log_level", LogLevel.info)
    line = {
        "time": datetime.fromtimestamp(event.get("log_time", 0.0), UTC).isoformat(timespec="milliseconds"),
        "level": getattr(level, "name", str(level)),
        "source": event.get("log_namespace", ""),
        "message": formatEvent(event),
    }
    failure = event.get("log_failure")
    if isinstance(failure, Failure):
        line["traceback"] = failure.getTraceback()
    return json.dumps(line) + "\n"
