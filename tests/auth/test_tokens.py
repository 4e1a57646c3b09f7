"""Bearer tokens: docs/spec/policy-and-auth.md §8.10, policy 67 to 71."""

import hashlib
import hmac
import json
from base64 import urlsafe_b64decode
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from issuer import AUDIENCE, ISSUER, NOW_S, Issuer, encoded
from jwt.algorithms import ECAlgorithm

from auth.credentials import MAX_TOKEN_BYTES, CheckPassword, CheckToken, Recheck, VerifyResult
from auth.secrets import Secret
from auth.verifiers.token_keys import KeyFile, KeysError, KeySet, parse_keys
from auth.verifiers.tokens import MAX_GROUPS, TokenError, TokenRules, TokenVerifier

RULES: dict[str, Any] = {"issuer": ISSUER, "audiences": (AUDIENCE, "other.example")}


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


class Fixed:
    """Keys that stay."""

    def __init__(self, keys: KeySet) -> None:
        self.keys: KeySet | None = keys

    def current(self, *, is_missed: bool = False) -> KeySet:
        if self.keys is None:
            raise KeysError("the server is away")
        return self.keys


def verifier(issuer: Issuer, *kids: str, **rules: Any) -> TokenVerifier:
    made = TokenRules(**{**RULES, **rules})
    return TokenVerifier("issuer", Fixed(parse_keys(issuer.jwks(*kids))), made, wall_clock=lambda: NOW_S)


def check(asked: TokenVerifier, token: str, user: str = "") -> VerifyResult:
    result = asked.verify(CheckToken(token=Secret(token), user=user))
    assert isinstance(result, VerifyResult)
    return result


@pytest.mark.parametrize(("kid", "algorithm"), [("rsa", "RS256"), ("rsa", "PS256"), ("ec", "ES256"), ("ed", "EdDSA")])
def test_a_good_token(issuer: Issuer, kid: str, algorithm: str) -> None:
    result = check(verifier(issuer, groups_claim="groups"), issuer.token(kid, algorithm))
    assert result.is_valid, result
    assert (result.user, result.groups, result.ends_at_s) == ("alice", ("staff", "night shift"), NOW_S + 360)
    assert result.proof is not None
    assert (result.proof.verifier, result.proof.user) == ("issuer", "alice")


def test_the_key_is_found_without_its_name_where_only_one_fits(issuer: Issuer) -> None:
    bare = _resigned(issuer, {"alg": "ES256", "typ": "at+jwt"})
    assert check(verifier(issuer), bare).is_valid
    issuer.keys["ec2"] = ec.generate_private_key(ec.SECP256R1())
    try:
        assert "names no key" in check(verifier(issuer), bare).detail
    finally:
        del issuer.keys["ec2"]


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"iss": None}, "another issuer"),
        ({"iss": ISSUER + "/"}, "another issuer"),
        ({"iss": [ISSUER]}, "another issuer"),
        ({"aud": None}, "another audience"),
        ({"aud": "amqp.example.evil"}, "another audience"),
        ({"aud": {AUDIENCE: 1}}, "another audience"),
        ({"exp": None}, "never ends"),
        ({"exp": NOW_S - 61}, "has expired"),
        ({"exp": str(NOW_S + 300)}, "not a time"),
        ({"exp": True}, "not a time"),
        ({"exp": 10**400}, "not a time"),
        ({"exp": 1e15}, "not a time"),
        ({"exp": [NOW_S]}, "not a time"),
        ({"nbf": NOW_S + 61}, "not good yet by its claim 'nbf'"),
        ({"iat": NOW_S + 61}, "not good yet by its claim 'iat'"),
        ({"nbf": "soon"}, "not a time"),
        ({"sub": None}, "not the name of a user"),
        ({"sub": ""}, "not the name of a user"),
        ({"sub": " alice"}, "not the name of a user"),
        ({"sub": "al\nice"}, "not the name of a user"),
        ({"sub": "al\0ice"}, "not the name of a user"),
        ({"sub": "\ud800"}, "not the name of a user"),
        ({"sub": "a" * 1025}, "not the name of a user"),
        ({"sub": ["alice"]}, "not the name of a user"),
        ({"sub": 7}, "not the name of a user"),
        ({"groups": {"staff": 1}}, "not a list"),
        ({"groups": ["staff", 7]}, "not a name"),
        ({"groups": ["staff\n"]}, "not a name"),
        ({"groups": [str(number) for number in range(MAX_GROUPS + 1)]}, "not a list of at most"),
        ({"cnf": {"jkt": "x"}}, "bound to a key"),
    ],
)
def test_a_token_that_says_something_else_is_refused(issuer: Issuer, claims: dict[str, Any], why: str) -> None:
    """policy 68."""
    result = check(verifier(issuer, groups_claim="groups"), issuer.token(**claims))
    assert not result.is_valid
    assert result.is_compared
    assert why in result.detail


