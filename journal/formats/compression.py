"""How batches are compressed, and how one is opened without trusting any of its bytes.

The payload of a compressed wrapper is the size of its uncompressed content, then that content, compressed::

    payload = size compressed
    size    = u32            ; bytes of the run of frames that comes out

The size is outside of the compressed bytes, so that every bound is checked before anything is opened, in the same
way for each codec. Zstandard: one frame (RFC 8878) that states its content's size and needs no dictionary. LZ4: one
block, without a frame around it. The packages are extras, loaded when they are needed; docs/file_format.md has an
example of each.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from struct import Struct
from typing import Any, Final, NamedTuple

from journal.constants import MAX_FRAME, MAX_OPENED_HEADS, MAX_REQUEST_DATA
from journal.errors import CompressionUnavailable, InvalidFrame, InvalidSetting

Buffer = bytes | bytearray | memoryview

SIZE = Struct(">I")
LEAST_BYTES: Final = 512
"""Smaller batches stay uncompressed: 4 µs at each end (zstd) would save 200 bytes at most."""
WORTH: Final = 8
"""A batch stays uncompressed if compression saves less than this part: readers would open it for nothing."""
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"


class Room(NamedTuple):
    """The uncompressed bytes that the rest of a request's compressed frames may have, and how many may be no values."""

    opened: int
    heads: int


WHOLE_ROOM: Final = Room(MAX_REQUEST_DATA, MAX_OPENED_HEADS)


def whole_room() -> list[Room]:
    """Return the bounds of compressed frames over several runs of one request, for
    :func:`journal.formats.frame_check.check_run`.
    """
    return [WHOLE_ROOM]


class Codec(NamedTuple):
    """A codec. ``number`` is its number in frames' flags, ``extra`` the extra to install for it.

    ``default`` is the level for None; ``least`` to ``most`` are the possible levels.
    """

    number: int
    name: str
    module: str
    default: int
    least: int
    most: int

    def load(self, what: str) -> Any:
        """Return the package; raises :class:`CompressionUnavailable`, whose text begins with ``what``, if it is not
        installed.
        """
        try:
            return importlib.import_module(self.module)
        except ImportError as error:
            raise CompressionUnavailable(
                f"{what}: the package for {self.name} is missing here ({error}). "
                f"Install it with: pip install 'txbroker[{self.name}]'"
            ) from error


ZSTD: Final = Codec(1, "zstd", "zstandard", 1, -7, 19)
LZ4: Final = Codec(2, "lz4", "lz4.block", 0, 0, 12)
CODECS: Final = {codec.number: codec for codec in (ZSTD, LZ4)}
NAMES: Final = {codec.name: codec for codec in CODECS.values()}


class Compressor:
    """Compresses runs of frames with one codec and level. For one thread at a time."""

    def __init__(self, codec: Codec, level: int, pack: Callable[[bytes], bytes]) -> None:
        self.number = codec.number
        self.name = codec.name
        self.level = level
        self._pack = pack

    def pack(self, run: bytes) -> bytes | None:
        """Return the payload of a compressed wrapper around ``run``; None if it would not save enough."""
        size = len(run)
        if size < LEAST_BYTES:
            return None
        packed = self._pack(run)
        return SIZE.pack(size) + packed if len(packed) + SIZE.size <= size - size // WORTH else None


def compressor(name: str | None, level: int | None = None) -> Compressor | None:
    """Return the compressor for a codec's name, or None for None.

    Raises :class:`InvalidSetting` for an unknown name or level, and :class:`CompressionUnavailable`.
    """
    if name is None:
        if level is not None:
            raise InvalidSetting(f"compression_level is {level!r} and compression None; nothing was opened")
        return None
    codec = NAMES.get(name)
    if codec is None:
        raise InvalidSetting(
            f"compression is {name!r}; {', '.join(map(repr, NAMES))} and None are known; nothing was opened"
        )
    chosen = codec.default if level is None else level
    if type(chosen) is not int or not codec.least <= chosen <= codec.most:
        raise InvalidSetting(
            f"compression_level is {level!r}, {name} has {codec.least} to {codec.most}; nothing was opened"
        )
    package = codec.load("nothing was opened")
    return Compressor(codec, chosen, _packer(codec, package, chosen))


