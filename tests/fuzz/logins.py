"""A fuzzing campaign over everything that a login makes the router read: messages, tokens, certificates, files.

    python tests/fuzz/logins.py --seconds 600 --seed 1 [--only JWT]

As campaign.py; besides, nothing but the right credentials may let anybody in, and no input may take long.
The figures of recorded runs are in tests/fuzz/results.md.
"""

import argparse
import contextlib
import datetime
import hmac
import json
import random
import ssl
import sys
import time
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent), str(HERE.parent / "core"), str(HERE.parent / "auth")]

import campaign  # noqa: E402
import sasldb_files  # noqa: E402
from cryptography import x509  # noqa: E402
from cryptography.hazmat.primitives import hashes  # noqa: E402
from cryptography.hazmat.primitives.asymmetric import ec  # noqa: E402
from cryptography.hazmat.primitives.serialization import Encoding  # noqa: E402
from cryptography.x509.oid import NameOID  # noqa: E402
from jwt import PyJWS  # noqa: E402

from auth import bearer, certificates, client_hello, client_scram, host_names, mechanisms, scram  # noqa: E402
from auth.credentials import CheckToken, FetchScramKeys, ScramKeys, VerifyResult  # noqa: E402
from auth.mechanisms import Accepted, Ask, Challenge, Channel  # noqa: E402
from auth.secrets import Secret  # noqa: E402
from auth.verifiers.files import UserFileError, parse_users  # noqa: E402
from auth.verifiers.sasldb_format import SasldbError, read_passwords  # noqa: E402
from auth.verifiers.scram_keys import decoy_keys, make_scram_keys, read_scram_keys  # noqa: E402
from auth.verifiers.token_keys import KeysError, KeySet, parse_keys  # noqa: E402
from auth.verifiers.tokens import TokenRules, TokenVerifier  # noqa: E402

# One input; the bounds of sizes keep all far below. Whatever takes longer holds up a thread, or the loop.
MAX_S = 1.0
HOST = "router.example.com"


class Bypass(Exception):
    """Somebody was let in who must not be."""


@dataclass(frozen=True)
class Reader:
    """One target: as campaign.Campaign, by time."""

    name: str
    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]


# SCRAM

USER, PASSWORD, ROUTER_NONCE, NONCE = "alice", Secret("wonderland"), "5" * 64, "fyko+d2lbbFgONRv9qkxdawL"
_, KEYS = read_scram_keys(make_scram_keys(PASSWORD, "SHA-256", 4096))
SALTED = client_scram.derive(
    client_scram.Derive(password=PASSWORD, salt=KEYS.salt, iterations=KEYS.iterations, hash_name="SHA-256")
)
BINDING = b"0123456789abcdef0123456789abcdef"


@cache
def login(name: str) -> tuple[bytes, bytes]:
    """What a client with the right password says to a router whose nonce is ROUTER_NONCE: first, last."""
    flag = f"p={scram.BINDING}" if name.endswith(scram.PLUS) else "n"
    bare = f"n={USER},r={NONCE}"
    bound = b64encode(f"{flag},,".encode() + (BINDING if flag != "n" else b"")).decode()
    challenge = f"r={NONCE}{ROUTER_NONCE},s={b64encode(KEYS.salt).decode()},i={KEYS.iterations}"
    unsigned = f"c={bound},r={NONCE}{ROUTER_NONCE}"
    client = hmac.digest(SALTED, b"Client Key", "sha256")
    signature = hmac.digest(sha256(client).digest(), f"{bare},{challenge},{unsigned}".encode(), "sha256")
    proof = bytes(a ^ b for a, b in zip(client, signature, strict=True))
    return f"{flag},,{bare}".encode(), f"{unsigned},p={b64encode(proof).decode()}".encode()


def answer_scram(data: bytes, name: str) -> None:
    """A whole exchange: the client's two messages, of which the input is made up, behind each other."""
    first, _, last = data.partition(b"\n")
    exchange = scram.Scram(name, Channel(is_encrypted=True, binding=lambda _kind: BINDING if "PLUS" in name else None))
    step = exchange.respond(first)
    if not isinstance(step, Ask):
        return
    assert isinstance(step.request, FetchScramKeys)
    user = step.request.user
    keys: ScramKeys = KEYS if user == USER else decoy_keys(b"seed" * 8, user, "SHA-256", {})
    if not isinstance(exchange.conclude(keys), Challenge):
        return
    step = exchange.respond(last)
    right = login(name)[1].rpartition(b",p=")[2]
    if isinstance(step, Challenge):
        shown = last.rpartition(b",p=")[2]
        if user != USER or b64decode(shown) != b64decode(right):
            raise Bypass(f"{user!r} by {shown!r}")
        if not isinstance(exchange.respond(b""), Accepted):
            raise Bypass("accepted, and not let in")
    elif isinstance(step, Accepted):
        raise Bypass("without a proof of ours")


