"""Bearer tokens: JWTs, signed by an issuer whose public keys we have.

Blocking while keys are fetched. PyJWT verifies the signature. The signed content is parsed once, here, by our rules,
and nothing in a token is trusted before its signature. Any fault of a token refuses it.
Sources: RFC 7519, RFC 7515, RFC 8725 (best practices), RFC 9068; docs/spec/policy-and-auth.md §8.10.
"""

import json
import re
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jwt

from auth.bearer import BEARER
from auth.credentials import (
    MAX_TOKEN_BYTES,
    MAX_USER_BYTES,
    Answer,
    CheckToken,
    Recheck,
    VerifyRequest,
    VerifyResult,
    unavailable,
)
from auth.identity import Proof
from auth.mechanisms import NOT_OWN_AUTHZID
from auth.verifiers.token_keys import ALGORITHMS, KeyFile, Keys, KeysError, KeyServer

# Several threads: one may wait for the key server.
TOKEN_THREADS: Final = 4

DEFAULT_ALGORITHMS: Final = ("RS256", "PS256", "ES256", "ES384", "EdDSA")

# More groups than a user has. A token with more is refused: a group left out could be one that is denied.
MAX_GROUPS: Final = 1000
MAX_GROUP_BYTES: Final = 1024
MAX_SKEW_S: Final = 600

