"""A drill from its directory to its verdict: the broker, the users, the administrator, kills, counts, and the judge."""

from __future__ import annotations

import json
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import txbroker
from journal import check
from journal.records.access_entries import Effect, TokenSubject
from journal.records.access_entries import User as UserRecord
from journal.vfs.filesystem import OSFilesystem
from tests.access_drill.acts import Act, Result
from tests.access_drill.administrator import Administrator, write_keys
from tests.access_drill.judge import Judge
from tests.access_drill.scene import AUDIENCE, ISSUER, LONG, PATIENCE, TOKEN_SECONDS, TOPICS, Scene
from tests.access_drill.users import users
from tests.simulation.model.access.rule_model import RuleKey
from tests.support.broker_process import ENVIRONMENT, SMALL_FILES
from tests.support.certificates import Folder
from txbroker.drill.broker.broker_process import BrokerFailed, BrokerProcess, free_port
from txbroker.drill.judgement.held import messages_of, partitions_of
from txbroker.errors import UserExists
from txbroker.wire.messages import Switch

COUNTED = 1.0
"""Seconds of load that are counted by the broker and here, while nothing is changed and nobody killed."""


class Verdict(NamedTuple):
    """What a drill has found. ``answers`` counts by act and result."""

    seed: int
    seconds: float
    kills: int
    stops: int
    counts: int
    changes: dict[str, int]
    answers: Counter[tuple[str, Result]]
    stored: int
    audited: int
    violations: list[str]


