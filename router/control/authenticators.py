"""The verifiers of listeners, by name, each with its own threads. The SASL configuration's verifier is the default.

Sources: docs/spec/policy-and-auth.md §7, §8.1, §8.10.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from auth.credentials import Answer, MechanismRequest, Recheck, VerifyResult
from auth.mechanisms import Channel
from auth.scram import BINDING
from auth.session_ends import session_end
from auth.verifiers.files import UserFileError, UserFileVerifier
from auth.verifiers.kerberos import KerberosError, KerberosVerifier
from auth.verifiers.sasl_config import (
    SaslConfig,
    SaslConfigError,
    load_sasl_config,
    offered_mechanisms,
    unserved_mechanisms,
)
from auth.verifiers.saslauthd import SaslauthdVerifier
from auth.verifiers.sasldb import SasldbVerifier
from auth.verifiers.verifier import DEFAULT, Announcing, Recalling, Verifier, mechanism_of
from policy.configuration.references import authenticator_name_problem, authenticator_problem, session_problem
from router.connection.terms import Done
from router.effects import Emit, Log, Refused, log
from router.io.workers import Workers
from router.management.owners import Owner
from router.management.requests import ManagementError


class AuthenticatorError(ValueError):
    """A verifier cannot be made from its attributes; the text names what is wrong and what would be right."""


def _file(attributes: Mapping[str, Any]) -> Verifier:
    try:
        return UserFileVerifier(str(attributes["path"]), str(attributes["name"]))
    except UserFileError as error:
        raise AuthenticatorError(str(error)) from None


def _ldap(attributes: Mapping[str, Any]) -> Verifier:
    # Imported here, because ldap3 costs the start a quarter of a second and 5 MiB.
    from auth.verifiers.ldap import LdapSettingsError, make_ldap_verifier

    try:
        return make_ldap_verifier(attributes)
    except LdapSettingsError as error:
        raise AuthenticatorError(str(error)) from None


def _ldap_warnings(attributes: Mapping[str, Any]) -> Iterator[str]:
    from auth.verifiers.ldap import ldap_warnings

    return ldap_warnings(attributes)


def _token(attributes: Mapping[str, Any]) -> Verifier:
    # Imported here, because only routers with tokens need the libraries of signatures.
    from auth.verifiers.tokens import TokenSettingsError, make_token_verifier

    try:
        return make_token_verifier(attributes)
    except TokenSettingsError as error:
        raise AuthenticatorError(str(error)) from None


def _sasldb(attributes: Mapping[str, Any]) -> Verifier:
    try:
        return SasldbVerifier(str(attributes["path"]), str(attributes["name"]), attributes.get("realm"))
    except UserFileError as error:
        raise AuthenticatorError(str(error)) from None


def _saslauthd(attributes: Mapping[str, Any]) -> Verifier:
    path = str(attributes["path"])
    if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
        raise AuthenticatorError(
            f"path: '{path[:200]}': expected that of a socket, such as /run/saslauthd/mux, of at most "
            f"{MAX_SOCKET_PATH_BYTES} bytes"
        )
    return SaslauthdVerifier(
        path,
        str(attributes["name"]),
        service=str(attributes["service"]),
        realm=str(attributes.get("realm") or ""),
    )


def _kerberos(attributes: Mapping[str, Any]) -> Verifier:
    try:
        return KerberosVerifier(str(attributes["keytab"]), str(attributes["name"]), str(attributes["service"]))
    except KerberosError as error:
        raise AuthenticatorError(str(error)) from None


def read_session_seconds(attributes: Mapping[str, Any]) -> int:
    """Returns an entity's maxSessionSeconds, 0 if it has none. Errors: AuthenticatorError."""
    written = attributes.get("maxSessionSeconds")
    if (text := session_problem(written)) is not None:
        raise AuthenticatorError(text)
    return int(written or 0)


# Size of sun_path on Linux, without the NUL.
MAX_SOCKET_PATH_BYTES: Final = 107

