"""Releases the deliveries that proton keeps.

proton keeps every delivery that is settled for a later one of its connection, with the buffer that its message filled
and what its outcome said, until the connection ends; a buffer never becomes smaller. Attack: a peer has many large
messages under way, or outcomes with long descriptions, lets them be settled, and stays; then the same on its next
connection. Budgets cover what is under way.

proton has no function for that, so its list of them is looked for in a connection of our own, once. Where it is not
found, they stay, as they do without this (docs/security.md).
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from itertools import islice
from struct import Struct
from typing import Final

from router.amqp.engine.library import Pointer, ffi, lib

# So many are released at once: a tenth of a millisecond.
_AT_ONCE: Final = 64

# pn_list_t: the class of its elements, capacity, size, elements. An object's head, which lies before it, has its class,
# too. So in proton 0.40; other versions are known by what is found.
_LIST: Final = Struct("@PNNP")
_SIZE, _ELEMENTS = 2, 3  # by words
_WORD: Final = Struct("@P")
_WRITE: Final = ctypes.CDLL(None).write
_HEAD_BYTES: Final = 16
_CONNECTION_BYTES: Final = 512  # it is shorter


def _read(address: int, size: int) -> bytes:
    """Up to `size` bytes of this process's memory; fewer, perhaps none, where there is no such memory.

    The system copies them into a pipe. It refuses what cannot be read, where a look of our own would be the end.
    """
    source, sink = os.pipe()
    try:
        written = _WRITE(sink, ctypes.c_void_p(address), ctypes.c_size_t(size)) if address else 0
        return os.read(source, size) if written > 0 else b""
    finally:
        os.close(source)
        os.close(sink)


def _word(address: int) -> int:
    """The word there; 0 where there is no such memory."""
    word = _read(address, _WORD.size)
    return int.from_bytes(word, sys.byteorder) if len(word) == _WORD.size else 0


def _address(pointer: Pointer) -> int:
    return int(ffi.cast("uintptr_t", pointer))


def _find() -> int | None:
    """Where in a connection the pointer to the list is, in bytes. None: nowhere."""
    connection = lib.pn_connection()
    try:
        link = lib.pn_sender(lib.pn_session(connection), b"pool")
        tag = ffi.from_buffer(b"1")
        delivery = lib.pn_delivery(link, ffi.new("pn_bytes_t *", (1, tag))[0])
        lib.pn_delivery_settle(delivery)
        start, kind = _address(connection), _word(_address(delivery) - _HEAD_BYTES)
        # Word by word, so that nothing behind an object's end is read where the list is found.
        for at in range(start, start + _CONNECTION_BYTES, _WORD.size):
            candidate = _word(at)
            if not kind or not candidate or _word(candidate) != kind:
                continue
            _, capacity, size, elements = _LIST.unpack(_read(candidate, _LIST.size))
            if size == 1 <= capacity and _word(elements) == _address(delivery):
                return at - start
        return None
    finally:
        lib.pn_connection_release(connection)
        lib.pn_decref(connection)


_AT: Final = _find()


def kept(connection: Pointer) -> int:
    """How many settled deliveries proton keeps for the connection; 0 where that is not known."""
    return int(_list(connection)[_SIZE]) if _AT is not None else 0


def releasing(connection: Pointer) -> Iterator[None]:
    """Release them, in steps. The connection has to live until each; no function of proton's is under way."""
    steps = _releasing(connection)
    while list(islice(steps, _AT_ONCE)):
        yield


def _releasing(connection: Pointer) -> Iterator[bool]:
    while kept(connection):
        pool = _list(connection)
        pool[_SIZE] -= 1
        last = ffi.cast("uintptr_t *", pool[_ELEMENTS])[pool[_SIZE]]
        lib.pn_decref(ffi.cast("void *", last))
        yield True


def _list(connection: Pointer) -> Pointer:
    """Its words."""
    return ffi.cast("uintptr_t **", ffi.cast("char *", connection) + _AT)[0]