@pytest.mark.parametrize(
    "claims", [{"exp": NOW_S - 59}, {"nbf": NOW_S + 59}, {"aud": ["x", AUDIENCE]}, {"groups": "a"}]
)
def test_clocks_may_differ_a_little(issuer: Issuer, claims: dict[str, Any]) -> None:
    assert check(verifier(issuer, groups_claim="groups"), issuer.token(**claims)).is_valid


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ({"alg": "none"}, "not permitted"),
        ({"alg": "HS256", "kid": "rsa"}, "not permitted"),
        ({"alg": "ES512"}, "not permitted"),
        ({"alg": ["ES256"]}, "not permitted"),
        ({"alg": None}, "not permitted"),
        ({"kid": "unknown"}, "none of the issuer's keys"),
        ({"kid": 7}, "not the name of a key"),
        ({"kid": "k" * 300}, "not the name of a key"),
        ({"kid": "rsa"}, "none of the issuer's keys"),  # of another type
        ({"crit": ["exp"]}, "extensions"),
        ({"b64": False, "crit": ["b64"]}, "extensions"),
        ({"typ": "logout+jwt"}, "of another kind"),
        ({"typ": 7}, "of another kind"),
    ],
)
def test_a_token_with_another_header_is_refused(issuer: Issuer, header: dict[str, Any], why: str) -> None:
    result = check(verifier(issuer), _resigned(issuer, {"alg": "ES256", "kid": "ec", **header}))
    assert not result.is_valid
    assert why in result.detail


def test_the_keys_in_a_token_count_for_nothing(issuer: Issuer) -> None:
    """Attack: sign with a key of one's own, and bring it along."""
    mallory = Issuer()
    for header in ({"jwk": mallory.jwk("ec")}, {"jku": "https://evil.example"}, {"x5u": "https://evil.example"}):
        result = check(verifier(issuer), mallory.token(header=header))
        assert result.detail.endswith("its signature is wrong")


@pytest.mark.parametrize("form", ["pem", "jwk", "n"])
def test_a_public_key_is_no_shared_secret(issuer: Issuer, form: str) -> None:
    """Attack: HMAC with the public key, which everybody has."""
    key = issuer.keys["rsa"].public_key()
    secret = {
        "pem": key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        "jwk": json.dumps(issuer.jwk("rsa")).encode(),
        "n": issuer.jwk("rsa")["n"].encode(),
    }[form]
    signed = ".".join(_parts({"alg": "HS256", "kid": "rsa"}, _claims(issuer)))
    token = f"{signed}.{encoded(hmac.digest(secret, signed.encode(), hashlib.sha256))}"
    assert "not permitted" in check(verifier(issuer), token).detail
    with pytest.raises(TokenError, match="algorithm 'HS256': expected some of"):
        TokenRules(**RULES, algorithms=("RS256", "HS256"))
    with pytest.raises(TokenError, match="algorithm 'none': expected some of"):
        TokenRules(**RULES, algorithms=("none",))


@pytest.mark.parametrize(
    "payload",
    [b"[]", b"7", b"{", b"\xff", b"{" * 9000, b'{"sub":"alice","sub":"root"}', b'{"exp":NaN}', b'{"exp":Infinity}'],
)
def test_odd_claims_are_refused(issuer: Issuer, payload: bytes) -> None:
    result = check(verifier(issuer), issuer.sign(payload, "ec", "ES256"))
    assert not result.is_valid
    assert "in judging it" not in result.detail


@pytest.mark.parametrize("depth", [10_000])
def test_deep_claims_are_refused(issuer: Issuer, depth: int) -> None:
    assert not check(verifier(issuer), issuer.sign(b"[" * depth + b"]" * depth, "ec", "ES256")).is_valid


@pytest.mark.parametrize(
    "token",
    ["", ".", "..", "a.b", "a.b.c.d", "a.b.c", "a b.c.d", "x" * 5000 + ".b.c", "e30." + "x" * MAX_TOKEN_BYTES + ".c"],
)
def test_what_is_no_token_is_refused(issuer: Issuer, token: str) -> None:
    assert "in judging it" not in check(verifier(issuer), token).detail


def test_the_user_that_the_client_names_is_the_tokens(issuer: Issuer) -> None:
    """policy 69."""
    token = issuer.token()
    assert check(verifier(issuer), token, user="alice").user == "alice"
    for other in ("bob", "Alice", "alice "):
        assert not check(verifier(issuer), token, user=other).is_valid


