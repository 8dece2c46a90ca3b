"""``txbroker work``, as processes with a real broker: signals, deaths, failures, and what a handler is called with."""

import contextlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import txbroker
from tests.cli.invocations import runner
from tests.support.repository import PACKAGES
from tests.worker.scene import fill, unfinished, values
from txbroker.worker.named_functions import function_named

pytestmark = pytest.mark.slow

PATIENCE = 60.0

HANDLERS = """
import asyncio, os, sqlite3, threading, time

def say(*words):
    with open("said", "a") as file:
        file.write(" ".join(map(str, words)) + "\\n")

def plain(message):
    say(os.getpid(), message.offset)

async def asynchronous(message, tx):
    await asyncio.sleep(0)
    await tx.send("out", message.value)
    say(os.getpid(), message.offset)

def transactional(message, tx):
    tx.send("out", message.value)
    say(os.getpid(), message.offset)
    time.sleep(0.002)

def connect():
    return sqlite3.connect("shop.db", timeout=60)

def rows(message, tx, database):
    database.execute("INSERT INTO orders VALUES (?)", (int(message.value),))
    tx.send("out", message.value)
    say(os.getpid(), message.offset)

def stuck(message):
    say(os.getpid(), message.offset)
    threading.Event().wait()

def slow(message):
    say(os.getpid(), message.offset)
    while not os.path.exists("go on"):
        time.sleep(0.01)

def poison(message):
    raise ZeroDivisionError("poison")

def hook(broker):
    say("hook", broker.address.place)
"""


class Command:
    """A ``txbroker work`` in a folder of its own."""

    def __init__(self, folder, url, *words):
        (folder / "tasks.py").write_text(HANDLERS)
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "txbroker", "work", *words],
            cwd=folder, env={**os.environ, "TXBROKER_URL": url, "PYTHONPATH": PACKAGES},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    @property
    def said(self):
        file = self.folder / "said"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def pids(self):
        return {int(words[0]) for words in self.said if words[0].isdigit()}

    def until(self, look):
        for _ in range(int(PATIENCE / 0.02)):
            if look():
                return
            assert self.process.poll() is None, self.process.communicate()
            threading.Event().wait(0.02)
        pytest.fail("that never came")

    def end(self, *numbers):
        for number in numbers:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err


@pytest.fixture
def begin(tmp_path, url):
    begun = []

    def begin(*words):
        begun.append(Command(tmp_path, url, *words))
        return begun[-1]

    yield begin
    for each in begun:
        each.process.kill()
        each.process.wait()
        each.process.stdout.close()
        each.process.stderr.close()


@pytest.fixture
def out(connection):
    with contextlib.suppress(txbroker.errors.UnknownTopic):
        connection.delete_topic("out")
    connection.create_topic("out")
    return "out"


