"""Test that clients and brokers of this code and of the release before work together, and that both open each other's
data while the number of the format is the same.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

import txbroker
from journal.formats.version import FORMAT
from journal.formats.version_file import OURS, Written, pack_version
from journal.records.access_entries import RIGHTS_ON, Effect, Resource, Rule, User
from journal.records.queue_entries import DeadLetterStrategy
from journal.records.record import AnyRecord
from journal.transaction_states import State
from tests.releases import exchange
from tests.releases.findings import found
from tests.releases.make import copied
from tests.releases.released import Installed, ReleasedBroker, releases
from tests.releases.scene import QUIET, SETTINGS, admin, make_directory, make_young_directory, running
from tests.releases.test_fixtures import kinds_in, plain
from tests.support.repository import ROOT
from txbroker.client.login.verifier import verifier_of
from txbroker.errors import VersionRefused
from txbroker.wire.messages import Switch

pytestmark = pytest.mark.slow
LAST = releases()[-1]
PROGRAM = Path(exchange.__file__)


@pytest.fixture(scope="module")
def last(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The last release, installed from its wheels."""
    assert len(LAST.wheels) == 2, f"{LAST.folder} lacks the wheels of txbroker and txbroker-server"
    installed = Installed(tmp_path_factory.mktemp("last") / "venv", LAST.wheels)
    assert installed.version == LAST.version
    return installed


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def with_users(data: Path) -> None:
    """Have everybody log in, and let the program of the exchange do all that it does."""
    with txbroker.connect(admin(data)) as client:
        client.add_user(User(exchange.NAME, verifier_of(exchange.PASSWORD)))
        for resource in Resource:
            rights = sorted(RIGHTS_ON[resource], key=lambda right: right.value)
            client.allow(
                Rule(exchange.NAME, Effect.ALLOW, resource, "", resource is not Resource.BROKER, rights)
            )
        client.switch_access(Switch.ENABLE)


def ours(address: str, step: str, who: str) -> Any:
    """Run the program with the client of this code."""
    with txbroker.connect(address, user=exchange.NAME, password=exchange.PASSWORD) as broker:
        return plain((exchange.begin if step == "begin" else exchange.end)(broker, who))


def theirs(installed: Installed, address: str, step: str, who: str) -> Any:
    """Run it with the client of the release."""
    return json.loads(installed.run(PROGRAM, address, step, who).splitlines()[-1])


def both_ways(address: str, last: Installed) -> None:
    """Each does one of everything, and the other one ends what it has prepared."""
    begun = {"read": ["plain", "three", "two"], "lag": [2, 1], "got": "high", "scheduled": 1}
    ended = {"ended": 1, "values": ["plain", "two", "prepared", "low"]}
    assert theirs(last, address, "begin", "theirs") == begun
    assert ours(address, "end", "theirs") == ended
    assert ours(address, "begin", "ours") == begun
    assert theirs(last, address, "end", "ours") == ended


def test_the_client_of_the_last_release_works_with_this_broker(last: Installed, data: Path) -> None:
    with running(data, *QUIET, stops=False) as broker:
        with_users(data)
        both_ways(broker.address, last)


def test_this_client_works_with_the_broker_of_the_last_release(last: Installed, data: Path) -> None:
    broker = ReleasedBroker(last, data, *SETTINGS, *QUIET)
    try:
        broker.start()
        with_users(data)
        both_ways(broker.address, last)
        with txbroker.connect(admin(data)) as client:
            assert client.status()["version"] == LAST.version
            keeping = {"overflow": "reject-publish", "dead_letter_strategy": "at-least-once"}
            with pytest.raises(VersionRefused, match="does not know all that this DeclareQueue asks"):
                client.declare_queue("keeping", **keeping)
            client.declare_queue("keeping", overflow="reject-publish")
            assert (
                client.queues("keeping")[0].settings.dead_letter_strategy is DeadLetterStrategy.AT_MOST_ONCE
            )
    finally:
        broker.kill()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with everything, as this code writes it."""
    data = tmp_path_factory.mktemp("made") / "data"
    make_directory(data)
    return data


def test_the_scene_makes_every_kind_of_record(made: Path, tmp_path: Path) -> None:
    """What is new since the last release has to be in the next one's directory."""
    make_young_directory(tmp_path / "young")
    assert kinds_in(made) | kinds_in(tmp_path / "young") == {kind.__name__ for kind in get_args(AnyRecord)}


