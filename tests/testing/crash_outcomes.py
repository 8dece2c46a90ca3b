"""The possible outcomes of crashes on the disk, over all seeds, for the tests of the crash model."""

from journal.testing import MemoryFilesystem
from journal.testing.pages import PAGE

SEEDS = range(60)


def new_file(fs, path="a"):
    """A file whose name is durable."""
    file = fs.open(path, create=True)
    fs.force_directory("")
    return file


def page(letter):
    return letter * PAGE


def outcomes(fs, look, survive=0.5):
    return {look(fs.crash_clone(seed, survive)) for seed in SEEDS}


def whole(fs, path="a"):
    file = fs.open(path)
    return file.read(0, file.size())


def listing(fs, path=""):
    return tuple(fs.list_directory(path))


def durable(*names):
    fs = MemoryFilesystem()
    for name in names:
        file = fs.open(name, create=True)
        file.write_some(0, [name.encode()])
        file.force()
    fs.force_directory("")
    return fs
