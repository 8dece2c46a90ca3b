"""Run the commands of SECURITY.md, one after the other, against a broker with an endpoint that others can reach."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import txbroker
from tests.docs.blocks import blocks_of
from tests.support.broker_process import told_broker
from tests.support.repository import PACKAGES, ROOT
from txbroker import errors

pytestmark = pytest.mark.slow


def test_the_commands_of_the_page_let_in_whom_it_says_and_nobody_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": PACKAGES,
    }
    blocks = [block.text for block in blocks_of(ROOT / "SECURITY.md") if block.language == "sh"]
    users = (
        "printf 'the password\\n' > FILE && chmod 600 FILE\ntxbroker users add shop --password-file FILE\n"
    )
    script = "\n".join(["set -eux", blocks[0], users, *blocks[1:]])
    script = script.replace("access confirm", "access confirm --yes")
    with told_broker(tmp_path / "data") as process:
        url = f"tcp:127.0.0.1:{process.ready()}"
        done = subprocess.run(
            ["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        assert "Everybody has to log in from now on" in done.stdout
        assert "Allowed:\n  allow shop read,write,create topic orders*" in done.stdout
        with pytest.raises(errors.AuthenticationFailed):
            txbroker.connect(url, timeout=20)
        with txbroker.connect(url, user="admin", password_file="admin.password", timeout=20) as admin:
            assert [user.name for user in admin.users()] == ["admin", "shop"]
        with txbroker.connect(url, user="shop", password_file="FILE", timeout=20) as shop:
            shop.create_topic("orders-eu")
            shop.send("orders-eu", b"1")
            with pytest.raises(errors.AccessDenied):
                shop.users()
