"""The table of forgeries in docs/spark.md: what is done with checksums that fit, what finds it, or why nothing does.

``python -m tests.spark.forgeries`` does each of them to a directory, and writes the table anew. Each test of a damage
looks into the table for what must find it.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parent.parent.parent / "docs" / "spark.md"
HEAD: Final = "| what somebody does, with checksums that fit | found | by what, or why not |\n|---|---|---|\n"

BY: Final = {
    "archive": "the outcome archive against the journal, or against itself",
    "checkpoint": "the newest checkpoint against the outcome archive, or against the records of the journal",
    "damaged frame": "the form of frames, whose checksum says nothing of it",
    "rolled back": "what the archive says of the transaction that had just these bytes",
    "send": "the record of the send in the journal",
    "shifted": "claims behind it, which are fulfilled at other offsets",
    "time": "the time itself: a notice, for a broker takes it",
    "torn": "the checkpoint, which does not know it: a notice, for a crash may leave it so",
    "transaction": "the claim of the transaction's entry in the archive",
    "undecided": "no record and no transaction decides what stands there",
}
"""By the kind of a finding what has found it."""

NOT_FOUND: Final = {
    "test_another_value_in_a_send_that_no_journal_holds_any_more": (
        "another value in a message outside of transactions whose record the journal no longer holds",
        "nobody has said what was sent: `--reports` and `--expect` are for that",
    ),
    "test_committed_messages_once_more_where_such_sends_stand": (
        "committed messages once more, where such sends stand",
        "nobody has said how many there are",
    ),
    "test_such_sends_that_are_gone_from_the_end_of_a_log_as_from_all_checkpoints": (
        "such sends are gone from the end of a log, and all checkpoints were changed with it",
        "nobody has said that they were there",
    ),
}
"""By the test that shows it: what nothing finds, and why."""


def documented() -> dict[str, tuple[str, str]]:
    """The rows of the table: by what is done the kind of what finds it ("" if nothing), and by what, or why not."""
    table = PAGE.read_text().partition(HEAD)[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (.+?) \| (?:\*(.+?)\*|no) \| (.+?) \|$", table, re.MULTILINE)
    return {what: (kind, why) for what, kind, why in rows}


def rows(kinds: dict[str, str]) -> dict[str, tuple[str, str]]:
    """The rows as they are to be, from what has found each damage."""
    found = {what: (kind, BY[kind]) for what, kind in kinds.items()}
    return found | {what: ("", why) for what, why in NOT_FOUND.values()}


def table(rows: dict[str, tuple[str, str]]) -> str:
    """The table as it stands in the document."""
    lines = [f"| {what} | {f'*{kind}*' if kind else 'no'} | {why} |" for what, (kind, why) in rows.items()]
    return HEAD + "\n".join(lines)


def main() -> None:
    """Write the table anew."""
    from tests.spark import test_damages_forged, test_damages_outcomes
    from tests.spark.world import everything

    kinds = {}
    with tempfile.TemporaryDirectory() as place:
        sound = everything(Path(place) / "sound")
        for module in (test_damages_forged, test_damages_outcomes):
            for name in module.damage.done:
                data = shutil.copytree(sound, Path(place) / "data")
                kinds[name] = module.damage.kind(name, data)
                shutil.rmtree(data)
    text = PAGE.read_text()
    before, _, rest = text.partition(HEAD)
    after = rest[rest.index("\n\n") :]
    PAGE.write_text(before + table(rows(kinds)) + after)


if __name__ == "__main__":
    main()
