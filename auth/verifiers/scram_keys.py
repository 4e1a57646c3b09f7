"""Stored SCRAM keys, in PostgreSQL's text form: `SCRAM-SHA-256$<iterations>:<salt>$<stored>:<server>`.

Source: RFC 5802 §3, RFC 5803.
"""

import hashlib
import math
import re
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from scramp import ScramException, ScramMechanism

from auth.credentials import ScramKeys
from auth.secrets import Secret
from auth.verifiers.hashes import HashError

# Hashes that each login costs a client, and each guess an attacker who has the file. RFC 7677 requires at least 4,096.
ITERATIONS: Final = 65_536
MIN_ITERATIONS: Final = 4_096
# With more, a client would compute for minutes.
MAX_ITERATIONS: Final = 10_000_000

# Length of scramp's salts, used for made-up salts if there are no entries to imitate.
_SALT_BYTES: Final = 32
_DIGEST_BYTES: Final = {"SHA-1": 20, "SHA-256": 32, "SHA-512": 64}
_FORM: Final = re.compile(
    r"SCRAM-(SHA-1|SHA-256|SHA-512)\$(\d{4,8}):([A-Za-z0-9+/=]{16,88})\$([A-Za-z0-9+/=]{28,88}):([A-Za-z0-9+/=]{28,88})",
    re.ASCII,
)


def make_scram_keys(password: Secret, hash_name: str, iterations: int = ITERATIONS) -> str:
    """Returns the text form for a password, with a random salt. Errors: HashError if SASLprep forbids the password."""
    try:
        salt, stored, server, count = ScramMechanism(f"SCRAM-{hash_name}").make_auth_info(
            password.reveal(), iteration_count=iterations
        )
    except ScramException:
        raise HashError("the password has a character that SCRAM does not permit (RFC 4013)") from None
    return f"SCRAM-{hash_name}${count}:{_encode(salt)}${_encode(stored)}:{_encode(server)}"


def read_scram_keys(text: str) -> tuple[str, ScramKeys]:
    """Returns the hash's name and the keys of a text form. Errors: HashError."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise HashError("not of the form SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>")
    hash_name, iterations = found[1], int(found[2])
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise HashError(f"SCRAM with {iterations} iterations: expected {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    try:
        salt, stored, server = (b64decode(part, validate=True) for part in found.groups()[2:])
    except ValueError:
        raise HashError("SCRAM keys that are not base64") from None
    size = _DIGEST_BYTES[hash_name]
    if len(stored) != size or len(server) != size or len(salt) < 12:
        raise HashError(f"SCRAM-{hash_name} keys of a wrong length: expected {size} bytes, and a salt of at least 12")
    return hash_name, ScramKeys(salt=salt, iterations=iterations, stored_key=stored, server_key=server, is_known=True)


class Shape(NamedTuple):
    """The properties of keys that a client sees, apart from the random values."""

    iterations: int
    salt_bytes: int


def shapes_of(keys: Iterable[ScramKeys]) -> Counter[Shape]:
    """Counts the keys of each shape."""
    return Counter(Shape(each.iterations, len(each.salt)) for each in keys)


def decoy_keys(seed: bytes, user: str, hash_name: str, shapes: Mapping[Shape, int]) -> ScramKeys:
    """Returns keys for a user that does not exist: always the same for a seed and name.

    So asking twice reveals nothing.

    shapes  of the real entries, with their number: decoys have them as often. Attack: in a file with several numbers of
            iterations, a user is recognised by a number that no made-up name has. When the numbers change, few names
            change their shape. Those also get another salt, as a user does with a new password.
    """
    size = _DIGEST_BYTES[hash_name]
    name = user.encode("utf-8", "surrogatepass")

    def drawn(what: str, length: int) -> bytes:
        # The seed has a fixed length and SHAKE allows no extension attack: this is keyed like an HMAC, of any length.
        return hashlib.shake_256(seed + what.encode() + name).digest(length)

    def rank(shape: Shape) -> float:
        """Returns a rank by weighted rendezvous hashing: the chance to be highest is the shape's share."""
        number = int.from_bytes(drawn(f"shape {shape.iterations} {shape.salt_bytes}:", 8))
        return -shapes[shape] / math.log((number + 1) / (2**64 + 1))

    shape = max(shapes, key=rank) if len(shapes) > 1 else next(iter(shapes), Shape(ITERATIONS, _SALT_BYTES))
    return ScramKeys(
        salt=drawn(f"salt {shape.iterations} {shape.salt_bytes}:", shape.salt_bytes),
        iterations=shape.iterations,
        # The client never sees these values; they only must be unknown.
        stored_key=hashlib.blake2b(name, key=seed[:64], digest_size=size, person=b"stored").digest(),
        server_key=hashlib.blake2b(name, key=seed[:64], digest_size=size, person=b"server").digest(),
        is_known=False,
    )


def _encode(data: bytes) -> str:
    return b64encode(data).decode("ascii")
