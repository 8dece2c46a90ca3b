"""The administrator: over ``admin.sock`` it changes users, rules, certificates and keys, one after another."""

from __future__ import annotations

import json
import os
import signal
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random

from jwt.algorithms import ECAlgorithm

import txbroker
from journal.errors import OutcomeUnknown, StorageUnavailable, TxBrokerError
from journal.records.access_entries import Effect, Quotas, Resource, Right, Rule, TokenSubject
from journal.records.access_entries import User as UserRecord
from tests.access_drill.rules_model import Account, Standing
from tests.access_drill.scene import ISSUER, ROLES, WAYS, Scene, certificate_name, token_of
from tests.access_drill.timeline import Timeline
from tests.simulation.model.access.rule_model import RuleKey
from tests.support.certificates import Signed
from txbroker.client.login.verifier import verifier_of
from txbroker.drill.broker.broker_process import BrokerProcess
from txbroker.errors import ConnectionClosed, UnknownUser, UserExists

ITERATIONS = 4096
FIRST, SELDOM = 0.4, 0.2
"""Shares of the rights that are given at the beginning, and of denials that are made when one might be."""
GAP = 0.08
"""Seconds between two changes, at most."""
WITHIN = 60.0
"""Seconds in which a change must have counted: the broker may be killed meanwhile, and start again."""

_EVERY = ("role:reds", "role:blues", *WAYS)


def _wishes() -> list[tuple[RuleKey, str]]:
    """Return the rights that are given and taken away all the time, each of some rule."""
    found = []
    for holder in _EVERY:
        for color in ("red-", "blue-"):
            found += [
                (RuleKey(holder, False, "topic", color, True), right) for right in ("read", "write", "write")
            ]
            found += [
                (RuleKey(holder, False, "topic", f"{color}1", False), right) for right in ("write", "alter")
            ]
            made = RuleKey(holder, False, "topic", f"{color}made-", True)
            found += [(made, "create"), (made, "delete")]
            found.append((RuleKey(holder, False, "group", color, True), "read"))
            found.append((RuleKey(holder, False, "producer", color, True), "write"))
            kinds = ("prepare", "prepare", "decide", "describe")
            found += [(RuleKey(holder, False, "transaction", color, True), right) for right in kinds]
            found.append((RuleKey(holder, True, "transaction", f"{color}pat-1", True), "describe"))
            found.append((RuleKey(holder, True, "topic", f"{color}0", False), "write"))
        found.append((RuleKey(holder, True, "topic", "", True), "read"))
        found.append((RuleKey(holder, False, "transaction", "owner:pat", False), "decide"))
        found.append((RuleKey(holder, False, "transaction", "", True), "describe"))
        found += [
            (RuleKey(holder, False, "broker", "", False), right) for right in ("describe", "administer")
        ]
    return found


WISHES = _wishes()