def answer_server(data: bytes) -> None:
    """The client's side: the server's messages are the input."""
    first, _, last = data.partition(b"\n")
    exchange = client_scram.Scram("SCRAM-SHA-256", USER, PASSWORD, binding=None, offers_plus=False)
    with contextlib.suppress(client_scram.MechanismFault):
        exchange.initial_response()
        asked = exchange.answer(first)
        if isinstance(asked, client_scram.Derive):
            exchange.derived(bytes(32))
            exchange.answer(last)
            exchange.confirm(last)


# Tokens

SIGNER = ec.generate_private_key(ec.SECP256R1())
ISSUER, AUDIENCE, NOW = "https://sso.example.com", "amqp", 1_700_000_000.0
CLAIMS = {"iss": ISSUER, "aud": AUDIENCE, "sub": USER, "exp": NOW + 60, "groups": ["staff"], "nbf": NOW}


def _number(value: int) -> str:
    return urlsafe_b64encode(value.to_bytes(32, "big")).rstrip(b"=").decode()


POINT = SIGNER.public_key().public_numbers()
JWKS = json.dumps(
    {"keys": [{"kty": "EC", "crv": "P-256", "kid": "k", "alg": "ES256", "x": _number(POINT.x), "y": _number(POINT.y)}]}
).encode()


class Known:
    def __init__(self) -> None:
        self._keys = parse_keys(JWKS)

    def current(self, *, is_missed: bool = False) -> KeySet:
        return self._keys


JUDGE = TokenVerifier(
    "sso", Known(), TokenRules(issuer=ISSUER, audiences=(AUDIENCE,), groups_claim="groups"), wall_clock=lambda: NOW
)


def token(claims: object, **header: object) -> bytes:
    signed = PyJWS().encode(json.dumps(claims).encode(), SIGNER, algorithm="ES256", headers={"kid": "k", **header})
    return signed.encode()


TOKEN = token(CLAIMS)
SIGNED = {TOKEN.rpartition(b".")[0]}


def judge_token(data: bytes) -> None:
    text = data.decode("latin-1")
    answer = JUDGE.verify(CheckToken(token=Secret(text), user=""))
    assert isinstance(answer, VerifyResult)
    if answer.is_valid and data.rpartition(b".")[0] not in SIGNED:
        raise Bypass(f"{answer.user!r}")
    if "in judging it" in answer.detail:
        raise RuntimeError(answer.detail)


def parse_bearers(data: bytes) -> None:
    bearer.parse_oauthbearer(data)
    bearer.parse_xoauth2(data)
    mechanisms.parse_plain(data)


def read_jwks(data: bytes) -> None:
    with contextlib.suppress(KeysError):
        parse_keys(data)


# Certificates

MARK = "MARKMARKMARKMARK"


