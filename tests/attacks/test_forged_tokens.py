"""Attack: a login with a token that the issuer has not made, or has made for another time, place or purpose."""

import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import raw_peer
from cryptography.hazmat.primitives import serialization
from daemon_process import LISTENER, Daemon, Started, audit_events
from daemons import peer_of
from issuer import AUDIENCE, ISSUER, Issuer, encoded
from raw_peer import RawPeer
from server_peer import OUTCOME

OK, AUTH = 0, 1
# The last one: a good token's client leaves before its Open.
REASONS = {"sasl_failed", "sasl_malformed", "preauth_buffer_exceeded", "handshake_aborted"}
CONFIGURATION = (
    "router {{\n auditDir: {folder}/audit\n}}\n"
    "tokenAuthenticator {{\n name: issued\n keysFile: {folder}/jwks.json\n issuer: {issuer}\n audience: {audience}\n"
    " allowUnencrypted: yes\n}}\n"
    "listener {{\n name: tokens\n host: 127.0.0.1\n port: 0\n authenticatePeer: yes\n authenticators: issued\n}}\n"
)


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def router(tmp_path: Path, issuer: Issuer, daemon: Started) -> Daemon:
    (tmp_path / "audit").mkdir()
    issuer.write(tmp_path / "jwks.json")
    return daemon(CONFIGURATION.format(folder=tmp_path, issuer=ISSUER, audience=AUDIENCE) + LISTENER)


def claims(**changes: Any) -> dict[str, Any]:
    return {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": time.time() + 300, **changes}


def put_together(header: Mapping[str, Any], payload: Mapping[str, Any], sign: Callable[[bytes], bytes]) -> str:
    said = ".".join(encoded(json.dumps(part).encode()) for part in (header, payload))
    return f"{said}.{encoded(sign(said.encode()))}"


def by_hmac(key: bytes, algorithm: str = "HS256", **header: Any) -> str:
    return put_together(
        {"alg": algorithm, "typ": "JWT", **header}, claims(), lambda said: hmac.digest(key, said, hashlib.sha256)
    )


def public_pem(issuer: Issuer, kid: str) -> bytes:
    key = issuer.keys[kid].public_key()
    return bytes(key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo))


def of_another(issuer: Issuer, **header: Any) -> str:
    """By a key of the attacker's, which the header brings along or says where to find."""
    mallory = Issuer()
    return mallory.token("ec", "ES256", header=header, exp=time.time() + 300)


def with_changed_claims(issuer: Issuer) -> str:
    head, _, signature = issuer.token(exp=time.time() + 300).split(".")
    return f"{head}.{encoded(json.dumps(claims(sub='root')).encode())}.{signature}"


def twice_said(issuer: Issuer) -> str:
    """One member twice: readers differ in which of them they take."""
    text = json.dumps(claims(sub="mallory"))[:-1] + ', "sub": "alice"}'
    return issuer.sign(text.encode(), "ec", "ES256")


def large(issuer: Issuer) -> str:
    return issuer.token(exp=time.time() + 300, more="x" * 1_000_000)


def bomb(issuer: Issuer) -> str:
    """A payload that is cheap to send and dear to read."""
    return put_together({"alg": "ES256", "kid": "ec"}, {}, lambda _: b"")[:10] + "." + encoded(b"[" * 20_000) + ".AA"


