"""Test logins and rights at a real broker: the first user, the switch, what each may do, and what ends a session."""

import socket
import subprocess
import sys
import threading
from datetime import timedelta
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import txbroker
from journal.check import Level, verify
from journal.records.access_entries import Effect, Resource, Right, Rule, User
from journal.records.record import AccessSet
from journal.vfs.filesystem import OSFilesystem
from journal.wal.reader import JournalEntry
from journal.walks.journal_walk import walk_journal
from journal.xid import Xid
from tests.cli.invocations import runner
from tests.support.broker_process import ENVIRONMENT, told_broker
from tests.support.waiting import eventually
from txbroker import errors
from txbroker.cli import command_line
from txbroker.client.login.verifier import verifier_of
from txbroker.wire.messages import Switch

pytestmark = pytest.mark.slow

PASSWORDS = {"root1": "not so secret", "app": "pa\u00dfword", "other": "x" * 40}
FEW = 4_096


def allow(who, rights, resource, pattern="", prefix=False, effect=Effect.ALLOW):
    return Rule(who, effect, resource, pattern, prefix, rights)


@pytest.fixture
def scene(tmp_path):
    """A broker in which everybody has to log in: an administrator, and two users with a few rights."""
    with told_broker(tmp_path / "data") as process:
        url = f"tcp:127.0.0.1:{process.ready()}"
        yield Scene(process, tmp_path / "data", url)


class Scene:
    def __init__(self, process, data, url):
        self.process, self.data, self.url = process, data, url
        with self.admin() as admin:
            for name, password in PASSWORDS.items():
                admin.add_user(User(name, verifier_of(password, FEW)))
            admin.allow(allow("root1", [Right.ADMINISTER], Resource.BROKER))
            admin.allow(allow("app", [Right.READ, Right.WRITE, Right.CREATE], Resource.TOPIC, "orders", True))
            admin.allow(allow("app", [Right.READ], Resource.GROUP, "shop"))
            admin.allow(allow("app", [Right.PREPARE], Resource.TRANSACTION, "app-", True))
            admin.switch_access(Switch.ENABLE)

    def admin(self):
        return txbroker.connect(f"unix:{self.data}/admin.sock", timeout=10)

    def connect(self, user, **choices):
        return txbroker.connect(self.url, user=user, password=PASSWORDS[user], timeout=10, **choices)


def test_whoever_does_not_log_in_is_told_that_it_must_and_stays_outside(scene):
    with pytest.raises(errors.AuthenticationFailed, match="lets nobody in without a login, by SCRAM-SHA-256"):
        txbroker.connect(scene.url, timeout=10)
    with pytest.raises(errors.AuthenticationFailed, match="are wrong"):
        txbroker.connect(scene.url, user="app", password="wrong", timeout=10)


def test_a_user_may_what_rules_allow_and_nothing_else(scene):
    with scene.connect("app") as broker:
        broker.create_topic("orders-eu")
        assert broker.send("orders-eu", b"1").offset == 0
        assert [message.value for message in broker.read("orders-eu", 0, 0)] == [b"1"]
        for refused in (
            lambda: broker.create_topic("bills"),
            lambda: broker.send("bills", b"1"),
            lambda: broker.delete_topic("orders-eu"),
            lambda: broker.group_offsets("others"),
            lambda: broker.users(),
            lambda: broker.status(),
            lambda: broker.transactions(),
            broker.tpc_prepare,
        ):
            if refused == broker.tpc_prepare:
                broker.tpc_begin(Xid(1, b"other-1", b""))
                broker.send("orders-eu", b"2")
            with pytest.raises(errors.AccessDenied) as caught:
                refused()
            assert caught.value.right
            assert "app has not the right to" in str(caught.value)
        broker.tpc_rollback()


def test_a_refusal_does_not_tell_whether_there_is_such_a_thing(scene):
    with scene.admin() as admin:
        admin.create_topic("bills")
    with scene.connect("app") as broker:
        said = []
        for name in ("bills", "absent"):
            with pytest.raises(errors.AccessDenied) as caught:
                broker.send(name, b"1")
            said.append(str(caught.value).replace(name, "NAME"))
        assert said[0] == said[1]


