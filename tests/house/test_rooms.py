"""Test that each room is in a contract of layers, and that none has the name of a public function."""

import configparser
import subprocess
import sys

import pytest

from tests.support.repository import ROOT

EVERY_MODULE = """
import importlib, pkgutil, types
import journal, txbroker, txbroker.client.asyncio, txbroker.client.blocking, txbroker.client.twisted
for top in (journal, txbroker):
    for module in pkgutil.walk_packages(top.__path__, top.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
for package in (journal, txbroker, txbroker.client.asyncio, txbroker.client.blocking, txbroker.client.twisted):
    for name in package.__all__:
        if name != "errors" and isinstance(getattr(package, name), types.ModuleType):
            print(package.__name__, name)
"""


@pytest.mark.slow
def test_no_module_takes_the_name_of_a_public_function():
    """Importing a submodule binds its name in the package, over a function that is loaded when it is asked for."""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", EVERY_MODULE],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_every_room_stands_in_a_contract_of_layers():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    layers = {
        room
        for section in config.sections()
        if config.get(section, "type", fallback="") == "layers"
        for room in config[section]["layers"].replace(":", " ").split()
    }
    rooms = {
        ".".join(folder.relative_to(ROOT).parts)
        for top in ("journal", "txbroker", "spark")
        for folder in {path.parent for path in (ROOT / top).glob("*/**/*.py") if path.name != "__init__.py"}
    }
    assert len(rooms) > 30, "there are no rooms: is this the checkout?"
    django = {"txbroker.databases.django.management.commands", "txbroker.databases.django.migrations"}
    assert sorted(rooms - layers - django) == []
