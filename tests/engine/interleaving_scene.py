"""The scene of interleavings: the flusher's jobs one by one, and a value that soon fills files."""

from journal.constants import KIB

BIG = b"v" * (200 * KIB)


def jobs(room):
    return room.engine.jobs(room.engine.now())


def run(room, job):
    job.run()
    room.engine.finish(job)
