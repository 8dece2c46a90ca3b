"""Test that the formats' documents agree with the code: worked bytes, record kinds, requests and answers."""

from __future__ import annotations

import re
import subprocess
import typing
from pathlib import Path

import click
import pytest
from crc32c import crc32c

from journal.folds.table import client_folds
from journal.formats import frame
from journal.formats.compression import SIZE
from journal.formats.version_file import Written, pack_version
from journal.parties import Owner
from journal.records import journal_headers, outcome_entry, record
from journal.records.outcome_entry import ArchivedOutcome, Part
from journal.records.record import AnyRecord, Messages, Started
from journal.recovery.start import recover
from journal.testing import ManualClock, MemoryFilesystem
from journal.transaction_states import Cause, State, Totals
from journal.xid import Xid
from tests.spark.damages import forgeries, test_damages_forged
from tests.support.repository import ROOT
from tests.wire import wire_tables
from txbroker.broker.broker import Broker
from txbroker.broker.sessions.settings import BrokerSettings
from txbroker.cli import command_line
from txbroker.server.settings import config
from txbroker.wire import codec
from txbroker.wire import messages as commands
from txbroker.wire.secret import Secret

TIME = 1_357_034_400_000_000
SALT = 0xC0FFEE
LSN = (1 << 36) + 2
NONCE, SECRET = bytes(range(16)), Secret(bytes(range(16, 32)))
# The wrapper's payload as the packages compressed it (zstandard 0.25, lz4 4.4); other versions may write other bytes.
BY_ZSTD = (
    "28b52ffd204e8501003402000000250004d237315c2800000000010200610000"
    "00290001020000000592c4016b900400487501760186cf012d"
)
BY_LZ4 = "5800000025000100c304d237315c2800000000010218005361000000290c000119000b2500a0020000000592c4016b90"


def outcome_of(message: bytes) -> ArchivedOutcome:
    checksum = crc32c(message)
    return ArchivedOutcome(
        session=(1 << 32) + 1, serial=7, state=State.COMMITTED, cause=Cause.CLIENT, lsn=LSN, at=1000, wall=TIME,
        began=TIME - 3, prepared=TIME - 1, xid=Xid(1, b"day-2013-01-01", b"flights"), by=None, why="",
        owner=Owner("anonymous", "loader", "10.0.0.7:40312"),
        heuristic=False, messages=1, bytes=len(message), requests=1, checksum=checksum,
        parts=[Part("flights", 0, 1, 7, 1, len(message), checksum)],
    )  # fmt: skip