def certificate(names: list[x509.GeneralName], common: str = MARK) -> bytes:
    name = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "O"), x509.NameAttribute(NameOID.COMMON_NAME, common)]
    )
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(SIGNER.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(SIGNER, hashes.SHA256()).public_bytes(Encoding.DER)


def certificates_to_mutate() -> list[bytes]:
    odd = ["a.example.org", "*.example.org", f"{MARK}.example.org", "xn--bcher-kva.example.org"]
    return [
        certificate([]),
        certificate([x509.DNSName(each) for each in odd]),
        certificate([x509.RFC822Name("a@example.org"), x509.UniformResourceIdentifier("urn:x")]),
    ]


def large_certificates() -> list[bytes]:
    """A reader of their own: each takes a hundred times as long as a usual one."""
    return [certificate([x509.DNSName(f"h{number}.example.org") for number in range(10_000)])]


PARTS = (HOST.encode(), b"router.example.com\0.evil.org", b"\0", "ü".encode(), b"", b"*", b"\xff\xfe", b"router\n")


def read_certificate(data: bytes) -> None:
    """Parsed as DER; and with a text in the place of the mark, of the same length, so that the rest stays valid."""
    chance = random.Random(data)
    part = chance.choice(PARTS) + chance.randbytes(chance.randrange(len(MARK)))
    whole = data.replace(MARK.encode(), part[: len(MARK)].ljust(len(MARK), chance.choice((b"\0", b".", b" ", b"A"))))
    is_named = HOST.encode() in whole.lower() or b"*" in whole
    for read in (
        lambda: certificates.certificate_user(whole, uid_format="1"),
        lambda: certificates.certificate_user(whole, uid_format="oun"),
        lambda: certificates.certificate_subject(whole),
        lambda: certificates.certificate_weakness(whole),
        lambda: certificates.expiry_s(whole),
        lambda: certificates.certificate_id(whole),
        lambda: certificates.end_point_binding(whole),
        lambda: certificates.chain_of(whole, [whole]),
    ):
        with contextlib.suppress(certificates.CertificateError):
            found = read()
            user = getattr(found, "user", found if isinstance(found, str) else "")
            if not user.isprintable():
                raise Bypass(f"the user {user!r}")
    if host_names.names_host(whole, HOST) and not is_named:
        raise Bypass("a certificate of another host")
    with contextlib.suppress(ValueError):
        certificates.chain_ends_at_s(ssl.DER_cert_to_PEM_cert(whole).encode())


# Files


def read_sasldb(data: bytes) -> None:
    with contextlib.suppress(SasldbError):
        read_passwords(data)


def sasldbs() -> list[bytes]:
    entries = {sasldb_files.key_of(f"user{number}"): b"x" * (1 + 90 * number) for number in range(8)}
    return [
        *(sasldb_files.berkeley(entries, order) for order in "<>"),
        *(sasldb_files.gdbm(entries, order, is_wide=is_wide) for order in "<>" for is_wide in (True, False)),
    ]


def read_users(data: bytes) -> None:
    with contextlib.suppress(UserFileError):
        parse_users(data.decode("utf-8", "replace"), "fuzz")


def user_files() -> list[bytes]:
    hashed = "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$" + "A" * 43
    scrams = " ".join(make_scram_keys(PASSWORD, name, 4096) for name in ("SHA-1", "SHA-256", "SHA-512"))
    return [f"# users\nalice:{hashed}\nben:{hashed} {scrams}\n".encode()]


def read_hello(data: bytes) -> None:
    with contextlib.suppress(client_hello.Unfinished):
        client_hello.server_name(data)


def hellos() -> list[bytes]:
    made = []
    for name in (None, HOST, "xn--bcher-kva.example"):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        with contextlib.suppress(ssl.SSLWantReadError):
            context.wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
        made.append(outgoing.read())
    return made


def scrams(name: str) -> list[bytes]:
    first, last = login(name)
    return [first + b"\n" + last, first.replace(b"alice", b"=2C=3D") + b"\n" + last, first + b",x=1\n" + last]


READERS = (
    Reader("SASL frames", campaign.read_sasl_frames, lambda: campaign.SASL),
    Reader("SASL server", campaign.negotiate_as_server, lambda: campaign.SASL),
    Reader("SCRAM", lambda data: answer_scram(data, "SCRAM-SHA-256"), lambda: scrams("SCRAM-SHA-256")),
    Reader("SCRAM-PLUS", lambda data: answer_scram(data, "SCRAM-SHA-256-PLUS"), lambda: scrams("SCRAM-SHA-256-PLUS")),
    Reader(
        "SCRAM client",
        answer_server,
        lambda: [
            f"r={NONCE}{ROUTER_NONCE},s=QSXCR+Q6sek8bf92,i=4096\nv=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=".encode()
        ],
    ),
    Reader(
        "JWT", judge_token, lambda: [TOKEN, token({**CLAIMS, "exp": NOW - 999}), token([1]), token(CLAIMS, crit=["x"])]
    ),
    Reader("JWKS", read_jwks, lambda: [JWKS]),
    Reader(
        "bearer and PLAIN",
        parse_bearers,
        lambda: [
            b"n,a=u@x,\x01host=h\x01auth=Bearer abc.def.ghi\x01\x01",
            b"user=u\x01auth=Bearer t\x01\x01",
            b"\0u\0p",
        ],
    ),
    Reader("certificates", read_certificate, certificates_to_mutate),
    Reader("large certificates", read_certificate, large_certificates),
    Reader("sasldb", read_sasldb, sasldbs),
    Reader("user files", read_users, user_files),
    Reader("ClientHello", read_hello, hellos),
)


def run(reader: Reader, seed: int, seconds: float, inputs: int | None = None) -> bool:
    """False after a failure, which is printed. inputs  so many at most"""
    chance, seeds, slowest = random.Random(f"{reader.name} {seed}"), reader.seeds(), 0.0
    started, number = time.monotonic(), 0
    while time.monotonic() - started < seconds and number != inputs:
        # Each seed as it is comes first.
        data = seeds[number] if number < len(seeds) else campaign.mutated(chance.choice(seeds), chance)
        number += 1
        began = time.thread_time()
        try:
            reader.run(data)
        except Exception as error:
            print(f"{reader.name}: input {number}: {type(error).__name__}: {error}\n{data[:4096].hex()}")
            return False
        slowest = max(slowest, time.thread_time() - began)
        if slowest > MAX_S:
            print(f"{reader.name}: input {number}: {slowest:.2f} s\n{data[:4096].hex()}")
            return False
    took = time.monotonic() - started
    print(f"{reader.name:18} seed {seed} {number:10,} inputs {took:7.1f} s, slowest {slowest * 1e3:.1f} ms, no failure")
    sys.stdout.flush()
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each reader (default 10)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=[each.name for each in READERS], help="one reader; all without it")
    options = parser.parse_args()
    scram.make_nonce = lambda: ROUTER_NONCE
    chosen = [each for each in READERS if options.only in (None, each.name)]
    failed = [each for each in chosen if not run(each, options.seed, options.seconds)]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
