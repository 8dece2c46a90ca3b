"""The issuers of tokens that let in, as the setting ``token_issuers`` names them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from txbroker.errors import InvalidSetting
from txbroker.login.tokens import TokenIssuer, issuer_of

MAX_KEYS: Final = 1 << 20
"""Most bytes of a file of keys."""


def load(described: Iterable[str]) -> list[TokenIssuer]:
    """Return the issuers, with the keys in their files: each is issuer, audience and file, with spaces between them.

    Raises InvalidSetting, with the file and what is wrong with it.
    """
    return [_issuer(each) for each in described]


def described_from(folder: str, described: str) -> str:
    """Return an issuer whose file is meant from a folder, if its path is relative; what is no issuer as it is."""
    parts = described.split(maxsplit=2)
    if len(parts) != 3:
        return described
    return f"{parts[0]} {parts[1]} {os.path.abspath(os.path.join(folder, parts[2]))}"


def _issuer(described: str) -> TokenIssuer:
    try:
        issuer, audience, path = described.split(maxsplit=2)
    except ValueError:
        raise InvalidSetting(
            f"token_issuers: {described!r} is not an issuer, an audience and a file of keys with spaces between them"
        ) from None
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_KEYS + 1)
    except OSError as error:
        raise InvalidSetting(
            f"token_issuers: the keys of {issuer} in {path} cannot be read: {error.strerror}"
        ) from error
    if len(data) > MAX_KEYS:
        raise InvalidSetting(
            f"token_issuers: {path} has more than {MAX_KEYS} bytes, which no keys of {issuer} have"
        )
    return issuer_of(issuer, audience, data, path)
