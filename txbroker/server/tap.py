"""``twistd txbroker``, and ``txbroker serve``: its options, and the service for them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

from twisted.application.service import IService
from twisted.internet import reactor
from twisted.python import usage

from journal.quantities import SIZE_UNITS, TIME_UNITS
from txbroker.errors import InvalidSetting
from txbroker.server import given_settings, log_output
from txbroker.server.endpoints import listening
from txbroker.server.exit_status import end_process, end_well_on_sigterm
from txbroker.server.hangup import HANGUP
from txbroker.server.service import TxBrokerService
from txbroker.server.settings import config

_ON_THE_COMMAND_LINE: Final = ("data", "listen", "listen_amqp")


class Options(usage.Options):
    """The options behind ``twistd txbroker`` and ``txbroker serve``. After parsing, ``config`` holds all settings."""

    synopsis = "--data DIRECTORY [--config FILE] [--listen ENDPOINT]... [--set NAME=VALUE]..."
    optParameters: Final = [
        ["data", "d", None, "Directory that holds everything; made if it is missing. One process at a time."],
        ["config", "c", None, "TOML file with settings; what is on the command line wins over it."],
    ]
    optFlags: Final = [
        [
            "insecure-open", None,
            "Allow endpoints that others can reach, though nobody has to log in: whoever connects may do everything.",
        ],
    ]  # fmt: skip

    config: config.Config

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._asked = False
        self._listen: list[str] = []
        self._listen_amqp: list[str] = []
        self._set: dict[str, Any] = {}

    def opt_listen(self, endpoint: str) -> None:
        """Twisted endpoint to listen on, as tcp:7654:interface=127.0.0.1 (the default; without an interface it
        is all of them), unix:/run/txbroker.sock:mode=600 or tls:7655:interface=127.0.0.1:cert=cert.pem:key=key.pem. May
        be repeated. TCP port 0 means any free port; the log names it.
        """
        self._listen.append(endpoint)

    opt_listen.__doc__ = " ".join((opt_listen.__doc__ or "").split())  # Twisted would show the indentation
    opt_l = opt_listen

    def opt_listen_amqp(self, endpoint: str) -> None:
        """Twisted endpoint to listen on for clients that speak AMQP 0-9-1, as RabbitMQ's and Celery do:
        tcp:5672:interface=127.0.0.1, or tls: as above. May be repeated.
        """
        self._listen_amqp.append(endpoint)

    opt_listen_amqp.__doc__ = " ".join((opt_listen_amqp.__doc__ or "").split())

    def opt_set(self, assignment: str) -> None:
        """Any setting, as NAME=VALUE: max_sessions=500, message_timeout=30s, ... May be repeated."""
        try:
            name, value = given_settings.assignment(assignment)
        except InvalidSetting as error:
            raise usage.UsageError(str(error)) from error
        self._set[name] = value

    opt_s = opt_set

    def postOptions(self) -> None:
        """Merge the file and the command line, and check everything that can be checked before forking."""
        given = dict(self._set)
        if self["data"] is not None:
            given["data"] = self["data"]
        if self._listen:
            given["listen"] = self._listen
        if self._listen_amqp:
            given["listen_amqp"] = self._listen_amqp
        if self["insecure-open"]:
            given[listening.INSECURE] = True
        try:
            self.config = given_settings.checked(given_settings.from_file(self["config"]), given)
        except InvalidSetting as error:
            raise usage.UsageError(str(error)) from error
        self._check_log()

    def _check_log(self) -> None:
        settings, twistd = self.config.service, getattr(self, "parent", None) or {}
        if settings.audit == config.STANDARD_OUTPUT and not twistd.get("nodaemon", True):
            raise usage.UsageError(
                "audit is '-', standard output, which a daemon has not: say --set audit=/var/log/audit.json, or "
                "run it in the foreground (twistd -n)"
            )
        if log_output.is_set(settings) and not settings.log_file and not twistd.get("nodaemon", True):
            raise usage.UsageError(
                "log_format and log_level are for standard output or log_file, and a daemon has no output: say "
                "--set log_file=/var/log/txbroker.log, or run it in the foreground (twistd -n)"
            )

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """Parse as usual. Within ``twistd`` a mistake ends it with status 1, as Twisted itself does from 26.10 on.

        From here on SIGHUP does not end it.
        """
        if getattr(self, "parent", None) is not None:
            HANGUP.catch()
        try:
            super().parseOptions(options)  # type: ignore[no-untyped-call]
        except usage.UsageError as error:
            if getattr(self, "parent", None) is None:
                raise
            raise SystemExit(f"{self}\n{sys.argv[0]}: {error}") from error

    def getUsage(self, width: int | None = None) -> str:
        """Return all options and settings for --help; after a mistake, which twistd prints below this, how to
        get them.
        """
        if self._asked:
            return f"{super().getUsage(width)}\n{_settings()}"
        return f"`{self._called} --help` lists options and settings.\n"

    @property
    def _called(self) -> str:
        """The command by which these options were reached; ``txbroker serve`` has twistd read them."""
        return getattr(getattr(self, "parent", None), "called", "twistd txbroker")

    def getSynopsis(self) -> str:
        """Return the first line of the help."""
        return f"Usage: {self._called} {self.synopsis}"

    def opt_help(self) -> None:
        """Display this help and exit."""
        self._asked = True
        super().opt_help()  # type: ignore[no-untyped-call]


def _settings() -> str:
    lines = ["Settings for --config and --set, with their defaults:"]
    for name, value in sorted(config.defaults().items()):
        if name not in _ON_THE_COMMAND_LINE:
            lines.append(f"  {name:<32} {config.readable(name, value)}")
    times, sizes = ", ".join(TIME_UNITS), ", ".join(SIZE_UNITS)
    lines.append(f"Durations have a unit ({times}), as 90s or 1h30m; sizes one of {sizes}, or are bytes.")
    return "\n".join([*lines, ""])


def makeService(options: Options) -> IService:
    """Return the service; nothing is opened, locked or started yet, because twistd forks in between."""
    reactor.callWhenRunning(end_well_on_sigterm, reactor)
    service = TxBrokerService(options.config, reactor, lambda: end_process(reactor))
    reactor.callWhenRunning(HANGUP.act, reactor, service.renew)
    return service
