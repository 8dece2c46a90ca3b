"""The administrator's socket: a UNIX socket in the data directory, over which the owner of the data may do everything.

It is how the first user is made, a lost password replaced, and a mistake in the rules mended. Whoever may write into
the directory could change the data themselves, so it opens nothing that was closed.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import Any, Final

from twisted.logger import Logger

from journal.formats.filenames import ADMIN_SOCKET

MODE: Final = 0o600
MOST: Final = 107
"""Most bytes of a UNIX socket's path; a longer one is reached through the directory's descriptor."""
_CREDENTIALS: Final = struct.Struct("=3i")


class AdminSocket:
    """The listening socket. One process has the data at a time, so a socket that is there is nobody's."""

    log = Logger()

    def __init__(self, reactor: Any, data: str) -> None:
        self._reactor = reactor
        self._data = data
        self._port: Any = None
        self._directory = -1

    def listen(self, factory: Any) -> None:
        """Listen. Raises ``OSError`` and ``CannotListenError``."""
        path = os.path.join(os.path.abspath(self._data), ADMIN_SOCKET)
        if len(os.fsencode(path)) > MOST:
            self._directory = os.open(self._data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            path = f"/proc/self/fd/{self._directory}/{ADMIN_SOCKET}"
        if os.path.lexists(path):
            os.unlink(path)
        before = os.umask(0o777 & ~MODE)  # it has its mode from its first moment on
        try:
            self._port = self._reactor.listenUNIX(path, factory, mode=MODE, wantPID=False)
        finally:
            os.umask(before)

    def stop(self) -> Any:
        """Stop listening; the socket is removed."""
        port, self._port = self._port, None
        if self._directory >= 0:
            directory, self._directory = self._directory, -1
            stopped = None if port is None else port.stopListening()
            os.close(directory)
            return stopped
        return None if port is None else port.stopListening()


def may_administer(transport: Any, data: str) -> bool:
    """Return whether the process at the other end of a UNIX socket is of the data's owner, or of root."""
    found = transport.getHandle().getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    user = _CREDENTIALS.unpack(found)[1]
    return user in (0, os.geteuid(), os.stat(data).st_uid)
