"""Remembers the answers of a slow verifier, such as a directory or an authentication service, for some time.

A password is remembered as a keyed hash. The key is made at the start and never leaves the process.
"""

import hashlib
import secrets
import threading
import time
from collections.abc import Callable
from typing import Final

from auth.credentials import Answer, CheckPassword, FetchGroups, Recheck, VerifyRequest, VerifyResult
from auth.verifiers.verifier import Announcing, Verifier

# Limit of answers of each kind, good and bad. Attack: to fill the memory with made-up names; or, if both kinds shared
# one limit, to displace the users who log in every minute.
MAX_ENTRIES: Final = 10_000

_Key = tuple[str, bytes]  # user, keyed hash of what was asked


class _Answers:
    """Answers of one kind, the oldest first. All are kept for the same time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._entries: dict[_Key, tuple[float, VerifyResult]] = {}

    def get(self, key: _Key, now: float) -> VerifyResult | None:
        found = self._entries.get(key)
        if found is None:
            return None
        if found[0] <= now:
            del self._entries[key]
            return None
        return found[1]

    def put(self, key: _Key, answer: VerifyResult, now: float) -> None:
        if self._seconds <= 0:
            return
        self._entries.pop(key, None)
        while len(self._entries) >= MAX_ENTRIES:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = (now + self._seconds, answer)

    def forget(self, user: str) -> None:
        for key in [key for key in self._entries if key[0] == user]:
            del self._entries[key]


class CachedVerifier:
    """A verifier whose answers about passwords and groups are remembered.

    An outage is not remembered. If a user's credentials turn out to be no longer valid, the user's answers are
    forgotten at once. After a change in the directory, the old password is accepted for `seconds` more, and the new one
    at once.
    """

    def __init__(
        self,
        verifier: Verifier,
        *,
        seconds: float,
        refused_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Wraps a verifier.

        seconds, refused_seconds  how long a good answer, and a bad one, is remembered; 0: not at all
        """
        self._verifier = verifier
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self.hits = 0
        self._good, self._bad = _Answers(seconds), _Answers(refused_seconds)

    @property
    def name(self) -> str:
        return self._verifier.name

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return self._verifier.mechanisms

    @property
    def threads(self) -> int:
        return self._verifier.threads

    def verify(self, request: VerifyRequest) -> Answer:
        if isinstance(request, Recheck):
            answer = self._verifier.verify(request)
            if isinstance(answer, VerifyResult) and answer.is_compared and not answer.is_valid:
                with self._lock:
                    self._good.forget(request.proof.user)
            return answer
        if not isinstance(request, CheckPassword | FetchGroups):
            return self._verifier.verify(request)
        key = self._key(request)
        with self._lock:
            now = self._clock()
            known = self._good.get(key, now) or self._bad.get(key, now)
            self.hits += known is not None
        if known is not None:
            return known
        answer = self._verifier.verify(request)
        if isinstance(answer, VerifyResult) and answer.is_compared and answer.ends_at_s is None:
            with self._lock:
                (self._good if answer.is_valid else self._bad).put(key, answer, self._clock())
        return answer

    def recall(self, request: VerifyRequest) -> Answer | None:
        """Returns a remembered answer. Returns None if there is none, or if another thread holds the lock."""
        if not isinstance(request, CheckPassword | FetchGroups):
            return None
        key = self._key(request)
        if not self._lock.acquire(blocking=False):
            return None
        try:
            now = self._clock()
            known = self._good.get(key, now) or self._bad.get(key, now)
            self.hits += known is not None
        finally:
            self._lock.release()
        return known

    def announce_by(self, say: Callable[[str], None]) -> None:
        if isinstance(self._verifier, Announcing):
            self._verifier.announce_by(say)

    def close(self) -> None:
        self._verifier.close()

    def _key(self, request: CheckPassword | FetchGroups) -> _Key:
        asked = request.password.reveal() if isinstance(request, CheckPassword) else None
        kind = b"groups" if asked is None else b"password:" + asked.encode("utf-8", "surrogatepass")
        return request.user, hashlib.blake2b(kind, key=self._secret, digest_size=32).digest()
