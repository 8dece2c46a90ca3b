"""The kinds of findings: what each means, and what to do about it; and how its place is written."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from spark.audit.report.plots import moment


class Kind(NamedTuple):
    """A kind of finding, as it is described."""

    means: str
    then: str


_COPY: Final = "Keep the directory as it is, and mend it from a copy or a replica"
_REPAIR: Final = (
    "'txbroker verify DIR' says what else is damaged, 'txbroker repair DIR' what could be done and lost"
)

KINDS: Final = {
    "damaged frame": Kind(
        "Bytes of a log are not what was written there: a checksum, a length or an offset is wrong.",
        f"{_COPY}; the disk may be failing. {_REPAIR}.",
    ),
    "time": Kind(
        "Messages have times before 1971, or more than a day after the checkpoint. The broker takes them as they are.",
        "Nothing if they are meant so. Else look at the clock and the units of who has sent them: times are µs since "
        "1970 UTC.",
    ),
    "twice": Kind(
        "Two transactions or sends both claim the same messages.",
        "One of the two records is not what the broker wrote. Compare with 'view=transactions', and with a copy.",
    ),
    "undecided": Kind(
        "Messages are in a log that no send and no transaction has put there, or that were never decided.",
        "Let readers know: they may have seen them. Find out who wrote to the files beside the broker.",
    ),
    "transaction": Kind(
        "A committed transaction is not in the logs as it was prepared: messages are missing, or others stand there.",
        f"{_COPY}. Its owner (table 'transactions', by number or xid) knows what it was; it is to be sent again only "
        "if it is nowhere in the log, under no other offset either.",
    ),
    "shifted": Kind(
        "Messages stand at other offsets than they were given, for some before them are missing or too many.",
        f"Do not send them again: they are there, byte for byte. {_COPY}. Positions of consumers in that log are off "
        "by as many, and what is missing before is reported by itself if it is known.",
    ),
    "decision": Kind(
        "A write of Spark was decided, and not all of its branches ended so; or one is committed without a decision.",
        "Compare the rows of that write with their source: those of a branch that was rolled back are missing, those "
        "of one that no decision lists may be there twice. 'txbroker transactions show' says who ended it.",
    ),
    "send": Kind(
        "A send that was acknowledged is not in its log as the journal has it.",
        f"The journal still holds what was sent: {_REPAIR[0].lower()}{_REPAIR[1:]}.",
    ),
    "rolled back": Kind(
        "Messages of a transaction that was rolled back are in a log, where readers see them.",
        "Tell who reads the topic. Ask the transaction's owner whether he has sent the same bytes once more.",
    ),
    "archive": Kind(
        "The outcome archive does not agree with the journal, or with itself.",
        f"{_COPY}. What it says of the transactions that are named here is not to be relied on.",
    ),
    "journal": Kind(
        "The journal is damaged, has gaps, or its records do not agree with each other.",
        f"Do not start a broker on it before you have a copy. {_REPAIR}.",
    ),
    "checkpoint": Kind(
        "A checkpoint is damaged, missing, or not what the journal's records lead to. No crash leaves it so.",
        f"Find out what has changed the file. {_REPAIR}.",
    ),
    "staged": Kind(
        "What an undecided transaction has staged is damaged, missing, or not what the journal says.",
        "That transaction cannot be committed any more as it was prepared. See to it before its owner decides.",
    ),
    "witness": Kind(
        "The witness, which remembers what the disk must hold, is damaged or gone.",
        f"Find out what has changed the file. {_REPAIR}.",
    ),
    "partition": Kind(
        "A file of a partition is damaged, missing, or not the one that belongs there.",
        f"If it is a notice: nothing: it is never read, or it is an index, which is made anew. Else: {_REPAIR}.",
    ),
    "torn": Kind(
        "Behind a log's end lie bytes that are no messages, as a crash leaves them.",
        "Nothing: a start of the broker cuts them off.",
    ),
    "taken": Kind(
        "Segments went away during the audit, by retention or with a deleted topic.",
        "Nothing, or audit a copy to have them looked at.",
    ),
    "not looked for": Kind(
        "There are more transactions that were not committed than the audit looks for.",
        "Nothing is known to be wrong. The newest were looked for.",
    ),
    "report": Kind(
        "Producers' reports are missing: their numbers have gaps.",
        "Ask the producer whether a report failed. Its windows cannot be compared without it.",
    ),
    "window: missing": Kind(
        "The log holds fewer messages than producers say they sent in that window.",
        "Find the producer in the text, and compare with its own records; --expect names the single messages.",
    ),
    "window: different": Kind(
        "The log holds as many messages as were reported for that window, of other bytes.",
        "Compare with what the producer has sent; --expect names the single messages.",
    ),
    "window: excess": Kind(
        "The log holds more messages than all producers say they sent in that window.",
        "Somebody sends without reporting, or twice: look for clients without reports= on this topic.",
    ),
    "window: unreported": Kind(
        "The log holds more than was reported so far, and a producer has not reported its last.",
        "Audit again when it has closed its connection.",
    ),
    "expect: missing": Kind(
        "Rows of the table have no message, or too few.", "They were not sent, or were lost: the text has the keys."
    ),
    "expect: twice": Kind(
        "Keys have more messages than the table has rows.",
        "They were sent more than once: send within transactions, or with an idempotent producer.",
    ),
    "expect: different": Kind(
        "Messages have other values than the rows of their keys.", "The text has both: compare with the source."
    ),
    "expect: unexpected": Kind(
        "Messages have keys that the table has not.",
        "A notice without --only: the table may be older than the log, or of a part of it.",
    ),
}  # fmt: skip

OTHER: Final = Kind(
    "A file of the data directory is not as it should be, or does not belong there.", f"{_REPAIR}."
)


def kind_of(finding: dict[str, Any]) -> Kind:
    """Return the description of a finding's kind."""
    return KINDS.get(finding["kind"], OTHER)


def log_of(finding: dict[str, Any]) -> str:
    """Return ``topic-partition``, or the topic; empty if the finding is of none."""
    return (
        f"{finding['topic']}-{finding['partition']}" if "partition" in finding else finding.get("topic", "")
    )


def span_of(finding: dict[str, Any]) -> str:
    """Return the offsets, inclusive; for a window, when it begins."""
    first, last = finding.get("first"), finding.get("last")
    if first is None:
        return ""
    if finding["kind"].startswith("window: "):
        return moment(first, 1)
    return f"{first:,}" if last in (None, first) else f"{first:,} to {last:,}"


def transaction_of(finding: dict[str, Any]) -> str:
    """Return the transaction's number as ``txbroker transactions`` shows it; empty without one."""
    return f"{finding['session']}-{finding['serial']}" if "session" in finding else ""


def by_kind(findings: list[dict[str, Any]]) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Return severity, kind and listed findings: violations first, then in the order of the table above."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for each in findings:
        found.setdefault((each["severity"], each["kind"]), []).append(each)
    order = {name: place for place, name in enumerate(KINDS)}
    keys = sorted(found, key=lambda key: (key[0] != "violation", order.get(key[1], len(order)), key[1]))
    return [(*key, found[key]) for key in keys]
