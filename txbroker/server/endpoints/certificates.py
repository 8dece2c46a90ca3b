"""Certificates of listeners, and the change to renewed ones while connections go on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from txbroker.errors import InvalidSetting
from txbroker.server.endpoints.certificate_files import CertificateFiles, CertificatesRefused, date_text
from txbroker.server.endpoints.handshakes import HandshakeLine

if TYPE_CHECKING:
    from txbroker.server.endpoints.certificate_proof import Proven

LOOK_INTERVAL: Final = 10.0
"""Seconds between two looks whether files have changed."""


class Certificates:
    """The certificates of listeners that have the same files. New connections are made with ``proven``.

    The first load raises :class:`CertificatesRefused`. ``wall`` gives seconds since 1970 UTC.
    """

    log = Logger()

    def __init__(self, files: CertificateFiles, wall: Callable[[], float] = time.time) -> None:
        self.files = files
        self.has_failed = False
        """Whether the files could not be taken the last time that they were read."""
        self._wall = wall
        self._again_at = math.inf
        self._seen = files.stamp()
        self.proven = self._prove()

    def look(self) -> None:
        """Read the files again if they have changed, or if the dates in them were all that was wrong."""
        if self.files.stamp() != self._seen or self._wall() >= self._again_at:
            self.reload()

    def reload(self) -> None:
        """Read the files again, and use what is in them if it is sound; what was used stays otherwise."""
        self._seen, self._again_at = self.files.stamp(), math.inf  # before they are read: no change is missed
        try:
            self.proven = self._prove()
        except CertificatesRefused as error:
            self.has_failed, self._again_at = True, error.again_at
            self.log.error(
                "the certificates were not renewed: {reason}; the old ones stay in use, until {date}",
                reason=str(error), date=date_text(self.proven.not_after),
            )  # fmt: skip
        else:
            self.has_failed = False
            self.log.info(
                "new connections have the certificate in {file} (valid until {date})",
                file=self.files.certificate, date=date_text(self.proven.not_after),
            )  # fmt: skip

    def _prove(self) -> Proven:
        from txbroker.server.endpoints.certificate_proof import prove

        return prove(self.files, self._wall())


class KnownCertificates:
    """What all listeners with TLS of a process share: one :class:`Certificates` for the same files, and one line of
    handshakes.
    """

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._known: dict[CertificateFiles, Certificates] = {}
        self._listeners: dict[str, CertificateFiles] = {}
        self._line: HandshakeLine | None = None

    def of(self, files: CertificateFiles, listener: str) -> Certificates:
        """Return the certificates of a listener, loaded if nobody has asked for them. Raises InvalidSetting."""
        if files not in self._known:
            try:
                self._known[files] = Certificates(files, self._wall)
            except ImportError as error:
                raise InvalidSetting(
                    f"the packages for TLS are missing here ({error}). Install them with: pip install 'txbroker[tls]'"
                ) from error
            except CertificatesRefused as error:
                raise InvalidSetting(f"{error}; nothing was started") from error
        self._listeners[listener] = files
        return self._known[files]

    def handshakes(self, clock: IReactorTime) -> HandshakeLine:
        """Return the line of handshakes."""
        if self._line is None:
            self._line = HandshakeLine(clock)
        return self._line

    def look(self) -> None:
        """Take those whose files have changed."""
        for certificates in self._known.values():
            certificates.look()

    def reload(self) -> None:
        """Read all files again."""
        for certificates in self._known.values():
            certificates.reload()

    @property
    def has_failed(self) -> bool:
        """Return whether any files could not be taken the last time that they were read."""
        return any(certificates.has_failed for certificates in self._known.values())

    def not_after(self) -> dict[str, float]:
        """Return by listener when its certificate, or one that signed it, expires, in seconds since 1970 UTC."""
        return {listener: self._known[files].proven.not_after for listener, files in self._listeners.items()}
