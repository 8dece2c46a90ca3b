"""Run every Python block of the documents with a real broker and databases, and check what its page says."""

import pytest

import txbroker
from tests.docs.blocks import blocks_of
from tests.docs.python_scenes import SCENES
from tests.support.repository import ROOT

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("page", SCENES)
def test_the_blocks_of_a_page_run_and_do_what_it_says(page, broker_process, request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with txbroker.connect(broker_process.address, timeout=60.0) as broker:
        scene = SCENES[page](request, broker_process.address, broker)
        for block in (block for block in blocks_of(ROOT / page) if block.language == "python"):
            next(scene)(block)
        assert next(scene, None) is None, "the scene has more blocks than the page"