def test_claims_may_be_required(issuer: Issuer) -> None:
    def is_let_in(required: tuple[tuple[str, str | None], ...], **claims: Any) -> bool:
        return check(verifier(issuer, required=required), issuer.token(**claims)).is_valid

    assert is_let_in((("azp", None),), azp="x")
    assert not is_let_in((("azp", None),))
    assert is_let_in((("azp", "x"), ("scope", "amqp")), azp="x", scope="openid amqp")
    assert not is_let_in((("azp", "x"),), azp="x y")  # no list of words
    assert is_let_in((("realm.roles", "amqp"),), realm={"roles": ["amqp"]})
    assert is_let_in((("https://a.b/c", None),), **{"https://a.b/c": 1})
    assert not is_let_in((("realm.roles", "amqp"),), realm={"roles": {"amqp": 1}})


def test_user_and_groups_may_be_other_claims(issuer: Issuer) -> None:
    asked = verifier(issuer, user_claim="preferred_username", groups_claim="realm_access.roles")
    result = check(asked, issuer.token(preferred_username="al", realm_access={"roles": ["b", "a", "b"]}))
    assert (result.user, result.groups) == ("al", ("b", "a"))
    assert check(asked, issuer.token(preferred_username="al")).groups == ()
    assert not check(asked, issuer.token()).is_valid


def test_a_withdrawn_key_vouches_for_nobody(issuer: Issuer) -> None:
    """policy 71: asked again about an open connection."""
    keys = Fixed(parse_keys(issuer.jwks()))
    asked = TokenVerifier("issuer", keys, TokenRules(**RULES), wall_clock=lambda: NOW_S)
    result = check(asked, issuer.token())
    assert result.proof is not None
    question = Recheck(proof=result.proof, groups=result.groups)
    assert asked.verify(question) == VerifyResult(is_valid=True)
    keys.keys = parse_keys(issuer.jwks("rsa"))
    assert asked.verify(question) == VerifyResult(is_valid=False)
    keys.keys = None  # an outage says nothing
    again = asked.verify(question)
    assert isinstance(again, VerifyResult)
    assert not again.is_compared


def test_no_keys_is_an_outage(issuer: Issuer) -> None:
    keys = Fixed(parse_keys(issuer.jwks()))
    keys.keys = None
    asked = TokenVerifier("issuer", keys, TokenRules(**RULES))
    result = check(asked, issuer.token())
    assert (result.is_valid, result.is_compared) == (False, False)
    assert result.detail == "verifier unavailable: the server is away"
    assert asked.verify(CheckPassword(user="a", password=Secret("b"))).is_compared is False  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "rules",
    [{"issuer": ""}, {"audiences": ()}, {"skew_s": 601}, {"skew_s": -1}, {"algorithms": ()}, {"algorithms": ("RS1",)}],
)
def test_rules_that_everybody_could_meet_are_refused(rules: dict[str, Any]) -> None:
    with pytest.raises(TokenError):
        TokenRules(**{**RULES, **rules})


# Keys


def test_keys_that_are_of_no_use_are_left_out(issuer: Issuer) -> None:
    weak = Issuer()
    weak.keys = {"weak": rsa.generate_private_key(public_exponent=65537, key_size=1024)}
    listed = [
        7,
        {"kty": "oct", "k": "c2VjcmV0", "kid": "a"},
        {"kty": "RSA", "kid": "a"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "a"},
        issuer.jwk("ec", use="enc"),
        issuer.jwk("ec", key_ops=["sign"]),
        issuer.jwk("ec", key_ops="verify"),
        issuer.jwk("ec", kid=7),
        issuer.jwk("ec", alg="ES384"),
        weak.jwk("weak"),
    ]
    for each in listed:
        with pytest.raises(KeysError, match="no public key"):
            parse_keys(json.dumps({"keys": [each]}).encode())
    found = parse_keys(json.dumps({"keys": [*listed, issuer.jwk("rsa", alg="PS256", d="AQAB")]}).encode())
    assert found.find("rsa", "PS256") is not None
    assert found.find("rsa", "RS256") is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"keys":{}}', b'{"keys":[]}', b"[" * 100_000, b"\xff"])
def test_what_is_no_jwks_is_an_error(content: bytes) -> None:
    with pytest.raises(KeysError):
        parse_keys(content)


