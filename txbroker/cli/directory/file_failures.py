"""What to say when a call of the system on a data directory or a directory of backups fails."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from journal.backup import layout
from txbroker.cli.directory.ownership import user_name
from txbroker.cli.exits import Exit, Failure

_NO_ROOM = "Make room there, and run it again"
_IN_THE_WAY = "Something else stands there, a file or a link to nothing: move it away, and run it again"
_ADVICE = {
    errno.ENOSPC: _NO_ROOM,
    errno.EDQUOT: _NO_ROOM,
    errno.EROFS: "The file system is mounted to be read only: mount it to be written, or name a directory elsewhere",
    errno.EEXIST: _IN_THE_WAY,
    errno.ENOTDIR: _IN_THE_WAY,
    errno.EISDIR: _IN_THE_WAY,
    errno.ENXIO: _IN_THE_WAY,
}


@contextmanager
def failures_told(backups: str, data: str, state: Callable[[], str]) -> Iterator[None]:
    """Turn an ``OSError`` into a ``Failure`` that names the file with its directory, the state, and what to do."""
    try:
        yield
    except BrokenPipeError:
        raise
    except PermissionError as error:
        path = _path(error, backups, data)
        raise Failure(
            f"{path}: {error.strerror}{_owned(path)}. {state()}. Run this as the user that the broker runs as, or as "
            "root",
            Exit.UNREACHABLE,
        ) from error
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "Look at the disk (dmesg), and run it again")
        raise Failure(
            f"{_path(error, backups, data)}: {error.strerror or error}. {state()}. {advice}", Exit.IO_FAILED
        ) from error


def _path(error: OSError, backups: str, data: str) -> str:
    """Return the path of the file, of which errors of open files know the part below their directory alone."""
    name = os.fsdecode(error.filename) if error.filename else ""
    return os.path.join(backups if name.split("/")[0] in layout.IN_ROOT else data, name)


def _owned(path: str) -> str:
    try:
        owner = user_name(os.stat(path).st_uid)
    except OSError:
        return f" (this is user {user_name(os.geteuid())})"
    return f" (it belongs to {owner}, and this is {user_name(os.geteuid())})"
