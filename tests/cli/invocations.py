"""Commands, run in this process or in one of their own, and what they print."""

import io
import json
import os
import signal
import subprocess
import sys

from click.testing import CliRunner

from tests.support.repository import PACKAGES
from txbroker.cli import command_line


class Meanwhile(io.BytesIO):
    """What a person types, before which something happens elsewhere."""

    def __init__(self, typed, happens):
        super().__init__(typed)
        self._happens = happens

    def read1(self, size=-1):
        if self._happens is not None:
            happens, self._happens = self._happens, None
            happens()
        return super().read1(size)


def runner(url):
    """What runs a command against the broker at ``url``."""

    def run(*arguments, stdin=None, code=0, partly=False):
        """The command's result; it must end with ``code``, having told nothing but the error unless it did a part."""
        result = CliRunner().invoke(command_line, arguments, input=stdin, env={"TXBROKER_URL": url})
        assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
        if code:
            assert partly or result.stdout == "", f"an error is no output: {result.stdout}"
            assert result.stderr
        return result

    return run


def process(*arguments, url):
    return subprocess.Popen(
        [sys.executable, "-c", "from txbroker.cli import main; main()", *arguments],
        env={**os.environ, "TXBROKER_URL": url, "PYTHONPATH": PACKAGES, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def lines(result):
    return [json.loads(line) for line in result.stdout.splitlines()]
