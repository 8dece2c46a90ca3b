"""Follow the tutorial to the letter: its files are saved, its commands run one after the other.

What needs a package index is only taken apart, and the broker is one on a free port.
"""

import os
import re
import shlex
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import txbroker
from tests.docs.blocks import blocks_of
from tests.docs.parsers import understand
from tests.docs.python_scenes import DOCUMENTED_ADDRESS, running
from tests.support.repository import DOCS, PACKAGES

pytestmark = pytest.mark.slow

PAGE = "tutorial.md"
LEFT_OUT = re.compile(r"^(?:mkdir|python3 -m venv|source|pip|twistd) .*\n", re.MULTILINE)


def test_the_tutorial_does_what_it_says(broker_process, tmp_path, monkeypatch):
    shell = Shell(broker_process.address, tmp_path)
    for block in blocks_of(DOCS / PAGE):
        if block.language == "python" and block.name:
            (tmp_path / block.name).write_text(block.text.replace(DOCUMENTED_ADDRESS, broker_process.address))
        elif block.language == "sh":
            for command in re.findall(r"^(?:pip|twistd) .*", block.text, re.MULTILINE):
                understand(shlex.split(command), monkeypatch)
            shell.run(LEFT_OUT.sub("", block.text))
    assert "placed 10 orders, the last one is 12" in shell.said
    [(rows, messages)] = re.findall(r"(\d+) rows, (\d+) messages", shell.said)
    assert rows == messages
    assert int(rows) > 12, "the shop was killed before it placed an order"
    assert int(re.search(r"billed (\d+) orders", shell.said)[1]) == min(int(rows), 100)


def test_the_block_for_postgresql_runs(broker_process, postgresql):
    [block] = [each for each in blocks_of(DOCS / PAGE) if each.language == "python" and not each.name]
    with closing(postgresql.connect()) as database, txbroker.connect(broker_process.address) as broker:
        database.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY, state TEXT)")
        database.commit()
        broker.create_topic("orders")
        names = {}
        running(broker_process.address, names)(
            block._replace(text=block.text.replace("dbname=shop", postgresql.url))
        )
        names["database"].close()
        assert database.execute("SELECT * FROM orders").fetchall() == [(42, "new")]


class Shell:
    """Runs the commands of a block in the tutorial's folder, and remembers what they said."""

    def __init__(self, address, folder):
        self._folder = folder
        programs = Path(sys.executable).parent
        self._environment = os.environ | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": PACKAGES,
            "TXBROKER_URL": address,
        }
        self.said = ""

    def run(self, text):
        done = subprocess.run(
            ["bash", "-euc", text],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        self.said += done.stdout
        assert done.returncode == 0, (text, done.stdout)
