"""Test ``txbroker init``: what it makes, that it overwrites nothing, and that a broker starts on it closed."""

import json
import os
import pty
import pwd
import re
import stat
import sys
import tempfile
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

import txbroker
from tests.support.broker_process import ENVIRONMENT, PATIENCE, SMALL_FILES, told_broker
from txbroker import errors
from txbroker.cli import command_line
from txbroker.cli.commands.directories import init as command
from txbroker.server.given_settings import assignment
from txbroker.server.settings import config, first_file

PASSWORD = "correct horse"


@pytest.fixture
def init(tmp_path, monkeypatch):
    """Runs the command in an empty folder, with a password that is read from standard input."""
    monkeypatch.chdir(tmp_path)
    small = dict([assignment(SMALL_FILES)])
    monkeypatch.setattr(command, "merged", lambda *sources: config.merged(small, *sources))

    def init(*words, code=0, password=("--password-file", "-")):
        done = CliRunner().invoke(command_line, ["init", *password, *map(str, words)], input=f"{PASSWORD}\n")
        assert done.exit_code == code, (done.stdout, done.stderr, done.exception)
        return done.stderr if code else done.stdout

    return init


def settings_of(text):
    """The settings of a file in which every line that is one, commented out or not, is taken for one."""
    lines = [line.removeprefix("# ") for line in text.splitlines()]
    return [tomllib.loads(line) for line in lines if re.match(r"\w+ = ", line)]


def mode_of(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_it_makes_a_directory_for_nobody_else_and_a_file_that_a_start_takes(init, tmp_path):
    said = init("--data", "data", "--config", "broker.toml")
    assert mode_of("data") == 0o700
    assert mode_of("broker.toml") == 0o644
    made = config.merged(config.read_file("broker.toml"))
    assert made.service.data == str(tmp_path / "data")
    assert made.service.listen == ("tcp:7654:interface=127.0.0.1",)
    assert "admin its first user" in said
    assert "txbroker serve --config broker.toml" in said
    assert PASSWORD not in said
    assert sorted(os.listdir()) == ["broker.toml", "data"], "nothing else is left"


def test_every_setting_in_the_file_is_one_and_those_that_are_commented_out_have_their_defaults():
    text = first_file.text_of("/data", ("tcp:7654:interface=127.0.0.1",))
    defaults, found = config.defaults(), settings_of(text)
    for one in found:
        [name] = one
        config.check_known(name, "the file")
    named = [name for one in found for name in one]
    assert {"data", "listen", "listen_amqp", "http", "audit", "stop_timeout"} <= {*named}
    for one in found:
        [(name, value)] = one.items()
        if name in (
            "pool_bytes",
            "checkpoint_bytes",
            "stop_timeout",
            "max_sessions",
            "outcome_archive",
            "log_level",
        ):
            assert str(value) == config.readable(name, defaults[name])
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("name", ['a "b"', "a\\b", "a\nb", "a\x7fb", "ü"])
def test_any_name_of_a_directory_comes_back_from_the_file(name):
    assert tomllib.loads(first_file.text_of(f"/{name}", ()))["data"] == f"/{name}"


def test_where_to_listen_can_be_said(init):
    init(
        "--data",
        "data",
        "--config",
        "b.toml",
        "--listen",
        "unix:/s:mode=600",
        "--listen",
        "tcp:0:interface=127.0.0.1",
    )
    assert config.read_file("b.toml")["listen"] == ["unix:/s:mode=600", "tcp:0:interface=127.0.0.1"]


def test_a_password_is_made_and_shown_once(init):
    [password] = re.findall(
        r"nothing shows again: (\S+)$", init("--data", "a", "--generate-password", password=()), re.M
    )
    assert len(password) == 24
    made = json.loads(init("--json", "--data", "b", "--generate-password", password=()))
    assert made["password"] != password
    left = json.loads(init("--json", "--data", "b", "--generate-password", "--if-not-exists", password=()))
    assert left["user"] is None
    assert "password" not in left, "nobody has it"


def test_a_file_that_exists_is_not_written_and_nothing_else_is_made(init):
    Path("b.toml").write_text("mine")
    assert "b.toml exists; nothing was done" in init("--data", "data", "--config", "b.toml", code=1)
    assert Path("b.toml").read_text() == "mine"
    assert os.listdir() == ["b.toml"]


def test_a_dangling_link_is_a_file_that_exists(init):
    Path("b.toml").symlink_to("elsewhere")
    init("--data", "data", "--config", "b.toml", code=1)
    assert os.listdir() == ["b.toml"]


def test_a_file_that_comes_in_between_is_left_and_told(init, monkeypatch):
    link = os.link

    def late(source, target):
        Path(target).write_text("theirs")
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    assert "by somebody else meanwhile" in init("--data", "data", "--config", "b.toml", code=1)
    assert Path("b.toml").read_text() == "theirs"
    assert sorted(os.listdir()) == ["b.toml", "data"]


def test_data_with_a_login_is_left_and_told_or_completed_with_the_file(init):
    init("--data", "data")
    assert "is used, and everybody has to log in there; nothing was changed" in init("--data", "data", code=1)
    assert "it was left as it is" in init("--data", "data", "--config", "b.toml", "--if-not-exists")
    assert Path("b.toml").exists()
    assert "b.toml was left as it is" in init("--config", "b.toml", "--if-not-exists")


def test_a_directory_of_something_else_is_refused_and_the_file_is_not_written(init):
    Path("data").mkdir()
    Path("data/diary").write_text("mine")
    assert "ForeignDirectory" in init("--data", "data", "--config", "b.toml", code=3)
    assert os.listdir() == ["data"]
    assert os.listdir("data") == ["diary"]


def test_a_new_file_system_is_a_directory_for_data_and_loses_its_mode(init):
    Path("data/lost+found").mkdir(parents=True)
    Path("data").chmod(0o755)
    init("--data", "data")
    assert mode_of("data") == 0o700


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--data"),
        (("--config", "b.toml"), "Say --data DIRECTORY"),
        (
            ("--config", "no/b.toml", "--data", "data"),
            "no/b.toml cannot be written: No such file or directory",
        ),
        (("--data", "no/data"), "no/data cannot be made"),
        (("--data", "data", "--listen", "tcp:0"), "--listen is for the file to write"),
        (
            ("--data", "data", "--config", "b.toml", "--listen", "bogus:xx"),
            "--listen bogus:xx: not an endpoint",
        ),
        (
            ("--data", "data", "--config", "b.toml", "--listen", "tls:7654"),
            "--listen tls:7654: not an endpoint",
        ),
        (("--data", "", "--config", "b.toml"), "setting data is empty"),
        (("--data", "data", "--owner", "nobody-has-this-name"), "has no user 'nobody-has-this-name'"),
        (("--data", "data", "--generate-password"), "contradict each other"),
    ],
    ids=str,
)
def test_a_mistake_is_refused_before_anything_is_made(words, said, init):
    assert said in init(*words, code=2)
    assert os.listdir() == []


