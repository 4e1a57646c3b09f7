"""TLS as a tunnel between byte strings, and contexts from an sslProfile.

The tunnel does no I/O: ciphertext in, plaintext out, and the reverse. Making a context reads the profile's files.
Sources: docs/spec/policy-and-auth.md §6.
"""

import re
import ssl
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from auth.certificates import Chain, certificate_weakness, chain_of, end_point_binding, expiry_s
from auth.client_hello import Unfinished, server_name
from auth.host_names import names_host
from auth.revocation import RevocationError, read_lists
from auth.secrets import Secret
from auth.verify_depth import bound_depth
from policy.files.regular import MAX_OTHER_BYTES, read_regular, why_unreadable

bound_depth()

# Stops a peer that continues a handshake forever with small messages, or sends certificates without end.
# MAX_CERTIFICATES of 4 KiB each, and room; one with an RSA key of 4,096 bits has 2 KiB.
MAX_HANDSHAKE_BYTES = 48 * 1024

# The plaintext of one TLS record; SSL_read never returns more.
_RECORD_BYTES = 16 * 1024

_HEADER_BYTES = 5  # of a record: type, version, length
_HANDSHAKE = 22  # the type of the records that TLS begins with
_DATA = 23  # the type of a record with data; in TLSv1.3, of every record after the handshake

# Records that OpenSSL gets before the caller checks the clock. Stops one read full of KeyUpdates or one-byte records
# from delaying all other connections: a record costs up to 20 microseconds.
RECORDS_AT_ONCE = 32

# Limit of records without data (KeyUpdates, empty ones, tickets) in excess of records with data. Stops a peer that
# makes us derive keys forever and sends nothing. An honest peer sends a KeyUpdate every few million records.
MAX_RECORDS_WITHOUT_DATA = 256

# Limit of records of TLSv1.2 and older after the handshake that are neither data nor the end. Stops a client that keeps
# asking for another handshake and does not read the refusals, which would fill our memory.
MAX_LATE_HANDSHAKES = 16

