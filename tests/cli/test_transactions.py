"""Test what people and programs are shown of transactions, and which commands are refused before anything is sent."""

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from rich.console import Console

from journal.transaction_states import Cause, State
from journal.xid import Xid
from txbroker.cli import command_line
from txbroker.cli.arguments import XidPrefix
from txbroker.cli.exits import Exit, Failure
from txbroker.cli.invocation import Invocation
from txbroker.cli.transactions.choice import Choice
from txbroker.cli.transactions.heuristic_ending import (
    NAMED,
    NOT_TRIED,
    Ending,
    Result,
    end_all,
    question,
    report,
)
from txbroker.cli.transactions.json_form import shown_json, transaction_json
from txbroker.cli.transactions.views import details, listing
from txbroker.cli.transactions.words import by_text, next_sentence, next_text, owner_text, summary, totals
from txbroker.client.core.results import GroupMove, Message, PartContent, Run, TransactionDetails
from txbroker.wire.messages import CoordinatorWord, Policy, TransactionInfo

MINUTE = 60_000_000
WALL = 1_767_268_800_000_000  # 2026-01-01T12:00Z
PREPARED = TransactionInfo(
    session=5, serial=3, state=State.PREPARED, xid=Xid(1, b"day-1", b"flights"), owner="billing",
    age=2 * MINUTE, messages=2, bytes=1536, topics=["orders", "payments"], groups=["g"], address="10.0.0.7:51",
    prepared_age=MINUTE, began=WALL, prepared=WALL + MINUTE, principal="anonymous",
)  # fmt: skip
FORCED = TransactionInfo(
    session=5, serial=3, state=State.COMMITTED, xid=None, owner="billing", age=0, messages=1, bytes=10,
    topics=[], groups=[], cause=Cause.OPERATOR, by="ann", why="ticket 7", heuristic=True, ended=WALL,
)  # fmt: skip
AGREED = replace(FORCED, told=CoordinatorWord(State.COMMITTED, WALL, "billing@10.0.0.7:51"))
DAMAGED = replace(FORCED, told=CoordinatorWord(State.ROLLED_BACK, WALL, "billing@10.0.0.7:51"))
ENDING = Ending("End", "ended", lambda broker, number: None)
HOUR_POLICY = Policy("rollback", 60 * MINUTE)


def printed(renderable, width):
    console = Console(width=width, markup=False, highlight=False, force_terminal=False)
    with console.capture() as captured:
        console.print(renderable)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    assert all(len(line) <= width for line in lines)
    return "\n".join(lines)


def message(topic="orders", partition=0, value=b"v", **named):
    return Message(
        topic, partition, 0, WALL, named.get("key"), value, tuple(named.get("headers", {}).items())
    )


def shown(info=PREPARED, messages=(), offsets=(), contents=(), runs=(), obstacle=""):
    return TransactionDetails(info, list(messages), list(offsets), list(contents), list(runs), obstacle)


def test_a_transaction_in_a_sentence_says_what_it_is_and_holds():
    assert summary(PREPARED) == (
        "Transaction 5-3 (xid 1:day-1:flights) of billing was prepared 1m ago "
        "and holds 2 messages (1.5 KiB) for orders, payments and offsets of g."
    )


def test_a_forced_outcome_is_always_told_as_one():
    assert "is committed (forced); it ended " in summary(FORCED)
    assert "forced by ann: ticket 7" in summary(FORCED)
    data = transaction_json(FORCED)
    assert (data["forced"], data["by"], data["why"], data["cause"]) == (True, "ann", "ticket 7", "operator")


@pytest.mark.parametrize(
    ("info", "said"),
    [
        (FORCED, "not been heard of"),
        (AGREED, "agrees"),
        (DAMAGED, "DAMAGE: its coordinator decided to roll back at 2026"),
    ],
)
def test_what_the_coordinator_says_to_it_is_told_everywhere(info, said):
    damaged = info is DAMAGED
    assert said in summary(info)
    for width in (80, 120, 200):
        assert ("DAMAGE" in printed(listing([info], ""), width)) is damaged
    full = printed(details(shown(info)), 120)
    assert ("decided to" in full) is (info is not FORCED)
    assert ("disagrees with this broker" in full) is damaged
    assert transaction_json(info)["damage"] is damaged


def test_what_a_coordinator_decided_is_in_the_json():
    assert transaction_json(FORCED)["coordinator"] is None
    assert transaction_json(DAMAGED)["coordinator"] == {
        "decided": "rolled-back", "at": WALL, "by": "billing@10.0.0.7:51", "by_principal": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "word", "sentence"),
    [
        (None, "nothing", "there is no orphan policy"),
        (HOUR_POLICY, "rollback in 1h", "rolls it back in 1h"),
        (Policy("commit", 0), "commit now", "commits it now"),
        (Policy("alert", 90 * MINUTE), "alert in 1h 30m", "says so in the log in 1h 30m"),
        (Policy("alert", 0, True), "nothing: alerted", "has given its alert"),
        (Policy("commit", 0, True, "staged/1 is gone."), "nothing: damaged", "cannot: staged/1 is gone."),
    ],
)
def test_what_happens_by_itself_is_said(policy, word, sentence):
    info = replace(PREPARED, policy=policy)
    assert next_text(info) == word
    assert sentence in next_sentence(info)
    for width in (80, 250):
        assert word in printed(listing([info], ""), width)


