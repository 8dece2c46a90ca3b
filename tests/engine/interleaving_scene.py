"""The jobs of the flusher taken one by one, and a value that fills files soon, for the tests of interleavings."""

from journal.constants import KIB

BIG = b"v" * (200 * KIB)


def jobs(room):
    return room.engine.jobs(room.engine.now())


def run(room, job):
    job.run()
    room.engine.finish(job)
