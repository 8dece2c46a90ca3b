"""Fetches for tests: what a fetch has brought, and reads that fail."""

from journal.formats.frame import decode_run
from journal.testing import MemoryFile

SECOND = 1_000_000


def values(peer, answer):
    """The values fetched, by partition."""
    data = peer.data[peer.answers.index(answer)]
    found, position = {}, 0
    for part in answer.partitions:
        run = data[position : position + part.length]
        position += part.length
        found[part.partition] = [message.value for message in decode_run(run)]
    assert position == len(data)
    return found


def unreadable(monkeypatch, directory):
    """Every read of a file in that directory fails, as on a failing disk."""
    read = MemoryFile.read

    def fails(self, position, length):
        if self.path.startswith(directory):
            raise OSError(5, "Input/output error", self.path)
        return read(self, position, length)

    monkeypatch.setattr(MemoryFile, "read", fails)
