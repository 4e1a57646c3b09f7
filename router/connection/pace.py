"""The pace of one connection's login: counts its failure once, and delays the answer if many logins have failed.

Attack: a directory counts wrong passwords and locks the account. One host locked 60 of 60 accounts within 5 s: the
answers were delayed, but each password had been tried. Therefore a login takes a place in the queue before its password
is checked. It keeps the place for as long as the answer would wait, even if the connection ends. Without a place the
password is not checked.

Sources: docs/spec/policy-and-auth.md §3.15, §8.11.
"""

from collections.abc import Callable
from typing import Final

from auth.credentials import Answer, FetchGroups, MechanismRequest, VerifyResult
from router.admission.connection_gate import ConnectionGate
from router.admission.logins import Result
from router.core.core import Core

# The reason why a login gets no answer; it does not reveal what was found.
TOO_MANY_GUESSES: Final = "too many logins of this host have failed"

_WITHHELD: Final = VerifyResult(is_valid=False, is_compared=False, detail=TOO_MANY_GUESSES)


def is_wrong(result: Answer) -> bool:
    """Returns True if the credentials were compared and are wrong."""
    return isinstance(result, VerifyResult) and result.is_compared and not result.is_valid


class Pace:
    """The pace of one connection's login.

    deadline  of the login, monotonic seconds: an answer comes well before it
    """

    __slots__ = ("_began_at", "_core", "_deadline", "_gate", "_has_failed", "_is_guess", "_let_go", "_user")

    def __init__(self, gate: ConnectionGate, core: Core, deadline: float) -> None:
        self._gate = gate
        self._core = core
        self._deadline = deadline
        self._began_at: float | None = None  # monotonic seconds: the first credentials came
        self._has_failed = False
        self._is_guess = False  # the login may be a guess
        self._user: str | None = None  # the user that the peer claims to be; None: nothing that could be guessed
        self._let_go: Callable[[], None] | None = None  # gives the place in the queue back

    def begin(self, request: MechanismRequest) -> None:
        """Notes that the peer has sent credentials."""
        self.begin_as(None if isinstance(request, FetchGroups) else request.user or None)
        self._is_guess = self._user is not None

    def begin_as(self, user: str | None) -> None:
        """Notes that the peer has sent credentials that a remote service checks.

        user  the claimed user, if it is known
        """
        self._user = user
        self._is_guess = True
        if self._began_at is None:
            self._began_at = self._core.clock()

    def fail(self) -> None:
        """Counts a failed login, or one that the peer has ended. Later calls do nothing."""
        if not self._has_failed:
            self._has_failed = True
            self._gate.count_failure()
            self._gate.gate.guesses.fail(self._gate.remote_host, self._user, self._core.clock())

    def succeed(self, mechanism: str | None) -> None:
        self.conclude(mechanism, "accepted")
        if self._user is not None:
            self._gate.gate.guesses.succeed(self._gate.remote_host, self._user, self._core.clock())

    def conclude(self, mechanism: str | None, result: Result) -> None:
        """Counts the result of the login."""
        seconds = self._core.clock() - self._began_at if self._began_at is not None else None
        self._gate.gate.count_login(mechanism, result, seconds)

    def may_ask(self) -> bool:
        """Returns True if the credentials may be checked.

        False if too many logins wait: the answer would not be given.
        """
        if not self._is_guess or self._let_go is not None:
            return True
        guesses, host, now = self._gate.gate.guesses, self._gate.remote_host, self._core.clock()
        if guesses.delay(host, self._user, now, is_wrong=False) <= 0:
            return True
        self._let_go = guesses.hold(host, self._user, now)
        return self._let_go is not None

    def decline(self, hand_on: Callable[[Answer], None]) -> Callable[[], None]:
        """Soon passes on that the credentials were not checked. Returns a function that gives this up."""
        return _Held(self._core.set_timer, self._core.clock(), _nothing, lambda: hand_on(_WITHHELD)).give_up

    def hold(self, result: Answer, hand_on: Callable[[Answer], None]) -> Callable[[], None] | None:
        """Passes an answer on at its time: now, or later by a timer of the router, which needs no thread.

        hand_on  called once
        Returns  a function that gives the answer up, so that `hand_on` is not called; None: it was passed on
        """
        guesses, host, now = self._gate.gate.guesses, self._gate.remote_host, self._core.clock()
        seconds = guesses.delay(host, self._user, now, is_wrong=is_wrong(result)) if self._is_guess else 0.0
        # The delay never makes a slow peer miss the deadline of its login.
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
        """Ends the wait of a connection that got no answer about its credentials. May be called several times."""
        if self._let_go is not None:
            now = self._core.clock()
            self._keep_place(
                now + self._gate.gate.guesses.delay(self._gate.remote_host, self._user, now, is_wrong=True)
            )

    def _keep_place(self, until: float) -> None:
        """Gives the place back, not before `until`."""
        let_go, self._let_go = self._let_go, None
        if let_go is not None:
            if until > self._core.clock():
                _Held(self._core.set_timer, until, let_go, _nothing)
            else:
                let_go()


class _Held:
    """A delayed answer, or a place in the queue."""

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
        """Returns True if it still waited, and gives its place back."""
        let_go, self._let_go = self._let_go, None
        if let_go is not None:
            let_go()
        return let_go is not None


def _nothing() -> None:
    """Does nothing: there is no place to give back."""