def is_there(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_handles_until_a_signal_and_ends_in_order(begin, connection, topic, number):
    fill(connection, topic, 50)
    command = begin("tasks:plain", "--topic", topic, "--group", topic, "--concurrency", "4")
    command.until(lambda: len(command.said) == 50)
    code, said, log = command.end(number)
    assert (code, said) == (0, "")
    assert "stopping: what is under way is finished" in log
    assert unfinished(connection, topic, topic) == []


def test_what_is_under_way_is_finished_and_nothing_else(begin, connection, topic):
    fill(connection, topic, 50)
    command = begin("tasks:slow", "--topic", topic, "--group", topic, "--concurrency", "2")
    command.until(lambda: len(command.said) == 2)
    command.process.terminate()
    while not command.process.stderr.readline().startswith("stopping"):
        pass
    (command.folder / "go on").touch()
    assert command.end()[0] == 0
    assert len(unfinished(connection, topic, topic)) == 48


@pytest.mark.sampled(test=1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(begin, connection, topic, number):
    fill(connection, topic, 2)
    command = begin("tasks:stuck", "--topic", topic, "--group", topic)
    command.until(lambda: command.said)
    command.process.send_signal(number)
    while not command.process.stderr.readline().startswith("stopping"):
        pass
    code, _, log = command.end(number)
    assert code == 128 + number
    assert "stopped at once" in log
    assert len(unfinished(connection, topic, topic)) == 2


def test_calls_that_do_not_end_in_time_stay_unfinished(begin, connection, topic):
    fill(connection, topic, 2)
    command = begin("tasks:stuck", "--topic", topic, "--group", topic, "--stop-timeout", "100ms")
    command.until(lambda: command.said)
    code, _, log = command.end(signal.SIGTERM)
    assert code == 5
    assert "1 call of the handler did not end" in log
    assert len(unfinished(connection, topic, topic)) == 2


def test_a_coroutine_function_is_called_with_asyncio(begin, connection, topic, out):
    fill(connection, topic, 50)
    words = (
        "--topic",
        topic,
        "--group",
        topic,
        "--concurrency",
        "8",
        "--transaction",
        "--on-start",
        "tasks:hook",
    )
    command = begin("tasks:asynchronous", *words)
    command.until(lambda: len(command.said) == 51)
    assert command.end(signal.SIGTERM)[0] == 0
    assert values(connection, out) == list(range(50))
    assert unfinished(connection, topic, topic) == []


def test_without_retries_a_failure_is_shown_and_ends_it_with_1(begin, connection, topic):
    fill(connection, topic, 1)
    code, _, log = begin("tasks:poison", "--topic", topic, "--group", topic, "--no-retry").end()
    assert code == 1
    assert 'tasks.py", line' in log
    assert "ZeroDivisionError: poison" in log
    assert "txbroker/worker/core.py" not in log
    assert f"the handler failed for {topic}-0 offset 0, which stays unfinished" in log


def stopped(connection, group):
    """The offsets that a group has stopped."""
    try:
        return [(each.partition, each.offset) for each in connection.parked(group) if each.stopped]
    except txbroker.errors.UnknownGroup:
        return []


POLICY = ("--attempts", "3", "--pause", "1ms", "--longest", "2ms", "--ending", "stop")


@pytest.mark.sampled(test=1)
@pytest.mark.parametrize("processes", ["1", "2"])
def test_the_options_are_the_policy_of_the_group_by_which_a_message_is_tried_again(
    begin, connection, topic, processes
):
    connection.send(topic, b"0", partition=0)
    words = ("--topic", topic, "--group", topic, "--processes", processes)
    command = begin("tasks:poison", *words, *POLICY)
    command.until(lambda: stopped(connection, topic))
    code, _, log = command.end(signal.SIGTERM)
    assert code == 0, log
    assert connection.describe_group(topic).retry == txbroker.RetryPolicy(3, 0.001, 0.002, "stop")
    [parked] = connection.parked(topic)
    assert (parked.attempts, parked.why) == (3, "ZeroDivisionError: poison")
    assert [log.count(f"failed, attempt {number}") for number in (1, 2, 3, 4)] == [1, 1, 1, 0]
    assert "ZeroDivisionError: poison" in log


@pytest.mark.sampled(test=1)
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_policy_that_is_not_that_of_the_group_ends_it(begin, connection, topic, processes):
    connection.alter_group(topic, retry=txbroker.RetryPolicy(attempts=7))
    connection.send(topic, b"0", partition=0)
    words = ("--topic", topic, "--group", topic, "--processes", processes)
    code, _, log = begin("tasks:poison", *words, "--attempts", "8").end()
    assert code == 3, log
    assert f"group '{topic}' tries messages again by another policy" in log
    assert connection.describe_group(topic).retry == txbroker.RetryPolicy(attempts=7)
    assert connection.parked(topic) == []


def test_without_an_option_the_policy_is_that_of_the_group_or_the_usual_one(begin, connection, topic):
    connection.alter_group(topic, retry=txbroker.RetryPolicy(1, ending="stop"))
    connection.send(topic, b"0", partition=0)
    command = begin("tasks:poison", "--topic", topic, "--group", topic)
    command.until(lambda: stopped(connection, topic))
    assert command.end(signal.SIGTERM)[0] == 0
    command = begin("tasks:plain", "--topic", topic, "--group", f"new-{topic}")
    command.until(lambda: command.said)
    assert command.end(signal.SIGTERM)[0] == 0
    assert connection.describe_group(f"new-{topic}").retry == txbroker.RetryPolicy()


def lag(connection, group):
    """How many messages the group has not finished below the ends of its partitions."""
    return sum(part.lag or 0 for part in connection.describe_group(group).partitions)


# -- several processes -----------------------------------------------------------------------------


def is_shared(connection, group):
    """Whether two members have a partition each."""
    try:
        owners = [each.member for each in connection.describe_group(group).partitions]
    except txbroker.errors.UnknownGroup:
        return False
    return None not in owners and len(set(owners)) == 2


def test_several_processes_share_the_partitions_and_end_in_order(begin, connection, topic):
    command = begin("tasks:plain", "--topic", topic, "--group", topic, "--processes", "2")
    command.until(lambda: is_shared(connection, topic))
    fill(connection, topic, 100)
    command.until(lambda: len(command.said) == 100)
    assert len(command.pids) == 2
    code, _, log = command.end(signal.SIGINT)
    assert code == 0, log
    assert unfinished(connection, topic, topic) == []


@pytest.mark.sampled(test=1)
@pytest.mark.parametrize("processes", ["1", "2"])
def test_what_is_handled_is_finished_at_intervals_and_at_the_end(begin, connection, topic, processes):
    words = ("--topic", topic, "--group", topic, "--processes", processes)
    command = begin("tasks:plain", *words, "--commit-interval", "1h")
    command.until(lambda: topic in {each.name for each in connection.groups()})
    fill(connection, topic, 50)
    command.until(lambda: len(command.said) == 50)
    assert lag(connection, topic) == 50
    code, _, log = command.end(signal.SIGTERM)
    assert code == 0, log
    assert lag(connection, topic) == 0
    command = begin("tasks:plain", *words, "--commit-interval", "100ms")
    fill(connection, topic, 20)
    command.until(lambda: lag(connection, topic) == 0)


@pytest.mark.sampled(test=1)
@pytest.mark.parametrize("processes", ["1", "2"])
def test_with_tags_it_handles_only_messages_that_have_one(begin, connection, topic, processes):
    for number in range(20):
        connection.send(topic, b"%d" % number, tags=["-eu"] * (number % 4 == 0) + ["us"] * (number % 5 == 0))
    words = ("--topic", topic, "--group", topic, "--processes", processes)
    command = begin("tasks:plain", *words, "--tag=-eu", "--tag", "us")
    command.until(lambda: len(command.said) == 8)
    assert command.end(signal.SIGINT)[0] == 0
    assert connection.describe_group(topic).tags == ("-eu", "us")
    assert "reads messages of other tags" in begin("tasks:plain", *words, "--tag", "us").end()[2]


@pytest.mark.parametrize("way", ["transactional", "rows"])
def test_killed_again_and_again_each_message_takes_effect_once(begin, connection, topic, out, tmp_path, way):
    fill(connection, topic, 1500)
    with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY)")
        database.commit()
        txbroker.create_decision_table(database)
    how = ["--transaction"] if way == "transactional" else ["--connect-database", "tasks:connect"]
    words = ("--topic", topic, "--group", topic, "--processes", "2", "--concurrency", "4", *how)
    command = begin(f"tasks:{way}", *words)
    killed = set()
    for goal in (100, 300, 600):
        command.until(lambda goal=goal: len(command.said) >= goal and command.pids - killed)
        alive = [pid for pid in command.pids - killed if is_there(pid)]
        for pid in alive[:1]:
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
    command.until(lambda: len(values(connection, out)) >= 1500)
    code, _, log = command.end(signal.SIGTERM)
    assert code == 0, log
    assert len(killed) >= 2
    assert "exit code 137, and is started again" in log
    assert values(connection, out) == list(range(1500))
    if way == "rows":
        with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as database:
            assert [number for (number,) in database.execute("SELECT number FROM orders")] == list(
                range(1500)
            )


def test_no_child_outlives_its_parent(begin, connection, topic):
    command = begin("tasks:plain", "--topic", topic, "--group", topic, "--processes", "2")
    command.until(lambda: is_shared(connection, topic))
    fill(connection, topic, 100)
    command.until(lambda: len(command.pids) == 2)
    command.process.kill()
    command.process.wait()
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.02)):
        if not any(is_there(pid) for pid in command.pids):
            break
        pause.wait(0.02)
    assert not any(is_there(pid) for pid in command.pids)