_VERSIONS = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
# Withdrawn (RFC 8996). OpenSSL speaks them only at its security level 0, since they sign with MD5 and SHA-1.
WITHDRAWN = ("TLSv1", "TLSv1.1")
# The suites of a profile that allows these protocols and names no ciphers. They include SHA-1, since these protocols
# have no other suites.
_OLD_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:ECDHE+AES:DHE+AES:RSA+AES:!aDSS:!PSK:!SRP"
_EXCLUDE = {
    "TLSv1": ssl.Options.OP_NO_TLSv1,
    "TLSv1.1": ssl.Options.OP_NO_TLSv1_1,
    "TLSv1.2": ssl.Options.OP_NO_TLSv1_2,
    "TLSv1.3": ssl.Options.OP_NO_TLSv1_3,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsProfile:
    """The attributes of one sslProfile entity; None or "" if absent.

    protocols     names separated by blank, comma or semicolon; None for TLSv1.2 and later
    ciphers       an OpenSSL cipher list; it does not affect TLSv1.3
    ciphersuites  the suites of TLSv1.3, if `can_choose_suites`
    crl_file      PEM file of revocation lists, or hashed directory
    """

    name: str
    ca_cert_file: str | None = None
    cert_file: str | None = None
    private_key_file: str | None = None
    password: Secret | None = None
    ciphers: str | None = None
    protocols: str | None = None
    uid_format: str | None = None
    uid_name_mapping_file: str | None = None
    ciphersuites: str | None = None
    crl_file: str | None = None

    @property
    def withdrawn_protocols(self) -> tuple[str, ...]:
        """Returns the names in `protocols` that were withdrawn as broken. They lower the profile's security level."""
        return tuple(name for name in WITHDRAWN if name in _protocol_names(self.protocols or ""))


def can_choose_suites() -> bool:
    """Returns whether Python's `ssl` can choose the suites of TLSv1.3, as it can since 3.15."""
    return hasattr(ssl.SSLContext, "set_ciphersuites")


class TlsProfileError(ValueError):
    """The profile cannot be used. The text is the one for the log line of §6.5 or §6.6."""


class TlsFailure(ConnectionError):
    """The tunnel has failed permanently. The text is OpenSSL's reason. `take_output` returns the alert for the peer."""


class UntrustedCertificate(TlsFailure):
    """The peer has shown a certificate that cannot be trusted."""


class NotTls(TlsFailure):
    """The peer's data is not TLS from the first byte on."""


class UnusableProfile(TlsFailure):
    """The sslProfile that the peer's server name selects cannot be used. The text is that of a TlsProfileError."""


class RecordsWithoutData(TlsFailure):
    """The peer sends too many TLS records that carry no data."""


class _LoweredContext(ssl.SSLContext):
    """A context for withdrawn protocols, at OpenSSL's security level 0.

    Certificates are checked as at the default level.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The certificate and requirements of a server with one sslProfile.

    end_point  the channel binding of its certificate (auth.certificates.end_point_binding)
    """

    profile: str
    context: ssl.SSLContext
    end_point: bytes | None


class HandshakeStep:
    """One call of OpenSSL. It may compute for milliseconds without the interpreter's lock, so it may run in a thread.

    fault  the exception that ended the call; None: the handshake is done
    """

    __slots__ = ("_ssl", "fault")

    def __init__(self, tls: ssl.SSLObject) -> None:
        self._ssl = tls
        self.fault: BaseException | None = None

    def run(self) -> None:
        """Makes the call; run it once, and use the tunnel's bytes only after it has returned. Never raises."""
        try:
            self._ssl.do_handshake()
        except BaseException as fault:  # `TlsTunnel._judge` raises it again
            self.fault = fault

    def forget_session(self, incoming: ssl.MemoryBIO) -> None:
        """Forgets the session after the step has returned and the connection is over.

        incoming  of the tunnel
        """
        if self.fault is None:
            _forget_session(self._ssl, incoming)


# A function (run, done). It calls `run` soon, in any thread, and then `done` on the event loop. It calls neither if the
# step is no longer wanted.
Elsewhere = Callable[[Callable[[], None], Callable[[], None]], None]


class TlsTunnel:
    """One TLS connection in memory.

    Pass the bytes from the socket to `receive`. After every call write the bytes of `take_output` to the socket.

    elsewhere  runs the steps of the handshake; None: `receive` runs them. During a step `is_waiting` is true and
               arriving bytes wait. After it `on_step` is called: then the caller calls `receive` again, with no data
    """

    __slots__ = (
        *("_asks_certificate", "_at", "_end_point", "_forgets_session"),
        "_handshake_bytes",
        "_incoming",
        "_is_closed",
        "_is_discarded",
        "_is_established",
        "_is_tls",
        "_late_handshakes",
        "_outgoing",
        "_record_left",
        "_ssl",
        "_step",
        "_waiting",
        "_without_data",
        "elsewhere",
        "has_more",
        "is_waiting",
        "on_step",
    )
    chosen: str | None = None  # the sslProfile that the client's server name selected

    def __init__(
        self,
        context: ssl.SSLContext,
        *,
        server_side: bool,
        server_hostname: str | None = None,
        end_point: bytes | None = None,
    ) -> None:
        """Begins a tunnel.

        end_point  of a server: the channel binding of its certificate (auth.certificates.end_point_binding)
        """
        self._end_point = end_point
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._ssl = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_hostname or None
        )
        self._handshake_bytes = 0
        self._is_established = False
        self._is_tls = True  # as far as the first byte tells
        self._is_closed = self._is_discarded = False
        # Attack: a client resumes a session, and with it EXTERNAL, after the certificate has expired. No session of a
        # closed connection can be resumed.
        self._asks_certificate = context.verify_mode is ssl.CERT_REQUIRED
        self._forgets_session = server_side and self._asks_certificate
        self._waiting = b""  # ciphertext from the socket; OpenSSL already has its first `_at` bytes
        self._at = 0
        self._record_left = 0  # bytes still to come of a record that OpenSSL has in part
        self._without_data = 0
        self._late_handshakes = 0
        self.has_more = False  # ciphertext waits for the next turn
        self.elsewhere: Elsewhere | None = None
        self.on_step: Callable[[], None] = _nothing
        self.is_waiting = False
        self._step: HandshakeStep | None = None  # a step that runs elsewhere, or has run and is not judged yet

    @property
    def is_established(self) -> bool:
        """Returns whether the handshake is done.

        A TLSv1.3 client does not yet know then if the server took its certificate.
        """
        return self._is_established

    @property
    def handshake_bytes(self) -> int:
        """Returns the bytes received of an unfinished handshake, all of which may be held in memory."""
        return 0 if self._is_established else self._handshake_bytes + len(self._waiting)

    @property
    def is_closed(self) -> bool:
        """Returns whether the peer has said that it will send no more (close_notify)."""
        return self._is_closed

    def start(self) -> None:
        """Begins the handshake. Afterwards a client's ClientHello is in `take_output`; a server sends nothing yet.

        Errors  TlsFailure.
        """
        self._shake_hands()

    def receive(self, data: bytes, begin_turn: Callable[[], Callable[[], bool]] = lambda: lambda: True) -> bytes:
        """Takes ciphertext from the socket and returns the plaintext that it completes, perhaps none.

        begin_turn  returns a function that is called every RECORDS_AT_ONCE records and returns whether there is time
                    left. If not and there are more records, `has_more` is set. The caller then calls again, with no
                    data, when this connection has its next turn
        Errors      TlsFailure; NotTls, RecordsWithoutData for a peer that only costs us work.
        """
        if self._is_closed:
            return b""
        if self._is_one_record(data):
            return self._read_one(data)
        has_time = begin_turn()
        if data:
            self._waiting = self._waiting[self._at :] + data if self._waiting else data
            self._at = 0
        plaintext: list[bytes] = []
        if self._step is not None:
            if self.is_waiting:
                return b""
            step, self._step = self._step, None
            self._judge(step.fault)
            if self._is_established:
                self._read(plaintext)
            if not self._waiting:
                return plaintext[0] if len(plaintext) == 1 else b"".join(plaintext)
        while True:
            was_established = self._is_established
            records = self._feed()
            if not was_established:
                if self.elsewhere is not None and records:
                    self._shake_hands_elsewhere(self.elsewhere)
                    break
                self._shake_hands()
            if self._is_established:
                before = len(plaintext)
                self._read(plaintext)
                if was_established:
                    self._bill(records, len(plaintext) - before)
            if not self.has_more or not has_time():
                break
        return plaintext[0] if len(plaintext) == 1 else b"".join(plaintext)

    def _is_one_record(self, data: bytes) -> bool:
        """Returns whether `data` is exactly one record with data, and nothing is left unread.

        That is usual if a peer awaits answers.
        """
        size = len(data)
        return (
            size > _HEADER_BYTES
            and data[0] == _DATA
            and data[3] << 8 | data[4] == size - _HEADER_BYTES
            and self._is_established
            and not self._record_left
            and not self._waiting
        )

    def _read_one(self, data: bytes) -> bytes:
        """Does the same as `receive` for one record. Hot path: calls OpenSSL once if it returns all data at once."""
        self._incoming.write(data)
        try:
            record = self._ssl.read(_RECORD_BYTES)
        except ssl.SSLWantReadError:
            self._bill(1, 0)
            return b""
        except ssl.SSLZeroReturnError:
            record = b""
        except ssl.SSLError as fault:
            raise TlsFailure(failure_text(fault)) from None
        if not record:
            self._end()
        elif self._without_data:
            self._bill(1, 1)
        return record

    def _feed(self) -> int:
        """Gives OpenSSL the next RECORDS_AT_ONCE waiting records. Returns how many of them are complete.

        OpenSSL gets the beginning of a record as soon as its header has arrived, and checks the header itself.
        """
        data, end = self._waiting, len(self._waiting)
        start, count = self._at, 0
        at = start + self._record_left  # where the next record begins, perhaps in bytes that have not arrived
        if self._record_left and at <= end:
            count = 1
        while at + _HEADER_BYTES <= end and count < RECORDS_AT_ONCE:
            if data[at] != _DATA and self._is_established:
                self._late_handshakes += 1
            at += _HEADER_BYTES + (data[at + 3] << 8 | data[at + 4])
            if at <= end:
                count += 1
        stop = min(at, end)
        self._record_left = at - stop
        if not self._is_established:
            if not self._handshake_bytes and start < end:
                self._is_tls = data[start] == _HANDSHAKE
            self._handshake_bytes += stop - start
            if self._handshake_bytes > MAX_HANDSHAKE_BYTES:
                raise TlsFailure(f"handshake of more than {MAX_HANDSHAKE_BYTES} bytes")
        self._incoming.write(data if stop - start == end else memoryview(data)[start:stop])
        self.has_more = stop + _HEADER_BYTES <= end
        self._waiting, self._at = (data, stop) if self.has_more else (data[stop:], 0)
        return count

    def _bill(self, records: int, with_data: int) -> None:
        """Charges the peer for records without data. Each record with data cancels one without."""
        self._without_data = max(self._without_data + records - 2 * with_data, 0)
        if self._without_data > MAX_RECORDS_WITHOUT_DATA:
            raise RecordsWithoutData(f"more than {MAX_RECORDS_WITHOUT_DATA} records without data")
        if self._late_handshakes > MAX_LATE_HANDSHAKES:
            raise RecordsWithoutData(f"more than {MAX_LATE_HANDSHAKES} records of another handshake")

    def receive_eof(self) -> None:
        """Takes the end of the socket. Errors: TlsFailure if the handshake was not done."""
        self._incoming.write_eof()
        if not self._is_established:
            self._shake_hands()

    def send(self, plaintext: bytes | bytearray | memoryview) -> None:
        """Encrypts plaintext; `take_output` returns the result. Call only when established.

        Errors  TlsFailure.
        """
        if self._is_discarded or self.is_waiting:
            return
        try:
            sent = self._ssl.write(plaintext) if plaintext else 0
            while sent < len(plaintext):
                sent += self._ssl.write(memoryview(plaintext)[sent:])
        except ssl.SSLError as fault:
            raise TlsFailure(failure_text(fault)) from None

    def close(self) -> None:
        """Tells the peer that nothing more will come (close_notify, in `take_output`).

        A client that has shown a certificate gets no close_notify, because OpenSSL forgets a session only without one.
        AMQP's own Close tells such a client the same, and an attacker cannot remove it unnoticed.
        """
        if self._is_discarded or self._forgets_session:
            return
        try:
            self._ssl.unwrap()
        except (ssl.SSLError, ValueError):
            # OpenSSL wants to read the peer's answer, for which we do not wait; or the tunnel is broken and nothing can
            # be sent.
            return

    def discard(self) -> None:
        """Takes the close of the socket: nothing is read or written any more, and the session cannot be resumed."""
        if self._is_discarded:
            return
        self.on_step = _nothing
        if self._forgets_session and self._is_established:
            _forget_session(self._ssl, self._incoming)
        elif self._forgets_session and self._step is not None:
            # The handshake may end in its thread soon, or has ended. Then its session is in the cache.
            step, incoming = self._step, self._incoming
            self.on_step = lambda: step.forget_session(incoming)
            if not self.is_waiting:
                self.on_step()
        self._end()
        self._is_discarded, self._is_established = True, False
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        del self._ssl

    def take_output(self) -> bytes:
        """Returns ciphertext to write to the socket; after a failure, the alert."""
        return b"" if self.is_waiting else self._outgoing.read()

    @property
    def peer_certificate(self) -> bytes | None:
        """Returns DER of the certificate that the peer has shown and OpenSSL has verified. None without one."""
        if not self._is_established or not self._asks_certificate:
            return None
        return self._ssl.getpeercert(binary_form=True)

    def binding(self, kind: str) -> bytes | None:
        """Returns the data of a channel binding such as `tls-server-end-point`. None if there is none of that kind."""
        if not self._is_established or kind != "tls-server-end-point":
            return None
        certificate = None if self._ssl.server_side else self._ssl.getpeercert(binary_form=True)
        return end_point_binding(certificate) if certificate is not None else self._end_point

    @property
    def peer_expires_at_s(self) -> float | None:
        """Returns the end of the peer's certificate, in seconds since 1970 UTC. None without a certificate."""
        certificate = self.peer_certificate
        return expiry_s(certificate) if certificate is not None else None

    @property
    def protocol(self) -> str | None:
        """Returns the protocol, such as `TLSv1.3`. None before the handshake is done."""
        return self._ssl.version() if self._is_established else None

    @property
    def cipher(self) -> str | None:
        """Returns the cipher, such as `TLS_AES_256_GCM_SHA384`. None before the handshake is done."""
        suite = self._ssl.cipher() if self._is_established else None
        return None if suite is None else suite[0]

    @property
    def bits(self) -> int:
        """Returns the secret bits of the cipher, 0 before the handshake is done."""
        suite = self._ssl.cipher() if self._is_established else None
        return 0 if suite is None else suite[2]

    def _shake_hands(self) -> None:
        step = HandshakeStep(self._ssl)
        step.run()
        self._judge(step.fault)

    def _shake_hands_elsewhere(self, elsewhere: Elsewhere) -> None:
        step = self._step = HandshakeStep(self._ssl)
        self.is_waiting, self.has_more = True, False
        elsewhere(step.run, self._end_step)

    def _end_step(self) -> None:
        self.is_waiting = False
        self.on_step()

    def _judge(self, fault: BaseException | None) -> None:
        """Evaluates a finished step of the handshake. Errors: TlsFailure."""
        match fault:
            case None:
                pass
            case ssl.SSLWantReadError():
                return
            case ssl.SSLCertVerificationError():
                raise UntrustedCertificate(failure_text(fault)) from None
            case ssl.SSLError() | ssl.CertificateError():
                raise (TlsFailure if self._is_tls else NotTls)(failure_text(fault)) from None
            case _:
                raise fault
        self._is_established = True
        _refuse_weak(self._ssl.context, self.peer_certificate)
        if self._ssl.session_reused and (ends_at_s := self.peer_expires_at_s) is not None and ends_at_s <= time.time():
            # A resumed session has the certificate of its first handshake, which OpenSSL does not check again.
            raise UntrustedCertificate("certificate verify failed: certificate has expired")

    def _read(self, records: list[bytes]) -> None:
        """Appends the data of every record that OpenSSL has completely."""
        read = self._ssl.read
        try:
            while record := read(_RECORD_BYTES):
                records.append(record)
            self._end()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._end()
        except ssl.SSLError as fault:
            raise TlsFailure(failure_text(fault)) from None

    def _end(self) -> None:
        """Takes the peer's close_notify: bytes that come later are ignored."""
        self._is_closed = True
        self._waiting, self._at, self.has_more = b"", 0, False