def test_a_password_that_others_may_read_is_none_and_the_file_is_named(init):
    Path("secret").touch(0o644)
    said = init("--data", "data", "--password-file", "secret", code=3, password=())
    assert "the file of the password of admin, secret, may be read by others" in " ".join(said.split())
    assert os.listdir() == ["secret"]


def test_nobody_who_can_be_asked_is_a_mistake_too(init):
    assert "nobody can be asked for the password of admin" in init("--data", "data", code=2, password=())
    assert os.listdir() == []


@pytest.fixture
def open_folder(monkeypatch):
    """A folder that everybody may enter: pytest's are the user's own."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        monkeypatch.chdir(folder)
        yield


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can give a directory to somebody else")
def test_every_file_is_the_owners_who_is_to_run_the_broker_and_the_settings_are_roots(init, open_folder):
    owner = pwd.getpwnam("nobody")
    before = os.geteuid(), os.getegid(), os.getgroups()
    init("--data", "data", "--config", "b.toml", "--owner", "nobody")
    assert (os.geteuid(), os.getegid(), os.getgroups()) == before
    found = [Path("data"), *Path("data").rglob("*")]
    assert len(found) > 5
    assert {(path.stat().st_uid, path.stat().st_gid) for path in found} == {(owner.pw_uid, owner.pw_gid)}
    assert Path("b.toml").stat().st_uid == 0
    init("--data", "data", "--if-not-exists")
    found = [Path("data"), *Path("data").rglob("*")]
    assert {path.stat().st_uid for path in found} == {owner.pw_uid}, "root left nothing of its own among them"


@pytest.mark.slow
def test_a_broker_starts_on_it_closed_audits_who_made_it_and_another_init_keeps_away(init, tmp_path):
    init("--data", "data", "--admin", "root")
    (tmp_path / "password").write_text(PASSWORD)
    (tmp_path / "password").chmod(0o600)
    audit = tmp_path / "audit.json"
    with told_broker(tmp_path / "data", "--set", SMALL_FILES, "--set", f"audit={audit}") as broker:
        address = f"tcp:127.0.0.1:{broker.ready()}"
        with pytest.raises(errors.AuthenticationFailed):
            txbroker.connect(address, timeout=PATIENCE)
        with txbroker.connect(address, user="root", password_file=tmp_path / "password") as admin:
            assert [user.name for user in admin.users()] == ["root"]
            with pytest.raises(errors.AccessDenied):
                admin.create_topic("orders")
        told = init("--data", "data", "--if-not-exists", code=4)
        assert "DirectoryLocked" in told
        broker.stop()
    changes = [json.loads(line) for line in audit.read_text().splitlines()]
    assert any("txbroker init" in json.dumps(change) and "root" in json.dumps(change) for change in changes)


@pytest.mark.slow
def test_it_asks_at_a_terminal_and_shows_nothing_of_what_is_typed(tmp_path):
    command = [sys.executable, "-m", "txbroker", "init", "--data", f"{tmp_path}/data"]
    pid, terminal = pty.fork()
    if not pid:
        os.execve(sys.executable, command, ENVIRONMENT)
    said = b""
    with open(terminal, "r+b", buffering=0) as stream, suppress(OSError):  # EIO is the end of a terminal
        for asked in (b"Password of admin: ", b"Repeat for confirmation: "):
            while not said.endswith(asked):
                said += stream.read(4096)
            stream.write(f"{PASSWORD}\n".encode())
        while more := stream.read(4096):
            said += more
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, said
    assert PASSWORD.encode() not in said
    assert b"Everybody has to log in" in said.replace(b"\r\n", b" ")
    assert (tmp_path / "data" / "journal").is_dir()
