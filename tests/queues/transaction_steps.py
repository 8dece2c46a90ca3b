"""What clients do with transactions in a history of queues."""

from __future__ import annotations

from random import Random
from typing import Any

from crc32c import crc32c

from journal.records.group_entries import GroupPositions
from journal.records.queue_entries import QUEUE_GROUP
from tests.queues.choices import client_of, framed, settled, some_address, some_held, some_messages
from tests.queues.message_steps import sync_lengths
from tests.queues.model import message_model, transaction_model
from tests.queues.model.queue_model import Place
from tests.queues.notes import Draft
from tests.queues.queue_room import Client, messages, xid_of
from tests.queues.queue_world import World


def _draft(world: World, random: Random, client: Client) -> Draft:
    """Return a transaction that has begun, or a new one."""
    drafts = world.notes.drafts.setdefault(client.name, [])
    if drafts and random.random() < 0.6:
        return random.choice(drafts)
    client.serial += 1
    drafts.append(Draft(client.serial))
    return drafts[-1]


def _ended(world: World, client: Client, draft: Draft) -> None:
    drafts = world.notes.drafts.get(client.name, [])
    if draft in drafts:
        drafts.remove(draft)


def add(world: World, random: Random) -> None:
    client = client_of(world, random)
    draft = _draft(world, random, client) if client else None
    if client is None or draft is None or _is_over(world, client, draft):
        return
    if random.random() < 0.6 or not (held := some_held(world, random, client)):
        address, several = some_address(world, random), some_messages(world, random)
        data = framed(several)
        answer = transaction_model.add(world.model, client.name, draft.serial, (address, several), world.now)
        draft.checksum, draft.count = crc32c(data, draft.checksum), draft.count + len(several)
        world.ask(client, answer, messages.Add, draft.serial, address, data=data)
    else:
        partition, offsets = held
        places = message_model.places(partition, offsets)
        answer = transaction_model.add_acknowledged(world.model, client.name, draft.serial, places)
        said = [settled(partition, offsets, [])]
        world.ask(client, answer, messages.AddOffsets, draft.serial, QUEUE_GROUP, [], settled=said)
    draft.requests += 1
    draft.is_refused = draft.is_refused or answer is not None


def _is_over(world: World, client: Client, draft: Draft) -> bool:
    """Whether one that was refused is to be ended only; serials count up, too: a later one may have begun since."""
    last = world.model.last_serials.get(client.name, 0)
    return draft.is_refused or (not draft.requests and last >= draft.serial)


def _contents(world: World, random: Random, client: Client) -> tuple[list[Any], list[Place]]:
    """Return what a deciding request carries."""
    runs: list[Any] = []
    places: list[Place] = []
    for _ in range(random.choice((0, 1, 1, 2))):
        runs.append((some_address(world, random), some_messages(world, random)))
    if random.random() < 0.6 and (held := some_held(world, random, client)):
        places = message_model.places(*held)
    return runs, places


def _carried(runs: list[Any], places: list[Place]) -> dict[str, Any]:
    pieces = [framed(several) for _, several in runs]
    found: dict[str, Any] = {"data": b"".join(pieces)}
    if runs:
        found["runs"] = [(address, len(piece)) for (address, _), piece in zip(runs, pieces, strict=True)]
    if places:
        said = [settled(places[0][0], [offset for _, offset in places], [])]
        found["positions"] = [GroupPositions(QUEUE_GROUP, b"", [], said)]
    return found


def end_own(world: World, random: Random) -> None:
    """Prepare a transaction, commit it in one phase, or roll it back."""
    client = client_of(world, random)
    if client is None:
        return
    draft = _draft(world, random, client)
    if not draft.is_refused and not draft.requests and _is_over(world, client, draft):
        _ended(world, client, draft)
        return
    _ended(world, client, draft)
    if draft.is_refused or random.random() < 0.15:
        answer = transaction_model.roll_back(world.model, client.name, draft.serial)
        world.ask(client, answer, messages.Rollback, 0, draft.serial)
        return
    runs, places = _contents(world, random, client)
    carried = _carried(runs, places)
    totals = draft.totals if draft.requests or not (runs or places) else None
    if random.random() < 0.5:
        name = f"x{len(world.notes.xids)}"
        world.notes.xids.append(name)
        answer = transaction_model.prepare(
            world.model, client.name, draft.serial, name, runs, places, world.now
        )
        world.ask(client, answer, messages.Prepare, draft.serial, xid_of(name), totals, **carried)
        if answer[0] == "Done" and random.random() < 0.1:
            world.count("prepares again")
            world.ask(client, answer, messages.Prepare, draft.serial, xid_of(name), totals, **carried)
        if random.random() < 0.2:
            decide(world, random, name)
    else:
        world.let_looks_be_made()
        answer = transaction_model.commit(world.model, client.name, draft.serial, runs, places, world.now)
        world.ask(client, answer, messages.Commit, 0, draft.serial, None, totals, **carried)
        if answer[0] == "Committed" and random.random() < 0.1:
            world.count("commits again")
            world.ask(client, answer, messages.Commit, 0, draft.serial, None, totals, **carried)


def decide(world: World, random: Random, name: str = "") -> None:
    """The second phase of a prepared transaction; seldom once more."""
    client = client_of(world, random)
    known = list(world.model.prepared)
    if not name and known and random.random() < 0.9:
        name = random.choice(known)
    elif not name and world.model.outcomes:
        name = random.choice(list(world.model.outcomes)[-3:])
    if client is None or (name not in world.model.prepared and name not in world.model.outcomes):
        return
    is_commit = random.random() < 0.5
    world.let_looks_be_made()
    if not is_commit:
        sync_lengths(world)
    answer = transaction_model.decide(world.model, name, is_commit, world.now)
    world.ask(client, answer, messages.Commit if is_commit else messages.Rollback, xid=xid_of(name))
    if not is_commit:
        sync_lengths(world)