def worked_bytes() -> dict[str, bytes]:
    message = frame.encode(b"hello", TIME, key=b"42", headers={"kind": b"new"})
    inner = frame.encode_inner(0, b"a", TIME) + frame.encode_inner(1, None, TIME, key=b"k")
    stamped = bytearray(message)
    frame.stamp(memoryview(stamped), 7, TIME)
    packed = record.pack(Messages(1, 7, 1, 1000, 3, 0, 7), bytes(stamped), record.seed(SALT, LSN))
    whole = packed + bytes(stamped)
    header = journal_headers.pack_file_header(journal_headers.FileHeader(1 << 36, 1, SALT, 0, 1, 64 << 20))
    body_crc = journal_headers.body_checksum([whole])
    entry = bytearray(outcome_entry.pack(outcome_of(message)))
    frame.stamp(memoryview(entry), 5, TIME)
    prepare = commands.Prepare(3, 1, Xid(1, b"day-2013-01-01", b"flights"), Totals(1, 1, 0x12345678), 0)
    welcome = commands.Welcome(
        2,
        (1 << 32) + 1,
        16777216,
        16777216,
        "0123456789abcdef" * 2,
        NONCE,
        SECRET,
        10_000,
        "anonymous",
    )
    former = commands.FormerSession((1 << 32) + 1, NONCE, SECRET)
    join = commands.JoinGroup(4, "billing", NONCE, ["orders"], id=bytes(range(32, 48)))
    member = (1 << 32) + 1
    attended = commands.Attended(5, [commands.AssignedPartition(3, 9, "orders", 0)])
    return {
        "frame": message,
        "wrapper": frame.encode_wrapper(inner, 2, TIME),
        **{
            codec: frame.encode_wrapper(SIZE.pack(len(inner)) + bytes.fromhex(packed), 2, TIME, number)
            for codec, number, packed in (("zstd", 1, BY_ZSTD), ("lz4", 2, BY_LZ4))
        },
        "record": whole,
        "started": record.pack(Started(1, 1000, TIME, NONCE), b"", record.seed(SALT, 1 << 36)),
        "outcome": bytes(entry),
        "file-header": header[:56],
        "version": pack_version(Written(2, "0.2.0")),
        "group-header": journal_headers.pack_group_header(len(whole), 1, LSN, LSN - 1, body_crc, SALT),
        "hello": codec.encode(commands.Hello(1, "txbroker", [3], "example")),
        "offered": codec.encode(commands.Offered(1, 3, "txbroker", ["SCRAM-SHA-256", "ANONYMOUS"])),
        "login": codec.encode(commands.Login(2, "ANONYMOUS")),
        "welcome": codec.encode(welcome),
        "login-again": codec.encode(commands.Login(2, "ANONYMOUS", b"", former)),
        "send": codec.encode(commands.Send(2, 1, 3, 0, 7), message),
        "sent": codec.encode(commands.Sent(2, 7)),
        "prepare": codec.encode(prepare),
        "refused": codec.encode(commands.Refused(3, "ContentMismatch", "...")),
        "join": codec.encode(join),
        "joined": codec.encode(commands.Joined(4, member, SECRET)),
        "attend": codec.encode(commands.Attend(5, "billing", member, SECRET)),
        "attended": codec.encode(attended),
        "attend-again": codec.encode(commands.Attend(6, "billing", member, SECRET, [(3, 9)])),
        "revoked": codec.encode(commands.Attended(6, [], [3])),
        "releasing": codec.encode(commands.Attend(7, "billing", member, SECRET, [(3, 9)], [3])),
        "released": codec.encode(commands.Attend(8, "billing", member, SECRET)),
    }


def documented_bytes() -> dict[str, bytes]:
    found = {}
    for name in ("file_format.md", "wire_protocol.md"):
        text = (ROOT / "docs" / name).read_text()
        for label, block in re.findall(r"```hex (\S+)\n(.*?)```", text, re.DOTALL):
            found[label] = bytes.fromhex("".join(line[6:] for line in block.splitlines()))
    return found


def test_each_worked_example_is_documented_and_each_documented_one_is_made_here() -> None:
    assert documented_bytes().keys() == worked_bytes().keys()


@pytest.mark.parametrize("name", worked_bytes())
def test_a_documented_example_has_the_bytes_that_the_code_makes(name: str) -> None:
    assert documented_bytes()[name] == worked_bytes()[name]


@pytest.mark.parametrize("name", ["zstd", "lz4"])
def test_a_documented_compressed_wrapper_holds_what_the_plain_one_holds(name: str) -> None:
    documented = documented_bytes()
    assert frame.decode_run(documented[name]) == frame.decode_run(documented["wrapper"])


def rows(document: str) -> set[tuple[str, str, str]]:
    text = (ROOT / "docs" / document).read_text()
    return set(re.findall(r"^\| (\d+) \| `(\w+)` \| ([^|]*) \|", text, re.MULTILINE))


def described(union: object) -> set[tuple[str, str, str]]:
    return {
        (str(kind.__struct_config__.tag), kind.__name__, ", ".join(kind.__struct_fields__) or "–")
        for kind in typing.get_args(union)
    }


def test_every_kind_of_record_is_documented_with_its_fields() -> None:
    assert rows("file_format.md") == described(AnyRecord)


@pytest.mark.parametrize("name", wire_tables.tables())
def test_the_tables_of_the_wire_protocol_are_those_of_the_code(name: str) -> None:
    assert wire_tables.documented()[name] == wire_tables.tables()[name], (
        "python -m tests.wire.wire_tables writes them"
    )


def test_every_setting_is_documented_with_its_default() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    documented = dict(
        re.findall(r"^\| `(\w+)` \| ([^|]*) \|", text.partition("## Settings")[2], re.MULTILINE)
    )
    wanted = {name: config.readable(name, value) for name, value in config.defaults().items()}
    wanted |= {"data": "none", "listen": f"`{config.DEFAULT_LISTEN}`"}
    assert documented == wanted


