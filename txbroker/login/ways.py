"""Which user a certificate or a token belongs to: only one that names it."""

from __future__ import annotations

from collections.abc import Mapping

from journal.formats.access_entries import User
from txbroker.errors import TxBrokerError


def judge_user(users: Mapping[str, User], user: User) -> TxBrokerError | None:
    """Return why ``user`` may not be set beside (or in the place of its namesake among) ``users``; None if it may.

    Two users may not name the same certificate or token, and none is called ``anonymous``.
    """
    raise NotImplementedError