def test_if_one_process_cannot_go_on_all_are_stopped(begin, connection, topic):
    connection.send(topic, b"0", partition=0)
    command = begin("tasks:poison", "--topic", topic, "--group", topic, "--processes", "2", "--no-retry")
    code, _, log = command.end()
    assert code == 1
    assert re.search(r"has ended with exit code 1; the others are stopped", log)


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["tasks"], "must be MODULE:FUNCTION"),
        (["nowhere:bill"], "there is no module 'nowhere'"),
        (["nowhere.tasks:bill"], "there is no module 'nowhere'"),
        (["tasks:plan"], "did you mean 'plain'?"),
        (["tasks:os"], "it must be a function"),
        (["broken:bill"], "cannot be imported: NameError: name 'missing' is not defined"),
        (["lacking:bill"], "cannot be imported: ModuleNotFoundError: No module named 'absent_package'"),
        (["tasks:plain", "--on-start", "tasks:hok"], "--on-start is 'tasks:hok'"),
        (["tasks:plain", "--transaction", "--database", "sqlite:///x.db"], "at most one of"),
        (["tasks:plain", "--database", "sqlite:///missing.db"], "there is no file"),
        (["tasks:asynchronous", "--database", "sqlite:///x.db"], "--connect-database"),
        (["tasks:plain", "--concurrency", "0"], "--concurrency"),
        (["tasks:plain", "--attempts", "0"], "--attempts"),
        (["tasks:plain", "--pause", "1"], "has no unit"),
        (["tasks:plain", "--ending", "skip"], "--ending"),
        (["tasks:plain", "--no-retry", "--attempts", "3"], "say --no-retry, or --attempts"),
        (["tasks:plain", "--pause", "10m"], "it must be longest=300 s at most"),
        (["tasks:plain", "--longest", "367d"], "it must be 366 days at most"),
        (["tasks:plain", "--on-failure", "skip"], "No such option"),
    ],
)
def test_what_makes_no_sense_is_refused_with_2(url, topic, tmp_path, monkeypatch, words, told):
    (tmp_path / "tasks.py").write_text(HANDLERS)
    (tmp_path / "broken.py").write_text("print(missing)\n")
    (tmp_path / "lacking.py").write_text("import absent_package\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("tasks", "broken", "lacking"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    result = runner(url)("work", *words, "--topic", topic, "--group", "g", code=2)
    assert told in " ".join(result.stderr.split())


def test_a_topic_that_is_missing_is_told_with_1(url, tmp_path, monkeypatch):
    (tmp_path / "jobs.py").write_text("def handle(message): pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for more in ([], ["--processes", "2"]):
        result = runner(url)("work", "jobs:handle", "--topic", "nowhere", "--group", "g", *more, code=1)
        assert "there is no topic 'nowhere'" in result.stderr


def test_functions_in_packages_and_classes_have_names_too():
    assert function_named("it", "os.path:join") is os.path.join
    assert function_named("it", "pathlib:Path.exists") is Path.exists
