"""An embedded transactional log: what txbroker stands on, usable without it.

``journal.open(path)`` opens a directory; see :class:`journal.embedded.Log`. Imports no Twisted.
"""

from journal.embedded import Log, open_log

open = open_log

__all__ = ["Log", "open"]