def test_every_figure_of_the_status_is_documented() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    section = text.partition("## Status")[2].partition("\n## ")[0]
    engine = recover(MemoryFilesystem(), ManualClock(), folds=client_folds())
    status = Broker(engine, BrokerSettings()).describing.status()
    of_the_client = {"client_version", "client_build"}
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == status.keys() | of_the_client


def test_make_help_lists_every_target_that_says_what_it_does_in_eighty_columns() -> None:
    text = (ROOT / "Makefile").read_text()
    helped = subprocess.run(
        ["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    listed = re.findall(r"^  make (\S+) ", helped, re.MULTILINE)
    assert listed == re.findall(r"^(\S+):.*  ## ", text, re.MULTILINE)
    assert "drill-orders" in listed
    assert max(map(len, helped.splitlines())) <= 80


@pytest.mark.parametrize("table", forgeries.TABLES, ids=lambda table: table.modules[0])
def test_a_table_of_damages_has_each_that_is_tried_and_each_that_nothing_finds(table) -> None:
    """Of what is found, the test of each damage compares the kind."""
    documented = forgeries.documented_in(table)
    names = [name for module in forgeries.tests_of(table) for name in module.damage.done]
    kinds = {name: documented.get(name, ("", ""))[0] for name in names}
    assert documented == forgeries.rows(table, kinds)
    tests = [text for module in forgeries.tests_of(table) for text in [Path(module.__file__).read_text()]]
    assert all(any(f"def {test}(" in text for text in tests) for test in table.not_found)


def test_what_the_bytes_alone_cannot_show_is_in_the_table_and_no_damage_is_in_two():
    shown = vars(test_damages_forged.TestWhatTheBytesAloneCannotShow)
    assert {name for name in shown if name.startswith("test_")} == forgeries.TABLES[0].not_found.keys()
    assert sum(len(forgeries.documented_in(table)) for table in forgeries.TABLES) == len(
        forgeries.documented()
    )


def test_every_command_that_the_documents_name_is_one() -> None:
    """A word after `txbroker` in code that is a group's name has the name of one of its commands behind it."""
    context = click.Context(command_line)
    every = {name: command_line.get_command(context, name) for name in command_line.list_commands(context)}
    groups = {
        name: each.list_commands(context) for name, each in every.items() if isinstance(each, click.Group)
    }
    named = set()
    for page in [
        ROOT / "README.md",
        ROOT / "ARCHITECTURE.md",
        ROOT / "SECURITY.md",
        *(ROOT / "docs").rglob("*.md"),
    ]:
        for group, command in re.findall(
            r"(?:`|^ *|/)txbroker ([a-z]+)\s+([a-z]+)", page.read_text(), re.MULTILINE
        ):
            if group in groups:
                named.add((page.name, group, command))
    assert len(named) > 20
    assert [each for each in named if each[2] not in groups[each[1]]] == []


def pages() -> list[Path]:
    return [
        ROOT / "README.md",
        ROOT / "ARCHITECTURE.md",
        ROOT / "SECURITY.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    ]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_every_link_to_a_file_of_the_repository_leads_to_one(page) -> None:
    links = re.findall(r"\]\(([^)#: ]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_every_module_that_a_page_names_by_its_path_is_there(page) -> None:
    named = re.findall(
        r"`((?:journal|txbroker|spark|tests|benchmarks|demo|models|examples)/[\w/]+\.(?:py|pml|md))`",
        page.read_text(),
    )
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_promise_names_tests_that_exist() -> None:
    """Each section of docs/guarantees.md but the last, which says what is not promised."""
    _, *sections = re.split(r"^## ", (ROOT / "docs" / "guarantees.md").read_text(), flags=re.MULTILINE)
    named = {
        each.partition("\n")[0]: re.findall(r"`((?:tests|models)/[^`]*)`", each)
        for each in sections
        if not each.startswith("What is not promised")
    }
    assert len(named) >= 11
    assert [promise for promise, tests in named.items() if not tests] == []
    missing = [path for tests in named.values() for path in tests if not (ROOT / path).exists()]
    assert missing == []
    empty = [
        path
        for tests in named.values()
        for path in tests
        if path.endswith(".py") and not re.search(r"def test_|TestCase", (ROOT / path).read_text())
    ]
    assert empty == []
