"""Test that this code starts the data directory of every release, and finds in it all that was there."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

import txbroker
from journal.check import Level, verify
from journal.formats import filenames
from journal.formats.version import FORMAT, PROGRAM
from journal.formats.version_file import Written, read_version
from journal.records.record import AnyRecord
from journal.transaction_states import State
from journal.vfs.file_window import window
from journal.vfs.filesystem import OSFilesystem
from journal.wal.reader import FileReader, Group, file_start, journal_lsns
from tests.releases.findings import found
from tests.releases.released import OF_THE_WIRE, Release, golden, releases
from tests.releases.scene import PASSWORD, QUIET, admin, running, xid
from txbroker.wire.messages import VERSIONS

FIRST_OF_ALL = "0.2.0"


def kinds_in(data: Path) -> set[str]:
    """The kinds of records in the journal of a directory."""
    filesystem, kinds = OSFilesystem(data), set()
    for lsn in journal_lsns(filesystem):
        path = filenames.journal_file(lsn)
        header = file_start(filesystem, path).header
        with window(filesystem, path) as bytes_of:
            reader = FileReader(bytes_of, path, header)
            for group in reader.groups():
                if isinstance(group, Group):
                    kinds |= {type(entry.record).__name__ for entry in reader.records(group)}
    return kinds


def damage(data: Path) -> list[Any]:
    return [each for each in verify(OSFilesystem(data), Level.DEEP) if not each.harmless]


def test_the_first_release_is_kept_for_ever():
    assert releases()[0].version == FIRST_OF_ALL


@pytest.mark.parametrize("release", releases(), ids=lambda release: release.version)
class TestEveryRelease:
    def test_its_fixture_says_what_made_it_and_is_small(self, release: Release, tmp_path: Path) -> None:
        said = release.contents()
        assert said["program"] == release.version
        data = release.unpack(tmp_path)
        assert read_version(OSFilesystem(data)) == Written(said["format"], release.version)
        assert sum(file.stat().st_size for file in release.folder.iterdir()) < 3 << 20

    def test_its_fixture_has_every_kind_of_thing(self, release: Release) -> None:
        """Seen with what is listed cut down to nothing: all that follows would hold."""
        seen = release.contents()["found"]
        for act in ("a", "b"):
            assert {f"{act}-orders", f"{act}-later", f"{act}-orders.dead"} <= {*seen["topics"]}
            assert {f"{act}-claims", f"{act}-members", f"{act}-static"} <= {*seen["groups"]}
            assert seen["groups"][f"{act}-members"]["parked"]
            assert {f"{act}-work", f"{act}-other", f"{act}-dead"} <= {*seen["queues"]}
            assert seen["queues"][f"{act}-work"]["messages"] >= 3
            assert seen["exchanges"][f"{act}-topics"]["bindings"]
            assert f"{act}-delayed" in {each["exchange"] for each in seen["scheduled"]}
            assert {f"{act}-alice", f"{act}-bob"} <= {user["name"] for user in seen["users"]}
        states = {each["state"] for each in seen["transactions"]}
        assert states >= {State.PREPARED.name}
        assert len(seen["transactions"]) >= 8
        assert seen["queues"]["compacted"]["messages"] == 4
        assert seen["rules"]["rules"]
        states = {each["state"] for each in seen["scheduled"]}
        assert states == {"WAITS", "HELD"}

    def test_it_has_every_kind_of_record(self, release: Release, tmp_path: Path) -> None:
        """A kind that the scene lacks would be tested by nobody; of an older format those count that there were."""
        here = kinds_in(release.unpack(tmp_path)) | kinds_in(tmp_path / "young")
        if release.contents()["format"] == FORMAT:
            assert here == {kind.__name__ for kind in get_args(AnyRecord)}
        assert len(here) >= 36

    @pytest.mark.slow
    def test_this_code_finds_all_of_it_now_and_behind_a_checkpoint_and_can_decide_it(
        self, release: Release, tmp_path: Path
    ) -> None:
        data, expected = release.unpack(tmp_path), release.contents()["found"]
        assert damage(data) == []
        for _ in range(2):  # killed as it was, then stopped in order, with all of it in a checkpoint of ours
            with running(data, *QUIET), txbroker.connect(admin(data)) as client:
                seen = without_newer_settings(plain(found(client)), expected)
                for what, of_it in expected.items():
                    assert seen[what] == of_it, what
                assert client.status()["format"] == FORMAT
            assert damage(data) == []
            assert read_version(OSFilesystem(data)) == Written(FORMAT, PROGRAM)
        with running(data, *QUIET) as broker:
            decide(broker, data, expected)
        assert damage(data) == []

    @pytest.mark.slow
    def test_this_code_starts_one_that_was_killed_before_its_first_checkpoint(
        self, release: Release, tmp_path: Path
    ) -> None:
        data = release.unpack(tmp_path, "young")
        assert damage(data) == []
        with running(data, *QUIET), txbroker.connect(admin(data)) as client:
            assert [message.value for message in client.read("young", 0, 0)] == [b"first"]
        assert damage(data) == []


def without_newer_settings(seen: Any, expected: Any) -> Any:
    """What is seen, without the settings that the release did not know yet."""
    if isinstance(seen, list) and isinstance(expected, list) and len(seen) == len(expected):
        return [without_newer_settings(*each) for each in zip(seen, expected, strict=True)]
    if not (isinstance(seen, dict) and isinstance(expected, dict)):
        return seen
    found = {name: without_newer_settings(each, expected.get(name)) for name, each in seen.items()}
    settings, known = found.get("settings"), expected.get("settings")
    if isinstance(settings, dict) and isinstance(known, dict):
        found["settings"] = {name: value for name, value in settings.items() if name in known}
    return found


def plain(value: Any) -> Any:
    """What JSON makes of it."""
    import json

    return json.loads(json.dumps(value))


def decide(broker: Any, data: Path, expected: Any) -> None:
    """End what is prepared, take what is queued, and log in as a user of then."""
    with txbroker.connect(admin(data)) as client:
        before = len(expected["topics"]["a-orders"]["partitions"][0])
        for name in ("plain", "large", "positions", "apart", "queues"):
            client.end_prepared(xid(client, f"a-{name}"), commit=True)
            client.end_prepared(xid(client, f"b-{name}"), commit=False)
        with client.queue("a-other") as queue:
            values = []
            while (message := queue.get(0)) is not None:
                values.append(message.value)
                queue.ack(message)
        assert b"published with it" in values
        with client.queue("compacted") as queue:
            message = queue.get(5)
            assert message is not None
            assert message.value.startswith(b"0000")
        assert not list(client.transactions([State.PREPARED]))
        after = client.topics(["a-orders"])[0].partitions[0].high_watermark
        assert after == before + 1 + 4
        assert client.topics(["b-orders"])[0].partitions[0].high_watermark == len(
            expected["topics"]["b-orders"]["partitions"][0]
        )
    with txbroker.connect(broker.address, user="b-alice", password=PASSWORD) as alice:
        assert alice.read("a-orders", 0, 0)[0].value == b"plain"


def test_what_is_pinned_has_changed_only_if_the_number_of_the_format_or_protocol_has() -> None:
    """A new kind of record or field under the same number: the release before would take it for damage.

    The files of tests/formats/golden have an example of each record, row, request and answer.
    """
    last, now = releases()[-1].contents(), golden()
    changed = {name for name in {*last["golden"], *now} if last["golden"].get(name) != now.get(name)}
    if changed - {*OF_THE_WIRE}:
        assert last["format"] < FORMAT, "raise FORMAT in journal/formats/version.py: docs/upgrading.md"
    if changed & {*OF_THE_WIRE}:
        assert last["protocol"] < max(VERSIONS), "add a version to VERSIONS in txbroker/wire/messages.py"
    assert last["format"] <= FORMAT
    assert last["protocol"] in VERSIONS, "clients of the last release are refused"
