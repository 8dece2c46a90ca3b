"""Test that clients run without what only Linux or POSIX has, as on macOS and Windows, as far as Linux can show it.

Each test has a process of its own that :mod:`tests.support.elsewhere` has taken these from. A broker runs in an
ordinary one.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.scripted_broker import ScriptedServer
from tests.client.test_apis import TWISTED
from tests.support.broker_process import BrokerProcess
from tests.support.repository import PACKAGES, ROOT

FORKS = "tests/client/loop/test_blocking.py::test_a_forked_child_is_refused_and_the_parents_connection_lives"
"""The only test of a client that needs more than a connection."""
WITH_A_BROKER = ("giving_up", "real_broker", "receiving", "receiving_fenced", "moments", "bounds")
"""Files whose slow tests have a broker in an ordinary process."""
NOT_HERE = (
    "test_elsewhere.py",
    "test_interrupts.py",
    "test_lost_answers.py",
    "core/test_login.py",
    "operations/test_scheduled.py",
    "producer/test_scheduling.py",
    "transactions/test_scheduling.py",
    "login/test_choice.py",
    "login/test_exchange.py",
    "consumer/test_filter_histories.py",
    "consumer/test_retry_histories.py",
    "consumer/test_seek_histories.py",
)
"""This file; timers that send signals, which POSIX alone has; brokers, or what lets clients in there, in the test's own
process, which are Linux's.
"""

TCP = ("-p", "tests.client.conftest")
TLS = (*TCP, "-p", "tests.client.over_tls")
AGAINST_BROKER = ("-p", "tests.client.consumer.against_broker.conftest")
"""The fixtures of the files in that folder."""


def run(*command: str, cwd: Path = ROOT, timeout: float = 60) -> str:
    ran = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env={"PYTHONPATH": PACKAGES},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-8000:]
    return ran.stdout


def elsewhere(code: str, *arguments: str, cwd: Path = ROOT) -> str:
    return run("-c", f"import tests.support.elsewhere\n{code}", *arguments, cwd=cwd)


@pytest.fixture
def server(broker):
    server = ScriptedServer(broker)
    yield server
    server.close()


def run_tests(folder: Path, plugins: tuple[str, ...], which: str, *choice: str) -> str:
    """Run tests of the clients in a process that what is missing elsewhere has been taken from."""
    places = ("--basetemp", str(folder / "tests"), "-p", "no:cacheprovider", "-p", "no:xdist", "-m", which)
    return run(
        "-m",
        "pytest",
        "--noconftest",
        "-p",
        "tests.support.elsewhere",
        *plugins,
        *places,
        *choice,
        timeout=900,
    )


@pytest.mark.slow
@pytest.mark.sampled(test=1)
@pytest.mark.parametrize("plugins", [TLS, TCP], ids=["tls", "tcp"])
def test_all_tests_of_the_clients_pass(plugins, tmp_path):
    """Those that take seconds aside. Seen to fail with eventfd, poll, register_at_fork or fcntl asked for."""
    choice = ["--deselect", FORKS, *(f"--ignore=tests/client/{name}" for name in NOT_HERE)]
    assert "[100%]" in run_tests(tmp_path, plugins, "not slow and not deep", *choice, "tests/client")


@pytest.mark.slow
@pytest.mark.parametrize("plugins", [TCP, TLS], ids=["tcp", "tls"])
@pytest.mark.parametrize(
    "files", [("receiving",), pytest.param(WITH_A_BROKER, marks=pytest.mark.deep)], ids=["some", "all"]
)
def test_those_that_take_seconds_pass(plugins, files, tmp_path):
    clients = ROOT / "tests" / "client"
    paths = [path for name in files for path in clients.rglob(f"test_{name}.py")]
    assert len(paths) == len(files)
    with_fixtures = [str(path) for path in paths if path.parent.name == "against_broker"]
    for more, some in (
        (AGAINST_BROKER, with_fixtures),
        ((), [str(p) for p in paths if str(p) not in with_fixtures]),
    ):
        if some:
            folder = tmp_path / "-".join(["run", *more[1:]])
            folder.mkdir()
            assert "[100%]" in run_tests(folder, (*plugins, *more), "slow and not deep", *some)


@pytest.mark.slow
def test_the_twisted_api_goes_through_everything(broker, server):
    reactor = "from twisted.internet import reactor"  # it looks at os.name for what it imports
    run("-c", f"{reactor}\nimport tests.support.elsewhere\n{TWISTED}", server.url)
    assert broker.offsets == {1: 502}


@pytest.mark.slow
def test_a_row_and_a_message_are_committed_together(tmp_path):
    with BrokerProcess(tmp_path / "data") as broker:
        said = elsewhere(
            """
import sqlite3, sys, txbroker
database = sqlite3.connect("shop.db")
database.execute("CREATE TABLE orders (number INTEGER)")
database.commit()
txbroker.create_decision_table(database)
with txbroker.connect(sys.argv[1]) as broker:
    broker.create_topic("orders")
    for number in range(3):
        with txbroker.atomic(database, broker, wait="commit") as tx:
            database.execute("INSERT INTO orders VALUES (?)", (number,))
            tx.send("orders", b"%d" % number)
    print([message.value for message in broker.consume("orders", follow=False)])
print(database.execute("SELECT count(*) FROM orders").fetchone())
""",
            broker.address,
            cwd=tmp_path,
        )
    assert said.splitlines() == ["[b'0', b'1', b'2']", "(3,)"]


INTERRUPTED = """
import contextlib, signal, sys, threading, time, txbroker

def drive():
    with contextlib.suppress(txbroker.errors.ConnectionClosed, txbroker.errors.RequestTimedOut):
        broker.topics()

def interrupt():  # on this thread: it ends no wait of the main one, as no signal does on Windows
    time.sleep(0.5)
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

with txbroker.connect(sys.argv[1], timeout=30.0) as broker:
    begun = time.monotonic()
    if sys.argv[2] == "follows":
        threading.Thread(target=drive, daemon=True).start()
        while not broker._driver.is_driven:
            time.sleep(0.01)
    threading.Thread(target=interrupt).start()
    try:
        broker.topics()
    except KeyboardInterrupt:
        print(time.monotonic() - begun < 5.0)
    broker._driver.close(txbroker.errors.ConnectionClosed("enough"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["leads", "follows"])
def test_ctrl_c_ends_a_wait_though_no_signal_interrupts_it(broker, server, how):
    broker.before = lambda request, data: (
        broker.SWALLOW if type(request).__name__ == "DescribeTopics" else None
    )
    assert elsewhere(INTERRUPTED, server.url, how) == "True\n"


@pytest.mark.parametrize(
    "connect",
    [
        "txbroker.connect('unix:/run/txbroker')",
        "asyncio.run(txbroker.client.asyncio.connect('unix:/run/txbroker'))",
    ],
    ids=["blocking", "asyncio"],
)
@pytest.mark.slow
def test_the_address_of_a_unix_socket_is_refused_at_once(connect):
    said = elsewhere(
        "import asyncio, txbroker, txbroker.client.asyncio\n"
        f"try: {connect}\nexcept txbroker.errors.Misuse as error: print(error)"
    )
    assert said.startswith("unix:/run/txbroker: Python has no UNIX sockets on this system")
    assert "tcp:HOST:PORT" in said
