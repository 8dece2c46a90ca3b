"""The login that a client's options, its address and the environment give it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final

from txbroker.client.core.login import Channel, Exchange
from txbroker.client.core.options import Options
from txbroker.client.core.url import Address
from txbroker.client.login.choice import ChannelBinding, choose
from txbroker.client.login.credentials import Credentials
from txbroker.client.login.end_point import end_point_hash

SECRETS: Final = ("password", "password_file", "token", "token_file")


class Login:
    """Credentials, and what they are used with."""

    def __init__(self, credentials: Credentials, binding: ChannelBinding) -> None:
        self._credentials = credentials
        self._binding = binding

    def begin(self, offered: Sequence[str], channel: Channel) -> tuple[Exchange, bytes]:
        """Choose a mechanism; return the exchange and its first message. May block, and raises as ``choose`` does."""
        hashed = None if channel.certificate is None else end_point_hash(channel.certificate)
        exchange = choose(
            offered,
            self._credentials,
            secure=channel.secure,
            certificate_hash=hashed,
            channel_binding=self._binding,
        )
        return exchange, exchange.first()


def login_of(options: Options, address: Address, environment: Mapping[str, str] = os.environ) -> Login | None:
    """Return how a client logs in, None if it has nothing to show.

    The environment is asked if neither options nor address say anything. Raises ``Misuse`` for parts that contradict
    each other.
    """
    given = {name: getattr(options, name) for name in SECRETS if getattr(options, name) is not None}
    user, shows_who = options.user, address.shows_who
    if not given and not user and not shows_who:
        user = environment.get("TXBROKER_USER", "")
        for name in ("password_file", "token_file"):
            if value := environment.get(f"TXBROKER_{name.upper()}"):
                given[name] = value
    if not given and not user and not shows_who:
        return None
    credentials = Credentials(user=user, use_certificate=shows_who and not given, **given)
    return Login(credentials, ChannelBinding(options.channel_binding))
