"""Fetches for groups with a filter by tags, for tests. A message is told by its number; its tag says what it is for."""

from journal.formats import frame
from journal.formats.offset_set_bytes import decode_offsets
from journal.message_headers import TAG_HEADER
from journal.records.group_entries import GroupSettings
from tests.broker.fetches.fetch_scene import SECOND, values
from tests.broker.fetches.group_scene import ID
from txbroker.wire import messages


def filter_by(room, *tags, group="g"):
    """Have a group read only messages with one of these tags."""
    settings = GroupSettings(tags=sorted(tags))
    done = room.peer().ask(messages.AlterGroup, group, settings, ["tags"], messages.Whether.ALWAYS, ID)
    assert isinstance(done, messages.Done), done


def tagged(number, *tags, size=0):
    """A frame with a message of these tags."""
    headers = [(TAG_HEADER, tag.encode()) for tag in tags]
    return frame.encode(b"%d" % number + bytes(size), 1, b"key", headers)


def send(room, partition, text, first=0, size=0):
    """Send a message for each letter: e is for eu, u for us, b for both, and - for nobody."""
    tags = {"e": ["eu"], "u": ["us"], "b": ["us", "eu"], "-": []}
    for number, letter in enumerate(text, first):
        data = tagged(number, *tags[letter], size=size)
        assert isinstance(room.peer().ask(messages.Send, partition, data=data), messages.Sent)


def tell(peer, partition, offset, generation=0, until=0, wait=SECOND, missing=None, group="g"):
    """Ask for what the group is to read; return the correlation."""
    reader = messages.Reader(group, 0, [generation], missing or [])
    return peer.tell(messages.Fetch, [(partition, offset, until)], 1 << 20, wait, 1, [reader])


def told(peer, asked, base):
    """What an answer says: its messages' numbers, the offset after them, and what is finished; None without one."""
    answer = peer.answer(asked)
    if answer is None:
        return None
    [part] = answer.partitions
    if part.error:
        return part.error
    numbers = [int(value.rstrip(b"\0")) for value in values(peer, answer)[part.partition]]
    return numbers, part.next_offset, str(decode_offsets(part.finished, base))


def fetch(room, partition, offset, generation=0, base=None, **choices):
    """Ask for it, and return what is answered."""
    peer = room.peer()
    asked = tell(peer, partition, offset, generation, **choices)
    room.engine.sync()
    return told(peer, asked, offset if base is None else base)


def position(room, partition, group="g"):
    """The offset below which the group has finished all."""
    return room.broker.groups.find(group).position(partition)


def finished(room, partition, group="g"):
    """What the group has finished above its position."""
    settlement = room.broker.groups.find(group).settlements.get(partition)
    return "" if settlement is None else str(settlement.finished)