def test_lists_of_topics_are_filtered_and_say_so_and_lists_of_transactions_are_whole_or_refused(scene):
    with scene.admin() as admin, scene.connect("app") as broker:
        admin.create_topic("bills")
        broker.create_topic("orders-eu")
        found = broker.topics()
        assert ([topic.name for topic in found], found.is_filtered) == (["orders-eu"], True)
        assert not admin.topics().is_filtered
        assert broker.transactions(global_prefix=b"app-") == []
        with pytest.raises(errors.AccessDenied, match=r"describe transaction other-\*"):
            broker.transactions(global_prefix=b"other-")


def test_what_is_prepared_is_decided_by_who_prepared_it_whatever_was_taken_away_since(scene):
    xid = Xid(1, b"app-1", b"")
    with scene.connect("app") as broker:
        broker.create_topic("orders-eu")
        broker.tpc_begin(xid)
        broker.send("orders-eu", b"kept")
        broker.tpc_prepare()
    with scene.admin() as admin:
        for rule in admin.rules().rules:
            if rule.holder == "app":
                admin.forget_rule(rule)
    with scene.connect("other") as other, pytest.raises(errors.AccessDenied, match="decide transaction"):
        other.tpc_commit(xid)
    with scene.connect("app") as broker:
        assert broker.tpc_recover() == [xid]
        with pytest.raises(errors.AccessDenied):
            broker.send("orders-eu", b"not any more")
        broker.tpc_commit(xid)
    with scene.admin() as admin:
        assert [message.value for message in admin.read("orders-eu", 0, 0)] == [b"kept"]


def test_taking_a_right_away_ends_the_sessions_and_what_waits_on_them(scene):
    with scene.admin() as admin, scene.connect("app") as broker:
        broker.create_topic("orders-eu")
        failed = []

        def wait():
            try:
                broker.read("orders-eu", 0, 0, max_wait=60.0)
            except errors.TxBrokerError as error:
                failed.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        eventually(lambda: any(each.principal == "app" and each.fetches for each in admin.sessions()))
        admin.forget_rule(allow("app", [Right.READ], Resource.TOPIC, "orders", True))
        waiting.join(20)
        assert [type(error) for error in failed] == [errors.AccessDenied]
        assert broker.send("orders-eu", b"still").offset == 0


def test_a_user_that_is_removed_is_outside_at_once_and_does_not_come_back(scene):
    with scene.admin() as admin, scene.connect("app", reconnect=True) as broker:
        broker.create_topic("orders-eu")
        admin.remove_user("app")
        with pytest.raises(errors.TxBrokerError):
            broker.send("orders-eu", b"1")
        eventually(lambda: not any(each.principal == "app" for each in admin.sessions()))


def test_a_password_that_is_changed_lets_in_from_then_on_and_ends_no_session(scene):
    with scene.connect("app") as broker:
        broker.create_topic("orders-eu")
        with scene.connect("root1") as admin:
            admin.alter_user(User("app", verifier_of("new one", FEW)), ["scram"])
        assert broker.send("orders-eu", b"1").offset == 0
        with pytest.raises(errors.AuthenticationFailed):
            scene.connect("app")
        with txbroker.connect(scene.url, user="app", password="new one", timeout=10) as again:
            again.alter_user(User("app", verifier_of(PASSWORDS["app"], FEW)), ["scram"])
            with pytest.raises(errors.AccessDenied):
                again.alter_user(User("other", verifier_of("stolen", FEW)), ["scram"])
        scene.connect("app").close()


def test_without_an_administrator_that_can_log_in_nothing_is_enabled(tmp_path):
    with told_broker(tmp_path / "data") as process:
        process.ready()
        with txbroker.connect(f"unix:{tmp_path}/data/admin.sock", timeout=10) as admin:
            admin.allow(allow("nobody", [Right.ADMINISTER], Resource.BROKER))
            admin.add_user(User("app", verifier_of("a", FEW)))
            with pytest.raises(errors.InvalidSetting, match="no user that can log in may administer"):
                admin.switch_access(Switch.ENABLE)
            assert not admin.rules().is_on