def test_an_active_one_is_said_to_end_by_itself():
    active = replace(PREPARED, state=State.ACTIVE, prepared_age=None, prepared=0)
    assert next_text(active) == "rollback at its time-out"
    assert "commit 5-3" not in printed(details(shown(active)), 120)
    assert "active, began 2m ago" in printed(listing([active], ""), 80)


@pytest.mark.parametrize(("width", "lines"), [(80, 4), (120, 3), (250, 3)])
def test_a_list_has_every_fact_at_any_width(width, lines):
    text = printed(listing([PREPARED], ""), width)
    holder, size, wide = ("billing", "10.0.0.7:51"), ("2", "1.5 KiB"), width == 250
    for fact in ("5-3", "1:day-1:flights", "1m", "2m", *holder, *size, "orders, payments", "g", "nothing"):
        assert fact in text
    assert len(text.splitlines()) == lines
    assert ("number" in text.splitlines()[0]) is wide, "a table where there is room for one"
    assert wide or all(line.startswith("  ") for line in text.splitlines()[1:])


def test_nothing_that_came_from_outside_steers_the_terminal():
    nasty = replace(PREPARED, owner="a\x1b[31m", topics=["t\x07"])
    for width in (80, 250):
        assert not {"\x1b", "\x07"} & set(printed(listing([nasty], ""), width))
    assert "\x1b" not in summary(nasty)
    assert "\x1b" not in printed(details(shown(nasty, [message(value=b"\x1b[2J")], obstacle="\x1b")), 120)


def test_details_tell_what_it_holds_its_history_and_the_commands_to_end_it():
    content = [PartContent("orders", 0, 1, 100), PartContent("payments", 1, 1, 50)]
    full = shown(PREPARED, [message(key=b"42")], [GroupMove("g", "orders", 0, 7)], content)
    text = printed(details(full), 120)
    for said in (
        "payments           1          1   50 B",
        "moves to offset",
        "2026-01-01T12:00:00.000Z  began, by billing from 10.0.0.7:51",
        "2026-01-01T12:01:00.000Z  prepared (1m ago",
        'txbroker transactions commit 5-3 --why "..."',
        'txbroker transactions rollback 5-3 --why "..."',
        "These are 1 of 2 messages",
    ):
        assert said in text
    assert "forget" not in text


def test_details_of_a_committed_one_tell_where_its_messages_are():
    text = printed(details(shown(FORCED, runs=[Run("orders", 2, 17, 1)])), 120)
    assert "orders           2            17          1" in text
    assert 'forget 5-3 --why "..."' in text
    assert "These are" not in text


def test_details_of_one_whose_messages_are_damaged_say_so_and_still_tell_the_rest():
    text = printed(details(shown(PREPARED, obstacle="staged/5-3.staged: the 9 bytes at 0 are not")), 120)
    assert "cannot be read: staged/5-3.staged" in text
    assert "rollback 5-3" in text


def test_a_preview_has_something_of_every_partition_and_is_bounded():
    many = [message("a", 0, b"%d" % n) for n in range(50)] + [
        message("b", 3, b"last" * 40, headers={"h": b""})
    ]
    content = shown_json(shown(replace(PREPARED, messages=51), many))["content"]
    assert len(content) == 20
    assert [each["value"] for each in content[:3]] == ["0", "1", "2"]
    assert (content[-1]["topic"], content[-1]["partition"], content[-1]["headers"]) == ("b", 3, 1)
    text = printed(details(shown(PREPARED, many)), 80)
    assert "lastlast" in text
    assert "…" in text


def test_totals_count_everything_and_tell_the_oldest():
    assert totals([PREPARED, replace(PREPARED, prepared_age=90 * MINUTE)]) == (
        "2 transactions, 4 messages (3.0 KiB), the oldest 1h 30m"
    )


@pytest.mark.parametrize(
    ("choice", "passes"),
    [
        (Choice(), True),
        (Choice(older_than=MINUTE - 1), True),
        (Choice(older_than=MINUTE), False),
        (Choice(topic="payments"), True),
        (Choice(topic="pay"), False),
        (Choice(owner="billing"), True),
        (Choice(owner="10.0.0.7:51"), True),
        (Choice(owner="bill"), False),
        (Choice(principal="anonymous"), True),
        (Choice(principal="ops"), False),
        (Choice(older_than=0, topic="orders", owner="nobody"), False),
    ],
)
def test_filters_choose_by_age_topic_and_owner(choice, passes):
    assert choice.passes(PREPARED) is passes


