"""An issuer of tokens, for tests: keys of every kind, their JWKS, and whatever it is asked to sign."""

import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER, AUDIENCE, NOW_S = "https://issuer.example/realm", "amqp.example", 1_800_000_000.0
CLAIMS: Mapping[str, Any] = {
    "iss": ISSUER,
    "aud": AUDIENCE,
    "sub": "alice",
    "exp": NOW_S + 300,
    "groups": ["staff", "night shift"],
}


class Issuer:
    """Keys by `kid`: rsa, ec, ed, and whatever is put into `keys`."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {
            "rsa": rsa.generate_private_key(public_exponent=65537, key_size=2048),
            "ec": ec.generate_private_key(ec.SECP256R1()),
            "ed": ed25519.Ed25519PrivateKey.generate(),
        }

    def jwk(self, kid: str, /, **members: Any) -> dict[str, Any]:
        key = self.keys[kid].public_key()
        made: Any
        if isinstance(key, rsa.RSAPublicKey):
            made = RSAAlgorithm.to_jwk(key, as_dict=True)
        elif isinstance(key, ec.EllipticCurvePublicKey):
            made = ECAlgorithm.to_jwk(key, as_dict=True)
        else:
            made = OKPAlgorithm.to_jwk(key, as_dict=True)
        made.pop("key_ops", None)
        return {**made, "kid": kid, "use": "sig", **members}

    def jwks(self, *kids: str) -> bytes:
        return json.dumps({"keys": [self.jwk(kid) for kid in kids or self.keys]}).encode()

    def write(self, path: Path, *kids: str) -> Path:
        path.write_bytes(self.jwks(*kids))
        path.chmod(0o600)
        return path

    def token(
        self, kid: str = "ec", algorithm: str = "ES256", /, *, header: Mapping[str, Any] = {}, **claims: Any
    ) -> str:
        """header, claims  beside, or instead of, the usual ones; None takes one away"""
        said = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
        return self.sign(json.dumps(said).encode(), kid, algorithm, header)

    def sign(self, payload: bytes, kid: str, algorithm: str, header: Mapping[str, Any] = {}) -> str:
        return jwt.PyJWS().encode(payload, self.keys[kid], algorithm, headers={"kid": kid, **header})


def encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