# The name of the SASL configuration's second verifier; the first one is for passwords.
KEYTAB: Final = f"{DEFAULT}.keytab"

# Mechanisms that send a password or a token unencrypted: an attacker on the network could read it.
IN_THE_CLEAR: Final = frozenset({"PLAIN", "LOGIN", "OAUTHBEARER", "XOAUTH2"})

# Maximum number of remembered offers of a listener; few differ.
_MAX_OFFERS: Final = 64

# The host name for the turns of rechecks among the hosts whose logins wait.
RECHECKS: Final = "open connections"

# Entity type → makes its verifier from the validated attributes. Reads files; makes no connection. Errors:
# AuthenticatorError.
MAKERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Verifier]]] = {
    "fileAuthenticator": _file,
    "ldapAuthenticator": _ldap,
    "tokenAuthenticator": _token,
    "sasldbAuthenticator": _sasldb,
    "saslauthdAuthenticator": _saslauthd,
    "kerberosAuthenticator": _kerberos,
}

# Entity type → warnings for an entity that `MAKERS` accepts.
WARNINGS: Final[Mapping[str, Callable[[Mapping[str, Any]], Iterator[str]]]] = {
    "ldapAuthenticator": _ldap_warnings,
}


@dataclass(frozen=True, slots=True)
class Authenticator:
    """A verifier and its threads.

    needs_tls     its mechanisms are offered only inside TLS
    max_session_s  maximum connection time of users that it has accepted; 0: no limit
    """

    verifier: Verifier
    workers: Workers
    needs_tls: bool = False
    max_session_s: int = 0

    def bounded(self, done: Done) -> Done:
        """Wraps `done` so that an accepted login also gets the time when its connection must end."""
        seconds = self.max_session_s
        if not seconds:
            return done

        def tell(answer: Answer) -> None:
            if isinstance(answer, VerifyResult) and answer.is_valid:
                answer = replace(answer, ends_at_s=session_end(seconds, answer.ends_at_s))
            done(answer)

        return tell

    def close(self) -> None:
        self.workers.close()
        self.verifier.close()