def test_disabling_goes_over_the_socket_of_the_directory_alone(scene):
    with scene.connect("root1") as admin, pytest.raises(errors.AccessDenied, match=r"admin\.sock"):
        admin.switch_access(Switch.DISABLE)
    with scene.admin() as admin:
        admin.switch_access(Switch.DISABLE)
    with txbroker.connect(scene.url, timeout=10) as anybody:
        anybody.create_topic("t")


def test_users_and_rules_are_there_after_a_kill_and_after_a_checkpoint(scene):
    scene.process.kill()
    for _ in range(2):
        with told_broker(scene.data) as process:
            scene.url = f"tcp:127.0.0.1:{process.ready()}"
            with pytest.raises(errors.AuthenticationFailed):
                txbroker.connect(scene.url, timeout=10)
            with scene.admin() as admin:
                assert [user.name for user in admin.users()] == sorted(PASSWORDS)
                assert len(admin.rules().rules) == 4
            process.terminate()
            assert process.wait() == 0


def ask(path, page):
    """Return the first line and the last one of a page, asked for over a UNIX socket."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(20)
        peer.connect(str(path))
        peer.sendall(f"GET {page} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        answer = b"".join(iter(lambda: peer.recv(4096), b"")).decode()
    return answer.partition("\r\n")[0], answer.rstrip().rpartition("\n")[2]


def test_an_open_endpoint_is_listened_to_while_everybody_has_to_log_in(tmp_path):
    http, output = tmp_path / "http", tmp_path / "output"
    command = [
        sys.executable, "-c", "from twisted.scripts.twistd import run; run()", "-n", "--pidfile=", "txbroker",
        "--data", tmp_path / "data", "--listen", "tcp:0",
        "--set", f"http=unix:{http}:mode=600", "--set", "file_bytes=4MiB",
    ]  # fmt: skip
    with output.open("wb") as written:
        process = subprocess.Popen(command, stdout=written, stderr=written, env=ENVIRONMENT)
    try:
        eventually(lambda: "txbroker ready" in output.read_text())
        assert "nobody listens there until 'txbroker access enable'" in output.read_text()
        assert ask(http, "/readyz") == (
            "HTTP/1.1 503 Service Unavailable",
            "waiting for a login: no endpoint is open until 'txbroker access enable'",
        )
        scene = Scene(SimpleNamespace(), tmp_path / "data", "")
        eventually(lambda: ask(http, "/readyz") == ("HTTP/1.1 200 OK", "ready"))
        with scene.admin() as admin:
            admin.switch_access(Switch.DISABLE)
        eventually(lambda: ask(http, "/readyz")[0].endswith("503 Service Unavailable"))
    finally:
        process.terminate()
        process.wait(20)


def test_deny_wins_over_allow(scene):
    with scene.admin() as admin:
        admin.allow(allow("app", [Right.WRITE], Resource.TOPIC, "orders-secret", effect=Effect.DENY))
    with scene.connect("app") as broker:
        broker.create_topic("orders-secret", retention_age=timedelta(days=1))
        with pytest.raises(errors.AccessDenied):
            broker.send("orders-secret", b"1")
        with scene.admin() as admin:
            found = admin.check_access("app", Right.WRITE, Resource.TOPIC, "orders-secret")
            assert not found.is_allowed
            assert {rule.effect for rule in found.rules} == {Effect.ALLOW, Effect.DENY}


def test_a_directory_with_its_first_user_is_sound(scene):
    scene.process.kill()
    assert not [each for each in verify(OSFilesystem(str(scene.data)), Level.DEEP) if not each.harmless]


def damaged_switch(scene):
    """Kill the broker, and damage the record of ``txbroker access enable`` in its journal."""
    with scene.admin() as admin:
        for effect in (Effect.ALLOW, Effect.DENY):
            admin.allow(allow("app", [Right.READ], Resource.TOPIC, "bills", effect=effect))
    scene.process.kill()
    data = scene.data
    filesystem = OSFilesystem(str(data))
    found = next(
        each
        for each in walk_journal(filesystem)
        if isinstance(each, JournalEntry) and isinstance(each.record, AccessSet) and each.record.is_on
    )
    with (data / found.path).open("r+b") as file:
        file.seek(found.position + 20)
        [byte] = file.read(1)
        file.seek(found.position + 20)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("options", [(), ("--insecure-open",)], ids=["", "insecure"])
def test_a_repair_that_loses_the_switch_leaves_nothing_open_until_it_is_confirmed(scene, options):
    damaged_switch(scene)
    run = runner(f"unix:{scene.data}/admin.sock")
    done = run("repair", str(scene.data), "--execute", "--yes")
    assert "whether everybody has to log in may be older" in done.stdout
    with told_broker(
        scene.data, "--listen", "tcp:0:interface=127.0.0.1", "--listen", "tcp:0", *options
    ) as process:
        url = f"tcp:127.0.0.1:{process.ready()}"
        assert "nobody is let in but over" in process.output
        assert "and there is no login" not in process.output
        assert "tcp:0.0.0.0" not in process.ready_line
        with pytest.raises(errors.AuthenticationFailed):
            txbroker.connect(url, timeout=10)
        with pytest.raises(errors.AuthenticationFailed):
            txbroker.connect(url, user="app", password=PASSWORDS["app"], timeout=10)
        assert "Then nobody has" in run("access", "list").stdout
        assert "nobody is let in" in run("access", "disable", "--yes").stdout
        run("access", "enable", "--yes")
        with pytest.raises(errors.AuthenticationFailed):
            txbroker.connect(url, timeout=10)
        said = run("access", "confirm", "--yes")
        assert "Everybody has to log in." in said.stderr
        assert "Everybody has to log in, and the rules decide." in said.stdout
        txbroker.connect(url, user="app", password=PASSWORDS["app"], timeout=10).close()
        with pytest.raises(errors.AuthenticationFailed):
            txbroker.connect(url, timeout=10)


def test_confirming_leaves_it_as_it_is_whether_one_has_to_log_in_and_says_so(scene):
    damaged_switch(scene)
    run = runner(f"unix:{scene.data}/admin.sock")
    run("repair", str(scene.data), "--execute", "--yes")
    with told_broker(scene.data) as process:
        url = f"tcp:127.0.0.1:{process.ready()}"
        said = run("access", "confirm", "--yes")
        assert "Nobody has to log in.\n" in said.stderr
        assert "Nobody has to log in: the rules do not decide." in said.stdout
        txbroker.connect(url, timeout=10).close()


def test_the_command_line_warns_of_whom_a_rule_is_about_in_vain(scene):
    run = runner(f"unix:{scene.data}/admin.sock")
    said = run("access", "deny", "boob", "read", "topic", "t").stderr
    assert "Warning: there is no user 'boob'; as long as that is so, the rule denies nothing." in " ".join(
        said.split()
    )
    said = run("access", "allow", "role:ops", "read", "topic", "t").stderr
    assert "no user has the role 'ops'; as long as that is so, the rule allows nothing." in " ".join(
        said.split()
    )
    assert not run("access", "deny", "app", "read", "topic", "t").stderr
    done = run("access", "allow", "app", "all", "producer", "p")
    assert done.stdout == "Allow app write producer p.\n"
    refused = run("access", "allow", "app", "prepare", "topic", "t", code=3)
    assert (
        "there is no right prepare on a topic, but read, write, create, alter, delete, describe"
        in " ".join(refused.stderr.split())
    )
    refused = run("access", "allow", "bad name", "read", "topic", "t", code=2)
    assert "'bad name' cannot be the name of a user: 1 to 64 of A-Z" in " ".join(refused.stderr.split())
    assert "may do everything" in run("access", "deny", "@admin", "read", "topic", "t", code=2).stderr
    words = ("access", "check", "boob", "read", "topic", "t")
    denied = CliRunner().invoke(command_line, words, env={"TXBROKER_URL": f"unix:{scene.data}/admin.sock"})
    assert (denied.exit_code, denied.stderr) == (1, "")
    assert denied.stdout == "Denied:\n  there is no user 'boob'\n"
    found = run("access", "check", "@admin", "force", "transaction", "x").stdout
    assert found == "Allowed:\n  whoever comes over admin.sock may do everything\n"
