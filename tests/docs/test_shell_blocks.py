"""Run every command in the shell blocks of the documents; commands that take minutes are only parsed."""

import re
import shlex
import sqlite3
from collections import defaultdict
from contextlib import closing
from subprocess import CalledProcessError

import click
import pytest
from click.testing import CliRunner
from twisted.python.usage import UsageError

import txbroker
from tests.cli.in_doubt import prepare
from tests.docs.blocks import commands, in_language
from tests.docs.parsers import understand, understand_twistd
from tests.support.broker_process import BrokerProcess
from txbroker.cli import command_line
from txbroker.coordinator import Coordinator

pytestmark = pytest.mark.slow

NEVER_ENDING = {"drill", "bench", "work", "backup", "restore", "--follow", "--watch"}
"""Words of our own commands that take minutes, go on for ever, or need directories that the shop has not: each has
tests of its own in tests/cli.
"""

THE_ANSWER_IS_NO = 1
"""The exit code of a command that found nothing to do, as some examples do here."""


class Shop:
    """A broker with what the examples name, the directories of a stopped broker and coordinator, and a database."""

    def __init__(self, address, folder, database_url):
        self.address = address
        self._made = 0
        self._numbers = defaultdict(self.prepared_number)
        self._places = {
            "tcp:127.0.0.1:7654": address,
            "/var/lib/txbroker": str(folder / "stopped"),
            "/var/lib/shop/decisions": str(folder / "decisions"),
            "postgresql://shop@db.internal/shop": database_url,
            "sqlite:///shop.db": f"sqlite:///{folder}/shop.db",
        }
        self.environment = {"TXBROKER_URL": address, "SHOP_URL": database_url}

    def replaced(self, command):
        """The command, with what there is here for the places and numbers of the documents."""
        for old, new in self._places.items():
            command = command.replace(old, new)
        for number in re.findall(r"\b68719476737-\d\b", command):
            command = command.replace(number, self._numbers[number])
        return command.replace("NUMBER", self.prepared_number()) if "NUMBER" in command else command

    def prepared_number(self):
        """The number of a transaction that is in doubt, made for this."""
        with txbroker.connect(self.address) as broker:
            self._made += 1
            prepare(self.address, "access", f"{self._made}")
            newest = max(broker.transactions(), key=lambda found: (found.session, found.serial))
            return f"{newest.session}-{newest.serial}"


@pytest.fixture(scope="module")
def shop(tmp_path_factory, postgresql_server):
    folder = tmp_path_factory.mktemp("shop")
    database = postgresql_server.create_database()
    with closing(database.connect()) as connection, closing(sqlite3.connect(folder / "shop.db")) as lite:
        txbroker.create_decision_table(connection)
        txbroker.create_decision_table(lite)
    with BrokerProcess(folder / "stopped") as process, txbroker.connect(process.address) as broker:
        broker.create_topic("orders")
        broker.send("orders", b"one")
        Coordinator(folder / "decisions", {"orders": lambda: txbroker.connect(process.address)}).close()
        process.stop()
    with BrokerProcess(folder / "data") as process:
        yield Shop(process.address, folder, database.url)
    database.drop()


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("coordinator", "log"):
        (tmp_path / name).mkdir()
    (tmp_path / "invoice.pdf").write_bytes(b"%PDF")
    (tmp_path / "txbroker.toml").write_text('checkpoint_interval = "30s"\n')


def stocked(shop, block):
    """What the examples of a block begin with."""
    with txbroker.connect(shop.address, client="billing") as broker:
        if "topics create orders" in block.text:
            if any(topic.name == "orders" for topic in broker.topics()):
                broker.delete_topic("orders")
            return
        for name in ("orders", "access"):
            broker.create_topic(name, partitions=4, exist_ok=True)
        broker.send("orders", b"one", key=b"42")
        with broker.consume("orders", group="billing", follow=False) as consumer:
            assert list(consumer)
            consumer.commit()
        if "1:day-2013-01-01:flights" in block.text:
            broker.tpc_begin(broker.xid(1, "day-2013-01-01", "flights"))
            broker.send("access", b"row")
            broker.tpc_prepare()


def ours(words, shop, monkeypatch):
    """Run a command of ours in this process; it asks, and is answered yes."""
    if words[1] == "serve":
        understand_twistd(["txbroker", *words[2:]])
        return
    if NEVER_ENDING & set(words):
        with monkeypatch.context() as patched:
            patched.setattr(click.Command, "invoke", only_groups(click.Command.invoke))
            done = CliRunner().invoke(command_line, words[1:], env=shop.environment)
    else:
        done = CliRunner().invoke(command_line, words[1:], input="y\n" * 9, env=shop.environment)
    assert done.exit_code in (0, THE_ANSWER_IS_NO), (words, done.stdout, done.stderr)


def only_groups(invoke):
    """Leave out what a command does once its words are understood."""
    return lambda command, context: invoke(command, context) if isinstance(command, click.Group) else None


def run(command, shop, monkeypatch):
    if "|" in command:
        command = command.partition("|")[2]  # the examples pipe lines, and what stdin has here are lines
    words = shlex.split(shop.replaced(command), comments=True)
    while "=" in words[0]:
        monkeypatch.setenv(*words.pop(0).split("=", 1))
    if words[0].endswith("txbroker"):
        ours(words, shop, monkeypatch)
    else:
        understand(words, monkeypatch)


@pytest.mark.parametrize(
    "page", sorted({block.page for block in in_language("sh")} - {"docs/tutorial.md", "SECURITY.md"}), ids=str
)
def test_the_commands_of_a_page_are_understood_and_do_not_fail(page, shop, monkeypatch):
    for block in in_language("sh"):
        if block.page == page:
            stocked(shop, block)
            for command in commands(block):
                run(command, shop, monkeypatch)


@pytest.mark.parametrize(
    "command",
    [
        "txbroker topics destroy orders",
        "txbroker drill --fresh --kill 3",
        "make bnech",
        "make bench ARGS=--quickly",
        "pip install 'txbroker[cil]'",
        "twistd -n txbroker --date ./data",
        "rm -rf data",
    ],
)
def test_a_command_that_is_written_wrong_is_noticed(command, shop, monkeypatch):
    refusals = AssertionError, CalledProcessError, click.UsageError, UsageError, pytest.fail.Exception
    with pytest.raises(refusals):
        run(command, shop, monkeypatch)