class Authenticators:
    """All authenticators. A listener keeps those that it was made with."""

    def __init__(self, config: SaslConfig, emit: Emit) -> None:
        """Errors: auth.verifiers.files.UserFileError when the SASL configuration's user file cannot be used."""
        self._config = config
        self._emit = emit
        self._members: dict[str, Authenticator] = {}
        self._users: dict[str, tuple[str, ...]] = {}  # listener → the authenticator names it was made with
        if config.user_file is not None:
            self._add(UserFileVerifier(config.user_file))
        self._keytab_fault: str | None = None
        if config.keytab is not None:
            try:
                self._add(KerberosVerifier(config.keytab, KEYTAB))
            except KerberosError as error:
                self._keytab_fault = str(error)
        if config.saslauthd is not None:
            self._add(SaslauthdVerifier(config.saslauthd))
        if config.sasldb is not None:
            try:
                self._add(SasldbVerifier(config.sasldb))
            except UserFileError as error:
                # Stops only listeners that would ask for passwords: the packages of 1.20 contain a configuration that
                # names a sasldb, but no sasldb.
                self._config = replace(config, database_fault=_unusable(error))

    @classmethod
    def load(cls, router: Mapping[str, Any], emit: Emit) -> "Authenticators":
        """Loads the SASL configuration from the `router` entity's saslConfigDir and saslConfigName.

        Errors  SaslConfigError, UserFileError (ValueErrors with the file in their text).
        """
        config = load_sasl_config(router.get("saslConfigDir"), router["saslConfigName"], environment=os.environ)
        return cls(config, emit)

    def close(self) -> None:
        """Stops all verification."""
        for member in self._members.values():
            member.close()

    @property
    def members(self) -> Iterable[Authenticator]:
        return self._members.values()

    # Entities

    @property
    def owners(self) -> Iterator[Owner]:
        for kind, make in MAKERS.items():
            yield Owner(type=kind, create=partial(self._create, kind, make), delete=self._delete)

    def _create(self, kind: str, make: Callable[[Mapping[str, Any]], Verifier], attributes: Mapping[str, Any]) -> None:
        name = attributes["name"]
        if (text := authenticator_name_problem(name)) is not None:
            raise ManagementError(400, text, "name")
        try:
            read_session_seconds(attributes)
            verifier = make(attributes)
            if isinstance(verifier, Announcing):
                verifier.announce_by(self._announcer(name))
            self._add(
                verifier,
                needs_tls=not attributes.get("allowUnencrypted", True),
                max_session_s=read_session_seconds(attributes),
            )
        except AuthenticatorError as error:
            raise ManagementError(400, f"authenticator '{name}': {error}") from None
        for text in WARNINGS[kind](attributes) if kind in WARNINGS else ():
            log(self._emit, "AUTHSERVICE", "warning", f"Authenticator {name}: {text}")

    def _announcer(self, name: str) -> Callable[[str], None]:
        """Returns a function that writes a verifier's news to the log, from its threads."""
        loop = asyncio.get_running_loop()

        def say(text: str) -> None:
            with suppress(RuntimeError):  # the loop is closed: the router has ended
                loop.call_soon_threadsafe(log, self._emit, "AUTHSERVICE", "warning", f"Authenticator {name}: {text}")

        return say

    def _delete(self, attributes: Mapping[str, Any]) -> None:
        name = attributes["name"]
        users = sorted(listener for listener, names in self._users.items() if name in names)
        if users:
            raise ManagementError(400, f"authenticator '{name}' is used by listener {', '.join(users)}")
        self._members.pop(name).close()

    def _add(self, verifier: Verifier, *, needs_tls: bool = False, max_session_s: int = 0) -> None:
        recall = {"recall": verifier.recall} if isinstance(verifier, Recalling) else {}
        workers = Workers(
            verifier.verify, lambda text: self._emit(_unverified(text)), threads=verifier.threads, **recall
        )
        self._members[verifier.name] = Authenticator(verifier, workers, needs_tls, max_session_s)

    # Listeners

    def of_listener(self, attributes: Mapping[str, Any]) -> "ListenerAuthentication":
        """Makes the authentication of a `listener` with these attributes.

        Its authenticators count as in use until `release`.

        Errors  AuthenticatorError for an unknown name; SaslConfigError at once, not at the first connection, when the
                database that the SASL configuration names cannot be used.
        """
        written = str(attributes.get("authenticators") or "")
        if (text := authenticator_problem(written, self._members.keys() - {DEFAULT, KEYTAB})) is not None:
            raise AuthenticatorError(text)
        names = tuple(written.split())
        # A listener that names authenticators uses only these: the SASL configuration's list and database do not count.
        config = SaslConfig() if names else self._config
        members = [self._members[name] for name in names or (KEYTAB, DEFAULT) if name in self._members]
        made = ListenerAuthentication(config, members, attributes)
        made.mechanisms(Channel())
        self._users[attributes["name"]] = names
        return made

    def release(self, listener: str) -> None:
        self._users.pop(listener, None)

    # Open connections

    def recheck(self, question: Recheck, done: Done) -> None:
        """Asks the authenticator that gave the proof. Proofs of a deleted authenticator are no longer valid."""
        member = self._members.get(question.proof.verifier)
        if member is None:
            asyncio.get_running_loop().call_soon(done, VerifyResult(is_valid=False))
        else:
            member.workers.submit(question, RECHECKS, lambda: True, done)

    # The SASL configuration

    @property
    def user_file(self) -> str | None:
        """The path of the SASL configuration's user file; None if there is none."""
        return self._config.user_file

    @property
    def warnings(self) -> Iterator[str]:
        """Texts for the log at the start."""
        own = [member for name, member in self._members.items() if name in (DEFAULT, KEYTAB)]
        served = [name for member in own for name in member.verifier.mechanisms]
        if self._keytab_fault is not None:
            yield f"keytab of the SASL configuration: {self._keytab_fault}. GSSAPI is not offered"
        if self._config.database_fault is None and (missing := unserved_mechanisms(self._config, served)):
            yield f"mech_list of the SASL configuration: {' '.join(missing)} cannot be offered, the others are"
        for member in self._members.values():
            verifier = member.verifier
            if isinstance(verifier, UserFileVerifier) and (number := len(verifier.costs)) > 1:
                yield (
                    f"{verifier.path}: hashes of {number} different costs. Each login computes one of each, lest its "
                    "time tell which users there are; with new passwords by qdpasswd all have the same"
                )