def _packer(codec: Codec, package: Any, level: int) -> Callable[[bytes], bytes]:
    if codec is ZSTD:
        pack: Callable[[bytes], bytes] = package.ZstdCompressor(level=level).compress
        return pack
    if not level:
        return lambda run: bytes(package.compress(run, store_size=False))
    return lambda run: bytes(
        package.compress(run, mode="high_compression", compression=level, store_size=False)
    )


def opened_size(payload: Buffer, what: str, state: str = "") -> int:
    """Return the uncompressed size that the payload states; raises :class:`InvalidFrame`, whose text begins
    with ``what``.
    """
    if len(payload) <= SIZE.size:
        raise InvalidFrame(f"{what} has a payload of {len(payload)} bytes, which says no size{state}")
    size: int = SIZE.unpack_from(payload)[0]
    return size


def codec_of(number: int, what: str, state: str = "") -> Codec:
    """Return the codec of that number; raises :class:`InvalidFrame`, whose text begins with ``what``."""
    codec = CODECS.get(number)
    if codec is None:
        known = ", ".join(f"{codec.number} ({codec.name})" for codec in CODECS.values())
        raise InvalidFrame(
            f"{what} is compressed in way {number}, which is not known here; known are {known}{state}"
        )
    return codec


def open_payload(number: int, payload: Buffer, what: str, state: str = "") -> bytes:
    """Return the run of frames in a compressed wrapper's payload, exactly as long as stated and within ``MAX_FRAME``.

    Raises :class:`InvalidFrame` for anything else, and :class:`CompressionUnavailable`; ``what`` begins their texts,
    ``state`` ends them.
    """
    codec = codec_of(number, what, state)
    size = opened_size(payload, what, state)
    if size > MAX_FRAME:
        raise InvalidFrame(f"{what} says that it opens to {size} bytes, no frame has over {MAX_FRAME}{state}")
    package = codec.load(f"{what} is compressed{state}")
    view = memoryview(payload)[SIZE.size :]
    opened = _open_zstd(package, view, size) if codec is ZSTD else _open_lz4(package, view, size)
    if type(opened) is str:
        raise InvalidFrame(f"{what} cannot be opened by {codec.name}: {opened}{state}")
    if len(opened) != size:
        raise InvalidFrame(f"{what} says that it opens to {size} bytes, it opens to {len(opened)}{state}")
    return opened  # type: ignore[return-value]


_idle: list[Any] = []
"""Unused decompressors: each is for one thread at a time, and making one costs as much as opening a small batch (8 µs).
Taking the last one and putting it back are single steps, so any thread may do it.
"""


def _open_zstd(package: Any, data: memoryview, size: int) -> bytes | str:
    """Return the content, or the reason why there is none. All that the frame states is compared before it is
    opened.
    """
    if bytes(data[:4]) != _ZSTD_MAGIC:
        return "it does not begin as a Zstandard frame does"
    try:
        said = package.get_frame_parameters(data)
        if said.content_size != size:
            told = "no size" if said.content_size == package.CONTENTSIZE_UNKNOWN else said.content_size
            return f"its Zstandard frame states {told}, the wrapper {size} bytes"
        if said.dict_id:
            return f"it needs the dictionary {said.dict_id}"
        try:
            decompressor = _idle.pop()
        except IndexError:
            decompressor = package.ZstdDecompressor(max_window_size=MAX_FRAME)
        opened: bytes = decompressor.decompress(data, max_output_size=size, allow_extra_data=False)
    except package.ZstdError as error:
        return str(error)
    _idle.append(decompressor)  # one that failed is dropped, because its state is unknown
    return opened


def _open_lz4(package: Any, data: memoryview, size: int) -> bytes | str:
    try:
        opened: bytes = package.decompress(data, uncompressed_size=size)
    except package.LZ4BlockError as error:
        return str(error)
    return opened