def test_a_choice_is_one_only_if_a_filter_was_given():
    assert not Choice()
    assert all((Choice(older_than=0), Choice(topic=""), Choice(owner=""), Choice(xid=XidPrefix(None, b""))))


@pytest.mark.parametrize(
    "arguments",
    [
        ["commit", "5-3", "--yes"],
        ["rollback", "5-3", "--yes"],
        ["forget", "5-3", "--yes"],
        ["rollback", "--why", "x", "--yes"],
        ["rollback", "5-3", "--owner", "a", "--why", "x", "--yes"],
        ["rollback", "5-3", "--execute", "--why", "x", "--yes"],
        ["rollback", "--xid", "day-", "--why", "x"],
        ["rollback", "--older-than", "2", "--why", "x"],
        ["list", "--in-doubt", "--state", "prepared"],
        ["list", "--forced", "--damaged"],
        ["list", "--limit", "0"],
        ["show", "nonsense"],
    ],
)
def test_what_is_incomplete_or_contradicts_itself_is_refused_before_anything_is_sent(arguments):
    result = CliRunner().invoke(command_line, ["--broker", "tcp:127.0.0.1:1", "transactions", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")


def results(*codes):
    return [Result(PREPARED, "as told", code) for code in codes]


@pytest.mark.parametrize(
    ("codes", "exit_code"),
    [
        ((Exit.REFUSED, Exit.CORRUPT), Exit.CORRUPT),
        ((Exit.NO, Exit.REFUSED), Exit.REFUSED),
        ((Exit.OK, Exit.NO), Exit.NO),
        ((Exit.CORRUPT, Exit.UNREACHABLE), Exit.UNREACHABLE),
        ((Exit.REFUSED, Exit.UNREACHABLE, Exit.UNKNOWN), Exit.UNKNOWN),
        ((Exit.OK, Exit.UNKNOWN, Exit.INTERRUPTED), Exit.INTERRUPTED),
    ],
)
def test_of_several_failures_the_exit_code_is_that_of_the_one_to_be_looked_at_first(codes, exit_code):
    with pytest.raises(Failure) as failed:
        report(Invocation(as_json=True), ENDING, results(*codes))
    assert failed.value.exit_code == exit_code


def test_success_of_all_and_nothing_to_do_are_no_failures(capsys):
    report(Invocation(), ENDING, results(Exit.OK))
    report(Invocation(), ENDING, [])
    assert "There was nothing to do." in capsys.readouterr().out


def test_an_interrupted_one_is_not_called_undone_and_the_others_are_not_tried(capsys):
    done = []

    def act(broker, number):
        if done:
            raise KeyboardInterrupt
        done.append(number)

    many = [replace(PREPARED, serial=serial) for serial in (1, 2, 3)]
    found = end_all(None, Ending("End", "ended", act), many)
    assert [result.code for result in found] == [Exit.OK, Exit.INTERRUPTED, Exit.OK]
    assert [found[0].text, found[1].text[16:30], found[2].text] == ["ended", "may or may not", NOT_TRIED]
    with pytest.raises(Failure, match="1 of 3 transactions ended, 1 not, 1 not tried"):
        report(Invocation(), Ending("End", "ended", act), found)
    assert "not tried" in capsys.readouterr().out


def test_of_very_many_only_the_failures_are_told_one_by_one(capsys):
    with pytest.raises(Failure, match="30 of 31 transactions ended, 1 not"):
        report(Invocation(), ENDING, results(*[Exit.OK] * 30, Exit.REFUSED))
    assert capsys.readouterr().out.count("as told") == 1


def test_a_question_names_some_and_counts_the_rest():
    asked = question(ENDING, [PREPARED] * 50)
    assert asked.count("Transaction 5-3") == NAMED
    assert f"... and {50 - NAMED} more" in asked
    assert asked.endswith("End these 50 transactions, 100 messages (75.0 KiB), the oldest 1m?")
    assert question(ENDING, [PREPARED]).endswith("\nEnd it?")


def test_a_principal_is_shown_where_it_says_something():
    told = CoordinatorWord(State.COMMITTED, 0, "c", "d")
    known = replace(FORCED, principal="billing-app", by_principal="ops", told=told)
    plain = replace(FORCED, principal="anonymous", by_principal="anonymous")
    assert (owner_text(known), by_text(known), by_text(known.told)) == (
        "billing (billing-app)",
        "ann (ops)",
        "c (d)",
    )
    assert (owner_text(plain), by_text(plain)) == ("billing", "ann")
    data = transaction_json(known)
    assert (data["principal"], data["by_principal"]) == ("billing-app", "ops")
    assert data["coordinator"]["by_principal"] == "d"
