"""Test addresses of databases: where a password may be, and that none is ever shown."""

import sqlite3
import traceback

import pytest

from txbroker import errors
from txbroker.databases.urls import connector

SECRET = "hunter2"


def refusal(address):
    """What is said of it: all of a traceback."""
    with pytest.raises(errors.Misuse) as caught:
        connector(address)
    return "".join(traceback.format_exception(caught.value))


WITH_PASSWORD = [
    f"postgresql://ann:{SECRET}@127.0.0.1:1/shop",
    f"postgresql://ann:a?{SECRET}@127.0.0.1:1/shop",
    f"postgres+psycopg://ann:{SECRET}@127.0.0.1:1/shop",
    f"postgresql://127.0.0.1:1/shop?user=ann&password={SECRET}",
    f"postgresql://ann@127.0.0.1:1/shop?sslpassword={SECRET}",
    f"mysql://ann:{SECRET}@127.0.0.1:1/shop",
    f"mariadb+pymysql://ann@127.0.0.1:1/shop?password={SECRET}",
    f"mysql://ann@127.0.0.1:1/shop?passwd={SECRET}",
]


@pytest.mark.parametrize("url", WITH_PASSWORD)
def test_a_password_on_a_command_line_is_refused_with_the_two_other_ways(url):
    said = refusal(url)
    assert SECRET not in said
    assert "has a password in it" in said
    assert "file:PATH" in said
    assert "env:NAME" in said


@pytest.mark.parametrize("url", WITH_PASSWORD)
def test_a_file_or_a_variable_may_have_one(url, tmp_path, monkeypatch):
    path = tmp_path / "url"
    path.write_text(f"{url}\n\nthis line is for people\n", encoding="utf-8")
    monkeypatch.setenv("SHOP_URL", url)
    for address in (f"file:{path}", "env:SHOP_URL"):
        opens = connector(address)
        assert SECRET not in repr(opens)
        with pytest.raises(Exception) as caught:  # noqa: PT011 - of a driver: nobody listens there
            opens()
        assert SECRET not in "".join(traceback.format_exception_only(caught.value))


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ann:{SECRET}%zz@127.0.0.1:1/shop",
        f"postgresql://ann:a/{SECRET}@127.0.0.1:1/shop",
        f"postgresql://ann:1/{SECRET}@127.0.0.1:1/shop",
        f"postgresql://ann:a@{SECRET}@127.0.0.1:1/shop",
        f"postgresql://ann@127.0.0.1:{SECRET}/shop",
        f"postgresql://ann@127.0.0.1:1/shop?{SECRET}",
        f"mysql://ann:{SECRET}/a@127.0.0.1:1/shop",
        f"mysql://ann:a@{SECRET}@127.0.0.1:1/shop",
        f"mysql://ann@127.0.0.1:{SECRET}/shop",
        f"mysql://ann:[{SECRET}@127.0.0.1:1/shop",
        f"postgresql:/ann:{SECRET}@127.0.0.1/shop",
        f"host=127.0.0.1 user=ann password={SECRET}",
    ],
)
def test_an_address_that_is_not_understood_is_not_shown(url, tmp_path, monkeypatch):
    path = tmp_path / "url"
    path.write_text(url, encoding="utf-8")
    monkeypatch.setenv("SHOP_URL", url)
    for address in (url, f"file:{path}", "env:SHOP_URL"):
        said = refusal(address)
        assert SECRET not in said
        assert "nothing was done" in said


def test_a_url_without_a_password_is_taken_as_it_is(tmp_path, monkeypatch):
    path = tmp_path / "shop@home.db"
    sqlite3.connect(path).close()
    address = f"sqlite:///{path}"
    monkeypatch.setenv("SHOP_URL", f" {address} ")
    for found in (address, "env:SHOP_URL"):
        connector(found)().close()
    for url in (
        "postgresql://ann@127.0.0.1,[::1]:1,2/shop?connect_timeout=1",
        "postgresql:///shop?host=/run/postgresql&passfile=/none",
        "mysql://ann@[::1]/shop",
    ):
        connector(url)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        (
            "file:/nowhere/url",
            r"the file '/nowhere/url', .* cannot be read: No such file or directory; nothing",
        ),
        ("env:NOT_SET_HERE", "the environment variable 'NOT_SET_HERE', .* is not set; nothing was done"),
        ("env:EMPTY", "the environment variable EMPTY is no address of a database"),
        ("oracle://x/y", "what was given names 'oracle', a kind of database .* does not open"),
    ],
)
def test_what_leads_to_no_address_is_named(address, says, monkeypatch):
    monkeypatch.setenv("EMPTY", "")
    with pytest.raises(errors.Misuse, match=says):
        connector(address)


def test_a_file_that_is_no_text_is_named(tmp_path):
    path = tmp_path / "url"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(errors.Misuse, match="it is no text in UTF-8"):
        connector(f"file:{path}")


@pytest.mark.parametrize(
    "address",
    [
        "file:postgresql://billing:hunter2@host/shop",
        "env:postgresql://billing:hunter2@host/shop",
        "billing:hunter2@host://shop",
        "sqlite://billing:hunter2@host/shop.db",
        "sqlite:///billing:hunter2@host/shop.db",
        "oracle://billing:hunter2@host/shop",
        "billing:hunter2@host/shop",
    ],
)
def test_a_password_in_the_wrong_place_is_not_repeated(address):
    with pytest.raises(errors.Misuse) as caught:
        connector(address)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value, chain=True, limit=0))
