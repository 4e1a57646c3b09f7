"""Users and their groups in an LDAP directory: PLAIN, and the groups of users whom TLS has authenticated.

A user's name must be exactly as the directory writes it. Directories ignore case, blanks and look-alikes (such as
full-width letters) when they compare names; a policy does not. A user who could choose the spelling could choose the
user group.
Sources: RFC 4511, 4513 (§6.3.1: empty passwords), 4514, 4515; docs/spec/policy-and-auth.md §8.10.
"""

import hashlib
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from auth.credentials import (
    MAX_PASSWORD_BYTES,
    MAX_USER_BYTES,
    UNKNOWN_USER,
    WRONG_PASSWORD,
    Answer,
    CheckPassword,
    FetchGroups,
    Recheck,
    VerifyRequest,
    VerifyResult,
    unavailable,
)
from auth.identity import Proof
from auth.secrets import Secret
from auth.verifiers.cache import CachedVerifier
from auth.verifiers.ldap_groups import groups_of
from auth.verifiers.ldap_servers import Directory, Session
from auth.verifiers.ldap_settings import LdapSettings, LdapSettingsError, cache_times, read_settings
from auth.verifiers.ldap_wire import (
    BASE,
    CANNOT_MATCH,
    NO_SUCH_OBJECT,
    SUBTREE,
    SUCCESS,
    Entry,
    LdapConnection,
    LdapError,
    ServerFault,
)
from auth.verifiers.verifier import Verifier

__all__ = ["LdapSettingsError", "LdapVerifier", "ldap_warnings", "make_ldap_verifier"]

NOT_AS_WRITTEN: Final = "SASL(-13): user not found: the directory has no user of exactly this name"
DISABLED: Final = "SASL(-13): authentication failure: the account is disabled or has expired"

# Results of a bind with a bad user or password: constraint violation (too many attempts), no such object, invalid DN,
# inappropriate authentication (no password is set), invalid credentials, insufficient access, unwilling (the account is
# locked).
_REFUSED: Final = frozenset((19, 32, 34, 48, 49, 50, 53))

# Attributes of OpenLDAP (ppolicy), 389 and Active Directory that change with the user's credentials.
_IDENTITY: Final = ("entryUUID", "nsUniqueId", "objectGUID", "pwdChangedTime", "pwdLastSet")
_STATE: Final = ("userAccountControl", "accountExpires", "nsAccountLock", "pwdAccountLockedTime", "loginDisabled")

_ACCOUNT_DISABLE: Final = 2  # of userAccountControl
_LOCKED_FOR_GOOD: Final = "000001010000Z"  # of pwdAccountLockedTime
# accountExpires: 100 ns since 1601; 0 and 2**63 - 1 mean never.
_TICKS: Final = 10_000_000
_EPOCH_S: Final = 11_644_473_600


def make_ldap_verifier(attributes: Mapping[str, Any]) -> Verifier:
    """Returns a verifier from a validated `ldapAuthenticator` entity. Reads files, but makes no connection.

    Errors  auth.verifiers.ldap_settings.LdapSettingsError.
    """
    settings = read_settings(attributes)
    settings.check_tls()
    seconds, refused_seconds = cache_times(attributes)
    return CachedVerifier(LdapVerifier(settings), seconds=seconds, refused_seconds=refused_seconds)


def ldap_warnings(attributes: Mapping[str, Any]) -> Iterator[str]:
    """Yields log texts for dangerous settings in an entity that `make_ldap_verifier` accepts."""
    return read_settings(attributes).warnings()


