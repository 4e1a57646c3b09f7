"""The SASL exchange as a state machine, for the side that offers mechanisms and for the side that chooses one.

Sans-IO: takes the plaintext bytes after the SASL protocol header, and returns effects. Neither machine raises, whatever
a peer sends: a fault is `Rejected`, after which the machine ignores all input. The caller carries out the effects, such
as the verification, and passes the answer to `resume`. Bytes that arrive before the answer wait.
Sources: AMQP 1.0 §5.3; docs/spec/policy-and-auth.md §8, §8b.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from auth import sasl_frames
from auth.bearer import BEARER
from auth.client_mechanisms import ClientMechanism, Means, choose
from auth.client_scram import Derive, MechanismFault
from auth.credentials import Answer, MechanismRequest
from auth.identity import Identity
from auth.installed import create_server_mechanism
from auth.mechanisms import (
    Accepted,
    Ask,
    Challenge,
    Channel,
    MechanismFactory,
    Refused,
    ServerMechanism,
    Step,
)
from auth.sasl_frames import (
    MAX_RECEIVED_FRAME_BYTES,
    MAX_SENT_FRAME_BYTES,
    FrameReader,
    SaslFrame,
    SaslFrameError,
)
from auth.scram import PLUS
from auth.secrets import Secret

# Limits the bytes that an unauthenticated peer can make us hold while a verifier (LDAP, a hash) works.
MAX_PENDING_BYTES = 64 * 1024

# Stops a server or client that sends challenges forever; the longest known mechanism (SCRAM, Kerberos) needs four.
MAX_ROUNDS = 16

UNAUTHORIZED = "amqp:unauthorized-access"
FRAMING_ERROR = "amqp:connection:framing-error"

# SASL outcome code -> why the server did not check the password (AMQP 1.0 §5.3.3.6). Without these texts an unreachable
# directory would look like a wrong password.
NOT_JUDGED = {
    2: "the server could not check the login",
    3: "the server cannot check logins until its operator has changed something",
    sasl_frames.OUTCOME_SYS_TEMP: "the server cannot check logins at present: try again later",
}

NOT_OFFERED = "Client mechanism not in mechanism inclusion list."
TOO_MUCH = f"more than {MAX_PENDING_BYTES} bytes before authentication"

# RFC 4422 §3.1. Any other name is kept out of log lines.
MECHANISM_NAME = re.compile(r"[A-Z0-9_-]{1,20}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Write these bytes to the peer, inside TLS if there is a tunnel."""

    data: bytes = field(repr=False)  # from a client it may hold the password


@dataclass(frozen=True, slots=True, kw_only=True)
class Verify:
    """Have a verifier answer this off the event loop, and pass the result to `resume`."""

    request: MechanismRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticated:
    """The exchange has succeeded. `take_rest` returns the bytes after it."""

    identity: Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """The exchange has failed. Write the replies that precede this effect, then close the connection.

    mechanism    upper case and well formed, or None
    detail       the reason for the log; "" if there is no more to say
    condition    the AMQP condition of the log line
    description  the text of the log line after the condition (docs/spec/policy-and-auth.md §8.2, §8b)
    is_compared  false: the verifier did not check the credentials
    """

    mechanism: str | None
    detail: str
    condition: str = UNAUTHORIZED
    description: str
    is_compared: bool = True


# The effects, apart from Reply, that the owner of a negotiation carries out.
Order = Verify | Derive | Authenticated | Rejected
SaslEffect = Reply | Order


class _State(Enum):
    NEW = auto()
    AWAITING_INIT = auto()
    AWAITING_RESPONSE = auto()
    VERIFYING = auto()
    DERIVING = auto()
    DONE = auto()
    FAILED = auto()


