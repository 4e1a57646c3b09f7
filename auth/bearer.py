"""The server side of OAUTHBEARER and XOAUTH2: parses a bearer token strictly; a verifier checks it.

Pure. A malformed response is refused at once. With OAUTHBEARER, a client whose token is not valid first gets the error
challenge of RFC 7628 §3.2.2. It has to answer this challenge before it gets the outcome. XOAUTH2 has no such step here,
because its AMQP clients wait for the outcome.
Sources: RFC 7628, RFC 5801 §4 (gs2-header), RFC 6750 §2.1 (b64token); docs/spec/policy-and-auth.md §8.1.
"""

import re
from typing import Final

from auth.credentials import MAX_TOKEN_BYTES, MAX_USER_BYTES, Answer, CheckToken, VerifyResult
from auth.mechanisms import NOT_OWN_AUTHZID, Accepted, Ask, Challenge, Refused, Step
from auth.secrets import Secret

OAUTHBEARER: Final = "OAUTHBEARER"
XOAUTH2: Final = "XOAUTH2"
# Strongest first: OAUTHBEARER tells the client why it failed, XOAUTH2 has no standard.
BEARER: Final = (OAUTHBEARER, XOAUTH2)

# The client's answer to an error challenge.
DUMMY: Final = b"\x01"

# The token, the name, host and port, and fields that a client adds.
MAX_RESPONSE_BYTES: Final = MAX_TOKEN_BYTES + MAX_USER_BYTES + 2048
# `auth`, `host`, `port` and a few of the future. Attack: thousands of keys to be compared with each other.
_MAX_PAIRS: Final = 16

WRONG_TOKEN: Final = "SASL(-13): authentication failure: the token is not valid"  # noqa: S105

_ERROR: Final = b'{"status":"invalid_token"}'
_PAIR: Final = re.compile(rb"([A-Za-z]{1,64})=([\t\n\r\x20-\x7e]*)")
_CREDENTIALS: Final = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] +([A-Za-z0-9._~+/-]+=*)")


class Bearer:
    """One exchange of OAUTHBEARER or XOAUTH2."""

    def __init__(self, name: str) -> None:
        """Begins an exchange.

        name  one of BEARER
        """
        self._parse = parse_oauthbearer if name == OAUTHBEARER else parse_xoauth2
        self._explains = name == OAUTHBEARER
        self._asked: CheckToken | None = None
        self._refused: Refused | None = None  # the outcome, once the client has answered the error challenge
        self._was_challenged = False

    def respond(self, response: bytes | None) -> Step:
        if self._refused is not None:
            return self._refused if response == DUMMY else _malformed()
        if response is None:
            if self._was_challenged:
                return _malformed()
            self._was_challenged = True
            return Challenge(data=b"")
        if self._asked is not None:
            return _malformed()
        parsed = self._parse(response)
        if isinstance(parsed, CheckToken):
            self._asked = parsed
            return Ask(request=parsed)
        return parsed

    def conclude(self, result: Answer) -> Step:
        asked = self._asked
        if asked is None or self._refused is not None or not isinstance(result, VerifyResult):
            return Refused(detail="SASL(-1): generic failure: a verification that was not asked for")
        if not result.is_valid:
            return self._refuse(result.detail or WRONG_TOKEN, is_compared=result.is_compared)
        # INVARIANT: the user is the token's. The name that the client wrote can only narrow it.
        if not result.user or (asked.user and asked.user != result.user):
            return self._refuse(NOT_OWN_AUTHZID, is_compared=True)
        return Accepted(user=result.user, groups=result.groups, proof=result.proof, ends_at_s=result.ends_at_s)

    def _refuse(self, detail: str, *, is_compared: bool) -> Step:
        refused = Refused(detail=detail, is_compared=is_compared)
        # A client is told to get another token only if the verifier looked at this one.
        if not self._explains or not is_compared:
            return refused
        self._refused = refused
        return Challenge(data=_ERROR)


def parse_oauthbearer(response: bytes) -> CheckToken | Refused:
    """Parses `n,a=USER,^Ahost=...^Aport=...^Aauth=Bearer TOKEN^A^A`; the user, host and port may be missing.

    Host and port are not compared, because they differ behind a proxy or a forwarded port. Unknown keys are ignored, as
    RFC 7628 §3.1 requires. A key that occurs twice is an error.
    """
    if len(response) > MAX_RESPONSE_BYTES:
        return _malformed()
    header, separator, pairs = response.partition(b"\x01")
    flag, comma, rest = header.partition(b",")
    authzid, another, beyond = rest.partition(b",")
    # `p=` would request channel binding, which neither mechanism has.
    if not separator or not comma or not another or beyond or flag not in (b"n", b"y"):
        return _malformed()
    user: bytes | None = b""
    if authzid:
        user = _unescaped(authzid[2:]) if authzid.startswith(b"a=") else None
    return _with_token(user, pairs)


def parse_xoauth2(response: bytes) -> CheckToken | Refused:
    """Parses `user=USER^Aauth=Bearer TOKEN^A^A`; the user may be empty."""
    if len(response) > MAX_RESPONSE_BYTES:
        return _malformed()
    header, separator, pairs = response.partition(b"\x01")
    if not separator or not header.startswith(b"user="):
        return _malformed()
    return _with_token(header[5:], pairs)


def _with_token(user: bytes | None, pairs: bytes) -> CheckToken | Refused:
    """Returns the token from key=value^A pairs, which end with one more ^A."""
    if user is None or not pairs.endswith(b"\x01\x01"):
        return _malformed()
    items = pairs[:-2].split(b"\x01", _MAX_PAIRS)
    if len(items) > _MAX_PAIRS:
        return _malformed()
    found: dict[bytes, bytes] = {}
    for item in items:
        match = _PAIR.fullmatch(item)
        if match is None or match[1] in found:
            return _malformed()
        found[match[1]] = match[2]
    credentials = _CREDENTIALS.fullmatch(found.get(b"auth", b""))
    if credentials is None or len(credentials[1]) > MAX_TOKEN_BYTES:
        return _malformed()
    try:
        name = user.decode("utf-8")
    except UnicodeDecodeError:
        return _malformed()
    if len(user) > MAX_USER_BYTES or (name and not name.isprintable()):
        return Refused(detail="SASL(-13): authentication failure: unprintable or too long a user name")
    return CheckToken(user=name, token=Secret(credentials[1].decode("ascii")))


def _unescaped(name: bytes) -> bytes | None:
    """Decodes a saslname of RFC 5801 §4. Returns None if the name is not one."""
    if not name or re.search(rb"=(?!2C|3D)", name) or b"\0" in name:
        return None
    return name.replace(b"=2C", b",").replace(b"=3D", b"=")


def _malformed() -> Refused:
    return Refused(detail="SASL(-5): bad protocol / cancel: a message that is none of a bearer token's")
