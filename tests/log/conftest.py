"""An empty store of a partition's log, on files in memory and on those of the system in turn."""

import pytest

from journal.buffers import PooledAllocator
from journal.testing import MemoryFilesystem
from journal.vfs.filesystem import OSFilesystem
from tests.log.message_store_scene import BUDGET, make, with_directory


@pytest.fixture(params=["memory", "disk"])
def filesystem(request, tmp_path):
    return with_directory(MemoryFilesystem() if request.param == "memory" else OSFilesystem(tmp_path))


@pytest.fixture
def allocator():
    return PooledAllocator(BUDGET, poison=True)


@pytest.fixture
def store(filesystem, allocator):
    store = make(filesystem, allocator)
    yield store
    store._files.close()
