"""Make the files of a release for the tests of later ones: ``python -m tests.releases.make``, or ``make keep-release``.

They go to ``tests/releases/VERSION/``: a data directory with what a client finds in it, and the wheels. Run it with the
code of the release, before its tag; docs/releasing.md says when.
"""

from __future__ import annotations

import io
import json
import shutil
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import txbroker
from journal.formats.version import FORMAT, PROGRAM
from tests.releases.findings import found
from tests.releases.released import FIXTURE, HERE, golden
from tests.releases.scene import QUIET, admin, make_directory, make_young_directory, running
from txbroker.wire.messages import VERSIONS

LEFT_OUT = ("admin.sock", "ballast", "lock")
MOST_BYTES = 300 * 1024


def main() -> None:
    """Make fixture and wheels of the version in the tree."""
    folder = HERE / PROGRAM
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with TemporaryDirectory() as made:
        make_directory(Path(made) / "data")
        make_young_directory(Path(made) / "young")
        pack(Path(made), contents(Path(made) / "data"), folder / FIXTURE)
    for source in sys.argv[1:]:
        shutil.copy(source, folder)
    sizes = {file.name: file.stat().st_size for file in sorted(folder.iterdir())}
    for name, size in sizes.items():
        print(f"{size:>9,} {folder.relative_to(Path.cwd())}/{name}")
    if sizes[FIXTURE] > MOST_BYTES:
        sys.exit(f"error: {FIXTURE} has more than {MOST_BYTES:,} bytes")


def contents(data: Path) -> dict[str, Any]:
    """Return what is written down beside a directory: what a client finds in a copy of it, and what the code pins."""
    with TemporaryDirectory() as place:
        copy = copied(data, Path(place))
        with running(copy, *QUIET), txbroker.connect(admin(copy)) as client:
            seen = found(client)
    return {
        "program": PROGRAM,
        "format": FORMAT,
        "protocol": max(VERSIONS),
        "golden": golden(),
        "found": seen,
    }


def copied(data: Path, place: Path) -> Path:
    """Copy a data directory that nobody has open."""
    copy = place / "data"
    shutil.copytree(data, copy, ignore=shutil.ignore_patterns(*LEFT_OUT))
    return copy


def pack(made: Path, said: dict[str, Any], target: Path) -> None:
    """Write the archive of both directories and what was written down."""
    with tarfile.open(target, "w:xz", preset=9) as archive:
        packed = json.dumps(said, separators=(",", ":")).encode()
        entry = tarfile.TarInfo("contents.json")
        entry.size = len(packed)
        archive.addfile(entry, io.BytesIO(packed))
        for name in ("data", "young"):
            archive.add(made / name, name, filter=_kept)


def _kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    left_out = entry.name.endswith(LEFT_OUT) or "/spare." in entry.name or entry.name.endswith(".recycled")
    return None if left_out else entry


if __name__ == "__main__":
    main()
