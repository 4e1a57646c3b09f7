"""Stored password hashes in PHC string form: argon2id and scrypt.

Slow on purpose: call off the event loop. cryptography releases the interpreter lock meanwhile.
Sources: the PHC string format; RFC 9106 (Argon2), RFC 7914 (scrypt); OWASP's password storage recommendations.
"""

import re
import secrets
from base64 import b64decode, b64encode
from dataclasses import dataclass

from cryptography.exceptions import InvalidKey, UnsupportedAlgorithm
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from auth.secrets import Secret

# Every unauthenticated peer can make us compute any hash of the file. So one attempt may take at most this much memory
# and this many passes.
MAX_MEMORY_KIB = 256 * 1024
MAX_PASSES = 64

_SALT_BYTES = 16
_DIGEST_BYTES = 32

_BASE64 = r"[A-Za-z0-9+/]{11,86}"  # salts and digests of 8 to 64 bytes, unpadded
_ARGON2ID = re.compile(
    rf"\$argon2id\$v=19\$m=(\d{{1,7}}),t=(\d{{1,3}}),p=(\d{{1,3}})\$({_BASE64})\$({_BASE64})", re.ASCII
)
_SCRYPT = re.compile(rf"\$scrypt\$ln=(\d{{1,2}}),r=(\d{{1,3}}),p=(\d{{1,3}})\$({_BASE64})\$({_BASE64})", re.ASCII)


class HashError(ValueError):
    """The hash cannot be verified here. The text names the supported kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Argon2idCost:
    """OWASP's minimum: 19 MiB, two passes, one lane."""

    memory_kib: int = 19 * 1024
    iterations: int = 2
    lanes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ScryptCost:
    """OWASP's recommendation: N = 2^17, r = 8, one lane; 128 MiB."""

    log2_n: int = 17
    r: int = 8
    p: int = 1


Cost = Argon2idCost | ScryptCost


def hash_password(password: Secret, cost: Cost) -> str:
    """Returns a new PHC string with a random salt.

    Errors  HashError if this build of cryptography has no Argon2id.
    """
    salt = secrets.token_bytes(_SALT_BYTES)
    secret = password.reveal().encode("utf-8")
    if isinstance(cost, ScryptCost):
        digest = _scrypt(cost, salt, _DIGEST_BYTES).derive(secret)
        return f"{_scrypt_prefix(cost)}${_encode(salt)}${_encode(digest)}"
    try:
        kdf = Argon2id(
            salt=salt,
            length=_DIGEST_BYTES,
            iterations=cost.iterations,
            lanes=cost.lanes,
            memory_cost=cost.memory_kib,
        )
    except UnsupportedAlgorithm:
        raise HashError("this build of the cryptography package has no Argon2id; use scrypt") from None
    return kdf.derive_phc_encoded(secret)


def check_hash(phc: str) -> Cost:
    """Returns the cost of a PHC string.

    Errors  HashError unless `verify_hash` can verify it within the limits above.
    """
    if found := _ARGON2ID.fullmatch(phc):
        memory, iterations, lanes = (int(number) for number in found.groups()[:3])
        is_sound = 1 <= lanes <= 16 and 1 <= iterations <= MAX_PASSES and 8 * lanes <= memory <= MAX_MEMORY_KIB
        cost: Cost = Argon2idCost(memory_kib=memory, iterations=iterations, lanes=lanes)
    elif found := _SCRYPT.fullmatch(phc):
        log2_n, r, p = (int(number) for number in found.groups()[:3])
        # 1 <= log2 N < 16 r is the limit of RFC 7914; one attempt takes 128 r N bytes.
        is_sound = 1 <= log2_n < 16 * r and 1 <= p <= MAX_PASSES and (r << log2_n) // 8 <= MAX_MEMORY_KIB
        cost = ScryptCost(log2_n=log2_n, r=r, p=p)
    else:
        raise HashError("not a hash of the form $argon2id$v=19$… or $scrypt$…, as qdpasswd writes it")
    if not is_sound:
        raise HashError(f"a hash that costs too much: at most {MAX_MEMORY_KIB} KiB and {MAX_PASSES} passes")
    try:
        _decode(found.group(4))
        _decode(found.group(5))
    except ValueError:
        raise HashError("a hash whose salt or digest is not base64") from None
    return cost


def verify_hash(password: Secret, phc: str) -> bool:
    """Returns whether the PHC string was made from this password. Compares the digests in constant time.

    Errors  HashError, as `check_hash`.
    """
    cost = check_hash(phc)
    secret = password.reveal().encode("utf-8", "surrogatepass")
    try:
        if isinstance(cost, Argon2idCost):
            Argon2id.verify_phc_encoded(secret, phc)
        else:
            salt, digest = (_decode(part) for part in phc.rsplit("$", 2)[1:])
            _scrypt(cost, salt, len(digest)).verify(secret, digest)
    except InvalidKey:
        return False
    except UnsupportedAlgorithm:
        raise HashError("this build of the cryptography package has no Argon2id") from None
    return True


def decoy_hash(cost: Cost) -> str:
    """Returns a PHC string of that cost that matches no password, without computing a hash."""
    salt, digest = _encode(secrets.token_bytes(_SALT_BYTES)), _encode(secrets.token_bytes(_DIGEST_BYTES))
    if isinstance(cost, ScryptCost):
        return f"{_scrypt_prefix(cost)}${salt}${digest}"
    return f"$argon2id$v=19$m={cost.memory_kib},t={cost.iterations},p={cost.lanes}${salt}${digest}"


def _scrypt(cost: ScryptCost, salt: bytes, length: int) -> Scrypt:
    return Scrypt(salt=salt, length=length, n=1 << cost.log2_n, r=cost.r, p=cost.p)


def _scrypt_prefix(cost: ScryptCost) -> str:
    return f"$scrypt$ln={cost.log2_n},r={cost.r},p={cost.p}"


def _encode(data: bytes) -> str:
    return b64encode(data).decode("ascii").rstrip("=")


def _decode(text: str) -> bytes:
    return b64decode(text + "=" * (-len(text) % 4), validate=True)
