"""The pace of one connection's login: its failure counted once, and the answer held back where many have failed.

Attack: a directory counts wrong passwords and locks the account. One host locked 60 of 60 within 5 s: the answers
were held back, but each password had been tried. So a login takes its place among those that wait before its password
is looked at, and keeps it for as long as the answer would wait, whatever becomes of the connection. Without a place
nothing is asked.

Sources: docs/spec/policy-and-auth.md §3.15, §8.11.
"""

from collections.abc import Callable
from typing import Final

from auth.credentials import Answer, FetchGroups, MechanismRequest, VerifyResult
from router.admission.connection_gate import ConnectionGate
from router.admission.logins import Result
from router.core.core import Core

# Why there is no answer to a login; nothing that was found is said.
TOO_MANY_GUESSES: Final = "too many logins of this host have failed"

_WITHHELD: Final = VerifyResult(is_valid=False, is_compared=False, detail=TOO_MANY_GUESSES)


def is_wrong(result: Answer) -> bool:
    """Were the credentials compared, and do not fit?"""
    return isinstance(result, VerifyResult) and result.is_compared and not result.is_valid


class Pace:
    """deadline  of the connection's login, monotonic seconds: an answer comes well before it"""

    __slots__ = ("_began_at", "_core", "_deadline", "_gate", "_has_failed", "_is_guess", "_let_go", "_user")

    def __init__(self, gate: ConnectionGate, core: Core, deadline: float) -> None:
        self._gate = gate
        self._core = core
        self._deadline = deadline
        self._began_at: float | None = None  # monotonic seconds: when credentials came first
        self._has_failed = False
        self._is_guess = False  # the peer may have guessed
        self._user: str | None = None  # whose credentials the peer says it has; None: none that could be guessed
        self._let_go: Callable[[], None] | None = None  # gives back the place among those that wait

    def begin(self, request: MechanismRequest) -> None:
        """The peer has sent credentials."""
        self.begin_as(None if isinstance(request, FetchGroups) else request.user or None)
        self._is_guess = self._user is not None

    def begin_as(self, user: str | None) -> None:
        """The peer has sent credentials that somebody else looks at. user  it says it is, where that can be seen"""
        self._user = user
        self._is_guess = True
        if self._began_at is None:
            self._began_at = self._core.clock()

    def fail(self) -> None:
        """The login has failed, or the peer has ended it. Counted once, however often it is said."""
        if not self._has_failed:
            self._has_failed = True
            self._gate.count_failure()
            self._gate.gate.guesses.fail(self._gate.remote_host, self._user, self._core.clock())

    def succeed(self, mechanism: str | None) -> None:
        self.conclude(mechanism, "accepted")
        if self._user is not None:
            self._gate.gate.guesses.succeed(self._gate.remote_host, self._user, self._core.clock())

    def conclude(self, mechanism: str | None, result: Result) -> None:
        """The login has its result: count it."""
        seconds = self._core.clock() - self._began_at if self._began_at is not None else None
        self._gate.gate.count_login(mechanism, result, seconds)

    def may_ask(self) -> bool:
        """May anybody be asked about the credentials? Not where the answer would not be given: too many wait."""
        if not self._is_guess or self._let_go is not None:
            return True
        guesses, host, now = self._gate.gate.guesses, self._gate.remote_host, self._core.clock()
        if guesses.delay(host, self._user, now, is_wrong=False) <= 0:
            return True
        self._let_go = guesses.hold(host, self._user, now)
        return self._let_go is not None

    def decline(self, hand_on: Callable[[Answer], None]) -> Callable[[], None]:
        """Hand on soon that nobody was asked. Returns what gives that up."""
        return _Held(self._core.set_timer, self._core.clock(), _nothing, lambda: hand_on(_WITHHELD)).give_up

    def hold(self, result: Answer, hand_on: Callable[[Answer], None]) -> Callable[[], None] | None:
        """Hand an answer on when its time has come: now, or later in a timer of the router, which holds no thread.

        hand_on  called once
        Returns  what gives it up: `hand_on` is not called then; None: it was handed on
        """
        guesses, host, now = self._gate.gate.guesses, self._gate.remote_host, self._core.clock()
        seconds = guesses.delay(host, self._user, now, is_wrong=is_wrong(result)) if self._is_guess else 0.0
        # Where the peer has dawdled, it does not lose its login for the waiting.
        wait_s = min(seconds, (self._deadline - now) / 2)
        let_go: Callable[[], None] | None = _nothing
        if self._let_go is not None:
            self._keep_place(now + seconds)
        elif wait_s > 0:
            let_go = guesses.hold(host, self._user, now)
        if let_go is None:
            hand_on(_WITHHELD)
            return None
        if wait_s <= 0:
            hand_on(result)
            return None
        return _Held(self._core.set_timer, now + wait_s, let_go, lambda: hand_on(result)).give_up

    def leave(self) -> None:
        """The connection is over, and nobody has answered about its credentials. Any number of times."""
        if self._let_go is not None:
            now = self._core.clock()
            self._keep_place(
                now + self._gate.gate.guesses.delay(self._gate.remote_host, self._user, now, is_wrong=True)
            )

    def _keep_place(self, until: float) -> None:
        """Give the place back, not before `until`."""
        let_go, self._let_go = self._let_go, None
        if let_go is not None:
            if until > self._core.clock():
                _Held(self._core.set_timer, until, let_go, _nothing)
            else:
                let_go()


class _Held:
    """An answer that waits, or a place."""

    __slots__ = ("_hand_on", "_let_go", "_set_timer")

    def __init__(
        self,
        set_timer: Callable[["_Held", float | None], None],
        until: float,
        let_go: Callable[[], None],
        hand_on: Callable[[], None],
    ) -> None:
        self._set_timer = set_timer
        self._let_go: Callable[[], None] | None = let_go
        self._hand_on = hand_on
        set_timer(self, until)

    def on_timer(self, _now: float) -> None:
        if self._end():
            self._hand_on()

    def give_up(self) -> None:
        if self._end():
            self._set_timer(self, None)

    def _end(self) -> bool:
        """Does it still wait?"""
        let_go, self._let_go = self._let_go, None
        if let_go is not None:
            let_go()
        return let_go is not None


def _nothing() -> None:
    """There is no place to be given back."""
