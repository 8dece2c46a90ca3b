"""The users of the system whom directories belong to: who root makes files for, and whose files are in the way."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path
from typing import NamedTuple

from txbroker.cli.exits import Exit, Failure

PRIVATE_MODE = 0o700
NEW_FILE_SYSTEM = "lost+found"


class Owner(NamedTuple):
    """A user of the system, whom files belong to, and its group, by their numbers."""

    user: int
    group: int


def owner_named(name: str | None) -> Owner | None:
    """Return the user of that name; None for None. Raises ``Failure`` for no user, or if we may not give files away."""
    if name is None:
        return None
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise Failure(f"this system has no user {name!r}; nothing was done", Exit.USAGE) from None
    if os.geteuid() != 0:
        raise Failure("--owner is for root: nobody else may give files away. Nothing was done", Exit.USAGE)
    return Owner(found.pw_uid, found.pw_gid)


def owner_for_root(*directories: str) -> Owner | None:
    """Return the owner of the first of these directories that there is, for whom root makes files in it.

    None if we are not root, or if that is root.
    """
    if os.geteuid() != 0:
        return None
    for directory in directories:
        if os.path.exists(directory):
            found = os.stat(directory)
            return Owner(found.st_uid, found.st_gid) if found.st_uid else None
    return None


def user_name(user: int) -> str:
    """Return the name of a user of the system, or its number."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def owner_of(path: str) -> str:
    """Return the name of the user whom a file or directory belongs to."""
    return user_name(os.stat(path).st_uid)


def make_private(directory: str, owner: Owner | None) -> Owner | None:
    """Make the directory, or take its mode from others who may enter it, if it is empty and that is for us to say.

    Return who is to open it: what root finds there that is another user's stays that user's.
    """
    try:
        os.mkdir(directory, PRIVATE_MODE)
        if owner is not None:
            os.chown(directory, owner.user, owner.group)
        return owner
    except FileExistsError:
        found = os.stat(directory)
    if os.geteuid() == 0 and owner is None and found.st_uid != 0:
        owner = Owner(found.st_uid, found.st_gid)
    mine = os.geteuid() if owner is None else owner.user
    if stat.S_ISDIR(found.st_mode) and not set(os.listdir(directory)) - {NEW_FILE_SYSTEM}:
        if owner is not None and found.st_uid == 0:
            os.chown(directory, owner.user, owner.group)
            os.chmod(directory, PRIVATE_MODE)
        elif found.st_uid == mine:
            os.chmod(directory, PRIVATE_MODE)
    return owner


def check_ours(directory: str) -> None:
    """Raise ``Failure`` if files of other users are in the directory that we could not read or remove; it may be
    missing.
    """
    me = os.geteuid()
    if me == 0 or not os.path.isdir(directory):
        return
    foreign = [
        path for path in (Path(directory), *sorted(Path(directory).rglob("*"))) if path.lstat().st_uid != me
    ]
    if foreign:
        users = ", ".join(sorted({user_name(path.lstat().st_uid) for path in foreign}))
        raise Failure(
            f"{len(foreign):,} of the files and directories in {directory} belong to {users}, and not to "
            f"{user_name(me)}, as {foreign[0]}: they could be neither read nor removed. Nothing was done. Give them to "
            f"{user_name(me)}, as root: chown -R {user_name(me)}: {directory}",
            Exit.UNREACHABLE,
        )