class ServerNegotiation:
    """The side that offers mechanisms: one object per connection, used once.

    offered        upper-case names in the order to offer them (`verifiers.sasl_config.offered_mechanisms`)
    channel        the connection below SASL
    mechanisms     makes the mechanism that the client chose
    """

    __slots__ = (
        "_channel",
        "_mechanism",
        "_mechanism_name",
        "_mechanisms",
        "_offered",
        "_reader",
        "_rounds",
        "_state",
    )

    def __init__(
        self,
        *,
        offered: Sequence[str],
        channel: Channel,
        mechanisms: MechanismFactory = create_server_mechanism,
    ) -> None:
        self._offered = tuple(offered)
        self._channel = channel
        self._mechanisms = mechanisms
        self._reader = FrameReader()
        self._state = _State.NEW
        self._mechanism: ServerMechanism | None = None
        self._mechanism_name: str | None = None
        self._rounds = 0

    def start(self) -> list[SaslEffect]:
        """Offers the mechanisms. Call it once, after the exchange of the SASL headers."""
        if self._state is not _State.NEW:
            return []
        self._state = _State.AWAITING_INIT
        offer = sasl_frames.encode_offer(self._offered)
        return [Reply(data=offer), *self._read()]

    def receive(self, data: bytes) -> list[SaslEffect]:
        """Takes bytes from the client."""
        if self._state is _State.FAILED:
            return []
        self._reader.feed(data)
        return self._read()

    def resume(self, result: Answer) -> list[SaslEffect]:
        """Takes the answer to `Verify`. Ignores an answer that is not expected: it may arrive late, after a failure."""
        if self._state is not _State.VERIFYING or self._mechanism is None:
            return []
        return self._take(self._mechanism.conclude(result)) + self._read()

    @property
    def pending_bytes(self) -> int:
        """Returns the number of bytes held: the beginning of a frame, or bytes that wait for the verifier."""
        return self._reader.pending_bytes

    def take_rest(self) -> bytes:
        """Returns the bytes after the exchange, unchanged; empty before `Authenticated`."""
        return self._reader.take_rest() if self._state is _State.DONE else b""

    def _read(self) -> list[SaslEffect]:
        effects: list[SaslEffect] = []
        while self._state in (_State.AWAITING_INIT, _State.AWAITING_RESPONSE):
            try:
                frame = self._reader.next_frame()
            except SaslFrameError as fault:
                return effects + self._fail_framing(str(fault))
            if frame is None:
                return effects
            effects += self._take_frame(frame)
        if self._state in (_State.NEW, _State.VERIFYING) and self._reader.pending_bytes > MAX_PENDING_BYTES:
            effects += self._fail_framing(TOO_MUCH)
        return effects

    def _take_frame(self, frame: SaslFrame) -> list[SaslEffect]:
        match self._state, frame:
            case _State.AWAITING_INIT, sasl_frames.Init(mechanism=name, initial_response=response):
                return self._take_init(name, response)
            case _State.AWAITING_RESPONSE, sasl_frames.Response(response=response) if self._mechanism is not None:
                return self._take(self._mechanism.respond(response))
            case _:
                return self._fail_framing(f"unexpected SASL frame {type(frame).__name__.lower()}")

    def _take_init(self, name: str, response: bytes | None) -> list[SaslEffect]:
        chosen = name.upper()
        self._mechanism_name = chosen if MECHANISM_NAME.fullmatch(chosen) else None
        if chosen in self._offered:
            channel = self._channel
            # A client may say that we offer no -PLUS form (RFC 5802 §6). That is correct if the listener does not.
            if chosen.removesuffix(PLUS) + PLUS not in self._offered:
                channel = replace(channel, binding=lambda _type: None)
            self._mechanism = self._mechanisms(chosen, channel)
        if self._mechanism is None:
            return self._refuse(NOT_OFFERED)
        return self._take(self._mechanism.respond(response))

    def _take(self, step: Step) -> list[SaslEffect]:
        match step:
            case Challenge(data=data):
                self._rounds += 1
                if self._rounds > MAX_ROUNDS:
                    return self._refuse("SASL(-1): generic failure: too many challenges")
                try:
                    challenge = sasl_frames.encode_challenge(data)
                except SaslFrameError as fault:  # caused by the length of the client's own data
                    return self._refuse(f"SASL(-1): generic failure: {fault}")
                self._state = _State.AWAITING_RESPONSE
                return [Reply(data=challenge)]
            case Ask(request=request):
                self._state = _State.VERIFYING
                return [Verify(request=request)]
            case Accepted():
                self._state = _State.DONE
                identity = Identity(
                    user=step.user,
                    mechanism=self._mechanism_name,
                    is_authenticated=True,
                    groups=step.groups,
                    proof=step.proof,
                    ends_at_s=step.ends_at_s,
                )
                return [Reply(data=sasl_frames.OK_FRAME), Authenticated(identity=identity)]
            case Refused(detail=detail, is_compared=is_compared):
                return self._refuse(detail, is_compared=is_compared)

    def _refuse(self, detail: str, *, is_compared: bool = True) -> list[SaslEffect]:
        # A client that receives `auth` may give up forever, or ask for another password.
        code = sasl_frames.OUTCOME_AUTH if is_compared else sasl_frames.OUTCOME_SYS_TEMP
        failure = sasl_frames.encode(sasl_frames.Outcome(code=code))
        summary = f"Failed to authenticate client [mech={self._mechanism_name or 'none'}]"
        description = f"{detail} ({summary})" if detail else summary
        self._fail()
        rejected = Rejected(
            mechanism=self._mechanism_name, detail=detail, description=description, is_compared=is_compared
        )
        return [Reply(data=failure), rejected]

    def _fail_framing(self, detail: str) -> list[SaslEffect]:
        self._fail()
        return [framing_fault(self._mechanism_name, detail)]

    def _fail(self) -> None:
        self._state = _State.FAILED
        self._mechanism = None
        self._reader.take_rest()


