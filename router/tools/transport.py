"""The connection of a management client to the router: a blocking socket, TLS, SASL and the AMQP client session.

TLS and SASL are loaded only by connections that use them: loading them is half of a command line's waiting time. Every
wait has a deadline. Errors are those of router.management.client, with texts for the user. Source:
docs/spec/management.md section 9.1.
"""

import contextlib
import itertools
import math
import socket
import ssl
import time
import uuid
from collections.abc import Mapping
from typing import Any

from router.amqp.client_session import ClientSession, Ended, ProtocolError, Receiver
from router.amqp.codec import CodecError, decode_message, encode_message
from router.management.client import (
    LOCAL_ADDRESS,
    ConnectionException,
    LinkDetached,
    ManagementClient,
    Reply,
    Timeout,
)
from router.tools.connection_options import ConnectionOptions

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
_READ_BYTES = 64 * 1024
# A page of 500 rows has about twenty thousand values, and ten thousand links in one reply one and a half million.
# Attack: a hostile router's 12 MB of the smallest values, or of values nested as deep as allowed, would take 12 s.
MAX_REPLY_VALUES = 1_600_000
# The limit for all answers of one command line. A router may be slow, but must not block an operator's shell for hours
# with thousands of pages, each of which arrives just in time.
MAX_RUN_S = 600.0
# The maximum of one wait of the socket, which supports no infinite time.
_MAX_WAIT_S = 3600.0
_OF_REPLIES = Receiver()
# For the final Close, which is not important.
_CLOSE_TIMEOUT_S = 1.0


def connect(options: ConnectionOptions, address: str = LOCAL_ADDRESS) -> ManagementClient:
    """Returns a client of the management node at `address` (or at the one in the options' URL), ready for requests.

    Errors  ConnectionException, Timeout, LinkDetached.
    """
    return ManagementClient(SocketTransport(options, MAX_RUN_S), options.address or address)


