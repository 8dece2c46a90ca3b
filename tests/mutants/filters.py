"""Faults in the filters of groups, each of which its tests must find."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants import Mutant

_FILTER, _FRAME = "journal/log/tag_filter.py", "journal/formats/frame.py"
_TABLES, _SEGMENTS = "journal/log/key_tables.py", "txbroker/broker/fetches/tagged_segments.py"
_FETCHES, _FILTERED = "txbroker/broker/fetches/fetches.py", "txbroker/broker/fetches/filtered_fetches.py"
_FILTERING, _POSITION = "txbroker/groups/tag_filtering.py", "txbroker/groups/group_position.py"
_SETTINGS, _GROUPS = "txbroker/groups/group_settings.py", "txbroker/broker/groups/consumer_groups.py"
_READING, _FOLD = "txbroker/groups/group_reading.py", "journal/folds/groups.py"

TESTS: Final = (
    "tests/broker/fetches/test_filtered_fetches.py",
    "tests/broker/fetches/test_filtered_finishing.py",
    "tests/broker/fetches/test_filtered_tables.py",
    "tests/groups/test_tags_of_groups.py",
    "tests/log/test_tag_filter.py",
    "tests/client/consumer/test_filter_histories.py",
)
"""What must find them."""

MUTANTS: Final = (
    # -- what is let through
    Mutant(
        "the bytes of a tag are a tag", _FILTER, "if any(name == TAG_HEADER and value in tags", "if any(True"
    ),
    Mutant("any header is a tag", _FILTER, "name == TAG_HEADER and value in tags", "value in tags"),
    Mutant("what has attempts is left out", _FILTER, "return offset in self._wanted.kept", "return False"),
    Mutant("nothing is let through for what is kept", _FILTER, "bool(self._wanted.kept) or self", "self"),
    Mutant(
        "compressed wrappers are not opened", _FILTER, "if may_match or flag & COMPRESSION:", "if may_match:"
    ),
    Mutant(
        "a wrapper that cannot be opened is left out",
        _FILTER,
        "return list(range(first, first + count)), frame",
        'return [], b""',
    ),
    Mutant("messages below the offset match", _FILTER, "if offset >= self._offset and self", "if self"),
    Mutant("a batch is never taken apart", _FILTER, "if 2 * len(found) < count:", "if False:"),
    Mutant(
        "what was taken out has no offset",
        _FRAME,
        "crc32c(tail), offset, appended), tail))",
        "crc32c(tail), 0, appended), tail))",
    ),
    Mutant("until is no bound", _FILTER, "first >= self._wanted.until and", "False and"),
    Mutant("an answer has no bound", _FILTER, "(found and is_too_large)", "False"),
    Mutant("what matches is unmatched", _FILTER, "unmatched.difference_update(self._matched)", "pass"),
    # -- reads that go from match to match
    Mutant("what a read has not brought is passed", _FILTER, "max(frames.end, read.until)", "frames.end"),
    Mutant("damage behind a match hides it", _FILTER, "if offset == self.begin:", "if True:"),
    Mutant("what is between is not unmatched", _FILTER, "unmatched.add_range(offset, read.begin)", "pass"),
    Mutant(
        "behind the last match nothing is known",
        _FILTER,
        "max(offset, self._end), unmatched), size",
        "offset, unmatched), size",
    ),
    Mutant(
        "only the first tag is looked up",
        _TABLES,
        "    for tag in tags:\n        found.update",
        "    for tag in list(tags)[:1]:\n        found.update",
    ),
    Mutant("what is kept is jumped over", _SEGMENTS, "sorted({*some, *kept})", "sorted(some)"),
    Mutant(
        "of many matches the rest is jumped over", _SEGMENTS, "0 if len(stops) == AT_ONCE else end", "end"
    ),
    Mutant(
        "any segment is read by its table",
        _SEGMENTS,
        "most = self.segment.frame_bytes // APART",
        "most = 1 << 30",
    ),
    Mutant(
        "a table is made for a rest",
        _SEGMENTS,
        "if 2 * (segment.end_offset - begin) <",
        "if 0 * (segment.end_offset - begin) >",
    ),
    Mutant(
        "on a full disk tables are made", _SEGMENTS, "self._makes = not engine.full", "self._makes = True"
    ),
    # -- the fetch
    Mutant("any offset is read", _FILTERED, "if position.offset > part.high_watermark:", "if False:"),
    Mutant("a negative until is none", _FILTERED, "until != 0 and until <= end", "0 < until <= end"),
    Mutant("what gets no further goes on", _FETCHES, "fetch.is_stuck = not goes_on", "pass"),
    Mutant(
        "it is answered empty at once",
        _FETCHES,
        "reading.found > 0 or reading.failed",
        "True or reading.failed",
    ),
    Mutant(
        "it is never answered empty in time",
        _FETCHES,
        "                self._start_timer(fetch)\n                fetch.is_stuck",
        "                fetch.is_stuck",
    ),
    Mutant("what was examined is examined again", _FETCHES, "fetch.examined.end(place, position.tags)", "0"),
    Mutant("nobody is told how far it is", _FILTERED, "examined.size >= IN_AN_ANSWER or", "False or"),
    Mutant("it goes on in any number of partitions", _FILTERED, " or len(examined.ends) >= MOST_PLACES", ""),
    Mutant(
        "what does not match is not finished",
        _FETCHES,
        "                self._filtered.finish(fetch, reading)\n",
        "                pass\n",
    ),
    Mutant("what does not match is not told", _POSITION, "            finished.update(passed)\n", ""),
    Mutant(
        "what is held is told as finished", _POSITION, "            passed.difference_update(waiting)\n", ""
    ),
    # -- what is finished
    Mutant(
        "a reader without a claim finishes",
        _FILTERING,
        "if not position.is_claimed or not self",
        "if not self",
    ),
    Mutant(
        "what has attempts is finished",
        _POSITION,
        "            found.difference_update(self.detailed(first, end))\n",
        "",
    ),
    Mutant("what is held is finished", _POSITION, "            found.difference_update(held.offsets)\n", ""),
    Mutant(
        "what is finished is the first position",
        _FILTERING,
        "        return not self._engine.busy and self._settled(position, OffsetSet())",
        "        return True",
    ),
    Mutant(
        "a filter that comes later moves the first position",
        _FILTERING,
        "is not None or position.generation > since",
        "is not None or True",
    ),
    Mutant(
        "a claim from before a start is younger than the filter",
        _FILTERING,
        "self._first_generation = groups.last_generation",
        "self._first_generation = 0",
    ),
    Mutant(
        "what is too far ahead is forgotten",
        _FILTERING,
        "end=max(place.end, end), kept=left, tried=tried",
        "end=max(place.end, end), kept=OffsetSet(), tried=tried",
    ),
    Mutant(
        "it is not finished before others are judged",
        _GROUPS,
        "            self.catch_up(name, [each.partition for each in settled])\n",
        "            pass\n",
    ),
    Mutant(
        "after a start nothing is examined again",
        _FILTERING,
        "            begin = first if at is None else min(at, first)",
        "            begin = first",
    ),
    Mutant("what is kept outlives its filter", _FILTERING, "if place.tags != position.tags:", "if False:"),
    Mutant(
        "a fetch goes on with another filter",
        "txbroker/broker/fetches/fetch_attempt.py",
        "if self.tags.get(place, tags) != tags:",
        "if False:",
    ),
    Mutant(
        "what is examined again is finished for another filter",
        _FILTERED,
        "if read.tags == position.tags:",
        "if True:",
    ),
    Mutant(
        "a later fetch is taken for the first",
        _FILTERING,
        "base = self._place(position).first if base is None",
        "base = position.offset if base is None",
    ),
    Mutant(
        "a fenced reader says where another begins",
        _FILTERING,
        "if position.generation != group.generation(position.partition):",
        "if False:",
    ),
    Mutant(
        "a reader that waits is not looked at",
        _READING,
        "if each.has_missing or each.lags:",
        "if each.has_missing:",
    ),
    # -- who may filter
    Mutant("a deleted group is remembered", _FILTERING, "if name in groups", "if True"),
    Mutant(
        "a group is forgotten while it is there",
        _FILTERING,
        "if name in groups",
        "if False",
    ),
    Mutant(
        "a group that is read gets a filter",
        _SETTINGS,
        'is_theirs = each == "tags" and is_in_use',
        "is_theirs = False",
    ),
    Mutant(
        "a group with members is new",
        _GROUPS,
        "group.positions or group.claims or self.count_members(name)",
        "group.positions or group.claims",
    ),
    Mutant("a group with claims is new", _GROUPS, "group.positions or group.claims or", "group.positions or"),
    Mutant("a group with positions is new", _GROUPS, "group.positions or group.claims or", "group.claims or"),
    Mutant("anything is a tag of a group", _SETTINGS, "    _check_tags(settings.tags)\n", ""),
    Mutant(
        "an answer does not wait for the filter",
        _FOLD,
        "        group.changed_lsn = self._lsn\n\n    def _deleted",
        "\n    def _deleted",
    ),
)
