"""The server side of GSSAPI: Kerberos without a security layer, since TLS encrypts.

A verifier, which has the keys, reads the Kerberos messages (auth/verifiers/kerberos.py).
Sources: RFC 4752 §3; docs/spec/policy-and-auth.md §8.1.
"""

from enum import Enum, auto

from auth.credentials import MAX_TICKET_BYTES, Answer, CheckTicket, TicketStep, VerifyResult
from auth.mechanisms import Accepted, Ask, Challenge, Refused, Step


class _Stage(Enum):
    BEGINNING = auto()  # nothing has arrived yet
    TOKENS = auto()  # the Kerberos exchange continues
    EMPTY = auto()  # the client has the last Kerberos message, and has to answer with an empty one
    LAYER = auto()  # the client chooses the security layer
    CHOSEN = auto()


class Gssapi:
    """One GSSAPI exchange."""

    def __init__(self) -> None:
        self._stage = _Stage.BEGINNING
        self._was_challenged = False
        self._context: object = None
        self._offer = b""

    def respond(self, response: bytes | None) -> Step:
        if self._stage is _Stage.BEGINNING and response is None and not self._was_challenged:
            self._was_challenged = True
            return Challenge(data=b"")
        if self._stage is _Stage.EMPTY:
            if response:
                return _malformed()
            self._stage = _Stage.LAYER
            return Challenge(data=self._offer)
        if self._stage is _Stage.CHOSEN or not response or len(response) > MAX_TICKET_BYTES:
            return _malformed()
        is_last = self._stage is _Stage.LAYER
        self._stage = _Stage.CHOSEN if is_last else _Stage.TOKENS
        return Ask(request=CheckTicket(token=response, context=self._context, is_last=is_last))

    def conclude(self, result: Answer) -> Step:
        if isinstance(result, TicketStep) and self._stage is _Stage.TOKENS:
            self._context = result.context
            if result.offer is None:
                return Challenge(data=result.reply)
            self._offer = result.offer
            self._stage = _Stage.EMPTY if result.reply else _Stage.LAYER
            return Challenge(data=result.reply or result.offer)
        if not isinstance(result, VerifyResult):
            return _malformed()
        if not result.is_valid:
            return Refused(detail=result.detail or "SASL(-13): authentication failure", is_compared=result.is_compared)
        if self._stage is not _Stage.CHOSEN or not result.user:
            return _malformed()
        return Accepted(user=result.user, groups=result.groups, proof=result.proof, ends_at_s=result.ends_at_s)


def _malformed() -> Refused:
    return Refused(detail="SASL(-5): bad protocol / cancel: a message that is none of GSSAPI's")
