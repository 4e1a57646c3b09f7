"""A TLS client with functions that Python's lacks: it sends KeyUpdates, and records of any type.

It calls OpenSSL through ctypes, in memory: the caller takes out what it sends and puts in what has come.
"""

import ctypes
import ctypes.util
import hmac
import socket
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_SET_MAX_VERSION = 124  # SSL_CTRL_SET_MAX_PROTO_VERSION
TLS_1_2, TLS_1_3 = 0x0303, 0x0304
_CIPHER_OF_1_2 = b"ECDHE-ECDSA-AES128-GCM-SHA256"
UPDATE_NOT_REQUESTED, UPDATE_REQUESTED = 0, 1


def _library(name: str) -> Any:
    path = ctypes.util.find_library(name)
    assert path is not None, f"lib{name} is not installed"
    return ctypes.CDLL(path)


_ssl, _crypto = _library("ssl"), _library("crypto")
for _name in ("TLS_client_method", "SSL_CTX_new", "SSL_new", "SSL_get_session"):
    getattr(_ssl, _name).restype = ctypes.c_void_p
for _name in ("BIO_s_mem", "BIO_new"):
    getattr(_crypto, _name).restype = ctypes.c_void_p
_ssl.SSL_CTX_ctrl.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_void_p]


def _expand(secret: bytes, seed: bytes, size: int) -> bytes:
    """TLSv1.2's P_SHA256 (RFC 5246 §5)."""
    made, link = b"", seed
    while len(made) < size:
        link = hmac.digest(secret, link, "sha256")
        made += hmac.digest(secret, link + seed, "sha256")
    return made[:size]


class OpenSslClient:
    """One client's end of a TLS connection. It verifies nothing."""

    def __init__(self, version: int) -> None:
        self._context = ctypes.c_void_p(_ssl.SSL_CTX_new(ctypes.c_void_p(_ssl.TLS_client_method())))
        assert _ssl.SSL_CTX_ctrl(self._context, _SET_MAX_VERSION, version, None) == 1
        assert _ssl.SSL_CTX_set_cipher_list(self._context, _CIPHER_OF_1_2) == 1
        self._connection = ctypes.c_void_p(_ssl.SSL_new(self._context))
        memory = ctypes.c_void_p(_crypto.BIO_s_mem())
        self._incoming = ctypes.c_void_p(_crypto.BIO_new(memory))
        self._outgoing = ctypes.c_void_p(_crypto.BIO_new(memory))
        _ssl.SSL_set_bio(self._connection, self._incoming, self._outgoing)
        _ssl.SSL_set_connect_state(self._connection)

    def shake_hands(self, connected: socket.socket) -> None:
        """The handshake, over the socket."""
        while True:
            is_done = _ssl.SSL_do_handshake(self._connection) == 1
            connected.sendall(self.take_output())
            if is_done:
                return
            received = connected.recv(65536)
            assert received, "the server does not shake hands"
            self.put(received)

    def put(self, ciphertext: bytes) -> None:
        assert _crypto.BIO_write(self._incoming, ciphertext, len(ciphertext)) == len(ciphertext)

    def read(self) -> bytes:
        """The server's plaintext, as far as its records were put in."""
        data, buffer = b"", ctypes.create_string_buffer(16384)
        while (size := _ssl.SSL_read(self._connection, buffer, len(buffer))) > 0:
            data += buffer.raw[:size]
        return data

    def take_output(self) -> bytes:
        """Ciphertext that is to be sent."""
        buffer = ctypes.create_string_buffer(1 << 20)
        data = b""
        while (size := _crypto.BIO_read(self._outgoing, buffer, len(buffer))) > 0:
            data += buffer.raw[:size]
        return data

    def write(self, plaintext: bytes, record_bytes: int = 16384) -> bytes:
        """Ciphertext of the plaintext, in records of that many bytes."""
        for at in range(0, len(plaintext), record_bytes):
            piece = plaintext[at : at + record_bytes]
            assert _ssl.SSL_write(self._connection, piece, len(piece)) == len(piece)
        return self.take_output()

    def key_updates(self, count: int, kind: int = UPDATE_NOT_REQUESTED) -> bytes:
        """Ciphertext of that many KeyUpdates, each in a record of its own."""
        for _ in range(count):
            assert _ssl.SSL_key_update(self._connection, kind) == 1
            assert _ssl.SSL_do_handshake(self._connection) == 1
        return self.take_output()

    def records(self, kind: int, plaintext: bytes, count: int) -> bytes:
        """Ciphertext of equal records of a type that OpenSSL would not send, TLSv1.2 only. Nothing was sent before."""
        master, ours, theirs = (ctypes.create_string_buffer(size) for size in (48, 32, 32))
        session = ctypes.c_void_p(_ssl.SSL_get_session(self._connection))
        assert _ssl.SSL_SESSION_get_master_key(session, master, 48) == 48
        _ssl.SSL_get_client_random(self._connection, ours, 32)
        _ssl.SSL_get_server_random(self._connection, theirs, 32)
        keys = _expand(master.raw, b"key expansion" + theirs.raw + ours.raw, 40)
        cipher, salt = AESGCM(keys[:16]), keys[32:36]
        made = b""
        for number in range(1, count + 1):  # the handshake's Finished was record 0
            sequence = number.to_bytes(8, "big")
            described = sequence + bytes([kind, 3, 3]) + len(plaintext).to_bytes(2, "big")
            body = sequence + cipher.encrypt(salt + sequence, plaintext, described)
            made += bytes([kind, 3, 3]) + len(body).to_bytes(2, "big") + body
        return made

    def free(self) -> None:
        _ssl.SSL_free(self._connection)
        _ssl.SSL_CTX_free(self._context)