def test_the_last_release_opens_what_this_code_has_written_or_refuses_it_by_name(
    last: Installed, made: Path, tmp_path: Path
) -> None:
    """While the number is the same one can go back with all messages. That is all that the number says."""
    seen = copied(made, tmp_path / "ours")
    with running(seen, *QUIET), txbroker.connect(admin(seen)) as client:
        expected = plain(found(client))
    copy = copied(made, tmp_path / "theirs")
    broker = ReleasedBroker(last, copy, *SETTINGS, *QUIET)
    try:
        if LAST.contents()["format"] == FORMAT:
            said = last.run("-m", "txbroker", "verify", copy, "--deep", "--json")
            assert not json.loads(said)["damaged"], said
            broker.start()
            with txbroker.connect(admin(copy)) as client:
                assert plain(found(client)) == expected
            broker.stop()
        else:
            refused_by_name(last, broker, copy, FORMAT, OURS.program)
    finally:
        broker.kill()


def test_a_backup_that_the_last_release_has_made_is_restored_and_so_is_ours_while_the_number_is_the_same(
    last: Installed, made: Path, tmp_path: Path
) -> None:
    (tmp_path / "backups").mkdir(mode=0o700)
    programs = [lambda *words: last.run("-m", "txbroker", *words), this_program]
    if LAST.contents()["format"] != FORMAT:
        del programs[1]
    for number, program in enumerate(programs):
        copy = copied(LAST.unpack(tmp_path / "kept") if number == 0 else made, tmp_path / f"{number}")
        program("backup", "create", copy, tmp_path / "backups", "--stopped", "--verify")
        restored = tmp_path / f"restored-{number}" / "data"
        restored.parent.mkdir()
        other = programs[1 - number] if len(programs) > 1 else this_program
        other("restore", tmp_path / "backups", restored)
        with running(restored, *QUIET), txbroker.connect(admin(restored)) as client:
            assert client.read("a-orders", 0, 0)[0].value == b"plain"
            assert all(each.restored for each in client.transactions([State.PREPARED]))


def this_program(*words: object) -> str:
    """Run this code's command line."""
    command = [sys.executable, "-m", "txbroker", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_last_release_refuses_a_newer_format_in_words_for_the_night(last: Installed, data: Path) -> None:
    """What somebody sees who has started the wrong version: the log of the broker, and 'txbroker verify'."""
    broker = ReleasedBroker(last, data, *SETTINGS, *QUIET)
    broker.start()
    broker.stop()
    newer = FORMAT + 7
    (data / "txbroker.version").write_bytes(pack_version(Written(newer, "7.7.0")))
    before = {file: file.read_bytes() for file in data.rglob("*") if file.is_file()}
    refused_by_name(last, broker, data, newer, "7.7.0")
    after = {file: file.read_bytes() for file in data.rglob("*") if file.is_file()}
    assert before == after


def refused_by_name(last: Installed, broker: ReleasedBroker, data: Path, newer: int, program: str) -> None:
    """Neither a start nor a verification goes on, and both say who wrote it and what to do."""
    words = (
        f"txbroker.version says that the data directory is of format {newer}, written by txbroker {program}; this is "
        f"txbroker {LAST.version}, which reads and writes format {LAST.contents()['format']}. Nothing was written or "
        f"changed. Start version {program} or a newer one here, or go back to this one with the backup that was made "
        "before the upgrade"
    )
    broker.launch()
    assert broker.wait() == 1
    assert words in broker.output
    assert "UnknownFormat" in broker.output
    assert "Traceback" not in broker.output
    for command in ("verify", "repair"):
        assert words in " ".join(last.run("-m", "txbroker", command, data, check=False).split())
