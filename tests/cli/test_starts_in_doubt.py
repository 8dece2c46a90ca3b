"""``txbroker transactions`` after a start with very many in doubt, some of them damaged."""

import json
import time

import pytest
from crc32c import crc32c

from journal.transaction_states import Totals
from journal.xid import Xid
from tests.cli.in_doubt import started
from tests.cli.invocations import runner
from tests.support.peer import Peer, frames
from txbroker.wire import messages

pytestmark = pytest.mark.slow


def prepare_many(port, count):
    """So many transactions of one session, prepared and left alone; each is in a staged file when this returns."""
    with Peer(port) as peer:
        partition = peer.topic("t")
        run = frames(b"debit")
        for serial in range(1, count + 1):
            peer.say(messages.Add, serial, partition, data=run)
            peer.say(messages.Prepare, serial, Xid(7, b"%06d" % serial, b""), Totals(1, 1, crc32c(run)))
        assert {type(peer.read()[0]) for _ in range(count)} == {messages.Done}
        return partition


def fill_until_staged(port, partition, staged, count):
    """Checkpoints stage what lies below the one before, then say so; they come when there is something new."""
    deadline = time.monotonic() + 60
    with Peer(port) as peer:

        def fill_while(going_on):
            while going_on():
                assert time.monotonic() < deadline, "nothing was staged"
                peer.ask(messages.Send, partition, data=frames(b"x" * 1000))

        def checkpoint():
            return peer.ask(messages.AskStatus).values["checkpoint_lsn"]

        fill_while(lambda: len(list(staged.iterdir())) < count)
        before = checkpoint()
        fill_while(lambda: checkpoint() == before)


def damage(path):
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 0x40
    path.write_bytes(whole)


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.deep)])
def test_a_start_with_many_in_doubt_one_damaged_and_one_missing_goes_on(tmp_path, count):
    """L20: an unresolved transaction blocks the whole broker from starting, and cannot be listed or forced."""
    data = tmp_path / "data"
    with started(data, "--set", "checkpoint_interval=1s") as (_, url):
        port = int(url.rpartition(":")[2])
        partition = prepare_many(port, count)
        fill_until_staged(port, partition, data / "staged", count)
        with Peer(port) as peer:
            before = len(peer.values(partition))
    damaged, missing = sorted((data / "staged").iterdir())[:2]
    damage(damaged)
    missing.unlink()
    with started(data) as (process, url):
        assert process.field("in_doubt") == count
        run = runner(url)
        assert len(json.loads(run("transactions", "list", "--in-doubt", "--json").stdout)) == count
        for path in (damaged, missing):
            number = path.stem
            assert f"cannot be read: staged/{path.name}" in run("transactions", "show", number).stdout
            refused = run("transactions", "commit", number, "--why", "x", "--yes", code=6)
            assert "CorruptJournal" in refused.stderr
            assert path.name in refused.stderr
            assert "roll the transaction back" in refused.stderr
        commit = ("transactions", "commit", "--xid", "7:", "--why", "x", "--execute", "--yes")
        committed = run(*commit, code=6, partly=True)
        assert f"{count - 2} of {count:,} transactions committed, 2 not" in committed.stderr
        run("transactions", "rollback", damaged.stem, missing.stem, "--why", "damaged", "--yes")
        assert json.loads(run("transactions", "list", "--in-doubt", "--json").stdout) == []
    with started(data) as (process, url):
        assert process.field("in_doubt") == 0
        with Peer(int(url.rpartition(":")[2])) as peer:
            assert len(peer.values(partition)) == before + count - 2
