"""The end above a connection's layers while a remote service authenticates its peer. Sans-IO.

Source: docs/spec/policy-and-auth.md §9.2.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from auth import sasl_frames
from auth.credentials import VerifyResult
from auth.negotiation import Authenticated, Rejected, Reply
from auth.relay import Forward, RelayedNegotiation, RelayEffect, ServiceFailed, Voucher
from router.connection.service import Asker

# Right, or not known yet: both take the same time, so that the peer cannot distinguish them.
_NOT_WRONG: Final = VerifyResult(is_valid=True)


class Relay(Protocol):
    """A login at the service; the caller limits its time."""

    def send(self, frame: sasl_frames.Init | sasl_frames.Response) -> None: ...
    def close(self) -> None:
        """Ends the login: it is complete, or no caller waits for it any more. May be called several times."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayTerms:
    """Settings of a listener whose peers a remote service authenticates.

    begin    (numeric address of the peer, asker) begins a login; the asker is called after this call has returned
    place    of the services, for log lines
    allowed  upper-case names of the mechanisms that the listener permits; None: any
    without  names of the mechanisms that it never offers
    realm    for the service; None: no realm
    max_session_s  maximum connection time of users that the service has accepted; 0: no limit
    """

    begin: Callable[[str, Asker], Relay]
    place: str
    allowed: frozenset[str] | None
    without: frozenset[str]
    realm: str | None
    max_session_s: int = 0


class RelayEnd:
    """One exchange, between the connection's peer and the service.

    write      takes the replies to the peer
    carry_out  does everything else that the exchange asks for
    on_held    receives the number of the peer's bytes that wait
    within     runs a step of the service on the connection if the connection still waits for one, and passes on
               the bytes that the step leaves. Its second argument is the result that the step implies for the peer's
               credentials; None: no result
    """

    def __init__(
        self,
        negotiation: RelayedNegotiation,
        write: Callable[[bytes], None],
        carry_out: Callable[[Forward | Authenticated | Rejected | ServiceFailed], None],
        on_held: Callable[[int], None],
        within: Callable[[Callable[[], bytes], VerifyResult | None], None],
    ) -> None:
        self._negotiation = negotiation
        self._write = write
        self._carry_out = carry_out
        self._on_held = on_held
        self._within = within

    @property
    def claimed_user(self) -> str | None:
        return self._negotiation.claimed_user

    @property
    def can_be_guessed(self) -> bool:
        """Returns True if the peer has chosen a mechanism other than ANONYMOUS, so that it may guess a secret."""
        return self._negotiation.can_be_guessed

    def decline(self, why: str) -> bytes:
        """Declines the login: the service's answer does not reach the peer."""
        return self._follow(self._negotiation.decline(why))

    def receive(self, data: bytes) -> bytes:
        return self._follow(self._negotiation.receive(data))

    def _follow(self, effects: list[RelayEffect]) -> bytes:
        for effect in effects:
            if isinstance(effect, Reply):
                self._write(effect.data)
            else:
                self._carry_out(effect)
        self._on_held(self._negotiation.pending_bytes)
        return self._negotiation.take_rest()

    # Asker

    def offered(self, names: tuple[str, ...]) -> None:
        self._within(lambda: self._follow(self._negotiation.offer(names)), None)

    def challenged(self, data: bytes) -> None:
        self._within(lambda: self._follow(self._negotiation.challenge(data)), _NOT_WRONG)

    def refused(self, code: int) -> None:
        said = VerifyResult(is_valid=False, is_compared=code == sasl_frames.OUTCOME_AUTH)
        self._within(lambda: self._follow(self._negotiation.refuse(code)), said)

    def vouched(self, voucher: Voucher) -> None:
        self._within(lambda: self._follow(self._negotiation.vouch(voucher)), _NOT_WRONG)

    def failed(self, why: str) -> None:
        self._within(lambda: self._follow(self._negotiation.fail(why)), None)
