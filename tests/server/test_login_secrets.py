"""Look for passwords in all that a broker and its clients write: in success, and in each way to fail."""

import os
import subprocess
import sys

import pytest

import txbroker
from journal.records.access_entries import Effect, Resource, Right, Rule, User
from tests.support.broker_process import ENVIRONMENT, PATIENCE, told_broker
from tests.support.certificates import Folder
from txbroker.client.login.verifier import verifier_of
from txbroker.wire.messages import Switch

pytestmark = pytest.mark.slow

SECRET = "Zq7-correct-horse"
WRONG = "Zq7-wrong-horse"
MARK = "Zq7"

PROGRAM = """
import logging, sys, traceback
import txbroker
from txbroker.client.login.credentials import Credentials
logging.basicConfig(level=logging.DEBUG)
url, user, password = sys.argv[1], sys.argv[2], sys.stdin.readline().strip()
for choices in ({"password": password}, {"password": lambda: password}):
    try:
        with txbroker.connect(url, user=user, timeout=5, reconnect=False, **choices) as broker:
            print(repr(broker), broker)
            print(broker.status(), broker.sessions(), broker.users())
            broker.send("absent", b"1")
    except Exception as error:
        traceback.print_exception(error)
        print(repr(error), vars(error))
try:
    print(Credentials(user=user, password=password))
except txbroker.TxBrokerError as error:
    traceback.print_exception(error)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return Folder(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory, folder):
    data = tmp_path_factory.mktemp("secrets") / "data"
    words = (
        "--listen",
        "tcp:0:interface=127.0.0.1",
        "--listen",
        folder.endpoint(),
        "--set",
        "log_level=debug",
    )
    with told_broker(data, *words) as process:
        process.ready()
        with txbroker.connect(f"unix:{data}/admin.sock", timeout=10) as admin:
            for name in ("root1", "app"):
                admin.add_user(User(name, verifier_of(SECRET)))
            admin.allow(Rule("root1", Effect.ALLOW, Resource.BROKER, "", False, [Right.ADMINISTER]))
            admin.switch_access(Switch.ENABLE)
        yield process


@pytest.fixture
def urls(broker, folder):
    found = dict(
        each.split(":", 1) for each in broker.ready_line.split("listening=")[1].split()[0].split(",")
    )
    return {
        "tcp": f"tcp:{found['tcp']}",
        "tls": f"tls:{found['tls'].replace('127.0.0.1', 'localhost')}:ca={folder.file('ca.pem')}",
        "no broker": "tcp:127.0.0.1:1",
        "user and password": f"tcp:app:{SECRET}@127.0.0.1:1",
        "as a URL": f"tls://app:{SECRET}@127.0.0.1:1",
    }


@pytest.mark.parametrize(
    ("user", "password", "said"),
    [
        ("root1", SECRET, "principal='root1'"),
        ("root1", WRONG, "AuthenticationFailed"),
        ("app", SECRET, "AccessDenied"),
        ("nobody", SECRET, "AuthenticationFailed"),
        ("app", MARK + "\u00df\x7f", "Error"),
        ("app", MARK * 2000, "Error"),
        (SECRET + "/not a name", WRONG, "WrongValue"),
    ],
    ids=["right", "wrong", "no rights", "nobody", "not printable", "too long", "as the user"],
)
def test_no_password_is_in_anything_that_a_program_writes(broker, urls, user, password, said):
    output = ""
    for url in ("tcp", "tls", "no broker"):
        output += run([sys.executable, "-c", PROGRAM, urls[url], user], password)
    assert said in output, output
    assert MARK not in output
    assert MARK not in broker.output


@pytest.mark.parametrize("url", ["user and password", "as a URL"])
@pytest.mark.parametrize("words", [["status"], ["topics", "list"], ["tail", "t"]], ids=" ".join)
def test_an_address_with_a_password_is_repeated_by_no_command(urls, url, words):
    for given in (["--broker", urls[url]], []):
        environment = {**ENVIRONMENT, "TXBROKER_URL": urls[url]}
        ended = subprocess.run(
            [sys.executable, "-m", "txbroker", *words, *given],
            capture_output=True, text=True, timeout=PATIENCE, check=False, env=environment,
        )  # fmt: skip
        assert ended.returncode != 0
        assert "may have a password in it" in ended.stderr
        assert MARK not in ended.stdout + ended.stderr


def test_it_is_in_no_file_of_the_data_and_in_no_command_line(broker):
    for folder, _, files in os.walk(broker.data_dir):
        for name in files:
            path = os.path.join(folder, name)
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    assert MARK.encode() not in file.read(), path
    with (
        open(f"/proc/{broker.pid}/cmdline", "rb") as line,
        open(f"/proc/{broker.pid}/environ", "rb") as environ,
    ):
        assert MARK.encode() not in line.read() + environ.read()


def run(command, secret):
    ended = subprocess.run(
        command, input=secret.replace("\n", "") + "\n", capture_output=True, text=True, timeout=4 * PATIENCE,
        check=False, env=ENVIRONMENT,
    )  # fmt: skip
    return ended.stdout + ended.stderr
