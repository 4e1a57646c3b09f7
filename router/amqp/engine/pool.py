"""Releases the settled deliveries that proton keeps.

proton keeps every settled delivery until the connection ends, to use it again. It also keeps the delivery's buffer,
which never becomes smaller, and the text of its outcome. Attack: a peer has many large messages under way, or outcomes
with long descriptions, lets them be settled, and stays connected. It repeats this on its next connection. Budgets pay
only for what is under way.

proton has no function for that, so this module searches its list of them once, in a connection of its own. If the list
is not found, the deliveries stay, as without this module (docs/security.md).
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from itertools import islice
from struct import Struct
from typing import Final

from router.amqp.engine.library import Pointer, ffi, lib

# The number released at once: this takes a tenth of a millisecond.
_AT_ONCE: Final = 64

# pn_list_t: the class of its elements, capacity, size, elements. The head of an object, which is before it, also
# contains its class. This is the layout of proton 0.40. For other versions the search shows whether it matches.
_LIST: Final = Struct("@PNNP")
_SIZE, _ELEMENTS = 2, 3  # as indexes of words
_WORD: Final = Struct("@P")
_WRITE: Final = ctypes.CDLL(None).write
_HEAD_BYTES: Final = 16
_CONNECTION_BYTES: Final = 512  # a connection is shorter


def _read(address: int, size: int) -> bytes:
    """Returns up to `size` bytes of this process's memory; fewer, perhaps none, if there is no such memory.

    The system copies them into a pipe. It refuses memory that cannot be read, where a direct read would end the
    process.
    """
    source, sink = os.pipe()
    try:
        written = _WRITE(sink, ctypes.c_void_p(address), ctypes.c_size_t(size)) if address else 0
        return os.read(source, size) if written > 0 else b""
    finally:
        os.close(source)
        os.close(sink)


def _word(address: int) -> int:
    """Returns the word at the address; 0 if there is no such memory."""
    word = _read(address, _WORD.size)
    return int.from_bytes(word, sys.byteorder) if len(word) == _WORD.size else 0


def _address(pointer: Pointer) -> int:
    return int(ffi.cast("uintptr_t", pointer))


def _find() -> int | None:
    """Returns the offset in a connection of the pointer to the list, in bytes, or None if it is not found."""
    connection = lib.pn_connection()
    try:
        link = lib.pn_sender(lib.pn_session(connection), b"pool")
        tag = ffi.from_buffer(b"1")
        delivery = lib.pn_delivery(link, ffi.new("pn_bytes_t *", (1, tag))[0])
        lib.pn_delivery_settle(delivery)
        start, kind = _address(connection), _word(_address(delivery) - _HEAD_BYTES)
        # Word by word, so that nothing after an object's end is read if the list is found.
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
    """Returns the number of settled deliveries that proton keeps for the connection; 0 if it is unknown."""
    return int(_list(connection)[_SIZE]) if _AT is not None else 0


def releasing(connection: Pointer) -> Iterator[None]:
    """Releases the kept deliveries in steps. At each step the connection must exist, and no proton function may run."""
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
    """Returns the words of the list."""
    return ffi.cast("uintptr_t **", ffi.cast("char *", connection) + _AT)[0]
