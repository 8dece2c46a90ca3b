"""The files of a listener's certificates: which they are, whether they have changed, and why they cannot be used."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum
from typing import NamedTuple

Stamp = tuple[tuple[int, ...], ...]


class ClientCertificates(Enum):
    """Whether a listener wants certificates of its clients."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"


class CertificateFiles(NamedTuple):
    """The files of a listener: its certificate with those that signed it, leaf first; the key; the issuers of clients.

    All are in PEM. ``key`` may be the same file as ``certificate``; ``ca`` is "" without certificates of clients.
    """

    certificate: str
    key: str
    ca: str = ""
    clients: ClientCertificates = ClientCertificates.NONE

    def stamp(self) -> Stamp:
        """Return what is different after any of the files was written, replaced, or made readable."""
        found = []
        for path in (self.certificate, self.key, self.ca):
            one: tuple[int, ...] = ()
            with suppress(OSError, ValueError):  # one that is missing is different from one that is there
                state = os.stat(path)
                one = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
            found.append(one)
        return tuple(found)


class CertificatesRefused(Exception):
    """What is in the files cannot be used, for the reason in the text. ``again_at`` is when it can, by the dates."""

    def __init__(self, reason: str, again_at: float = math.inf) -> None:
        super().__init__(reason)
        self.again_at = again_at


def date_text(seconds: float) -> str:
    """Return a moment for people, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
