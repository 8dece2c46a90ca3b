"""Files with a secret in them: read anew for each login, and refused if others may read them, as libpq does."""

from __future__ import annotations

import os
from typing import Final

from txbroker.errors import Misuse
from txbroker.secret_modes import excess

MAX_BYTES: Final = 64 * 1024
"""Most bytes of a file: four times the longest token."""


def read_secret(path: str, what: str) -> str:
    """Return the text in a file without the newline at its end. ``what`` names the secret in errors.

    Raises ``Misuse`` for a file that is missing, empty, too large or no file, and for one that others may read: its
    owner alone may, or its group if it is root's, as secrets of containers are.
    """
    try:
        with open(path, "rb") as file:
            if why := excess(os.fstat(file.fileno())):
                raise _refused(path, what, why)
            data = file.read(MAX_BYTES + 1)
        text = data.decode()
    except OSError as error:
        raise _refused(path, what, f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise _refused(path, what, "is no text in UTF-8") from None
    if len(data) > MAX_BYTES:
        raise _refused(path, what, f"has more than {MAX_BYTES:,} bytes")
    secret = text.removesuffix("\n").removesuffix("\r")
    if not secret:
        raise _refused(path, what, "is empty")
    return secret


def _refused(path: str, what: str, why: str) -> Misuse:
    return Misuse(f"the file of the {what}, {path}, {why}; nothing was sent")