def test_a_file_of_keys_is_read_again(issuer: Issuer, tmp_path: Path) -> None:
    path = issuer.write(tmp_path / "jwks.json")
    keys = KeyFile(str(path))
    assert keys.current().find("ec", "ES256") is not None
    issuer.write(tmp_path / "new", "rsa").replace(path)
    assert keys.current().find("ec", "ES256") is None
    path.write_text("{")
    with pytest.raises(KeysError, match=r"jwks\.json: not JSON"):
        keys.current()
    path.unlink()
    with pytest.raises(KeysError, match="cannot be read"):
        keys.current()


def test_a_file_that_others_may_write_is_refused(issuer: Issuer, tmp_path: Path) -> None:
    path = issuer.write(tmp_path / "jwks.json")
    path.chmod(0o666)
    with pytest.raises(KeysError, match="others may write it"):
        KeyFile(str(path))
    path.chmod(0o644)
    KeyFile(str(path))


# Fuzz

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(["iss", "aud", "sub", "exp", "nbf", "iat", "groups", "cnf", "scope", "jti"])
HEADERS = st.sampled_from(["alg", "kid", "typ", "crit", "b64", "jwk", "jku", "cty", "zip", "enc", "x5c"])
FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(data=st.data())
def test_a_mutated_token_is_not_let_in(issuer: Issuer, data: st.DataObject) -> None:
    """No change of any character of a token leaves it good, and none is a crash."""
    token = issuer.token()
    at = data.draw(st.integers(0, len(token) - 1))
    part = data.draw(st.sampled_from(["", "A", ".", "=", "_", "é", "\0", token[at] * 2, token[:at], token]))
    changed = token[:at] + part + token[at + data.draw(st.integers(0, 3)) :]
    result = check(verifier(issuer), changed)
    assert not result.is_valid or changed == token
    assert "in judging it" not in result.detail


@pytest.mark.slow
@FUZZ
@given(header=st.dictionaries(HEADERS, JSON, max_size=4))
@example(header={"alg": "none"})
def test_whatever_the_header_says_an_unsigned_token_is_not_let_in(issuer: Issuer, header: dict[str, Any]) -> None:
    for signature in ("", "AA", issuer.token().split(".")[2]):
        token = ".".join([*_parts({"alg": "ES256", "kid": "ec", **header}, _claims(issuer)), signature])
        result = check(verifier(issuer), token)
        assert not result.is_valid
        assert "in judging it" not in result.detail


@pytest.mark.slow
@FUZZ
@given(claims=st.dictionaries(NAMES | st.text(max_size=5), JSON, max_size=6))
def test_whatever_is_signed_there_is_an_answer(issuer: Issuer, claims: dict[str, Any]) -> None:
    """A good signature: who is let in has a printable name, an end and groups that are names."""
    result = check(verifier(issuer, groups_claim="groups"), issuer.token(**claims))
    assert "in judging it" not in result.detail
    if result.is_valid:
        assert result.user
        assert result.user.isprintable()
        assert result.ends_at_s is not None
        assert result.ends_at_s > NOW_S
        assert all(group.isprintable() and group for group in result.groups)


@pytest.mark.slow
@FUZZ
@given(document=JSON | st.fixed_dictionaries({"keys": JSON | st.lists(JSON, max_size=3)}))
def test_whatever_a_jwks_holds_it_is_keys_or_an_error(document: Any) -> None:
    try:
        parse_keys(json.dumps(document).encode())
    except KeysError:
        return


@pytest.mark.slow
@FUZZ
@given(changes=st.dictionaries(st.sampled_from(["kty", "crv", "x", "y", "n", "e", "alg", "use", "kid"]), JSON))
@pytest.mark.parametrize("kid", ["rsa", "ec", "ed"])
def test_a_key_with_odd_members_is_a_key_or_left_out(issuer: Issuer, kid: str, changes: dict[str, Any]) -> None:
    try:
        parse_keys(json.dumps({"keys": [issuer.jwk(kid, **changes)]}).encode())
    except KeysError:
        return


def _claims(issuer: Issuer) -> bytes:
    return _decoded(issuer.token().split(".")[1])


def _decoded(part: str) -> bytes:
    return urlsafe_b64decode(part + "=" * (-len(part) % 4))


def _parts(header: dict[str, Any], payload: bytes) -> tuple[str, str]:
    return encoded(json.dumps(header).encode()), encoded(payload)


def _resigned(issuer: Issuer, header: dict[str, Any]) -> str:
    """A token with exactly that header, signed by the EC key whatever it says."""
    signed = ".".join(_parts(header, _claims(issuer)))
    algorithm = ECAlgorithm(ECAlgorithm.SHA256)
    return f"{signed}.{encoded(algorithm.sign(signed.encode(), issuer.keys['ec']))}"
