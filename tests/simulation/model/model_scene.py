"""The scene of the model's tests: sends, transactions and reads, reported to the simulation's model."""

from tests.simulation.model.model import Intent


def send(model, *values, partition=1, stream="s", place=0):
    """A send that has been asked for."""
    model.tick()
    intent = Intent(f"send of {values}", stream, place)
    model.put_into(intent, partition, values)
    model.ask(intent)
    return intent


def begin(model, values, *asked, serial=1, session=1):
    """A transaction of which so much has been asked."""
    model.tick()
    intent = Intent(f"transaction {serial}", f"t{serial}", number=(session, serial))
    for partition, messages in values.items():
        model.put_into(intent, partition, messages)
    for what in asked:
        model.ask(intent, what)
    model.transactions[session, serial] = intent
    return intent


def read(model, *values, partition=1, offset=0, end=None, start=0, floor=None):
    """Somebody reads these, and asked just before."""
    floor = floor or model.seen.floor(model.now, [partition])
    model.tick()
    model.saw(partition, start, len(values) + offset if end is None else end, offset, list(values), floor)
