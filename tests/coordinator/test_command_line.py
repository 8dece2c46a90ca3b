"""``txbroker coordinator`` on a directory whose program is down, against real participants."""

import json

import pytest
from click.testing import CliRunner

from tests.coordinator.test_crashes import run_program
from txbroker.cli import command_line

pytestmark = pytest.mark.slow


def command(*arguments):
    return CliRunner().invoke(command_line, ["coordinator", *map(str, arguments)])


def participants(scene, *names):
    urls = {"pg": scene.database.url, "orders": scene.orders.address, "audit": scene.audit.address}
    return [part for name in names for part in ("--participant", f"{name}={urls[name]}")]


def test_what_a_killed_program_has_decided_is_listed_and_ended(scene):
    run_program(scene, 1, "told pg")
    listed = command("list", scene.directory, "--json")
    assert listed.exit_code == 1
    rows = json.loads(listed.output)
    assert [row["participant"] for row in rows] == ["pg", "orders", "audit"]
    assert {row["state"] for row in rows} == {"committed, to be told"}
    some = command("resolve", scene.directory, *participants(scene, "pg", "orders"))
    assert some.exit_code == 1
    assert "still to be told: audit" in some.output
    assert "no participant of that name is registered" in some.output
    rest = command("resolve", scene.directory, *participants(scene, "audit"), "--json")
    assert rest.exit_code == 0, rest.output
    assert json.loads(rest.output)["left"] == []
    assert scene.everywhere() == [1]
    assert command("list", scene.directory).output == "nothing is in doubt\n"


def test_what_it_never_decided_is_rolled_back(scene):
    run_program(scene, 1, "before the decision")
    assert command("list", scene.directory).exit_code == 0
    done = command("resolve", scene.directory, *participants(scene, "pg", "orders", "audit"))
    assert done.exit_code == 0
    assert done.output.count("rolled back at ") == 3
    assert scene.everywhere() == []


def test_a_directory_that_is_in_use_or_none_is_refused(scene, tmp_path):
    with scene.coordinator():
        assert command("list", scene.directory).exit_code == 4
    assert "it holds no 'journal'" in command("list", tmp_path).output
    assert command("resolve", scene.directory, "--participant", "pg").exit_code == 2


@pytest.mark.parametrize(
    "address", ["pg=postgresql://ann:hunter2@127.0.0.1:1/x", "postgresql://ann:hunter2@h/x"]
)
def test_a_password_is_neither_taken_on_the_command_line_nor_shown(scene, address):
    found = command("resolve", scene.directory, "--participant", address)
    assert found.exit_code == 2
    assert "hunter2" not in found.output


def test_a_participants_url_may_stand_in_a_variable(scene, monkeypatch):
    run_program(scene, 1, "before the decision")
    monkeypatch.setenv("PG_URL", scene.database.url)
    orders = participants(scene, "orders", "audit")
    done = command("resolve", scene.directory, "--participant", "pg=env:PG_URL", *orders)
    assert done.exit_code == 0
    assert done.output.count("rolled back at ") == 3
