"""The releases that are kept in the tree: of each a data directory, what must be found in it, and its wheels."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import venv
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests.support.repository import ROOT
from txbroker.drill.broker.broker_process import BrokerProcess

HERE = Path(__file__).parent
FIXTURE = "fixture.tar.xz"
GOLDEN = ROOT / "tests" / "formats" / "golden"
OF_THE_WIRE = ("requests.hex", "answers.hex")
"""The golden files of the protocol; the others are of the data directory."""


class Release(NamedTuple):
    """A release, in its folder."""

    version: str

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return HERE / self.version

    def unpack(self, target: Path, name: str = "data") -> Path:
        """Unpack its data directories below ``target``, and return where the one of that name is."""
        with tarfile.open(self.folder / FIXTURE) as archive:
            archive.extractall(target, filter="data")
        return target / name

    def contents(self) -> dict[str, Any]:
        """Return what was written down when it was made: versions, golden files, and what a client found."""
        with tarfile.open(self.folder / FIXTURE) as archive:
            file = archive.extractfile("contents.json")
            assert file is not None
            found: dict[str, Any] = json.load(file)
            return found

    @property
    def wheels(self) -> list[Path]:
        """Its wheels for any machine."""
        return sorted(self.folder.glob("*.whl"))


def releases() -> list[Release]:
    """Return all of them, the oldest first."""
    names = [each.name for each in HERE.iterdir() if re.fullmatch(r"\d+\.\d+\.\d+", each.name)]
    return [Release(name) for name in sorted(names, key=lambda name: [int(part) for part in name.split(".")])]


def golden() -> dict[str, str]:
    """Return a hash of each file with pinned bytes: it changes with every record, row, request and answer."""
    return {file.name: sha256(file.read_bytes()).hexdigest() for file in sorted(GOLDEN.glob("*.hex"))}


class Installed:
    """A release that is installed from its wheels in an environment of its own, without any index.

    What it needs beside them it takes from the environment that runs the tests. Nothing of the checkout is seen there.
    """

    def __init__(self, place: Path, wheels: list[Path]) -> None:
        self.place = place
        venv.create(place, with_pip=False, symlinks=True)
        (site,) = place.glob("lib/python*/site-packages")
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "--quiet", "--no-index"]
        subprocess.run([*pip, "--no-deps", *map(str, wheels)], check=True, cwd=place)
        # The .pth files of the tests' environment, of which one names the checkout, are not read by this.
        (site / "of_the_tests.pth").write_text(f"{Path(msgspec.__file__).parents[1]}\n")

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.place / "bin" / "python"

    @cached_property
    def version(self) -> str:
        """The version of what is imported there, which lies there."""
        code = "import txbroker, journal; print(txbroker.__version__, txbroker.__file__, journal.__file__)"
        version, *files = self.run("-c", code).split()
        assert all(file.startswith(str(self.place)) for file in files), files
        return version

    def run(self, *arguments: object, check: bool = True) -> str:
        """Run its interpreter in an empty place; return what it said."""
        done = subprocess.run(
            [self.python, *map(str, arguments)],
            cwd=self.place, env=environment(), text=True, check=False, timeout=120,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert not check or done.returncode == 0, done.stdout
        return done.stdout


def environment() -> dict[str, str]:
    """Return an environment in which nothing of the tests' own shows."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))}


class ReleasedBroker(BrokerProcess):
    """A broker of a release that is installed."""

    def __init__(self, installed: Installed, data: Path, *settings: str) -> None:
        options = [word for setting in settings for word in ("--set", setting)]
        log = data.with_name(f"{data.name}-released.log")
        super().__init__(data, log, options, environment=environment())
        self._python = installed.python

    def _command(self, *first: str) -> list[str]:
        listen = f"tcp:{self.port}:interface=127.0.0.1"
        serve = ("-m", "txbroker", "serve", "--data", str(self.data_dir), "--listen", listen)
        # -P: the checkout, in which the tests run, is not looked at.
        return [str(self._python), "-P", *serve, *self._options, *first]
