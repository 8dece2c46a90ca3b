"""Test what the Dockerfile says of the image: who runs in it, what is written to, and that its commands are some."""

import re
import shlex

from click.testing import CliRunner

from tests.support.repository import DOCS, ROOT
from txbroker.cli import command_line
from txbroker.server import given_settings

TEXT = re.sub(r"\\\n", " ", (ROOT / "packaging/image/Dockerfile").read_text())
STAGE = TEXT.rpartition("\nFROM ")[2]
"""What the image is made of; the stage before it is left behind."""


def said(word):
    """The arguments of an instruction that is given once."""
    [found] = re.findall(rf"^{word} (.*)$", STAGE, re.MULTILINE)
    return found


def test_it_does_not_run_as_root_and_nothing_is_done_as_root_later():
    user, group = said("USER").split(":")
    assert int(user) > 0
    assert user == group
    assert f"--uid {user} " in STAGE
    assert not re.search(r"^(RUN|COPY|ADD) ", STAGE.partition("\nUSER ")[2], re.MULTILINE)


def test_only_the_volume_is_written_to_and_it_is_the_users_alone():
    data = said("VOLUME")
    assert re.search(rf"install --directory --owner txbroker --group txbroker --mode 0700 {data}\s", STAGE)
    assert said("WORKDIR") == data
    [run] = re.findall(r"^podman run --detach .*$", (DOCS / "service.md").read_text(), re.MULTILINE)
    assert "--read-only" in run
    assert re.findall(r"--volume \w+:(\S+)", run) == [data]
    assert f"--data {data}" in " ".join(command())


def command():
    """The words behind the program by which the broker is started."""
    return [word.strip(' "') for word in said("CMD").strip("[]").split(",")]


def test_the_broker_is_started_with_settings_that_there_are():
    words = command()
    assert words[0] == "serve"
    given = {}
    for name, value in zip(words[1::2], words[2::2], strict=True):
        name, value = value.split("=", 1) if name == "--set" else (name.removeprefix("--"), value)
        given[name] = value
    made = given_settings.checked(given)
    assert made.service.data == said("VOLUME")
    ports = {re.search(r"tcp:(\d+)", each)[1] for each in (given["listen"], given["http"])}
    assert set(said("EXPOSE").split()) == ports


def test_its_health_is_asked_of_the_broker_by_a_command_that_there_is():
    check = said("HEALTHCHECK")
    options, _, asked = check.partition(" CMD ")
    program, *words = shlex.split(asked.partition(">")[0])
    assert program == re.search(r'"(\w+)"', said("ENTRYPOINT"))[1]
    done = CliRunner().invoke(command_line, [*words, "--broker", "tcp:127.0.0.1:1", "--timeout", "200ms"])
    assert done.exit_code == 4, "a broker that is not there is not healthy"
    patience = int(re.search(r"--timeout=(\d+)s", options)[1])
    assert int(re.search(r"--timeout (\d+)s", asked)[1]) < patience
    assert f"TXBROKER_URL=unix:{said('VOLUME')}/admin.sock" in STAGE
