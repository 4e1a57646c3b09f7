"""How deep a chain of certificates OpenSSL verifies, for which Python's `ssl` has no attribute: 100 by default.

Attack: 400 clients that show chains of 90 certificates had the router verify signatures for 4.6 s.
"""

import _ssl
import ctypes
import ssl
from collections.abc import Callable
from typing import Final

# A peer shows its own certificate and those above it. Three or four are usual.
MAX_CERTIFICATES: Final = 10


def _setter() -> Callable[[ctypes.c_void_p, ctypes.c_int], object] | None:
    """SSL_CTX_set_verify_depth of the very OpenSSL that `ssl` uses; None where it is a part of Python's executable."""
    try:
        found = ctypes.CDLL(getattr(_ssl, "__file__", None)).SSL_CTX_set_verify_depth
    except (AttributeError, OSError):
        return None
    found.argtypes, found.restype = (ctypes.c_void_p, ctypes.c_int), None
    return found


_SET: Final = _setter()


def bound_depth(context: ssl.SSLContext) -> None:
    """Verify no more than MAX_CERTIFICATES of a peer, and the authority of ours above them.

    In CPython's object of a context the pointer to OpenSSL's is the first member, behind what all objects have. Where
    the function cannot be had, chains are verified as far as MAX_HANDSHAKE_BYTES lets them be sent.
    """
    if _SET is not None:
        _SET(ctypes.c_void_p.from_address(id(context) + object.__basicsize__), ctypes.c_int(MAX_CERTIFICATES - 1))
