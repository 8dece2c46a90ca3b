"""The shop of the example works, and survives what the drill does to it."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from examples.orders import drill
from examples.orders.drill import draw
from tests.support.repository import PACKAGES, ROOT

PARTIES = ["broker", "postgresql", "producer-0", "producer-1", "consumer-0", "consumer-1", "resolver"]


def ran(*command, folder):
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": PACKAGES},
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_seed_draws_the_same_kills_again_and_another_seed_others():
    assert draw(1, 50, PARTIES) == draw(1, 50, PARTIES)
    assert draw(1, 50, PARTIES) != draw(2, 50, PARTIES)


@pytest.mark.parametrize("kills", [1, 2, 7, 20, 200])
def test_exactly_so_many_kills_are_drawn_and_nobody_is_killed_twice_at_once(kills):
    for seed in range(20):
        events = draw(seed, kills, PARTIES)
        assert sum(len(event.victims) for event in events) == kills
        assert all(len(set(event.victims)) == len(event.victims) for event in events)


def test_each_party_is_killed_and_in_a_long_drill_all_at_once_too():
    events = draw(3, 200, PARTIES)
    kills = Counter(victim for event in events for victim in event.victims)
    assert set(kills) == set(PARTIES)
    assert min(kills.values()) >= 15
    assert max(len(event.victims) for event in events) == len(PARTIES)
    assert set(PARTIES) <= {victim for event in draw(3, 14, PARTIES) for victim in event.victims}


@pytest.mark.parametrize("buffering", ["buffered", "unbuffered"])
@pytest.mark.slow
def test_a_line_that_a_party_says_is_one_write_so_that_no_kill_leaves_half_of_it(buffering):
    """A pipe of packets: each read gives one write."""
    read, write = os.pipe2(os.O_DIRECT)
    try:
        subprocess.run(
            [
                sys.executable,
                "-c",
                "from examples.orders.shop import tell; tell('placed', '4d'); tell('refused', '5e')",
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "" if buffering == "buffered" else "1"},
            stdout=write,
            check=True,
            timeout=60,
        )
        assert [os.read(read, 4096), os.read(read, 4096)] == [b"placed 4d\n", b"refused 5e\n"]
    finally:
        os.close(read)
        os.close(write)


@pytest.mark.slow
def test_twenty_kills_over_all_parties_lose_nothing_and_double_nothing(tmp_path):
    status, said = ran(
        "examples.orders.drill", "--kills", "20", "--seed", "5", "--json", "run.json", folder=tmp_path
    )
    assert status == 0, said
    run = json.loads((tmp_path / "run.json").read_text())
    assert set(run["kills"]) == set(PARTIES)
    assert sum(run["kills"].values()) == 20
    assert run["orders"] == run["order_messages"] == run["invoices"] == run["invoice_messages"] >= 40
    assert run["left_prepared"] > 0, "no kill left anything in doubt: they hit nothing worth hitting"
    assert not any((tmp_path / "build/drill-orders").iterdir()), "a good run leaves nothing behind"


@pytest.mark.slow
def test_the_shop_works_by_hand(tmp_path):
    status, said = ran("examples.orders", "--seconds", "3", folder=tmp_path)
    assert status == 0, said
    assert "they agree" in said


@pytest.mark.deep  # the twenty kills above judge by the same code
@pytest.mark.slow
def test_a_fault_fails_the_drill_says_which_and_keeps_what_is_needed_to_look(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(drill, "let_a_minute_pass", leave_a_decision)
    with pytest.raises(SystemExit) as ended:
        drill.main(["--kills", "1", "--seed", "5"], standalone_mode=False)
    assert ended.value.code == 1
    said = capsys.readouterr().out
    assert "a row is left in the decision table: committed: left" in said
    assert "--seed 5" in said
    (folder,) = (tmp_path / "build/drill-orders").iterdir()
    assert (folder / "broker.log").exists()
    kept = re.search(r"PostgreSQL's (\S+)\.", said)[1]
    assert Path(kept, "data/PG_VERSION").exists()
    shutil.rmtree(kept)


let_a_minute_pass = drill.let_a_minute_pass


def leave_a_decision(premises):
    """A row as of a broker that nobody knows: no resolver may delete it."""
    let_a_minute_pass(premises)
    with psycopg.connect(premises.database_url) as database:
        database.execute("INSERT INTO txbroker_decision VALUES ('left', 'committed', 'another broker')")
