"""Authenticates clients by Kerberos, with the keys of a keytab. Serves GSSAPI; the package gssapi is an optional extra.

Blocking: the keytab and the replay cache are files.
Sources: RFC 4752 §3.1; docs/spec/policy-and-auth.md §7, §8.1, §8.10.
"""

import time
from typing import Any, Final

from auth.credentials import MAX_USER_BYTES, Answer, CheckTicket, TicketStep, VerifyRequest, VerifyResult, unavailable
from auth.mechanisms import NOT_OWN_AUTHZID
from auth.verifiers.files import UserFileError, read_private

# The service name in the principals of AMQP servers: amqp/host.example.com@REALM.
DEFAULT_SERVICE: Final = "amqp"

# RFC 4752 §3.1: the layers as bits, here only the first, "no layer"; and the maximum size of a message in a layer.
_NO_LAYER: Final = b"\1\0\0\0"

_FAILED: Final = "SASL(-13): authentication failure: GSSAPI:"


class KerberosError(ValueError):
    """The keytab or the package cannot be used. The text names the remedy."""


class KerberosVerifier:
    """Stores only the path: the keytab is read for each client, so that a new one applies at once.

    An open connection is not checked again: it ends when its ticket ends.
    """

    __slots__ = ("_gssapi", "_keytab", "_service", "name")

    mechanisms = ("GSSAPI",)
    threads = 3

    def __init__(self, keytab: str, name: str, service: str = DEFAULT_SERVICE) -> None:
        """Checks the keytab. Errors: KerberosError, also if other users can read or write the file."""
        try:
            import gssapi
        except ImportError:
            raise KerberosError("Kerberos wants the package gssapi: pip install gssapi") from None
        try:
            content = read_private(keytab)
        except UserFileError as fault:
            raise KerberosError(str(fault)) from None
        if content[:1] != b"\5":
            raise KerberosError(f"{keytab}: not a keytab")
        self._gssapi: Any = gssapi
        self.name = name
        self._keytab = keytab
        self._service = service

    def verify(self, request: VerifyRequest) -> Answer:
        if not isinstance(request, CheckTicket):
            return unavailable("Kerberos knows tickets only")
        context: Any = request.context
        if context is None:
            try:
                keys = self._gssapi.Credentials(usage="accept", store={"keytab": f"FILE:{self._keytab}"})
            except self._gssapi.exceptions.GSSError as fault:
                return unavailable(f"the keytab {self._keytab} cannot be used ({type(fault).__name__})")
            context = self._gssapi.SecurityContext(creds=keys, usage="accept")
        try:
            if request.is_last:
                return self._conclude(context, request.token)
            return self._go_on(context, request.token)
        except self._gssapi.exceptions.GSSError as fault:
            # The text of the fault quotes names that the client wrote.
            return VerifyResult(is_valid=False, detail=f"{_FAILED} {type(fault).__name__} {fault.min_code}")

    def close(self) -> None:
        """Does nothing: the verifier holds no connections."""

    def _go_on(self, context: Any, token: bytes) -> TicketStep | VerifyResult:
        reply = context.step(token) or b""
        if not context.complete:
            return TicketStep(context=context, reply=reply, offer=None)
        if context.mech != self._gssapi.MechType.kerberos:
            return VerifyResult(is_valid=False, detail=f"{_FAILED} a mechanism other than Kerberos")
        # A keytab may have keys of other services, whose tickets are not valid for this one.
        if not str(context.target_name).startswith(f"{self._service}/"):
            return VerifyResult(is_valid=False, detail=f"{_FAILED} a ticket for another service than {self._service}")
        return TicketStep(context=context, reply=reply, offer=context.wrap(_NO_LAYER, False).message)

    def _conclude(self, context: Any, token: bytes) -> VerifyResult:
        """Reads the client's choice of a layer and its authorization identity, in a message with Kerberos' checksum."""
        message = context.unwrap(token).message
        if message[:4] != _NO_LAYER:
            return VerifyResult(is_valid=False, detail=f"{_FAILED} a security layer that was not offered")
        user = self._user(context.initiator_name)
        if not user.isprintable() or not 0 < len(user.encode("utf-8", "surrogatepass")) <= MAX_USER_BYTES:
            return VerifyResult(is_valid=False, detail=f"{_FAILED} an unprintable or too long a name")
        # The principal with its realm is the user's own identity too.
        if message[4:] not in (b"", user.encode("utf-8"), str(context.initiator_name).encode("utf-8")):
            return VerifyResult(is_valid=False, detail=NOT_OWN_AUTHZID)
        lifetime = context.lifetime
        return VerifyResult(
            is_valid=True, user=user, ends_at_s=None if lifetime is None else time.time() + max(lifetime, 0)
        )

    def _user(self, principal: Any) -> str:
        """Returns the principal, without the realm of this machine, as the peer's SASL library does."""
        full = str(principal)
        short = full.partition("@")[0]
        kerberos = self._gssapi.MechType.kerberos
        own = self._gssapi.Name(short, self._gssapi.NameType.user).canonicalize(kerberos)
        return short if own == principal else full
