"""SQLite files and their copies on real file systems: ``python -m tests.databases.adapters.copied_volumes FOLDER
SCENE``.

Run by `test_file_identity.py` in a mount namespace of its own, with which the mounts go. Prints as one JSON object what
was found.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import txbroker
from txbroker import errors
from txbroker.databases.adapters import file_identity


def make(path: Path) -> None:
    """A database with the decision table."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        txbroker.create_decision_table(database)


def look(path: Path) -> str:
    """What is said of the database there: "" if it is the one that was made, else the refusal."""
    try:
        make(path)
    except errors.DecisionTableRefused as error:
        return str(error)
    return ""


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


def tmpfs(folder: Path) -> Path:
    folder.mkdir()
    mount("-t", "tmpfs", "none", str(folder))
    return folder / "shop.db"


def ext4(image: Path, folder: Path) -> Path:
    folder.mkdir()
    mount("-o", "loop", str(image), str(folder))
    return folder / "shop.db"


def make_image(folder: Path) -> Path:
    """A small ext4 with a database in it."""
    image = folder / "image"
    with image.open("wb") as file:
        file.truncate(8 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True, capture_output=True)
    made = ext4(image, folder / "made")
    make(made)
    subprocess.run(["umount", str(made.parent)], check=True)
    return image


def found(original: Path, other: Path) -> dict[str, object]:
    first, second = original.stat(), other.stat()
    return {
        "same inode": first.st_ino == second.st_ino,
        "same device": first.st_dev == second.st_dev,
        "homes": [file_identity.describe(str(path)) for path in (original, other)],
        "original": look(original),
        "other": look(other),
    }


def copy_on_another_tmpfs(folder: Path) -> dict[str, object]:
    """Each file system counts its inodes anew, so the first file of both has the same number."""
    original, copy = tmpfs(folder / "a"), tmpfs(folder / "b")
    make(original)
    shutil.copy(original, copy)
    return found(original, copy)


def same_volume_on_another_device(folder: Path) -> dict[str, object]:
    """The same bytes of a disk: as after a start at which disks were counted otherwise."""
    image = make_image(folder)
    again = Path(shutil.copy(image, folder / "again"))
    return found(ext4(image, folder / "a"), ext4(again, folder / "b"))


def volume_of_another_identity(folder: Path) -> dict[str, object]:
    """Only the file system's own identity differs."""
    image = make_image(folder)
    other = Path(shutil.copy(image, folder / "other"))
    # One that was mounted since it was last checked is given no other identity.
    subprocess.run(["e2fsck", "-f", "-p", str(other)], check=True, capture_output=True)
    subprocess.run(
        ["tune2fs", "-f", "-U", "random", str(other)], check=True, capture_output=True, input=b"y\n"
    )
    return found(ext4(image, folder / "a"), ext4(other, folder / "b"))


def inode_used_again(folder: Path) -> dict[str, object]:
    """Only the birth time differs: the copy got the number of the deleted original."""
    image = make_image(folder)
    path = ext4(image, folder / "a")
    kept = shutil.copy(path, folder / "kept")
    inode = path.stat().st_ino
    path.unlink()
    for number in range(1000):
        shutil.copy(kept, path)
        if path.stat().st_ino == inode:
            break
        os.rename(path, path.with_name(f"other-{number}"))
    return {"same inode": path.stat().st_ino == inode, "other": look(path)}


SCENES = {
    scene.__name__: scene
    for scene in (
        copy_on_another_tmpfs,
        same_volume_on_another_device,
        volume_of_another_identity,
        inode_used_again,
    )
}

if __name__ == "__main__":
    print(json.dumps(SCENES[sys.argv[2]](Path(sys.argv[1]))))