class RouterConnection:
    """One connection to one router, with the links of its session. Not thread-safe."""

    def __init__(
        self, options: ConnectionOptions, max_run_s: float = math.inf, receiver: Receiver | None = _OF_REPLIES
    ) -> None:
        """Opens the connection.

        max_run_s  for the connection and all answers together; the options' timeout if that is longer
        receiver   as in ClientSession
        """
        self._options = options
        self._where = options.where
        self._max_run_s = max(max_run_s, options.timeout_s)
        self._run_deadline = time.monotonic() + self._max_run_s
        self._allow(options.timeout_s)
        container = f"palisade-tools-{uuid.uuid4()}"
        self._session = ClientSession(container_id=container, hostname=options.host, receiver=receiver)
        self._socket = self._dial()
        try:
            if options.is_tls:
                self._socket = self._wrap(self._socket)
            if options.has_sasl:
                self._session.receive(self._authenticate())
            self._flush()
            while not self._session.is_ready:
                self._exchange("the router to open the connection")
        except ProtocolError as error:
            self._abandon()
            raise ConnectionException(f"Connection to {self._where} failed: {error}") from None
        except BaseException:
            self._abandon()
            raise

    def close(self) -> None:
        """Closes the connection, and waits only a short time for an answer."""
        self._allow(_CLOSE_TIMEOUT_S)
        with contextlib.suppress(ConnectionException, Timeout, LinkDetached, ProtocolError):
            self._session.close()
            self._flush()
            while not self._session.is_closed:
                self._exchange("the router to close the connection")
        self._abandon()

    # --- steps of the connection --------------------------------------------------------------------------------------

    def _dial(self) -> socket.socket:
        try:
            found = socket.create_connection((self._options.host, self._options.port), timeout=self._options.timeout_s)
        except TimeoutError:
            raise self._timeout("a connection") from None
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConnectionException(f"Connection to {self._where} failed: {reason}") from None
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return found

    def _wrap(self, plain: socket.socket) -> ssl.SSLSocket:
        from auth.tls import TlsProfile, TlsProfileError, client_context

        options = self._options
        profile = TlsProfile(
            name="tools",
            ca_cert_file=options.trust_file,
            cert_file=options.certificate_file,
            private_key_file=options.key_file,
            password=options.key_password,
        )
        try:
            context = client_context(profile, verify_hostname=options.checks_peer_name)
        except TlsProfileError as error:
            raise ConnectionException(f"{error}: {_credential_files(options)}") from None
        self._arm("the TLS handshake")
        try:
            return context.wrap_socket(plain, server_hostname=options.host)
        except TimeoutError:
            raise self._timeout("the TLS handshake") from None
        except (ssl.SSLError, ssl.CertificateError) as error:
            raise self._tls_fault(error) from None
        except OSError as error:
            raise self._tls_failure(error.strerror or "the peer hung up") from None

    def _authenticate(self) -> bytes:
        """Runs the SASL exchange. Returns the AMQP bytes that followed it, if any."""
        from auth.client_scram import Derive, derive
        from auth.negotiation import Authenticated, ClientNegotiation, Rejected, Verify
        from auth.negotiation import Reply as SaslReply

        options = self._options
        negotiation = ClientNegotiation(
            allowed=options.mechanisms,
            username=options.username,
            password=options.password,
            has_certificate=options.certificate_file is not None,
            is_encrypted=options.is_tls,
            token=options.token,
            binding=self._binding,
        )
        self._write(SASL_HEADER)
        header = b""
        while len(header) < len(SASL_HEADER):
            header += self._read("the router's SASL header", is_first=True)
        if not header.startswith(SASL_HEADER):
            raise ConnectionException(f"Connection to {self._where} failed: the peer does not offer SASL")
        effects = negotiation.start() + negotiation.receive(header[len(SASL_HEADER) :])
        while True:
            while effects:
                match effect := effects.pop(0):
                    case SaslReply(data=data):
                        self._write(data)
                    case Derive():
                        effects += negotiation.resume(derive(effect))
                    case Authenticated():
                        return negotiation.take_rest()
                    case Verify():
                        raise AssertionError("only a server verifies")
                    case Rejected(condition=condition, description=description):
                        raise ConnectionException(
                            f"Connection to {self._where} failed: {condition} {description}{self._sasl_hint()}"
                        )
            effects = negotiation.receive(self._read("the SASL exchange"))

    def _binding(self, kind: str) -> bytes | None:
        """Returns the channel binding of our TLS, which is that of the router's certificate."""
        from auth.certificates import end_point_binding
        from auth.scram import BINDING

        certificate = self._socket.getpeercert(True) if isinstance(self._socket, ssl.SSLSocket) else None
        return end_point_binding(certificate) if certificate and kind == BINDING else None

    def _sasl_hint(self) -> str:
        if self._options.certificate_file or self._options.token:
            return ""
        if self._options.username is None:
            return " (no user name was given: see --sasl-username)"
        return "" if self._options.password else " (no password was given: see --sasl-password-file)"

    # --- bytes --------------------------------------------------------------------------------------------------------

    def _exchange(self, awaited: str) -> None:
        """Waits once for bytes from the router and gives them to the session. Raises the session's failure.

        A message that came together with the end is returned first: a client that bans itself gets its answer.
        """
        self._raise_if_ended()
        self._session.receive(self._read(awaited, is_first=not self._session.is_open))
        try:
            self._flush()
            self._raise_if_ended()
        except (ConnectionException, LinkDetached):
            if not self._session.has_message:
                raise

    def _raise_if_ended(self) -> None:
        ended = self._session.ended
        if ended is not None:
            raise _error_of(ended, self._where)

    def _flush(self) -> None:
        if output := self._session.take_output():
            self._write(output)

    def _write(self, data: bytes) -> None:
        awaited = "the router to take our bytes"
        self._arm(awaited)
        try:
            self._socket.sendall(data)
        except TimeoutError:
            raise self._timeout(awaited) from None
        except OSError as error:
            raise self._lost(error, is_first=False) from None

    def _read(self, awaited: str, *, is_first: bool = False) -> bytes:
        """Returns some bytes, at least one. While it waits, it keeps the router's idle timeout from expiring."""
        while True:
            idle_s = self._session.remote_idle_s
            self._arm(awaited, at_most_s=idle_s / 2 if idle_s else None)
            try:
                data = self._socket.recv(_READ_BYTES)
            except TimeoutError:
                if time.monotonic() >= self._deadline:
                    raise self._timeout(awaited) from None
                if idle_s:
                    self._session.send_heartbeat()
                    self._flush()
                continue
            except OSError as error:
                raise self._lost(error, is_first=is_first) from None
            if not data:
                raise self._lost(None, is_first=is_first)
            return data

    def _allow(self, seconds: float) -> None:
        """Sets the deadline to this time from now, or to the deadline of the whole run if that is earlier."""
        self._patience_s = seconds
        self._deadline = min(time.monotonic() + seconds, self._run_deadline)

    def _arm(self, awaited: str, *, at_most_s: float | None = None) -> None:
        """Lets the next call on the socket wait until the deadline. Errors: Timeout if the deadline is over."""
        remaining_s = self._deadline - time.monotonic()
        if remaining_s <= 0:
            raise self._timeout(awaited)
        self._socket.settimeout(min(remaining_s, _MAX_WAIT_S if at_most_s is None else at_most_s))

    def _lost(self, error: OSError | None, *, is_first: bool) -> Exception:
        if isinstance(error, ssl.SSLError):
            return self._tls_fault(error)
        if is_first and self._options.is_tls:
            # A TLSv1.3 server checks our certificate after the handshake, and its alert may be lost with the socket.
            hint = "" if self._options.certificate_file else "; does it demand a client certificate?"
            return self._tls_failure(f"the router hung up after the TLS handshake{hint}")
        if is_first:
            hint = "does it demand TLS or SASL, or is this host denied?"
            return ConnectionException(f"Connection to {self._where} failed: the router hung up; {hint}")
        reason = (error.strerror if error else None) or "the router hung up"
        return ConnectionException(f"Connection to {self._where} failed: {reason}")

    def _tls_fault(self, error: ssl.SSLError | ssl.CertificateError) -> ConnectionException:
        from auth.tls import failure_text

        return self._tls_failure(failure_text(error))

    def _tls_failure(self, reason: str) -> ConnectionException:
        return ConnectionException(f"Connection to {self._where} failed: SSL Failure: {reason}{_tls_hint(reason)}")

    def _timeout(self, awaited: str) -> Timeout:
        if time.monotonic() >= self._run_deadline:
            return Timeout(f"Connection to {self._where} timed out: the answers took more than {self._max_run_s:g} s")
        return Timeout(f"Connection to {self._where} timed out after {self._patience_s:g} s: waited for {awaited}")

    def _abandon(self) -> None:
        self._socket.close()


