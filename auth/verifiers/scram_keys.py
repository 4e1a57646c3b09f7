"""Stored SCRAM keys, in the text form that PostgreSQL has too: `SCRAM-SHA-256$<iterations>:<salt>$<stored>:<server>`.

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

# Each login costs a client this many hashes, an attacker who has the file each guess. RFC 7677 wants 4,096 at least.
ITERATIONS: Final = 65_536
MIN_ITERATIONS: Final = 4_096
# A client would compute for minutes.
MAX_ITERATIONS: Final = 10_000_000

# Of the salts that scramp draws, so that a made-up one is as long where there are no entries to be like.
_SALT_BYTES: Final = 32
_DIGEST_BYTES: Final = {"SHA-1": 20, "SHA-256": 32, "SHA-512": 64}
_FORM: Final = re.compile(
    r"SCRAM-(SHA-1|SHA-256|SHA-512)\$(\d{4,8}):([A-Za-z0-9+/=]{16,88})\$([A-Za-z0-9+/=]{28,88}):([A-Za-z0-9+/=]{28,88})",
    re.ASCII,
)


def make_scram_keys(password: Secret, hash_name: str, iterations: int = ITERATIONS) -> str:
    """The text form for a password, with a random salt. Errors: HashError for a password that SASLprep forbids."""
    try:
        salt, stored, server, count = ScramMechanism(f"SCRAM-{hash_name}").make_auth_info(
            password.reveal(), iteration_count=iterations
        )
    except ScramException:
        raise HashError("the password has a character that SCRAM does not permit (RFC 4013)") from None
    return f"SCRAM-{hash_name}${count}:{_encode(salt)}${_encode(stored)}:{_encode(server)}"


def read_scram_keys(text: str) -> tuple[str, ScramKeys]:
    """The hash's name and the keys of a text form. Errors: HashError."""
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
    """What a client sees of keys, beside the random."""

    iterations: int
    salt_bytes: int


def shapes_of(keys: Iterable[ScramKeys]) -> Counter[Shape]:
    """How many of the keys have which shape."""
    return Counter(Shape(each.iterations, len(each.salt)) for each in keys)


def decoy_keys(seed: bytes, user: str, hash_name: str, shapes: Mapping[Shape, int]) -> ScramKeys:
    """Keys for a name that nobody has: the same for the same seed and name, so that asking twice tells nothing.

    shapes  of the real entries, with their number: decoys have them as often. Attack: to know the users of a file with
            several numbers of iterations by one that no made-up name has. When the numbers change, few names change
            their shape, and those get another salt with it, as a user does with a new password.
    """
    size = _DIGEST_BYTES[hash_name]
    name = user.encode("utf-8", "surrogatepass")

    def drawn(what: str, length: int) -> bytes:
        # The seed has a fixed length, and SHAKE no extension: this is keyed like an HMAC, of any length.
        return hashlib.shake_256(seed + what.encode() + name).digest(length)

    def rank(shape: Shape) -> float:
        """Weighted rendezvous hashing: the highest rank is this shape's as often as its share is large."""
        number = int.from_bytes(drawn(f"shape {shape.iterations} {shape.salt_bytes}:", 8))
        return -shapes[shape] / math.log((number + 1) / (2**64 + 1))

    shape = max(shapes, key=rank) if len(shapes) > 1 else next(iter(shapes), Shape(ITERATIONS, _SALT_BYTES))
    return ScramKeys(
        salt=drawn(f"salt {shape.iterations} {shape.salt_bytes}:", shape.salt_bytes),
        iterations=shape.iterations,
        # Of these the client sees nothing: they only may not be known.
        stored_key=hashlib.blake2b(name, key=seed[:64], digest_size=size, person=b"stored").digest(),
        server_key=hashlib.blake2b(name, key=seed[:64], digest_size=size, person=b"server").digest(),
        is_known=False,
    )


def _encode(data: bytes) -> str:
    return b64encode(data).decode("ascii")
