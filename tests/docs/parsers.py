"""Parsers take a command apart without carrying it out: it must be one that its program understands."""

import argparse
import contextlib
import importlib
import re
import shlex
import subprocess
import tomllib

import click
import pytest
from twisted.application.service import IServiceMaker
from twisted.internet.task import Clock
from twisted.plugin import getPlugins

from tests.support.repository import ROOT
from txbroker.monitoring.health import Health
from txbroker.monitoring.management import Management
from txbroker.monitoring.site import Pages


class Understood(Exception):
    """The parser has taken the command apart."""


def understand(words, monkeypatch):
    """Take a command apart; fails where its program would refuse it."""
    program, *arguments = words
    if program == "make":
        understand_make(words, monkeypatch)
    elif program.endswith("python"):
        assert arguments[0] == "-m", words
        understand_module(*arguments[1:], monkeypatch=monkeypatch)
    elif program == "twistd":
        understand_twistd(arguments)
    elif program == "curl":
        understand_curl(arguments)
    elif program == "openssl":  # it is done: what comes behind it reads what it has made
        subprocess.run(words, check=True, capture_output=True)
    elif program == "celery":
        assert arguments == ["-A", "shop", "worker"]
    elif program == "pip":
        assert arguments[0] == "install"
        understand_requirements(arguments[1:])
    else:
        pytest.fail(f"no test knows how to run {shlex.join(words)}")


def understand_curl(arguments):
    """A page of a broker's own listener."""
    [address] = arguments
    page, behind = re.fullmatch(r"http://127\.0\.0\.1:\d+/(\w+)(/.*)?", address).groups()
    if page == "api":
        assert behind in ("/overview", "/queues", "/queues/%2F/orders")
        return
    assert page.encode() in Pages(Health(), lambda: iter(()), Management(lambda: None, float), Clock())._pages


def understand_make(words, monkeypatch):
    """Have make say what it would run, and take that apart too, if it is a program of ours."""
    said = subprocess.run([*words, "-n"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for line in said.splitlines():
        if found := re.search(r"\.venv/bin/python -m ((?:benchmarks|demo|models|tests|examples)\b.*)", line):
            understand_module(*shlex.split(found[1]), monkeypatch=monkeypatch)


def understand_module(module, *arguments, monkeypatch):
    """What ``python -m MODULE`` does with its arguments, up to the moment at which it knows what they mean."""
    if (module, arguments[:1]) == ("benchmarks", ("recovery",)):
        module, arguments = "benchmarks.recovery.measurement", arguments[1:]
    try:
        found = importlib.import_module(f"{module}.__main__")
    except ModuleNotFoundError:
        found = importlib.import_module(module)
    if isinstance(found.main, click.Command):
        understand_click(found.main, module, list(arguments))
        return
    parse = argparse.ArgumentParser.parse_args

    def stop(parser, given=None, namespace=None):
        parse(parser, given, namespace)
        raise Understood

    with monkeypatch.context() as patched:
        patched.setattr("argparse.ArgumentParser.parse_args", stop)
        patched.setattr("sys.argv", [module, *arguments])
        with pytest.raises(Understood):
            found.main()


def understand_click(command, name, arguments):
    """The same for a program that is made with click; its help is an answer, too."""
    with contextlib.suppress(click.exceptions.Exit), command.make_context(name, arguments):
        pass


def understand_twistd(arguments):
    """The options of twistd itself, then those of its plugin."""
    [maker] = [each for each in getPlugins(IServiceMaker) if each.tapname == "txbroker"]
    behind = arguments.index("txbroker") + 1
    assert set(arguments[: behind - 1]) <= {"-n", "--pidfile="}
    maker.options().parseOptions(arguments[behind:])


def understand_requirements(requirements):
    """What pip is to install is ours, with extras that there are, or a folder of a checkout."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for each in requirements:
        name, named = re.fullmatch(r"([\w./]+)(?:\[([\w,]+)\])?", each).groups()
        assert name == "txbroker" or (ROOT / name / "pyproject.toml").exists()
        assert set((named or "server").split(",")) <= set(extras)