def peer_chain(tunnel: TlsTunnel) -> Chain | None:
    """Returns the certificates by which the peer was trusted. None if it showed none or the connection is over.

    Takes some time, because it parses them.
    """
    own = tunnel.peer_certificate
    if own is None:
        return None
    tls = tunnel._ssl
    verified = getattr(tls, "get_verified_chain", None)  # since Python 3.13
    if verified is not None:
        return chain_of(own, verified() or ())
    found = tls._sslobj.get_verified_chain() or ()  # type: ignore[attr-defined]
    return chain_of(own, [ssl.PEM_cert_to_DER_cert(each.public_bytes()) for each in found])


class NamedTunnel(TlsTunnel):
    """A client's tunnel that checks the server's name by the rules of 1.20 (auth.host_names.names_host)."""

    __slots__ = ("_host",)

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        """Begins a tunnel.

        context  must not compare names itself
        """
        super().__init__(context, server_side=False, server_hostname=host)
        self._host = host

    def _judge(self, fault: BaseException | None) -> None:
        super()._judge(fault)
        if self._is_established and not names_host(self.peer_certificate or b"", self._host):
            self._outgoing.read()  # in TLSv1.3 our own certificate, which an impostor must not get
            what = f"Hostname mismatch, certificate is not valid for '{self._host}'"
            raise UntrustedCertificate(f"certificate verify failed: {what}")


