"""Relays the SASL exchange between a client and a remote authentication service. Sans-IO.

The client receives the service's mechanisms, challenges and verdict. The service receives the client's choice and
responses. Their bytes are not changed. The client receives the success only after the service has named the user.
Neither side can make it raise: a fault is `Rejected`, after which it ignores all input.
Source: docs/spec/policy-and-auth.md §9.2 to §9.5.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from auth import sasl_frames
from auth.credentials import CheckPassword
from auth.identity import Grants, Identity
from auth.mechanisms import parse_plain
from auth.negotiation import (
    MAX_PENDING_BYTES,
    MAX_ROUNDS,
    MECHANISM_NAME,
    NOT_OFFERED,
    TOO_MUCH,
    Authenticated,
    Rejected,
    Reply,
    framing_fault,
)
from auth.sasl_frames import FrameReader, SaslFrameError
from auth.scram import claimed_name, hash_of

# Attack: a client makes the router send bytes to the service without end, or the service to clients, in small steps.
# Twice the longest token, and room for Kerberos.
MAX_RELAYED_BYTES: Final = 128 * 1024

# They authenticate the connection that they run on, and the service would see the router's. EXTERNAL would make every
# client the user of the router's own certificate.
_OF_THE_CHANNEL: Final = frozenset({"EXTERNAL"})
_KERBEROS: Final = frozenset({"GSSAPI", "GSS-SPNEGO", "GS2-KRB5", "GS2-IAKERB"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """Send this frame to the service."""

    frame: sasl_frames.Init | sasl_frames.Response = field(repr=False)  # it may hold a password


@dataclass(frozen=True, slots=True, kw_only=True)
class Voucher:
    """The service's statement of who the client is.

    user    "" if it names none: then only a client with grants is admitted
    grants  None if the service says nothing about addresses
    """

    user: str = ""
    groups: tuple[str, ...] = ()
    grants: Grants | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFailed:
    """The service failed to answer correctly; Rejected follows.

    why  for the log
    """

    why: str


RelayEffect = Reply | Forward | Authenticated | Rejected | ServiceFailed


class _State(Enum):
    AWAITING_OFFER = auto()
    AWAITING_INIT = auto()
    AWAITING_SERVICE = auto()
    AWAITING_RESPONSE = auto()
    DONE = auto()
    FAILED = auto()


class RelayedNegotiation:
    """One exchange, used once. Bytes that the client sends too early wait, up to a limit.

    allowed       upper-case names that the listener permits; None: any
    without       upper-case names that the listener never offers
    realm         the hostname of the sasl-init for the service; None: absent
    claimed_user  the user that a client of PLAIN or SCRAM claims to be
    """

    def __init__(self, *, allowed: Collection[str] | None, without: Collection[str], realm: str | None) -> None:
        self._allowed = allowed
        self._without = _OF_THE_CHANNEL | _KERBEROS | set(without)
        self._realm = realm
        self._reader = FrameReader()
        self._state = _State.AWAITING_OFFER
        self._offered: tuple[str, ...] = ()
        self._mechanism: str | None = None
        self._rounds = 0
        self._from_client = self._from_service = 0  # bytes
        self.claimed_user: str | None = None

    @property
    def is_over(self) -> bool:
        return self._state in (_State.DONE, _State.FAILED)

    @property
    def can_be_guessed(self) -> bool:
        """Returns whether the client has chosen a mechanism that uses a secret."""
        return self._mechanism is not None and self._mechanism != "ANONYMOUS"

    @property
    def pending_bytes(self) -> int:
        """Returns the number of bytes held from the client."""
        return self._reader.pending_bytes

    def take_rest(self) -> bytes:
        """Returns the client's bytes after the exchange, unchanged; empty before `Authenticated`."""
        return self._reader.take_rest() if self._state is _State.DONE else b""

    # The client

    def receive(self, data: bytes) -> list[RelayEffect]:
        """Takes bytes from the client."""
        if self._state is _State.FAILED:
            return []
        self._reader.feed(data)
        return self._read()

    def _read(self) -> list[RelayEffect]:
        effects: list[RelayEffect] = []
        while self._state in (_State.AWAITING_INIT, _State.AWAITING_RESPONSE):
            try:
                frame = self._reader.next_frame()
            except SaslFrameError as fault:
                return effects + self._fail_framing(str(fault))
            if frame is None:
                return effects
            match self._state, frame:
                case _State.AWAITING_INIT, sasl_frames.Init(mechanism=name, initial_response=response):
                    effects += self._take_init(name, response)
                case _State.AWAITING_RESPONSE, sasl_frames.Response(response=response):
                    effects += self._take_response(response, frame)
                case _:
                    effects += self._fail_framing(f"unexpected SASL frame {type(frame).__name__.lower()}")
        if not self.is_over and self._reader.pending_bytes > MAX_PENDING_BYTES:
            effects += self._fail_framing(TOO_MUCH)
        return effects

    def _take_init(self, name: str, response: bytes | None) -> list[RelayEffect]:
        chosen = name.upper()
        self._mechanism = chosen if MECHANISM_NAME.fullmatch(chosen) else None
        if chosen not in self._offered:
            return self._refuse(NOT_OFFERED)
        init = sasl_frames.Init(mechanism=chosen, initial_response=response, hostname=self._realm)
        return self._take_response(response, init)

    def _take_response(
        self, response: bytes | None, frame: sasl_frames.Init | sasl_frames.Response
    ) -> list[RelayEffect]:
        self._from_client += len(response or b"")
        if self._from_client > MAX_RELAYED_BYTES:
            return self._refuse(f"more than {MAX_RELAYED_BYTES} bytes for the authentication service")
        if self._mechanism == "PLAIN" and response is not None:
            # To an LDAP server, an empty password is an anonymous bind, which "succeeds". No service ever gets one.
            parsed = parse_plain(response)
            if not isinstance(parsed, CheckPassword):
                return self._refuse(parsed.detail)
            self.claimed_user = parsed.user
        elif self._mechanism == "LOGIN" and (fault := self._fault_of_login(response)) is not None:
            return self._refuse(fault)
        elif self.claimed_user is None and response is not None and hash_of(self._mechanism or "") is not None:
            self.claimed_user = claimed_name(response)
        self._state = _State.AWAITING_SERVICE
        return [Forward(frame=frame)]

    def _fault_of_login(self, response: bytes | None) -> str | None:
        """Returns why the service must not get this message of LOGIN, or None.

        LOGIN sends first the user name, then the password.
        """
        if not response and self._rounds == 0:
            return None  # a sasl-init without either
        if self.claimed_user is None:
            parsed = parse_plain(b"\0%b\0-" % (response or b""))
            if isinstance(parsed, CheckPassword):
                self.claimed_user = parsed.user
        else:
            # A service that reads it as a C string would find an empty password before a NUL.
            parsed = parse_plain(b"\0-\0%b" % (response or b""))
        return None if isinstance(parsed, CheckPassword) else parsed.detail

    # The service

    def offer(self, names: Sequence[str]) -> list[RelayEffect]:
        """Takes the mechanisms that the service offers. Perhaps this listener permits none of them."""
        if self._state is not _State.AWAITING_OFFER:
            return self.fail("the service offered mechanisms a second time")
        upper = dict.fromkeys(name.upper() for name in names)
        self._offered = tuple(
            name
            for name in upper
            if (self._allowed is None or name in self._allowed)
            and name not in self._without
            and not name.endswith("-PLUS")
            and MECHANISM_NAME.fullmatch(name)
        )
        self._state = _State.AWAITING_INIT
        return [Reply(data=sasl_frames.encode(sasl_frames.Mechanisms(names=self._offered), _MOST)), *self._read()]

    def challenge(self, data: bytes) -> list[RelayEffect]:
        """Takes a challenge from the service to the client."""
        self._rounds += 1
        self._from_service += len(data)
        if self._state is not _State.AWAITING_SERVICE:
            return self.fail("the service sent a challenge out of turn")
        if self._rounds > MAX_ROUNDS:
            return self.fail("the service sent too many challenges")
        if self._from_service > MAX_RELAYED_BYTES:
            return self.fail(f"the service sent more than {MAX_RELAYED_BYTES} bytes")
        self._state = _State.AWAITING_RESPONSE
        return [Reply(data=sasl_frames.encode(sasl_frames.Challenge(challenge=data), _MOST)), *self._read()]

    def refuse(self, code: int) -> list[RelayEffect]:
        """Takes a failure as the service's outcome. `code` as in sasl_frames.Outcome."""
        if self._state is not _State.AWAITING_SERVICE:
            return self.fail("the service sent an outcome out of turn")
        return self._refuse("", is_compared=code == sasl_frames.OUTCOME_AUTH)

    def vouch(self, voucher: Voucher) -> list[RelayEffect]:
        """Takes the service's success, with the identity of the client."""
        if self._state is not _State.AWAITING_SERVICE:
            return self.fail("the service vouched for nobody")
        if not voucher.user and voucher.grants is None:
            # Attack: a service that admits a client without naming it: policy may have rules for the name "". If the
            # service grants addresses, as services of 1.20 do, no rule looks for a name.
            return self.fail("the service let the client in and named no user")
        self._state = _State.DONE
        identity = Identity(
            user=voucher.user,
            mechanism=self._mechanism,
            is_authenticated=True,
            groups=voucher.groups,
            grants=voucher.grants,
        )
        success = sasl_frames.encode(sasl_frames.Outcome(code=sasl_frames.OUTCOME_OK))
        return [Reply(data=success), Authenticated(identity=identity)]

    def decline(self, why: str) -> list[RelayEffect]:
        """Ends the exchange without an answer, whatever the service says.

        why  for the log
        """
        return [] if self.is_over else self._refuse(why, is_compared=False)

    def fail(self, why: str) -> list[RelayEffect]:
        """Ends the exchange because the service cannot be asked, or does not speak correct SASL.

        The credentials were not checked.

        why  for the log
        """
        return [] if self.is_over else [ServiceFailed(why=why), *self._refuse("", is_compared=False)]

    # Failures

    def _refuse(self, detail: str, *, is_compared: bool = True) -> list[RelayEffect]:
        """Sends `auth` to the client, whatever the service's code was: clients of 1.20 know no other code."""
        effects: list[RelayEffect] = []
        if self._state is _State.AWAITING_OFFER:
            effects.append(Reply(data=sasl_frames.encode(sasl_frames.Mechanisms(names=()))))
        effects.append(Reply(data=sasl_frames.encode(sasl_frames.Outcome(code=sasl_frames.OUTCOME_AUTH))))
        summary = f"Failed to authenticate client [mech={self._mechanism or 'none'}]"
        self._fail()
        description = f"{detail} ({summary})" if detail else summary
        rejected = Rejected(mechanism=self._mechanism, detail=detail, description=description, is_compared=is_compared)
        return [*effects, rejected]

    def _fail_framing(self, detail: str) -> list[RelayEffect]:
        self._fail()
        return [framing_fault(self._mechanism, detail)]

    def _fail(self) -> None:
        self._state = _State.FAILED
        self._reader.take_rest()


_MOST: Final = sasl_frames.MAX_RECEIVED_FRAME_BYTES
