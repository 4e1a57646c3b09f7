"""Limits the chains of certificates that OpenSSL verifies. OpenSSL's default is 100; Python's `ssl` cannot set it.

Attack: 400 clients that show chains of 90 certificates had the router verify signatures for 4.6 s.
"""

import _ssl
import ctypes
from typing import Final

# A peer shows its own certificate and those of its authorities. Three or four are usual.
MAX_CERTIFICATES: Final = 10

_NAME: Final = b"default"


def bound_depth() -> None:
    """Limits verification in the whole process to MAX_CERTIFICATES of a peer, and our authority above them.

    OpenSSL has a table of parameters. Every verification takes from its entry "default" the values that its context
    does not set, and programs may change that entry. So no Python object is accessed by its internals. Call it once,
    before there are threads: OpenSSL's table has no lock. If the functions are not available, for example because
    OpenSSL is linked into Python's executable, the only limit on chains is MAX_HANDSHAKE_BYTES.
    """
    try:
        openssl = ctypes.CDLL(getattr(_ssl, "__file__", None))
        lookup, new = openssl.X509_VERIFY_PARAM_lookup, openssl.X509_VERIFY_PARAM_new
        copy, name = openssl.X509_VERIFY_PARAM_set1, openssl.X509_VERIFY_PARAM_set1_name
        set_depth, add = openssl.X509_VERIFY_PARAM_set_depth, openssl.X509_VERIFY_PARAM_add0_table
    except (AttributeError, OSError):
        return
    lookup.restype = new.restype = ctypes.c_void_p
    usual, ours = ctypes.c_void_p(lookup(_NAME)), ctypes.c_void_p(new())
    if usual and ours and copy(ours, usual) and name(ours, _NAME):
        set_depth(ours, ctypes.c_int(MAX_CERTIFICATES - 1))
        add(ours)
