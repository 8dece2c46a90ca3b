"""An empty store of a partition's log, on files in memory and on those of the system in turn."""

import pytest

from journal.buffers import PooledAllocator
from journal.filesystem import OSFilesystem
from journal.testing import MemoryFilesystem
from tests.message_store.scene import BUDGET, make, with_directory


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
