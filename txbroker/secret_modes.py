"""The modes of files with a secret in them: such a file is refused if others may read it, as libpq does."""

from __future__ import annotations

import os
import stat


def excess(found: os.stat_result) -> str:
    """Return what is wrong with the file of a secret, "" if nothing is.

    Its owner alone may read it, or its group if it is root's, as secrets of containers are.
    """
    if not stat.S_ISREG(found.st_mode):
        return "is no regular file"
    if os.name != "posix":
        return ""
    too_much = stat.S_IRWXO | (stat.S_IRWXG if found.st_uid else stat.S_IWGRP | stat.S_IXGRP)
    if found.st_mode & too_much:
        mode = stat.S_IMODE(found.st_mode)
        return f"may be read by others (mode {mode:04o}). Allow it to its owner: chmod 600"
    return ""