FORGERIES: dict[str, Callable[[Issuer], str]] = {
    "alg none": lambda issuer: put_together({"alg": "none"}, claims(), lambda _: b""),
    "alg None": lambda issuer: put_together({"alg": "None", "kid": "ec"}, claims(), lambda _: b""),
    "no alg": lambda issuer: put_together({"kid": "ec"}, claims(), lambda _: b""),
    "no signature": lambda issuer: issuer.token(exp=time.time() + 300).rpartition(".")[0] + ".",
    "two parts": lambda issuer: issuer.token(exp=time.time() + 300).rpartition(".")[0],
    "the public key as that of an HMAC": lambda issuer: by_hmac(public_pem(issuer, "rsa"), kid="rsa"),
    "the JWK as that of an HMAC": lambda issuer: by_hmac(json.dumps(issuer.jwk("rsa")).encode(), kid="rsa"),
    "an empty key of an HMAC": lambda issuer: by_hmac(b"", kid="ec"),
    "an algorithm of another key": lambda issuer: issuer.sign(
        json.dumps(claims()).encode(), "rsa", "RS256", {"kid": "ec"}
    ),
    "RS256 said to be ES256": lambda issuer: issuer.token("rsa", "RS256", exp=time.time() + 300).replace(
        encoded(b'{"alg":"RS256"')[:16], encoded(b'{"alg":"ES256"')[:16]
    ),
    "a signature of zeros (psychic)": lambda issuer: put_together(
        {"alg": "ES256", "kid": "ec"}, claims(), lambda _: bytes(64)
    ),
    "a key in the header": lambda issuer: of_another(issuer, jwk=Issuer().jwk("ec")),
    "the address of a key": lambda issuer: of_another(issuer, jku="http://127.0.0.1:9/keys", x5u="http://127.0.0.1:9/"),
    "a path as kid": lambda issuer: of_another(issuer, kid="../../../../dev/null"),
    "crit": lambda issuer: issuer.token(exp=time.time() + 300, header={"crit": ["b64"], "b64": False}),
    "another's key": lambda issuer: of_another(issuer),
    "changed claims": with_changed_claims,
    "expired": lambda issuer: issuer.token(exp=time.time() - 600),
    "without an end": lambda issuer: issuer.token(exp=None),
    "an end that is no number": lambda issuer: issuer.token(exp="9999999999"),
    "an end that is endless": lambda issuer: issuer.token(exp=float("inf")),
    "not yet": lambda issuer: issuer.token(exp=time.time() + 900, nbf=time.time() + 600),
    "for another audience": lambda issuer: issuer.token(exp=time.time() + 300, aud="web.example"),
    "an audience that begins alike": lambda issuer: issuer.token(exp=time.time() + 300, aud=f"{AUDIENCE}.evil"),
    "of another issuer": lambda issuer: issuer.token(exp=time.time() + 300, iss=f"{ISSUER}/"),
    "a user of two lines": lambda issuer: issuer.token(exp=time.time() + 300, sub="alice\nroot"),
    "a user that is a list": lambda issuer: issuer.token(exp=time.time() + 300, sub=["alice"]),
    "no user": lambda issuer: issuer.token(exp=time.time() + 300, sub=""),
    "a member twice": twice_said,
    "a megabyte": large,
    "thousands of brackets": bomb,
    "five parts": lambda issuer: issuer.token(exp=time.time() + 300) + ".AA.AA",
    "dots": lambda issuer: "." * 1000,
}  # fmt: skip


def outcome_of(router: Daemon, token: str, mechanism: str = "OAUTHBEARER") -> int | None:
    """None: the router closes instead."""
    said = f"n,,\1auth=Bearer {token}\1\1" if mechanism == "OAUTHBEARER" else f"user=alice\1auth=Bearer {token}\1\1"
    with peer_of(router, "tokens") as peer:
        try:
            peer.send(raw_peer.SASL + raw_peer.sasl_init(mechanism, said.encode()))
            return _outcome(peer)
        except OSError:
            return None


def _outcome(peer: RawPeer) -> int | None:
    """Of OAUTHBEARER an error is a challenge first, which is answered with a byte (RFC 7628 §3.2.3)."""
    while True:
        for kind, code, fields in raw_peer.frames_in(peer.received):
            if (kind, code) == (1, OUTCOME):
                return int(str(fields[0]))
            if (kind, code) == (1, 0x42):
                peer.received = b""
                peer.send(raw_peer.frame(0x43, b"\1", kind=1))
                break
        piece = peer.socket.recv(65536)
        if not piece:
            return None
        peer.received += piece


def test_no_forged_token_is_let_in(router: Daemon, issuer: Issuer, tmp_path: Path) -> None:
    for mechanism in ("OAUTHBEARER", "XOAUTH2"):
        assert outcome_of(router, issuer.token(exp=time.time() + 300), mechanism) == OK
        answers = {name: outcome_of(router, forge(issuer), mechanism) for name, forge in FORGERIES.items()}
        assert {name: code for name, code in answers.items() if code not in (AUTH, None)} == {}
    assert outcome_of(router, issuer.token(exp=time.time() + 300)) == OK
    router.client().close()
    router.end()
    assert not router.log(r"Traceback|ERROR \(|Unexpected")
    denied = [each for each in audit_events(tmp_path / "audit") if each["decision"] == "deny"]
    assert {each["reason"] for each in denied} <= REASONS


def test_a_stolen_token_names_its_own_user_alone(router: Daemon, issuer: Issuer) -> None:
    """The name that the client gives beside the token has to be the token's."""
    said = f"n,a=root,\1auth=Bearer {issuer.token(exp=time.time() + 300)}\1\1".encode()
    with peer_of(router, "tokens") as peer:
        peer.send(raw_peer.SASL + raw_peer.sasl_init("OAUTHBEARER", said))
        assert _outcome(peer) == AUTH


def test_padding_and_line_breaks_make_no_other_token_of_one(router: Daemon, issuer: Issuer) -> None:
    """Attack: a token that is good here and unreadable for whoever looks at it on the way."""
    head, payload, signature = issuer.token(exp=time.time() + 300).split(".")
    for token in (
        f"{head}.{payload}=.{signature}",
        f"{head}.{payload}\n.{signature}",
        f"{head}.{payload}.{signature}==",
    ):
        assert outcome_of(router, token) in (AUTH, None)