class ListenerAuthentication:
    """The mechanisms that one listener offers and the authenticators it asks."""

    def __init__(self, config: SaslConfig, members: Sequence[Authenticator], attributes: Mapping[str, Any]) -> None:
        self._config = config
        self._members = tuple(members)
        self._words = attributes.get("saslMechanisms")
        self._authenticates = bool(attributes["authenticatePeer"])
        self._permits_clear = bool(attributes.get("allowPlainWithoutTls", True))
        self._known: dict[tuple[object, ...], tuple[str, ...]] = {}  # results of `mechanisms`

    def mechanisms(self, channel: Channel) -> tuple[str, ...]:
        """Returns the mechanisms to offer, in order. Errors: SaslConfigError."""
        # Everything that the result depends on and that may change.
        key = (
            channel.is_encrypted,
            channel.has_certificate,
            channel.binding(BINDING) is not None,
            *(each.verifier.mechanisms for each in self._members),
        )
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MAX_OFFERS:
                self._known.clear()
            known = self._known[key] = self._offered(channel)
        return known

    def _offered(self, channel: Channel) -> tuple[str, ...]:
        members = [each for each in self._members if channel.is_encrypted or not each.needs_tls]
        offered = offered_mechanisms(
            self._config,
            served=tuple(dict.fromkeys(name for each in members for name in each.verifier.mechanisms)),
            sasl_mechanisms=self._words,
            authenticate_peer=self._authenticates,
            channel=channel,
        )
        if channel.is_encrypted or self._permits_clear:
            return offered
        return tuple(name for name in offered if name not in IN_THE_CLEAR)

    @property
    def in_the_clear(self) -> tuple[str, ...]:
        """The mechanisms that are offered without TLS and send a password or token unencrypted.

        Errors: SaslConfigError.
        """
        return tuple(name for name in self.mechanisms(Channel()) if name in IN_THE_CLEAR)

    @property
    def asks_groups(self) -> bool:
        """True if an authenticator has the groups of users that TLS has authenticated, and so decides about them."""
        return any("EXTERNAL" in member.verifier.mechanisms for member in self._members)

    def verify(
        self, request: MechanismRequest, host: str, begins: Callable[[], bool], done: Done
    ) -> Callable[[], None]:
        """Asks the first authenticator that can answer; see router.connection.terms.Verify."""
        mechanism = mechanism_of(request)
        for member in self._members:
            if mechanism in member.verifier.mechanisms:
                return member.workers.submit(request, host, begins, member.bounded(done))
        raise SaslConfigError(f"nobody answers for {mechanism}, which was offered")


def _unusable(error: UserFileError) -> str:
    """Returns the text about a sasldb that cannot be used."""
    return (
        f"the sasldb of the SASL configuration, {error}. If it cannot be had, enter its users into a user file, for "
        "each: qdpasswd -c -f FILE USER, and set auxprop_plugin: userfile and userfile_path: FILE"
    )


def _unverified(text: str) -> Refused:
    """Returns the record of a login that could not be verified.

    Attack: without folding, each login would write a log line while the verifier cannot be reached.
    """
    line = Log(module="AUTHSERVICE", level="error", text=text)
    return Refused(stage="sasl", facts={}, lines=(line,), what="logins could not be verified")
