"""Test files with a secret in them."""

import os

import pytest

from txbroker.client.login import secret_file
from txbroker.client.login.secret_file import MAX_BYTES, read_secret
from txbroker.errors import Misuse


def written(tmp_path, data=b"geheim", mode=0o600):
    path = tmp_path / "secret"
    path.write_bytes(data)
    path.chmod(mode)
    return os.fspath(path)


@pytest.mark.parametrize(
    ("data", "secret"),
    [
        (b"geheim", "geheim"), (b"geheim\n", "geheim"), (b"geheim\r\n", "geheim"), (b"geheim\n\n", "geheim\n"),
        (b" geheim \n", " geheim "), ("gehéim\n".encode(), "gehéim"),
    ],
)  # fmt: skip
def test_the_newline_at_the_end_is_none_of_the_secret(tmp_path, data, secret):
    assert read_secret(written(tmp_path, data), "password") == secret


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o700])
def test_a_file_of_its_owner_alone_is_read(tmp_path, mode):
    assert read_secret(written(tmp_path, mode=mode), "password") == "geheim"


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o666, 0o602, 0o620, 0o610, 0o777])
def test_a_file_that_others_may_read_or_change_is_refused_with_what_to_do(tmp_path, mode):
    with pytest.raises(Misuse, match=rf"read by others \(mode {mode:04o}\).*chmod 600") as caught:
        read_secret(written(tmp_path, mode=mode), "password")
    assert "geheim" not in str(caught.value)
    assert "nothing was sent" in str(caught.value)


@pytest.mark.parametrize(("owner", "is_read"), [(0, True), (1000, False)])
def test_a_group_may_read_what_is_roots_as_secrets_of_containers_are(tmp_path, monkeypatch, owner, is_read):
    path = written(tmp_path, mode=0o440)
    found = list(os.stat(path))
    found[4] = owner
    monkeypatch.setattr(secret_file.os, "fstat", lambda _: os.stat_result(found))
    if is_read:
        assert read_secret(path, "token") == "geheim"
    else:
        with pytest.raises(Misuse, match="read by others"):
            read_secret(path, "token")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"\xff", "no text in UTF-8"),
        (b"x" * (MAX_BYTES + 1), "more than 65,536"),
    ],
)
def test_a_file_that_holds_no_secret_is_refused(tmp_path, data, reason):
    with pytest.raises(Misuse, match=reason):
        read_secret(written(tmp_path, data), "password")


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(Misuse, match="cannot be read: No such file"):
        read_secret(os.fspath(tmp_path / "missing"), "password")
    with pytest.raises(Misuse, match="cannot be read: Is a directory"):
        read_secret(os.fspath(tmp_path), "password")
    with pytest.raises(Misuse, match="is no regular file"):
        read_secret("/dev/null", "password")