class ChoosingTunnel(TlsTunnel):
    """A server's tunnel with the sslProfile that the client's server name selects."""

    __slots__ = ("_choose", "chosen")

    def __init__(self, own: Served, choose: Callable[[str | None], Served | None]) -> None:
        """Begins a tunnel.

        own     for clients that name no host, or a host that `choose` does not know
        choose  returns the profile for clients that name this host; None: `own`. Errors: TlsProfileError
        """
        super().__init__(own.context, server_side=True, end_point=own.end_point)
        self._choose: Callable[[str | None], Served | None] | None = choose
        self.chosen: str | None = None

    def receive(self, data: bytes, begin_turn: Callable[[], Callable[[], bool]] = lambda: lambda: True) -> bytes:
        """Takes ciphertext as in TlsTunnel. Errors: UnusableProfile as well."""
        if self._choose is None or self._is_closed:
            return super().receive(data, begin_turn)
        self._waiting += data
        return super().receive(b"", begin_turn) if self._has_chosen(self._choose) else b""

    def _has_chosen(self, choose: Callable[[str | None], Served | None]) -> bool:
        """Chooses the sslProfile; returns False until the client's message is complete. Errors: UnusableProfile.

        OpenSSL's own callback is not used. It would change the certificate, but not the protocols, the revocation lists
        or whether a certificate is required.
        """
        try:
            name = server_name(self._waiting)
        except Unfinished:
            return False
        self._choose = None
        try:
            served = choose(name)
        except TlsProfileError as error:
            raise UnusableProfile(str(error)) from None
        if served is not None:
            self.chosen, self._end_point = served.profile, served.end_point
            self._ssl = served.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
            self._asks_certificate = self._forgets_session = served.context.verify_mode is ssl.CERT_REQUIRED
        return True


