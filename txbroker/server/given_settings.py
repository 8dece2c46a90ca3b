"""The settings that somebody gives, in a file and as words, checked as far as that is possible before a start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.internet import reactor

from txbroker.errors import InvalidSetting
from txbroker.server import watching
from txbroker.server.endpoints import listening
from txbroker.server.endpoints.certificates import KnownCertificates
from txbroker.server.settings import config, token_issuers
from txbroker.server.settings.proxies import Proxies


def assignment(text: str) -> tuple[str, str]:
    """Return name and value of ``NAME=VALUE``, as behind ``--set``. Raises InvalidSetting."""
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidSetting(f"--set {text}: it must be NAME=VALUE")
    name = name.strip().replace("-", "_")
    config.check_known(name, "--set")
    return name, value.strip()


def from_file(path: str | None) -> dict[str, Any]:
    """Return the settings of a file; none for no file. Raises InvalidSetting."""
    return {} if path is None else config.read_file(path)


def checked(*sources: Mapping[str, Any]) -> config.Config:
    """Return the settings of all sources, of which later ones win, if a broker could be started with them.

    Raises InvalidSetting, also for endpoints that are none, and for certificates and keys of issuers that cannot be
    used.
    """
    made, known = config.merged(*sources), KnownCertificates()
    token_issuers.load(made.service.token_issuers)
    try:
        proxies = Proxies(made.service.proxies)
        listening.open_ones(
            reactor, made.service.endpoints, known, proxies=proxies
        )  # raises for what is no endpoint
    except InvalidSetting as error:
        raise InvalidSetting(f"--listen {error}") from error
    try:
        watching.check(made.service, reactor, known)
    except InvalidSetting as error:
        raise InvalidSetting(f"--set http: {error}") from error
    return made