class LdapVerifier:
    """Checks passwords and reads groups in a directory."""

    def __init__(self, settings: LdapSettings, wall_clock: Callable[[], float] = time.time) -> None:
        self.name = settings.name
        self.threads = settings.threads
        self._settings = settings
        self._wall_clock = wall_clock
        self._directory = Directory(settings)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Returns PLAIN, and EXTERNAL if the directory finds users without their password."""
        return ("EXTERNAL", "PLAIN") if self._settings.has_service else ("PLAIN",)

    def verify(self, request: VerifyRequest) -> Answer:
        match request:
            case CheckPassword(user=user, password=password):
                # Attack: an empty password. Such a bind is anonymous and succeeds (RFC 4513 §6.3.1).
                if not _is_name(user) or not _may_be_password(password):
                    return VerifyResult(is_valid=False, detail=WRONG_PASSWORD)
                return self._ask(lambda session: self._check(session, user, password))
            case FetchGroups(user=user) if self._settings.has_service:
                if not _is_name(user):
                    return VerifyResult(is_valid=False, detail=UNKNOWN_USER)
                return self._ask(lambda session: self._look_up(session, user))
            case Recheck(proof=proof, groups=groups) if self._settings.has_service:
                return self._ask(lambda session: self._recheck(session, proof, groups))
            case _:
                return unavailable("it answers no such question")

    def announce_by(self, say: Callable[[str], None]) -> None:
        self._directory.say = say

    def close(self) -> None:
        self._directory.close()

    def _ask(self, question: Callable[[Session], VerifyResult]) -> VerifyResult:
        try:
            return self._directory.ask(question)
        except LdapError as error:
            return unavailable(str(error))

    # Questions

    def _check(self, session: Session, user: str, password: Secret) -> VerifyResult:
        users = self._settings.users
        if users.dn:
            refusal = self._bind(session, users.dn_of(user), password)
            if refusal is not None:
                return refusal
            reader = session.service if self._settings.has_service else session.user
            entry = self._find(reader, user, session)
            if entry is None:
                return VerifyResult(is_valid=False, detail=NOT_AS_WRITTEN)
        else:
            reader = session.service
            entry = self._find(reader, user, session)
            if entry is None:
                # Attack: to find out by the time of the answer which users exist. So an unknown user is tried too.
                self._bind(session, f"cn={secrets.token_hex(16)},{users.base}", password)
                return VerifyResult(is_valid=False, detail=UNKNOWN_USER)
            refusal = self._bind(session, entry.dn, password)
            if refusal is not None:
                return refusal
        return self._result(reader, entry, user, session)

    def _look_up(self, session: Session, user: str) -> VerifyResult:
        entry = self._find(session.service, user, session)
        if entry is None:
            return VerifyResult(is_valid=False, detail=UNKNOWN_USER)
        return self._result(session.service, entry, user, session)

    def _recheck(self, session: Session, proof: Proof, groups: tuple[str, ...]) -> VerifyResult:
        now = self._look_up(session, proof.user)
        holds = now.is_valid and now.proof == proof and set(now.groups) == set(groups)
        return (
            now if holds or not now.is_valid else VerifyResult(is_valid=False, detail="the user or the groups changed")
        )

    # Answers

    def _bind(self, session: Session, dn: str, password: Secret) -> VerifyResult | None:
        """Returns None if the password is the user's, else the refusal."""
        code = session.user.bind(dn, password, session.limits)
        if code == SUCCESS:
            return None
        if code in _REFUSED:
            return VerifyResult(is_valid=False, detail=f"{WRONG_PASSWORD} (LDAP result {code})")
        raise ServerFault(f"{session.user.address}: bind refused with LDAP result {code}")

    def _find(self, reader: LdapConnection, user: str, session: Session) -> Entry | None:
        """Returns the entry of exactly this name. None if there is none, or if the directory finds several."""
        users = self._settings.users
        found = reader.search(
            users.dn_of(user) if users.dn else users.base,
            BASE if users.dn else SUBTREE,
            users.condition(user),
            (users.attribute, *_IDENTITY, *_STATE),
            session.limits,
            nothing=CANNOT_MATCH | {NO_SUCH_OBJECT} if users.dn else CANNOT_MATCH,
        )
        if len(found) != 1 or not found[0].dn or user not in found[0].texts(users.attribute):
            return None
        return found[0]

    def _result(self, reader: LdapConnection, entry: Entry, user: str, session: Session) -> VerifyResult:
        if _is_disabled(entry, self._wall_clock()):
            return VerifyResult(is_valid=False, detail=DISABLED)
        # Interned: thousands of remembered answers name the same few groups.
        groups = map(sys.intern, sorted(groups_of(self._settings.groups, reader, entry.dn, user, session)))
        proof = Proof(verifier=self.name, user=user, value=_proof_value(entry)) if self._settings.has_service else None
        return VerifyResult(is_valid=True, groups=tuple(groups), proof=proof)


def _is_name(user: str) -> bool:
    try:
        return 0 < len(user.encode("utf-8")) <= MAX_USER_BYTES and user.isprintable()
    except UnicodeEncodeError:
        return False


def _may_be_password(password: Secret) -> bool:
    try:
        return 0 < len(password.reveal().encode("utf-8")) <= MAX_PASSWORD_BYTES
    except UnicodeEncodeError:
        return False


def _is_disabled(entry: Entry, wall_s: float) -> bool:
    """Returns whether an account is disabled, by the attributes of OpenLDAP, 389, Novell and Active Directory."""
    if any(_number(text) & _ACCOUNT_DISABLE for text in entry.texts("userAccountControl")):
        return True
    if any(text.lower() == "true" for name in ("nsAccountLock", "loginDisabled") for text in entry.texts(name)):
        return True
    if _LOCKED_FOR_GOOD in entry.texts("pwdAccountLockedTime"):
        return True
    ends = (_number(text) for text in entry.texts("accountExpires"))
    return any(0 < ticks < 2**63 - 1 and ticks / _TICKS - _EPOCH_S <= wall_s for ticks in ends)


def _number(text: str) -> int:
    """Returns a number. Errors: LdapError, so that an account whose state cannot be read is refused."""
    try:
        return int(text)
    except ValueError:
        raise LdapError("an account's state that is no number") from None


def _proof_value(entry: Entry) -> str:
    known = (entry.dn, *((name, sorted(entry.values.get(name.lower(), ()))) for name in _IDENTITY))
    return hashlib.sha256(repr(known).encode()).hexdigest()