def _nothing() -> None:
    """Does nothing; the default of a callback."""


def _forget_session(tls: ssl.SSLObject, incoming: ssl.MemoryBIO) -> None:
    """Makes OpenSSL forget a session: it removes one from its cache when a record is broken."""
    incoming.write(bytes(_RECORD_BYTES + 1024))
    try:
        while tls.read(_RECORD_BYTES):
            pass
    except ssl.SSLError:
        pass


def _refuse_weak(context: ssl.SSLContext, certificate: bytes | None) -> None:
    """Refuses a weak certificate of a peer. Attack: to break its key or signature, which level 0 does not check."""
    if not isinstance(context, _LoweredContext) or certificate is None:
        return
    if (weakness := certificate_weakness(certificate)) is not None:
        raise UntrustedCertificate(f"certificate verify failed: {weakness}")


def failure_text(fault: Exception) -> str:
    """Returns OpenSSL's reason in words, such as `peer did not return a certificate`, or why verification failed."""
    if isinstance(fault, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {fault.verify_message}"
    # Releases of Python 3.11 differ in which of the two they raise at the end of the stream.
    if isinstance(fault, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return "unexpected eof while reading"
    reason = getattr(fault, "reason", None)
    if isinstance(reason, str):
        return reason.replace("_", " ").lower()
    return "TLS failure"


def own_end_point(profile: TlsProfile) -> bytes | None:
    """Returns the channel binding of the certificate that `server_context` shows. None without one. Reads the file."""
    if not profile.cert_file:
        return None
    try:
        der = ssl.PEM_cert_to_DER_cert(_first_certificate(read_regular(profile.cert_file, MAX_OTHER_BYTES)))
        return end_point_binding(der)
    except (OSError, ValueError):
        return None


def _first_certificate(pem: bytes) -> str:
    begin, end = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
    start = pem.index(begin)
    return pem[start : pem.index(end, start) + len(end)].decode("ascii")


def server_context(profile: TlsProfile, *, demand_certificate: bool) -> ssl.SSLContext:
    """Returns a context for accepted connections.

    demand_certificate  fail the handshake of a client without a certificate from caCertFile; the system's trust store
                        is never consulted for clients
    Errors              TlsProfileError with a text of §6.5.
    """
    context = (_LoweredContext if profile.withdrawn_protocols else ssl.SSLContext)(ssl.PROTOCOL_TLS_SERVER)
    # No tickets in TLSv1.3: they would be written to clients that never read, and a resumed session skips the check of
    # the certificate.
    context.num_tickets = 0
    if demand_certificate:
        # No tickets in TLSv1.2 either: a ticket would resume EXTERNAL for two hours, even if the certificate is no
        # longer valid. OpenSSL keeps such sessions in memory, and TlsTunnel.discard removes them with the connection.
        # Without client certificates tickets stay on; otherwise OpenSSL would keep up to 20,480 sessions.
        context.options |= ssl.Options.OP_NO_TICKET
    _harden(context)
    if not profile.cert_file or not profile.private_key_file or not _load_own_certificate(context, profile):
        raise TlsProfileError("Cannot set SSL credentials")
    if profile.ca_cert_file and not _load_authorities(context, profile.ca_cert_file):
        raise TlsProfileError("Cannot set trusted SSL CA")
    if not _set_ciphers(context, profile.ciphers) or not _set_suites(context, profile.ciphersuites):
        raise TlsProfileError(
            "Cannot set ciphers. The ciphers string might be invalid. Use openssl ciphers -v <ciphers> to validate"
        )
    if not _set_protocols(context, profile.protocols):
        raise TlsProfileError(
            "Cannot set protocols. The protocols string might be invalid. This list is a space separated string of "
            "the allowed TLS protocols (TLSv1 TLSv1.1 TLSv1.2)"
        )
    if demand_certificate:
        if not profile.ca_cert_file or Path(profile.ca_cert_file).is_dir() or not context.cert_store_stats()["x509"]:
            raise TlsProfileError("Cannot set peer authentication")
        context.verify_mode = ssl.CERT_REQUIRED
        _load_revocation_lists(context, profile)
    return context


def client_context(profile: TlsProfile, *, verify_hostname: bool) -> ssl.SSLContext:
    """Returns a context for connections that we make. The server's chain is always verified.

    verify_hostname  also compare the name given to the tunnel. Without it, and with a caCertFile, the system's trust
                     store is not consulted: otherwise any holder of a certificate from a public CA could be the server
    Errors           TlsProfileError with the start of a text of §6.6, to which the caller adds the connection.
    """
    context = (_LoweredContext if profile.withdrawn_protocols else ssl.SSLContext)(ssl.PROTOCOL_TLS_CLIENT)
    _harden(context)
    context.check_hostname = verify_hostname
    context.verify_mode = ssl.CERT_REQUIRED
    if verify_hostname or not profile.ca_cert_file:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if profile.ca_cert_file and not _load_authorities(context, profile.ca_cert_file):
        raise TlsProfileError("SSL CA configuration failed")
    if profile.cert_file and not _load_own_certificate(context, profile):
        raise TlsProfileError("SSL local certificate configuration failed")
    if not _set_ciphers(context, profile.ciphers) or not _set_suites(context, profile.ciphersuites):
        raise TlsProfileError("SSL cipher configuration failed")
    if not _set_protocols(context, profile.protocols):
        raise TlsProfileError("Permitted TLS protocols configuration failed")
    _load_revocation_lists(context, profile)
    return context


def _harden(context: ssl.SSLContext) -> None:
    """Sets the options that no profile may change."""
    # Compression leaks secrets by length (CRIME). Renegotiation lets a client use up our CPU.
    context.options |= ssl.Options.OP_NO_COMPRESSION | ssl.Options.OP_NO_RENEGOTIATION
    # An intermediate CA in caCertFile is trusted on its own (§6.5).
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN


def _load_own_certificate(context: ssl.SSLContext, profile: TlsProfile) -> bool:
    # OpenSSL would block on a FIFO, and read a device without end.
    if any(path and why_unreadable(path) is not None for path in (profile.cert_file, profile.private_key_file)):
        return False
    # Always a password, even an empty one: without it OpenSSL would prompt on the terminal for an encrypted key.
    password = profile.password.reveal() if profile.password is not None else ""
    try:
        context.load_cert_chain(profile.cert_file or "", profile.private_key_file or None, password=lambda: password)
    except (OSError, ValueError):
        return False
    return True


def _load_authorities(context: ssl.SSLContext, path: str) -> bool:
    try:
        if Path(path).is_dir():
            context.load_verify_locations(capath=path)
        elif why_unreadable(path) is not None:
            return False
        else:
            context.load_verify_locations(cafile=path)
    except (OSError, ValueError):
        return False
    return True


def _load_revocation_lists(context: ssl.SSLContext, profile: TlsProfile) -> None:
    if not profile.crl_file:
        return
    try:
        read_lists(profile.crl_file).load_into(context)
    except (RevocationError, OSError) as error:
        raise TlsProfileError(f"Cannot set certificate revocation lists: {error}") from None


def _set_suites(context: ssl.SSLContext, suites: str | None) -> bool:
    if not suites:
        return True
    choose = getattr(context, "set_ciphersuites", None)  # since Python 3.15
    try:
        if choose is not None:
            choose(suites)
    except (ssl.SSLError, ValueError):
        return False
    return choose is not None


def _set_ciphers(context: ssl.SSLContext, ciphers: str | None) -> bool:
    if isinstance(context, _LoweredContext):
        ciphers = ciphers or _OLD_CIPHERS
        if "@SECLEVEL" not in ciphers.upper():
            ciphers += ":@SECLEVEL=0"
    if not ciphers:
        return True
    try:
        # Suites without authentication or encryption would permit a man in the middle.
        context.set_ciphers(f"{ciphers}:!aNULL:!eNULL")
    except (ssl.SSLError, ValueError):
        return False
    return True


def _protocol_names(protocols: str) -> set[str]:
    return {name for name in re.split(r"[ ,;]+", protocols) if name}


def _set_protocols(context: ssl.SSLContext, protocols: str | None) -> bool:
    if protocols is None:
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return True
    names = _protocol_names(protocols)
    if not names or not names <= _VERSIONS.keys():
        return False
    wanted = [name for name in _VERSIONS if name in names]
    with warnings.catch_warnings():
        # The administrator named old versions explicitly.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            context.minimum_version = _VERSIONS[wanted[0]]
            context.maximum_version = _VERSIONS[wanted[-1]]
            for name in _VERSIONS.keys() - names:
                context.options |= _EXCLUDE[name]
        except ValueError:
            return False
    return True