class Drill:
    """One drill; call :meth:`run` once. ``tell`` is called with what goes on."""

    def __init__(self, path: Path, seed: int, seconds: float, tell: Callable[[str], object]) -> None:
        self._seed, self._seconds, self._tell = seed, seconds, tell
        self._random = Random(seed)
        path.mkdir(parents=True, exist_ok=True)
        folder = Folder(path)
        self._scene = Scene(folder)
        self._scene.tls_port, self._http = free_port(), free_port()
        keys = path / "keys.json"
        write_keys(keys, dict([self._scene.signer]))
        self._audit = path / "audit.json"
        options = [
            "--listen", folder.endpoint("optional", self._scene.tls_port),
            "--set", f"token_issuers={ISSUER} {AUDIENCE} {keys}", "--set", f"audit={self._audit}",
            "--set", f"http=tcp:{self._http}:interface=127.0.0.1", "--set", SMALL_FILES,
        ]  # fmt: skip
        self._process = BrokerProcess(path / "data", path / "broker.log", options, environment=ENVIRONMENT)
        self._administrator = Administrator(self._scene, self._process, keys, seed)
        self._users = users(self._scene, seed)
        self._violations: list[str] = []
        self._kills = self._stops = self._counts = 0

    def run(self) -> Verdict:
        """Run it; nothing of it runs any more when this returns or raises."""
        began = time.monotonic()
        with self._process:
            try:
                self._open()
                self._load(began + self._seconds)
            except BrokerFailed as error:
                self._violations.append(str(error))
            finally:
                self._scene.over.set()
                self._administrator.stop()
                self._administrator.leave()
                for user in self._users:
                    user.join()
            stored, topics = self._examine()
        judge = Judge(self._scene.notes, self._administrator.timeline)
        self._violations += judge.judge(stored, topics)
        audited = self._audited()
        self._violations += self._of_failures()
        acts = Counter((act.what, act.result) for act in self._scene.notes.acts)
        return Verdict(
            self._seed, time.monotonic() - began, self._kills, self._stops, self._counts,
            self._administrator.counted, acts, sum(stored.values()), audited, self._violations,
        )  # fmt: skip

    def _open(self) -> None:
        """Make topics, users and rules; have everybody log in; start the load."""
        administrator = self._administrator
        probe = UserRecord("probe", None, [], [TokenSubject(ISSUER, "probe")])
        administrator.ask(lambda broker: broker.add_user(probe), (UserExists,))
        for topic in TOPICS:
            administrator.ask(lambda broker, name=topic: broker.create_topic(name, exist_ok=True))  # type: ignore[misc]
        administrator.begin()
        boss = UserRecord("boss", None, ["DNS:boss.example"])
        administrator.ask(lambda broker: broker.add_user(boss), (UserExists,))
        administrator.rule(RuleKey("boss", False, "broker", "", False), "administer")
        administrator.ask(lambda broker: broker.switch_access(Switch.ENABLE))
        for user in self._users:
            user.start()
        administrator.start()

    # -- the load -----------------------------------------------------------------------------------

    def _load(self, end: float) -> None:
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 1 + self._random.random() * 3))
            if self._process.exit_code is not None:
                raise self._process.failed("the broker has ended by itself")
            kind = self._random.random()
            if kind < 0.25:
                self._count()
            elif kind < 0.4:
                self._stops += 1
                self._tell("the broker is stopped")
                self._process.stop()
                self._process.start()
            else:
                self._kills += 1
                self._tell("the broker is killed")
                self._process.kill()
                self._process.start()
        self._count()
        self._administrator.see_certificate()

    def _count(self) -> None:
        """Have the broker count a second of load in which nothing changes, and compare what it says."""
        scene = self._scene
        with self._administrator.at_rest:
            scene.token_seconds = LONG
            before, shown, first = self._counters(), scene.credentials, len(scene.notes.acts)
            time.sleep(COUNTED)
            after, acts = self._counters(), scene.notes.acts[first:]
            scene.token_seconds = TOKEN_SECONDS
            expected = _expected(acts, scene.credentials - shown)
        self._counts += 1
        for act in acts:
            if act.result is Result.UNKNOWN:
                self._violations.append(
                    f"while nothing happened, {act.who} got no answer to {act.what}: {act.error}"
                )
        for name, number in expected.items():
            counted = int(after[name] - before[name])
            if counted != number:
                self._violations.append(f"{name} grew by {counted}, and the load counted {number}")
        self._tell(f"counted {len(acts)} acts")

    def _counters(self) -> dict[str, float]:
        """Return the metrics of a moment at which all users have left."""
        with self._scene.gate.shut():
            for user in self._users:
                user.leave()
            deadline = time.monotonic() + PATIENCE
            while (
                True
            ):  # a refusal that is held back is counted when it is told, though nobody hears it any more
                time.sleep(0.1)
                found = self._metrics()
                if not found["txbroker_strangers"] or time.monotonic() > deadline:
                    return found

    def _metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._http}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        found = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(value) for name, _, value in found}

    # -- the end ------------------------------------------------------------------------------------

    def _examine(self) -> tuple[Counter[str], list[str]]:
        """Kill it a last time, end what is prepared as was chosen, and read everything back."""
        self._process.kill()
        self._process.start()
        chosen = {block.xid: block.commits for block in self._scene.notes.blocks}
        stored: Counter[str] = Counter()
        with txbroker.connect(self._administrator.url, client="examiner", timeout=20) as broker:
            for each in broker.transactions():
                if each.xid is not None and each.xid.global_id.decode() in chosen:
                    broker.end_prepared(each.xid, chosen[each.xid.global_id.decode()])
            parts = partitions_of(broker)
            for (topic, index), part in parts.items():
                if topic in TOPICS:
                    stored.update(
                        message.value.decode()
                        for message in messages_of(broker, topic, index, 0, part.high_watermark)
                    )
            self._compare(broker)
            topics = [topic.name for topic in broker.topics()]
        self._process.stop()
        for finding in check.verify(OSFilesystem(self._process.data_dir)):
            if not finding.harmless:
                self._violations.append(f"{finding.path} at {finding.position}: {finding.problem}")
        return stored, topics

    def _compare(self, broker: txbroker.Connection) -> None:
        """Compare users and rules with what was confirmed."""
        last = self._administrator.timeline.last
        rules = {
            RuleKey(
                each.holder, each.effect is Effect.DENY, each.resource.value, each.pattern, each.is_prefix
            ): frozenset(right.value for right in each.rights)
            for each in broker.rules().rules
        }
        if rules != last.rules:
            differing = {key for key in {*rules, *last.rules} if rules.get(key) != last.rules.get(key)}
            self._violations.append(
                f"the broker's rules are not those that were confirmed, as to {differing}"
            )
        names = {each.name for each in broker.users()} - {"probe", "boss"}
        if names != set(last.accounts):
            self._violations.append(
                f"the broker has the users {names}, and {set(last.accounts)} were confirmed"
            )

    def _audited(self) -> int:
        """Return how many lines of records the audit has, each once."""
        lines = [json.loads(line) for line in self._audit.read_text().splitlines()]
        told = Counter(line["lsn"] for line in lines if "lsn" in line)
        self._violations += [
            f"the audit tells LSN {lsn} {times} times" for lsn, times in told.items() if times > 1
        ]
        changes = sum(line["what"] == "rule.set" for line in lines)
        confirmed = self._administrator.rules_changed
        if changes < confirmed:
            self._violations.append(
                f"the audit has {changes} changes of rules, and {confirmed} were confirmed"
            )
        return len(told)

    def _of_failures(self) -> Iterator[str]:
        for thread in (self._administrator, *self._users):
            if thread.failure is not None:
                yield f"{thread.name} has failed: {thread.failure!r}"


def _expected(acts: list[Act], credentials: int) -> dict[str, int]:
    """Return how much the broker's counters grow by these acts, if so often something was shown to log in."""
    results = Counter(act.result for act in acts)
    wrong = sum(act.what == "log in wrongly" for act in acts)
    return {
        "txbroker_messages_received_total": sum(
            act.what in ("send", "open producer") and act.result is Result.DONE for act in acts
        ),
        "txbroker_access_denied_total": results[Result.DENIED],
        "txbroker_logins_total": credentials + wrong - results[Result.OUT],
        "txbroker_logins_refused_total": results[Result.OUT],
    }
