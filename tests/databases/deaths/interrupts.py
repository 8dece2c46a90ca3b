"""Exceptions raised at the lines of ``txbroker.databases``, as :mod:`tests.client.test_interrupts` raises them."""

import os
import sys
from pathlib import Path

import txbroker
from tests.client import test_interrupts as client

DATABASES = str(Path(txbroker.__file__).parent / "databases") + os.sep


class Harsh(BaseException):
    """What Ctrl-C is: no Exception."""


class AtLine(client.AtLine):
    """Raises at the so-manieth line of ``txbroker.databases``; exceptions of two kinds, in turn."""

    def __init__(self, line: int, odd: int = 1, after: int = 0) -> None:
        super().__init__(line)
        self.kind = client.Interrupt if line % 2 == odd else Harsh
        self.after = after
        """Lines from the first to a second exception; 0 for none."""

    def _trace(self, frame, what, argument):
        if not frame.f_code.co_filename.startswith(DATABASES):
            return None
        if what in client.POINTS and self.left and not self._is_passed_over(frame):
            self.left -= 1
            if not self.left:
                self.raised += f" {frame.f_code.co_filename.rpartition('txbroker/')[2]}:{frame.f_lineno}"
                self.left, self.after = self.after, 0
                if not self.left:
                    sys.settrace(None)
                raise self.kind(self.raised)
        return self._trace

    def __exit__(self, kind, error, trace):
        sys.settrace(self._before)
        return bool(self.raised) and kind is not None
