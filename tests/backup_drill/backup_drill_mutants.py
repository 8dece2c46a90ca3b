"""Faults in backups and restores that the drill of backups must find, each made in a copy of the sources.

``tests/mutants/backup.py`` has more, which the tests of backups must find. What a drill cannot see are faults of power
cuts (its commands are killed, and what they wrote stays), and what makes a backup larger than it has to be.
"""

from __future__ import annotations

from typing import Final

from tests.mutants import backup
from tests.simulation.mutants import Mutant

_LENGTHS = """class sha256:
    def __init__(self, data=b""):
        self.length = len(data)

    def update(self, data):
        self.length += len(data)

    def hexdigest(self):
        return f"{self.length:064x}"
"""


def _named_by_length(path: str) -> Mutant:
    return Mutant(
        f"an object is named by its length, in {path}", path, "from hashlib import sha256\n", _LENGTHS
    )


def _known(name: str) -> Mutant:
    (found,) = (mutant for mutant in backup.MUTANTS if mutant.name == name)
    return found


MUTANTS: Final = {
    "an object is a hard link": (_known("an object is a hard link"),),
    "an object is named by its length": (
        _named_by_length("journal/backup/object_store.py"),
        _named_by_length("journal/backup/restoring.py"),
    ),
    "a restored rollback is taken": (_known("a restored rollback is taken"),),
    "the start number is not raised": (_known("the start number is not raised"),),
    "starts of the lost time line are known": (_known("starts of the lost time line are known"),),
}
"""Each with the places in which it is made, all at once."""