_MAX_HEADER_BYTES: Final = 4096
_MAX_KID_CHARACTERS: Final = 256
_FORM: Final = re.compile(r"([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
# The `typ` values of access tokens. A JWT that the issuer signed for another purpose, such as a logout, has another.
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt", "application/jwt"})
# Seconds since 1970 UTC: the year 10000. A later time is an error.
_MAX_TIME_S: Final = 253_402_300_800
# Claims whose text is a list of words.
_WORDS: Final = ("scope", "scp")


class TokenError(ValueError):
    """The token is not valid. The text is for the log, and contains nothing from the token."""


# A withdrawn key stays valid for this time: a typing error must not make it years.
MAX_KEYS_SECONDS: Final = 86_400


class TokenSettingsError(ValueError):
    """The settings of a `tokenAuthenticator` cannot be used. The text names the expected form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """The requirements on a token.

    issuer        its exact `iss`
    audiences     one of them has to be, or to be in, its `aud`
    algorithms    permitted signature algorithms, of token_keys.ALGORITHMS
    skew_s        permitted difference between its clock and ours
    user_claim    the claim with the user's name
    groups_claim  the claim with the groups, a text or a list of texts; None: no groups
    required      claim → the value that it must be or contain; None: any value
    """

    issuer: str
    audiences: tuple[str, ...]
    algorithms: tuple[str, ...] = DEFAULT_ALGORITHMS
    skew_s: int = 60
    user_claim: str = "sub"
    groups_claim: str | None = None
    required: tuple[tuple[str, str | None], ...] = ()

    def __post_init__(self) -> None:
        """Checks the rules. Errors: TokenError for rules that are invalid, or that every token could meet."""
        unknown = [name for name in self.algorithms if name not in ALGORITHMS]
        if unknown or not self.algorithms:
            named = f"algorithm '{unknown[0]}'" if unknown else "no algorithm"
            raise TokenError(f"{named}: expected some of {' '.join(ALGORITHMS)}")
        if not self.issuer or not self.audiences:
            raise TokenError("issuer and audience must not be empty: without them a token for anybody else would do")
        if not 0 <= self.skew_s <= MAX_SKEW_S:
            raise TokenError(f"clockSkewSeconds: '{self.skew_s}': expected 0 to {MAX_SKEW_S}")
        for key, claim in (("userClaim", self.user_claim), ("groupsClaim", self.groups_claim)):
            if claim is not None and not _is_claim(claim):
                raise TokenError(f"{key}: '{claim}': expected the name of a claim, or a.b for b in the object a")
        for claim, _ in self.required:
            if not _is_claim(claim):
                raise TokenError(f"requiredClaims: '{claim}': expected NAME or NAME=VALUE, separated by blanks")


class TokenVerifier:
    """Verifies tokens for OAUTHBEARER and XOAUTH2."""

    mechanisms = BEARER
    threads = TOKEN_THREADS

    def __init__(
        self, name: str, keys: Keys, rules: TokenRules, *, wall_clock: Callable[[], float] = time.time
    ) -> None:
        """Prepares the verifier.

        wall_clock  seconds since 1970 UTC
        """
        self.name = name
        self._keys = keys
        self._rules = rules
        self._wall_clock = wall_clock
        self._jws = jwt.PyJWS(algorithms=rules.algorithms)

    def verify(self, request: VerifyRequest) -> Answer:
        try:
            if isinstance(request, Recheck):
                return VerifyResult(is_valid=request.proof.value in self._keys.current())
            if not isinstance(request, CheckToken):
                return unavailable("tokens only")
            result = self._judge(request.token.reveal())
        except KeysError as fault:
            return unavailable(str(fault))
        except TokenError as fault:
            return _refused(f"SASL(-13): authentication failure: token: {fault}")
        except Exception as fault:  # INVARIANT: an unexpected exception refuses the token, and counts as a failure
            return _refused(f"SASL(-13): authentication failure: token: {type(fault).__name__} in judging it")
        return result if request.user in ("", result.user) else _refused(NOT_OWN_AUTHZID)

    def close(self) -> None:
        """Does nothing: the verifier holds no connections."""

    def _judge(self, token: str) -> VerifyResult:
        """Verifies a token. Errors: TokenError, KeysError."""
        algorithm, kid = _read_header(token, self._rules.algorithms)
        key = self._keys.current().find(kid, algorithm) or self._keys.current(is_missed=True).find(kid, algorithm)
        if key is None:
            raise TokenError(
                "it is signed by none of the issuer's keys"
                if kid is not None
                else "it names no key, and not exactly one of the issuer's keys is of its algorithm"
            )
        try:
            found = self._jws.decode_complete(token, key.by_algorithm[algorithm], algorithms=[algorithm])
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise TokenError("its signature is wrong") from None
        claims = _object(found["payload"], "claims")
        ends_at_s = self._check(claims)
        user = _name(_claim(claims, self._rules.user_claim), MAX_USER_BYTES)
        if user is None:
            raise TokenError(f"its claim '{self._rules.user_claim}' is not the name of a user")
        proof = Proof(verifier=self.name, user=user, value=key.thumbprint)
        return VerifyResult(is_valid=True, user=user, groups=self._groups(claims), proof=proof, ends_at_s=ends_at_s)

    def _check(self, claims: Mapping[str, Any]) -> float:
        """Checks the claims against the rules. Returns when the token ends. Errors: TokenError."""
        rules, now = self._rules, self._wall_clock()
        if claims.get("iss") != rules.issuer:
            raise TokenError("it is of another issuer")
        audiences = claims.get("aud")
        if not any(each in rules.audiences for each in _texts(audiences)):
            raise TokenError("it is for another audience")
        ends_at_s = _time(claims, "exp")
        if ends_at_s is None:
            raise TokenError("it never ends: its claim 'exp' is missing")
        if ends_at_s + rules.skew_s <= now:
            raise TokenError("it has expired")
        for name in ("nbf", "iat"):
            begins_at_s = _time(claims, name)
            if begins_at_s is not None and begins_at_s > now + rules.skew_s:
                raise TokenError(f"it is not good yet by its claim '{name}'")
        if "cnf" in claims:  # RFC 7800: such a token requires proof of a key, which a bearer cannot give
            raise TokenError("it is bound to a key (claim 'cnf'), not a bearer's")
        for name, value in rules.required:
            found = _claim(claims, name)
            texts = found.split() if isinstance(found, str) and name in _WORDS else _texts(found)
            if found is None or (value is not None and value not in texts):
                raise TokenError(f"its claim '{name}' is not what is required")
        return ends_at_s + rules.skew_s

    def _groups(self, claims: Mapping[str, Any]) -> tuple[str, ...]:
        if self._rules.groups_claim is None:
            return ()
        found = _claim(claims, self._rules.groups_claim)
        listed = [] if found is None else [found] if isinstance(found, str) else found
        if not isinstance(listed, list) or len(listed) > MAX_GROUPS:
            raise TokenError(f"its groups are not a list of at most {MAX_GROUPS}")
        names = [_name(each, MAX_GROUP_BYTES) for each in listed]
        groups = tuple(dict.fromkeys(name for name in names if name is not None))
        if None in names:
            raise TokenError("one of its groups is not a name")
        return groups


def make_token_verifier(attributes: Mapping[str, Any]) -> TokenVerifier:
    """Returns a verifier from the validated attributes of a `tokenAuthenticator`. Makes no connection.

    Errors  TokenSettingsError
    """
    path, url = attributes.get("keysFile"), attributes.get("keysUrl")
    if bool(path) == bool(url):
        raise TokenSettingsError("expected one of keysFile and keysUrl")
    seconds = int(attributes["keysSeconds"])
    if not 0 <= seconds <= MAX_KEYS_SECONDS:
        raise TokenSettingsError(f"keysSeconds: '{seconds}': expected 0 to {MAX_KEYS_SECONDS}")
    required = (text.partition("=") for text in str(attributes.get("requiredClaims") or "").split())
    try:
        keys = (
            KeyFile(str(path))
            if path
            else KeyServer(
                str(url),
                ca_file=attributes.get("keysCaFile"),
                is_http_permitted=bool(attributes["keysOverHttp"]),
                max_age_s=float(seconds),
            )
        )
        rules = TokenRules(
            issuer=str(attributes["issuer"]),
            audiences=tuple(str(attributes["audience"]).split()),
            algorithms=tuple(str(attributes.get("algorithms") or "").split()) or DEFAULT_ALGORITHMS,
            skew_s=int(attributes["clockSkewSeconds"]),
            user_claim=str(attributes["userClaim"]),
            groups_claim=attributes.get("groupsClaim") or None,
            required=tuple((name, value if separator else None) for name, separator, value in required),
        )
    except (KeysError, TokenError) as error:
        raise TokenSettingsError(str(error)) from None
    return TokenVerifier(str(attributes["name"]), keys, rules)


def _read_header(token: str, algorithms: Sequence[str]) -> tuple[str, str | None]:
    """Returns the token's algorithm, one of the permitted ones, and the name of its key. Errors: TokenError."""
    form = _FORM.fullmatch(token)
    if form is None or len(token) > MAX_TOKEN_BYTES or len(form[1]) > _MAX_HEADER_BYTES:
        raise TokenError("it is no signed JWT")
    try:
        header = _object(urlsafe_b64decode(form[1] + "=" * (-len(form[1]) % 4)), "header")
    except ValueError as fault:
        raise fault if isinstance(fault, TokenError) else TokenError("it is no signed JWT") from None
    algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ", "JWT")
    if algorithm not in algorithms:
        raise TokenError("its algorithm is not permitted")
    # RFC 7515 §4.1.11: critical headers that we do not know refuse the token. b64 (RFC 7797) changes what is signed.
    if "crit" in header or "b64" in header:
        raise TokenError("its header has extensions")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise TokenError("it is a JWT of another kind, by its header's 'typ'")
    if kid is not None and (not isinstance(kid, str) or len(kid) > _MAX_KID_CHARACTERS):
        raise TokenError("its 'kid' is not the name of a key")
    return str(algorithm), kid


def _object(content: bytes, what: str) -> dict[str, Any]:
    """Parses a JSON object whose members all have different names, so that it has only one meaning.

    Errors: TokenError.
    """

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise TokenError(f"its {what} have a member twice")
        return found

    try:
        found = json.loads(content.decode("utf-8"), object_pairs_hook=members, parse_constant=_no_number)
    except (ValueError, RecursionError) as fault:
        raise fault if isinstance(fault, TokenError) else TokenError(f"its {what} are not JSON") from None
    if not isinstance(found, dict):
        raise TokenError(f"its {what} are not a JSON object")
    return found


def _no_number(_text: str) -> None:
    raise TokenError("NaN and Infinity are not JSON")


def _is_claim(name: str) -> bool:
    """Returns whether a token can have a claim of this name. A claim that no token has would refuse every user."""
    return bool(name) and ("/" in name or all(name.split(".")))


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """Returns the claim's value, None if there is none.

    name  a name with a `/`, such as a URL, is one claim; in any other name a `.` leads into an object
    """
    found: Any = claims
    for part in (name,) if "/" in name else name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    """Returns a NumericDate, None if there is none. Errors: TokenError."""
    if name not in claims:
        return None
    value = claims[name]
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < _MAX_TIME_S:
        raise TokenError(f"its claim '{name}' is not a time")
    return float(value)


def _texts(value: object) -> list[str]:
    listed = value if isinstance(value, list) else [value]
    return [each for each in listed if isinstance(each, str)]


def _name(value: object, at_most: int) -> str | None:
    """Returns the value if it can be the name of a user or group: printable, and not blank at either end."""
    if not isinstance(value, str) or not value.isprintable() or value != value.strip():
        return None
    return value if 0 < len(value.encode("utf-8")) <= at_most else None


def _refused(detail: str) -> VerifyResult:
    return VerifyResult(is_valid=False, detail=detail)