class SocketTransport(RouterConnection):
    """Carries the requests of a management client."""

    def __init__(self, options: ConnectionOptions, max_run_s: float = math.inf) -> None:
        super().__init__(options, max_run_s)
        self._correlation_ids = map(str, itertools.count(1))

    @property
    def reply_to(self) -> str:
        """The address for replies."""
        assert self._session.reply_to is not None  # known since the connection was made
        return self._session.reply_to

    def request(self, address: str, application_properties: Mapping[str, Any], body: Any) -> Reply:
        self._allow(self._options.timeout_s)
        correlation_id = next(self._correlation_ids)
        try:
            payload = encode_message(
                reply_to=self._session.reply_to,
                correlation_id=correlation_id,
                application_properties=application_properties,
                body=body,
            )
        except CodecError as error:
            raise ValueError(f"the request cannot be encoded: {error}") from None
        try:
            self._session.send_message(address, payload)
            self._flush()
            while True:
                while (message := self._session.take_message()) is None:
                    self._exchange(f"{address} to answer {application_properties.get('operation')}{_hint(address)}")
                reply = decode_message(message, max_values=MAX_REPLY_VALUES)
                # A late answer to a request that timed out does not belong to this request.
                if reply.correlation_id == correlation_id:
                    return Reply(
                        application_properties=reply.application_properties,
                        body=reply.body,
                        value_count=reply.value_count,
                        size_bytes=len(message),
                    )
        except ProtocolError as error:
            raise ConnectionException(f"Connection to {self._where} failed: {error}") from None
        except CodecError as error:
            raise ValueError(f"the router's answer cannot be decoded: {error}") from None


def _error_of(ended: Ended, where: str) -> Exception:
    reason = ": ".join(part for part in (ended.condition, ended.description) if part) or "without a reason"
    if ended.kind == "link":
        return LinkDetached(f"{where} closed {ended.what}: {reason}")
    if ended.kind == "delivery":
        return LinkDetached(f"{where} did not accept the message to {ended.what}: {reason}")
    if ended.kind == "session":
        return LinkDetached(f"{where} ended the session: {reason}")
    return ConnectionException(f"{where} closed the connection: {reason}")


def _hint(address: str) -> str:
    """Returns a hint for an address of another router: if that router does not exist, no error comes back."""
    return " (is there a router of this name?)" if address.startswith(("_topo/", "_edge/")) else ""


def _tls_hint(reason: str) -> str:
    if "hostname mismatch" in reason.lower() or "ip address mismatch" in reason.lower():
        return " (see --ssl-disable-peer-name-verify)"
    if "certificate verify failed" in reason:
        return " (is the right --ssl-trustfile given?)"
    return ""


def _credential_files(options: ConnectionOptions) -> str:
    """Names the files to check, because they could not be used."""
    given = [name for name in (options.trust_file, options.certificate_file, options.key_file) if name]
    for name in given:
        try:
            with open(name, "rb"):
                pass
        except OSError as error:
            return f"{name}: {error.strerror}"
    of_key = ", and the password of the key" if options.certificate_file else ""
    return f"check {', '.join(given)}{of_key}"
