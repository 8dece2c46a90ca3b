"""Big-endian integers of 32 bits at a place of some bytes.

The functions are also in ``octets.pxd``, in C, for the modules that are compiled (``journal/compiled.py``). Such a
module calls them by this module's name: that is a call in C there, and here costs as much as a global.
"""

from __future__ import annotations

from struct import Struct

_ONE = Struct(">I")
_TWO = Struct(">II")

unpack_u32 = _ONE.unpack_from
"""Returns a tuple of the one integer at a place."""
unpack_two_u32 = _TWO.unpack_from
"""Returns the two integers at a place."""
pack_u32 = _ONE.pack
"""Returns the bytes of an integer."""
pack_two_u32 = _TWO.pack
"""Returns the bytes of two integers."""