class Administrator(threading.Thread):
    """Changes one thing after another, until ``stop``. ``counted`` says how often each kind of change was made."""

    def __init__(self, scene: Scene, process: BrokerProcess, keys_file: Path, seed: int) -> None:
        super().__init__(name="administrator", daemon=True)
        self._scene, self._process, self._keys_file = scene, process, keys_file
        self._random = Random(f"{seed}/administrator")
        self._numbers = count(1)
        self._stopping = threading.Event()
        self.at_rest = threading.Lock()
        """Whoever holds it has nothing changed meanwhile."""
        self.failure: BaseException | None = None
        self.rules_changed = 0
        self.counted: dict[str, int] = dict.fromkeys(CHANGES, 0)
        self.url = f"unix:{process.data_dir}/admin.sock"
        self._connection: txbroker.Connection | None = None
        accounts = {who: Account(frozenset({self._way(who)}), frozenset({ROLES[who]})) for who in WAYS}
        self.timeline = Timeline(Standing({}, {}, frozenset({scene.signer[0]})), scene.clock)
        self._first_accounts = accounts

    def _way(self, who: str) -> tuple[str, str]:
        match WAYS[who]:
            case "password":
                return "password", self._scene.passwords[who]
            case "certificate":
                return "certificate", certificate_name(who)
            case _:
                return "token", who

    def run(self) -> None:
        """Change something, again and again."""
        try:
            while not self._stopping.wait(self._random.random() * GAP):
                with self.at_rest:
                    name = self._random.choices(list(CHANGES), [weight for weight, _ in CHANGES.values()])[0]
                    CHANGES[name][1](self)
                    self.counted[name] += 1
        except Exception as error:  # noqa: BLE001 (it is told in the verdict)
            self.failure = error

    def stop(self) -> None:
        """Have it end what it is at."""
        self._stopping.set()
        self.join()

    # -- how a change is made -----------------------------------------------------------------------

    def ask(self, work: Callable[[txbroker.Connection], object], repeated: tuple[type, ...] = ()) -> None:
        """Ask the broker until it has answered. An error of ``repeated`` says that an earlier try has done it."""
        deadline, tries = time.monotonic() + WITHIN, 0
        while True:
            tries += 1
            try:
                if self._connection is None:
                    self._connection = txbroker.connect(self.url, client="administrator", timeout=5)
                work(self._connection)
                return
            except (OutcomeUnknown, StorageUnavailable, ConnectionClosed):
                self.leave()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            except repeated:
                if tries == 1:
                    raise
                return

    def leave(self) -> None:
        """Give up the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(TxBrokerError):
                connection.close(0.2)

    def _change(
        self,
        standing: Standing,
        work: Callable[[txbroker.Connection], object],
        repeated: tuple[type, ...] = (),
    ) -> None:
        self.timeline.begin(standing)
        self.ask(work, repeated)
        self.timeline.settle()

    def begin(self) -> None:
        """Make all users and the first rules; everybody has to log in from then on."""
        for who, account in self._first_accounts.items():
            self._set(who, account, new=True)
        for key, right in WISHES:
            if not key.denies and self._random.random() < FIRST:
                self.rule(key, right)

    # -- users --------------------------------------------------------------------------------------

    def _set(self, who: str, account: Account, new: bool = False, names: tuple[str, ...] = ()) -> None:
        """Make or change a user, in these fields."""
        of = {kind: [text for each, text in sorted(account.ways) if each == kind] for kind, _ in account.ways}
        scram = verifier_of(of["password"][0], ITERATIONS) if "password" in of else None
        tokens = [TokenSubject(ISSUER, subject) for subject in of.get("token", ())]
        quotas = Quotas(prepared=account.prepared)
        record = UserRecord(who, scram, of.get("certificate", []), tokens, sorted(account.roles), quotas)
        standing = self.timeline.last.with_account(who, account)
        if new:
            self._change(standing, lambda broker: broker.add_user(record), (UserExists,))
        else:
            self._change(standing, lambda broker: broker.alter_user(record, names))

    def _anybody(self) -> tuple[str, Account | None]:
        who = self._random.choice(list(WAYS))
        return who, self.timeline.last.accounts.get(who)

    def _remove_or_add(self) -> None:
        who, account = self._anybody()
        missing = [each for each in WAYS if each not in self.timeline.last.accounts]
        if missing and self._random.random() < 0.8:
            who, account = missing[0], None
        if account is None:
            if WAYS[who] == "password":
                self._scene.passwords[who] = f"{who}-{next(self._numbers)}"
            roles = frozenset({ROLES[who]})
            self._set(who, Account(frozenset({self._way(who)}), roles), new=True)
        else:
            standing = self.timeline.last.with_account(who, None)
            self._change(standing, lambda broker: broker.remove_user(who), (UnknownUser,))

    def _new_password(self) -> None:
        who = self._random.choice(list(self._scene.passwords))
        account = self.timeline.last.accounts.get(who)
        if account is not None:
            text = f"{who}-{next(self._numbers)}"
            self._set(who, account._replace(ways=frozenset({("password", text)})), names=("scram",))
            self._scene.passwords[who] = text

    def _take_or_give_way(self) -> None:
        who, account = self._anybody()
        without = [each for each, known in self.timeline.last.accounts.items() if not known.ways]
        if without and self._random.random() < 0.8:
            who, account = without[0], self.timeline.last.accounts[without[0]]
        if account is None or WAYS[who] == "password":
            return
        ways = frozenset[tuple[str, str]]() if account.ways else frozenset({self._way(who)})
        self._set(who, account._replace(ways=ways), names=("certificates", "tokens"))

    def _role(self) -> None:
        who, account = self._anybody()
        if account is not None:
            roles = self._random.choice(({"reds"}, {"blues"}, {"reds", "blues"}, set[str](), {ROLES[who]}))
            self._set(who, account._replace(roles=frozenset(roles)), names=("roles",))

    def _quota(self) -> None:
        who, account = self._anybody()
        if account is not None:
            self._set(who, account._replace(prepared=self._random.choice((None, 0, 1, 2))), names=("quotas",))

    # -- rules --------------------------------------------------------------------------------------

    def rule(self, key: RuleKey, right: str, forget: bool = False) -> None:
        """Give a right by a rule, or take it away."""
        effect, resource = Effect.DENY if key.denies else Effect.ALLOW, Resource(key.resource)
        rule = Rule(key.holder, effect, resource, key.pattern, key.is_prefix, [Right(right)])
        standing = self.timeline.last.with_rights(key, [right], forget)
        self.rules_changed += standing.rules != self.timeline.last.rules
        self._change(standing, lambda broker: broker.forget_rule(rule) if forget else broker.allow(rule))

    def _toggle(self) -> None:
        key, right = self._random.choice(WISHES)
        has = right in self.timeline.last.rules.get(key, ())
        if key.denies and not has and self._random.random() > SELDOM:
            return  # or nobody could do anything before long
        self.rule(key, right, forget=has)

    # -- certificates, keys, sessions ---------------------------------------------------------------

    def _renew(self) -> None:
        """Renew the broker's certificate: with a signal, or by the files alone, which it looks at by itself."""
        with suppress(OSError):
            if self._is_seen():
                self._scene.folder.renewed()
                if self._random.random() < 0.5:
                    self._signal()

    def _is_seen(self) -> bool:
        """Whether the broker shows its newest certificate."""
        port, made = self._scene.tls_port, self._scene.folder.broker
        return ssl.get_server_certificate(("127.0.0.1", port), timeout=5) == made.pem.decode()

    def see_certificate(self) -> None:
        """Wait until the broker shows its newest certificate."""
        self._wait(self._is_seen)

    def _signal(self) -> None:
        """Send SIGHUP, unless the process has only just begun, and would end by it."""
        if self._process.output:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGHUP)

    def _wait(self, holds: Callable[[], bool]) -> None:
        """Wait until it is so, also over starts of the broker."""
        deadline = time.monotonic() + WITHIN
        while True:
            with suppress(OSError, TxBrokerError):
                if holds():
                    return
            if time.monotonic() > deadline:
                raise AssertionError(f"after {WITHIN} s the broker has not taken what it was told to")
            time.sleep(0.1)

    def _new_key(self) -> None:
        """Have tokens signed with another key: the broker takes both for a while, then the old one no more."""
        scene, old = self._scene, self._scene.signer
        name = f"key-{next(self._numbers)}"
        made = name, Signed(name)
        self._trust([old, made], made, True)
        scene.signer = made
        self._trust([made], old, False)

    def _trust(self, signers: list[tuple[str, Signed]], probe: tuple[str, Signed], trusted: bool) -> None:
        keys = frozenset(name for name, _ in signers)
        self.timeline.begin(self.timeline.last._replace(keys=keys))
        write_keys(self._keys_file, dict(signers))

        def holds() -> bool:
            self._signal()
            time.sleep(0.1)
            return self._is_trusted(probe) is trusted

        self._wait(holds)
        self.timeline.settle()

    def _is_trusted(self, key: tuple[str, Signed]) -> bool:
        """Return whether a token of that key would let in the user that is there for this."""
        token = token_of(key, "probe", 600)
        try:
            txbroker.connect(self._scene.address("probe"), token=token, client="probe", timeout=10).close(0.2)
        except txbroker.errors.AuthenticationFailed:
            return False
        return True

    def _close_session(self) -> None:
        def work(broker: txbroker.Connection) -> None:
            others = [each.session for each in broker.sessions() if each.principal in WAYS]
            if others:
                broker.close_session(self._random.choice(others))

        with suppress(txbroker.errors.UnknownSession):
            self.ask(work)


def write_keys(file: Path, signers: Mapping[str, Signed]) -> None:
    """Replace the file of the keys that tokens are checked with, by their names."""
    new = file.with_suffix(".new")
    keys = [
        ECAlgorithm.to_jwk(each.key.public_key(), as_dict=True) | {"kid": name}
        for name, each in signers.items()
    ]
    new.write_text(json.dumps({"keys": keys}))
    new.replace(file)


CHANGES: dict[str, tuple[int, Callable[[Administrator], object]]] = {
    "rule": (20, Administrator._toggle),
    "user removed or made": (3, Administrator._remove_or_add),
    "password": (2, Administrator._new_password),
    "certificate or token": (2, Administrator._take_or_give_way),
    "roles": (2, Administrator._role),
    "quota": (2, Administrator._quota),
    "broker's certificate": (1, Administrator._renew),
    "keys of tokens": (1, Administrator._new_key),
    "session closed": (1, Administrator._close_session),
}
"""What is changed, each with its weight."""
