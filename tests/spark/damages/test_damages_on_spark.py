"""Test the audit's command on damages, on real Spark: exit codes, and what the report says was not searched for."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from journal.formats.filenames import SegmentKind
from journal.formats.frame import HEADER_BYTES
from spark.audit.__main__ import main
from spark.audit.checks import uncommitted
from tests.spark.audit.audited import copied
from tests.spark.damages.forger import altered, flip, holding, log_file, store_of, write
from tests.spark.world import World, everything

pytestmark = pytest.mark.slow


def audit(path, out):
    """The exit code of the command, and the findings by severity, kind and place."""
    done = CliRunner().invoke(main, ["--data", str(path), "--out", str(out)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    summary = json.loads((out / "summary.json").read_text())
    found = {(each["severity"], each["kind"], each.get("topic", ""), each.get("path", "")): each
             for each in summary["findings"]}  # fmt: skip
    return done.exit_code, found, summary


def test_damages_of_all_kinds_of_files_in_one_directory_are_named_and_the_exit_code_is_1(spark, tmp_path):
    path = copied(everything(tmp_path / "sound"), tmp_path / "data")
    forged = holding(path, "orders", 1, b"order")
    write(
        path,
        forged.segment,
        forged.entry.position,
        altered(bytes(forged.entry.frame), HEADER_BYTES, b"Order"),
    )
    turned = holding(path, "quiet", 0, b"quiet 05")
    flip(path, turned.segment, turned.entry.position + HEADER_BYTES + 3)
    index = log_file(store := store_of(path, "quiet"), store.segments[0], SegmentKind.INDEX)
    flip(path, index, 3)
    behind = log_file(store := store_of(path, "a"), store.segments[-1])
    end = (path / behind).stat().st_size
    data = bytearray(forged.entry.frame)
    data[8:16] = store.flushed_offset.to_bytes(8, "big")
    write(path, behind, end, bytes(data))
    older = min(each.name for each in (path / "checkpoints").iterdir())
    flip(path, f"checkpoints/{older}", 100)
    staged = next(iter((path / "staged").iterdir())).name
    (path / "staged" / staged).unlink()
    code, found, _ = audit(path, tmp_path / "report of 100 % of it")
    assert code == 1
    assert found["violation", "transaction", "orders", forged.segment]["position"] == forged.entry.position
    assert found["violation", "damaged frame", "quiet", turned.segment]["first"] == turned.entry.offset
    assert found["violation", "undecided", "a", behind]["position"] == end
    assert found["violation", "staged", "", f"staged/{staged}"]["xid"] == "1:doubt:b"
    assert ("violation", "checkpoint", "", f"checkpoints/{older}") in found
    assert found["violation", "partition", "quiet", index]["partition"] == 0


@pytest.mark.deep  # the one above has the page and the summary of what was looked for
def test_what_was_not_looked_for_is_said_in_the_summary_and_on_the_page(spark, tmp_path, monkeypatch):
    made = World(tmp_path / "data")
    for number in range(3):
        made.among(("a", 0, b"never %d" % number), end="rollback")
    made.checkpoint()
    monkeypatch.setattr(uncommitted, "MOST", 1)
    code, found, summary = audit(made.kill(), tmp_path / "report")
    told = found["notice", "not looked for", "a", ""]
    assert (code, told["text"].startswith("2 transactions that were not committed")) == (0, True)
    assert any("Not all transactions that were not committed" in line for line in summary["proven"])
    assert "not looked for" in (tmp_path / "report" / "index.html").read_text()