class ClientNegotiation:
    """The side that chooses a mechanism: one object per connection, used once.

    allowed          names that the configuration permits, in any case; None for any
    username         with `password`, the credentials for SCRAM and PLAIN
    has_certificate  our TLS tunnel has our certificate to show
    is_encrypted     there is a TLS tunnel
    token            a bearer token, sent only inside TLS
    binding          (type) → the channel binding of the tunnel, None without one
    """

    __slots__ = ("_allowed", "_means", "_mechanism", "_reader", "_rounds", "_state")

    def __init__(
        self,
        *,
        allowed: Sequence[str] | None,
        username: str | None,
        password: Secret | None,
        has_certificate: bool,
        is_encrypted: bool,
        token: Secret | None = None,
        binding: Callable[[str], bytes | None] = lambda _type: None,
    ) -> None:
        self._allowed = None if allowed is None else frozenset(name.upper() for name in allowed)
        self._means = Means(
            username=username,
            password=password,
            token=token,
            has_certificate=has_certificate,
            is_encrypted=is_encrypted,
            binding=binding,
        )
        self._reader = FrameReader()
        self._state = _State.AWAITING_INIT
        self._mechanism: ClientMechanism | None = None
        self._rounds = 0

    def start(self) -> list[SaslEffect]:
        """Returns no effects, because the server speaks first. Exists so that callers use both sides alike."""
        return []

    def receive(self, data: bytes) -> list[SaslEffect]:
        """Takes bytes from the server."""
        if self._state is _State.FAILED:
            return []
        self._reader.feed(data)
        return self._read()

    def resume(self, salted: bytes) -> list[SaslEffect]:
        """Takes the result of `Derive`. Ignores a result that is not expected."""
        if self._state is not _State.DERIVING or self._mechanism is None:
            return []
        self._state = _State.AWAITING_RESPONSE
        try:
            response = _response(self._mechanism.derived(salted))
        except SaslFrameError as fault:  # the server's nonce is longer than a frame
            return self._fail_framing(str(fault))
        return [response, *self._read()]

    def _read(self) -> list[SaslEffect]:
        effects: list[SaslEffect] = []
        while self._state in (_State.AWAITING_INIT, _State.AWAITING_RESPONSE):
            try:
                frame = self._reader.next_frame()
                if frame is None:
                    return effects
                effects += self._take_frame(frame)
            except SaslFrameError as fault:
                return effects + self._fail_framing(str(fault))
            except MechanismFault as fault:
                return effects + self._fail_authentication(str(fault))
        if self._state is _State.DERIVING and self._reader.pending_bytes > MAX_PENDING_BYTES:
            effects += self._fail_framing(TOO_MUCH)
        return effects

    @property
    def pending_bytes(self) -> int:
        """Returns the number of bytes held: the beginning of a frame, or bytes that wait for a result."""
        return self._reader.pending_bytes

    def take_rest(self) -> bytes:
        """Returns the bytes after the exchange, unchanged; empty before `Authenticated`."""
        return self._reader.take_rest() if self._state is _State.DONE else b""

    def _take_frame(self, frame: SaslFrame) -> list[SaslEffect]:
        match self._state, frame:
            case _State.AWAITING_INIT, sasl_frames.Mechanisms(names=names):
                return self._choose(names)
            case _State.AWAITING_RESPONSE, sasl_frames.Challenge(challenge=data) if self._mechanism is not None:
                self._rounds += 1
                if self._rounds > MAX_ROUNDS:
                    return self._fail_framing("too many challenges")
                answer = self._mechanism.answer(data)
                if isinstance(answer, Derive):
                    self._state = _State.DERIVING
                    return [answer]
                return [_response(answer)]
            case _State.AWAITING_RESPONSE, sasl_frames.Outcome(code=code, additional_data=additional):
                return self._conclude(code, additional)
            case _:
                return self._fail_framing(f"unexpected SASL frame {type(frame).__name__.lower()}")

    def _choose(self, offered: Sequence[str]) -> list[SaslEffect]:
        self._mechanism = choose([name.upper() for name in offered], self._allowed, self._means)
        if self._mechanism is None:
            return self._fail_authentication()
        self._state = _State.AWAITING_RESPONSE
        init = sasl_frames.Init(mechanism=self._mechanism.name, initial_response=self._mechanism.initial_response())
        at_most = MAX_RECEIVED_FRAME_BYTES if init.mechanism in BEARER else MAX_SENT_FRAME_BYTES
        return [Reply(data=sasl_frames.encode(init, max_bytes=at_most))]

    def _conclude(self, code: int, additional: bytes | None) -> list[SaslEffect]:
        if self._mechanism is None or code != sasl_frames.OUTCOME_OK:
            return self._fail_authentication(NOT_JUDGED.get(code, ""))
        self._mechanism.confirm(additional)
        self._state = _State.DONE
        identity = Identity(user=self._means.username, mechanism=self._mechanism.name, is_authenticated=True)
        return [Authenticated(identity=identity)]

    def _fail_authentication(self, detail: str = "") -> list[SaslEffect]:
        name = None if self._mechanism is None else self._mechanism.name
        summary = f"Authentication failed [mech={name or 'none'}]"
        self._fail()
        return [Rejected(mechanism=name, detail=detail, description=f"{detail} ({summary})" if detail else summary)]

    def _fail_framing(self, detail: str) -> list[SaslEffect]:
        name = None if self._mechanism is None else self._mechanism.name
        self._fail()
        return [framing_fault(name, detail)]

    def _fail(self) -> None:
        self._state = _State.FAILED
        self._mechanism = None
        self._reader.take_rest()


def _response(data: bytes) -> Reply:
    return Reply(data=sasl_frames.encode(sasl_frames.Response(response=data)))


def framing_fault(mechanism: str | None, detail: str) -> Rejected:
    """Returns the end of an exchange whose peer does not speak SASL. `detail` is for the log."""
    description = f"SASL protocol error: {detail}"
    return Rejected(mechanism=mechanism, detail=detail, condition=FRAMING_ERROR, description=description)
