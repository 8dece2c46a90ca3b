"""What a failed call of the system means for a start, in words, and what to do about it."""

from __future__ import annotations

import os


def unopened(data: str) -> str:
    """Return it for the directory of the data."""
    if not os.path.exists(data):
        return (
            f"{data} cannot be made; nothing was written. See whether the folder that it lies in is there and this "
            "user may write there, or say another --data"
        )
    if not os.path.isdir(data):
        return f"{data} is not a directory; nothing was written. Say --data with a directory, or with a name for one"
    return (
        f"{data} cannot be opened (a call of the system failed; nothing acknowledged was changed. See whether the disk "
        "is there, full or failing, whether the files are this user's, and what 'txbroker verify' finds; start again)"
    )


def in_folder(error: BaseException) -> str:
    """Return the folder at fault for a UNIX socket whose lock cannot be made beside it: Twisted names only the lock."""
    if not isinstance(error, OSError) or error.filename2 is None:
        return ""
    folder = os.path.dirname(os.fsdecode(error.filename2)) or "."
    if not os.path.isdir(folder):
        return f" (the folder {folder} is missing; make it, owned by this user, and start again)"
    return f" (see whether this user may write into the folder {folder}, then start again)"
