"""Limits the chains of certificates that OpenSSL verifies. OpenSSL's default is 100; Python's `ssl` cannot set it.

Attack: 400 clients that show chains of 90 certificates had the router verify signatures for 4.6 s.
"""

import _ssl
import ctypes
from typing import Final

# A peer shows its own certificate and those above it. Three or four are usual.
MAX_CERTIFICATES: Final = 10

_NAME: Final = b"default"


def bound_depth() -> None:
    """Verify no more than MAX_CERTIFICATES of a peer, and the authority of ours above them, in the whole process.

    OpenSSL keeps a table of parameters, from whose entry "default" every verification takes what its context does not
    say, and which programs may change. So no object of Python's is looked into. To be called once, before there are
    threads: OpenSSL's table has no lock. Where the functions cannot be had, as where OpenSSL is a part of Python's
    executable, chains are verified as far as MAX_HANDSHAKE_BYTES lets them be sent.
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
