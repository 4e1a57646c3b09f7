"""Bearer tokens at the edges of each rule, the words of each refusal, and what a tokenAuthenticator is told."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from issuer import AUDIENCE, CLAIMS, ISSUER, NOW_S, Issuer, encoded
from jwt.algorithms import ECAlgorithm

from auth.credentials import MAX_TOKEN_BYTES, MAX_USER_BYTES, CheckPassword, CheckToken, VerifyResult, unavailable
from auth.mechanisms import NOT_OWN_AUTHZID
from auth.secrets import Secret
from auth.verifiers.token_keys import ALGORITHMS, KeysError, KeySet, parse_keys
from auth.verifiers.tokens import (
    DEFAULT_ALGORITHMS,
    MAX_GROUP_BYTES,
    MAX_GROUPS,
    MAX_KEYS_SECONDS,
    MAX_SKEW_S,
    TokenError,
    TokenRules,
    TokenSettingsError,
    TokenVerifier,
    make_token_verifier,
)


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


class Keys:
    """Keys of an issuer, which may come only once they are missed; counts the questions."""

    def __init__(self, keys: KeySet, later: KeySet | None = None) -> None:
        self._keys, self._later = keys, later
        self.asked: list[bool] = []

    def current(self, *, is_missed: bool = False) -> KeySet:
        self.asked.append(is_missed)
        return self._later if is_missed and self._later is not None else self._keys


def rules(**changes: Any) -> TokenRules:
    return TokenRules(**{"issuer": ISSUER, "audiences": (AUDIENCE,), "groups_claim": "groups", **changes})


def judge(issuer: Issuer, token: str, *, user: str = "", now_s: float = NOW_S, **changes: Any) -> VerifyResult:
    asked = TokenVerifier("staff", Keys(parse_keys(issuer.jwks())), rules(**changes), wall_clock=lambda: now_s)
    result = asked.verify(CheckToken(token=Secret(token), user=user))
    assert isinstance(result, VerifyResult)
    return result


def refused(why: str) -> VerifyResult:
    return VerifyResult(is_valid=False, detail=f"SASL(-13): authentication failure: token: {why}")


def signed(issuer: Issuer, header: Mapping[str, Any], payload: bytes = b"") -> str:
    """A token whose header is as given, with a good signature by the EC key for whatever it is."""
    head = json.dumps(header) if isinstance(header, dict) else header
    return signed_text(issuer, str(head), payload or json.dumps(CLAIMS).encode())


def signed_text(issuer: Issuer, header: str, payload: bytes) -> str:
    text = f"{encoded(header.encode())}.{encoded(payload)}"
    return f"{text}.{encoded(ECAlgorithm(ECAlgorithm.SHA256).sign(text.encode(), issuer.keys['ec']))}"


# Times


@pytest.mark.parametrize("skew_s", [0, 60, MAX_SKEW_S])
def test_a_token_ends_when_it_says_so_and_the_clocks_may_differ(issuer: Issuer, skew_s: int) -> None:
    token = issuer.token(exp=NOW_S)
    last = judge(issuer, token, skew_s=skew_s, now_s=NOW_S + skew_s - 0.5)
    assert (last.is_valid, last.ends_at_s) == (True, NOW_S + skew_s)
    assert judge(issuer, token, skew_s=skew_s, now_s=NOW_S + skew_s) == refused("it has expired")


@pytest.mark.parametrize("claim", ["nbf", "iat"])
@pytest.mark.parametrize("skew_s", [0, 60])
def test_a_token_begins_when_it_says_so(issuer: Issuer, claim: str, skew_s: int) -> None:
    claims: dict[str, Any] = {claim: NOW_S}
    token = issuer.token(**claims)
    assert judge(issuer, token, skew_s=skew_s, now_s=NOW_S - skew_s).is_valid
    early = judge(issuer, token, skew_s=skew_s, now_s=NOW_S - skew_s - 0.5)
    assert early == refused(f"it is not good yet by its claim '{claim}'")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (0, "it has expired"),
        (-1, "its claim 'exp' is not a time"),
        (253_402_300_800, "its claim 'exp' is not a time"),
        (False, "its claim 'exp' is not a time"),
    ],
)
def test_what_is_a_time(issuer: Issuer, value: object, why: str) -> None:
    assert judge(issuer, issuer.token(exp=value)) == refused(why)


def test_the_last_time_that_there_is(issuer: Issuer) -> None:
    assert judge(issuer, issuer.token(exp=253_402_300_799)).ends_at_s == 253_402_300_859
    assert judge(issuer, issuer.token(nbf=0, iat=0.5)).is_valid


# Who and for whom


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"iss": "https://issuer.example/other"}, "it is of another issuer"),
        ({"aud": []}, "it is for another audience"),
        ({"aud": [[AUDIENCE]]}, "it is for another audience"),
        ({"exp": None}, "it never ends: its claim 'exp' is missing"),
        ({"cnf": None}, ""),
        ({"cnf": {}}, "it is bound to a key (claim 'cnf'), not a bearer's"),
        ({"sub": ""}, "its claim 'sub' is not the name of a user"),
        ({"sub": "é" * (MAX_USER_BYTES // 2) + "x"}, "its claim 'sub' is not the name of a user"),
        ({"groups": {"staff": True}}, f"its groups are not a list of at most {MAX_GROUPS}"),
        ({"groups": ["g"] * (MAX_GROUPS + 1)}, f"its groups are not a list of at most {MAX_GROUPS}"),
        ({"groups": ["é" * (MAX_GROUP_BYTES // 2) + "x"]}, "one of its groups is not a name"),
        ({"groups": ["staff", ""]}, "one of its groups is not a name"),
        ({"groups": ["staff", None]}, "one of its groups is not a name"),
        ({"groups": ["staff "]}, "one of its groups is not a name"),
    ],
)
def test_why_a_token_is_refused_is_said(issuer: Issuer, claims: dict[str, Any], why: str) -> None:
    result = judge(issuer, issuer.token(**claims))
    assert result == refused(why) if why else result.is_valid


def test_the_longest_names(issuer: Issuer) -> None:
    user, group = "é" * (MAX_USER_BYTES // 2), "é" * (MAX_GROUP_BYTES // 2)
    result = judge(issuer, issuer.token(sub=user, groups=[group]))
    assert (result.user, result.groups) == (user, (group,))


def test_the_most_groups(issuer: Issuer) -> None:
    groups = [str(number) for number in range(MAX_GROUPS)]
    assert judge(issuer, issuer.token(groups=groups)).groups == tuple(groups)


def test_one_audience_of_several_is_enough_on_either_side(issuer: Issuer) -> None:
    for named in ((AUDIENCE, "b"), ("a", AUDIENCE)):
        assert judge(issuer, issuer.token(aud=AUDIENCE), audiences=named).is_valid
        assert judge(issuer, issuer.token(aud=[7, *reversed(named)]), audiences=(AUDIENCE,)).is_valid
    assert not judge(issuer, issuer.token(aud=["a", "b"])).is_valid


def test_whom_a_client_names_beside_its_token_is_its_user(issuer: Issuer) -> None:
    for user in ("", "alice"):
        assert judge(issuer, issuer.token(), user=user).is_valid
    assert judge(issuer, issuer.token(), user="root") == VerifyResult(is_valid=False, detail=NOT_OWN_AUTHZID)
    expired = judge(issuer, issuer.token(exp=NOW_S - 100), user="root")
    assert expired == refused("it has expired")


def test_without_a_claim_for_groups_there_are_none(issuer: Issuer) -> None:
    for result in (judge(issuer, issuer.token(), groups_claim=None), judge(issuer, issuer.token(groups=None))):
        assert (result.is_valid, result.groups) == (True, ())


# Required claims


@pytest.mark.parametrize(
    ("required", "claims", "is_met"),
    [
        (("scope", "amqp"), {"scope": "openid amqp"}, True),
        (("scp", "amqp"), {"scp": "openid amqp"}, True),
        (("scope", "amqp"), {"scope": ["openid", "amqp"]}, True),
        (("scope", "amqp"), {"scope": "openid amqp2"}, False),
        (("scope", "amqp"), {}, False),
        (("roles", "a b"), {"roles": "a b"}, True),
        (("roles", "a"), {"roles": "a b"}, False),
        (("roles", "a"), {"roles": ["a b", "a"]}, True),
        (("level", "3"), {"level": 3}, False),
        (("level", None), {"level": 3}, True),
        (("level", None), {"level": False}, True),
        (("level", None), {}, False),
        (("level", ""), {"level": ""}, True),
        (("level", ""), {"level": "x"}, False),
        (("a.b.c", "x"), {"a": {"b": {"c": "x"}}}, True),
        (("a.b", "x"), {"a.b": "x"}, False),
        (("a.b", "x"), {"a": ["b"]}, False),
        (("https://x.example/a.b", "x"), {"https://x.example/a.b": "x"}, True),
        (("https://x.example/a.b", "x"), {"https://x": {"example/a": {"b": "x"}}}, False),
    ],
)
def test_required_claims(
    issuer: Issuer, required: tuple[str, str | None], claims: dict[str, Any], is_met: bool
) -> None:
    result = judge(issuer, issuer.token(**claims), required=(("iss", ISSUER), required))
    assert result.is_valid is is_met
    if not is_met:
        assert result == refused(f"its claim '{required[0]}' is not what is required")


# The header and the form


@pytest.mark.parametrize("kind", ["JWT", "jwt", "at+jwt", "AT+JWT", "application/at+jwt", "application/jwt"])
def test_kinds_of_tokens_that_are_taken(issuer: Issuer, kind: str) -> None:
    assert judge(issuer, signed(issuer, {"alg": "ES256", "kid": "ec", "typ": kind})).is_valid


def test_a_token_need_not_say_its_kind(issuer: Issuer) -> None:
    assert judge(issuer, signed(issuer, {"alg": "ES256", "kid": "ec"})).is_valid


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ({"alg": "RS512", "kid": "rsa"}, "its algorithm is not permitted"),
        ({"kid": "ec"}, "its algorithm is not permitted"),
        ({"alg": "ES256", "kid": "ec", "crit": []}, "its header has extensions"),
        ({"alg": "ES256", "kid": "ec", "b64": True}, "its header has extensions"),
        ({"alg": "ES256", "kid": "ec", "typ": "secevent+jwt"}, "it is a JWT of another kind, by its header's 'typ'"),
        ({"alg": "ES256", "kid": "ec", "typ": None}, "it is a JWT of another kind, by its header's 'typ'"),
        ({"alg": "ES256", "kid": 7}, "its 'kid' is not the name of a key"),
        ({"alg": "ES256", "kid": "k" * 257}, "its 'kid' is not the name of a key"),
        ({"alg": "ES256", "kid": "k" * 256}, "it is signed by none of the issuer's keys"),
        ({"alg": "ES256", "kid": ""}, "it is signed by none of the issuer's keys"),
        ({"alg": "EdDSA", "kid": "ed"}, "its signature is wrong"),
        ("[]", "its header are not a JSON object"),
        ("{", "its header are not JSON"),
        ('{"alg":"ES256","alg":"ES256"}', "its header have a member twice"),
        ('{"alg":"ES256","x":{"y":1,"y":2}}', "its header have a member twice"),
        ('{"alg":NaN}', "NaN and Infinity are not JSON"),
    ],
)
def test_why_a_header_is_refused_is_said(issuer: Issuer, header: Any, why: str) -> None:
    assert judge(issuer, signed(issuer, header)) == refused(why)


def test_a_token_that_names_no_key_is_of_the_only_one_that_fits(issuer: Issuer) -> None:
    two = Issuer()
    keys = json.dumps({"keys": [issuer.jwk("ec"), two.jwk("ec", kid="other")]}).encode()
    asked = TokenVerifier("staff", Keys(parse_keys(keys)), rules(), wall_clock=lambda: NOW_S)
    result = asked.verify(CheckToken(token=Secret(signed(issuer, {"alg": "ES256"}))))
    assert result == refused("it names no key, and not exactly one of the issuer's keys is of its algorithm")


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"[]", "its claims are not a JSON object"),
        (b"{", "its claims are not JSON"),
        (b"\xff", "its claims are not JSON"),
        (b'{"sub":"a","sub":"b"}', "its claims have a member twice"),
        (b'{"exp":Infinity}', "NaN and Infinity are not JSON"),
    ],
)
def test_why_claims_are_refused_is_said(issuer: Issuer, payload: bytes, why: str) -> None:
    assert judge(issuer, issuer.sign(payload, "ec", "ES256")) == refused(why)


@pytest.mark.parametrize(
    "token", ["", "a.b", "a.b.c.d", ".b.c", "a..c", "a.b.", "aaaaa.b.c", "YQ==.b.c", "é.b.c", "a.b.c\n"]
)
def test_what_is_not_three_parts_is_no_token(issuer: Issuer, token: str) -> None:
    assert judge(issuer, token) == refused("it is no signed JWT")


def of_size(issuer: Issuer, *, header: int = 0, whole: int = 0) -> str:
    """A good token whose header, or which itself, has so many characters."""
    head = '{"alg":"ES256","kid":"ec"}'

    def made(blanks: int, more: int) -> str:
        return signed_text(issuer, head + " " * blanks, json.dumps({**CLAIMS, "x": "y" * more}).encode())

    if header:
        return made(header * 3 // 4 - len(head), 0)
    room = (whole - len(made(0, 0))) * 3 // 4
    sizes = ((blanks, room + more) for blanks in range(3) for more in range(-6, 6))
    return next(token for blanks, more in sizes if len(token := made(blanks, more)) == whole)


def test_the_longest_header_and_the_longest_token(issuer: Issuer) -> None:
    token = of_size(issuer, header=4096)
    assert len(token.split(".")[0]) == 4096
    assert judge(issuer, token).is_valid
    assert judge(issuer, of_size(issuer, header=4100)) == refused("it is no signed JWT")
    assert judge(issuer, of_size(issuer, whole=MAX_TOKEN_BYTES)).is_valid
    assert judge(issuer, of_size(issuer, whole=MAX_TOKEN_BYTES + 1)) == refused("it is no signed JWT")


# Keys


def test_keys_are_asked_for_anew_only_when_one_is_missed(issuer: Issuer) -> None:
    """The issuer has a new key; a token by an old one asks nobody."""
    keys = Keys(parse_keys(issuer.jwks("rsa")), parse_keys(issuer.jwks()))
    asked = TokenVerifier("staff", keys, rules(), wall_clock=lambda: NOW_S)
    assert asked.verify(CheckToken(token=Secret(issuer.token("rsa", "RS256")))).is_valid  # type: ignore[union-attr]
    assert keys.asked == [False]
    assert asked.verify(CheckToken(token=Secret(issuer.token()))).is_valid  # type: ignore[union-attr]
    assert keys.asked == [False, False, True]


def test_what_nobody_has_thought_of_refuses_and_is_counted_as_a_failure(issuer: Issuer) -> None:
    """Attack: a token that brings about an error, to be tried again without counting."""

    class Broken(Keys):
        def current(self, *, is_missed: bool = False) -> KeySet:
            raise ZeroDivisionError("a secret")

    asked = TokenVerifier("staff", Broken(parse_keys(issuer.jwks())), rules())
    result = asked.verify(CheckToken(token=Secret(issuer.token())))
    assert result == refused("ZeroDivisionError in judging it")


def test_no_keys_say_nothing_of_a_token(issuer: Issuer) -> None:
    class Away(Keys):
        def current(self, *, is_missed: bool = False) -> KeySet:
            raise KeysError("the server is away")

    asked = TokenVerifier("staff", Away(parse_keys(issuer.jwks())), rules())
    assert asked.verify(CheckToken(token=Secret(issuer.token()))) == unavailable("the server is away")
    assert asked.verify(CheckPassword(user="a", password=Secret("b"))) == unavailable("tokens only")
    assert asked.name == "staff"


def test_the_clock_is_the_machines(issuer: Issuer) -> None:
    """A token of the past, by the clock that is used where none is given."""
    asked = TokenVerifier("staff", Keys(parse_keys(issuer.jwks())), rules())
    token = issuer.token(exp=1_000_000_000)
    assert asked.verify(CheckToken(token=Secret(token))) == refused("it has expired")


# Settings


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"algorithms": ("RS256", "HS256")}, f"algorithm 'HS256': expected some of {' '.join(ALGORITHMS)}"),
        ({"algorithms": ()}, f"no algorithm: expected some of {' '.join(ALGORITHMS)}"),
        *(
            (empty, "issuer and audience must not be empty: without them a token for anybody else would do")
            for empty in ({"issuer": ""}, {"audiences": ()})
        ),
        ({"skew_s": -1}, "clockSkewSeconds: '-1': expected 0 to 600"),
        ({"skew_s": 601}, "clockSkewSeconds: '601': expected 0 to 600"),
        ({"user_claim": ""}, "userClaim: '': expected the name of a claim, or a.b for b in the object a"),
        ({"groups_claim": "a..b"}, "groupsClaim: 'a..b': expected the name of a claim, or a.b for b in the object a"),
        ({"groups_claim": ".a"}, "groupsClaim: '.a': expected the name of a claim, or a.b for b in the object a"),
        ({"required": (("a.", None),)}, "requiredClaims: 'a.': expected NAME or NAME=VALUE, separated by blanks"),
    ],
)
def test_rules_that_cannot_be_are_named(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(TokenError) as caught:
        rules(**changes)
    assert str(caught.value) == why


@pytest.mark.parametrize("claim", ["a", "a.b", "https://x.example/.a..b"])
def test_names_that_claims_may_have(claim: str) -> None:
    assert rules(user_claim=claim, groups_claim=claim, required=((claim, None),)).user_claim == claim


def attributes(issuer: Issuer, folder: Path, /, **changes: Any) -> dict[str, Any]:
    """A tokenAuthenticator as the schema gives it."""
    return {
        "name": "staff",
        "keysFile": str(issuer.write(folder / "jwks.json")),
        "keysUrl": None,
        "keysSeconds": 300,
        "keysOverHttp": False,
        "issuer": ISSUER,
        "audience": f"other {AUDIENCE}",
        "clockSkewSeconds": 60,
        "userClaim": "sub",
        "groupsClaim": "groups",
        "requiredClaims": None,
        **changes,
    }


def ask(verifier: TokenVerifier, token: str) -> VerifyResult:
    result = verifier.verify(CheckToken(token=Secret(token)))
    assert isinstance(result, VerifyResult)
    return result


FAR = 4_000_000_000


def test_an_authenticator_judges_by_its_attributes(issuer: Issuer, tmp_path: Path) -> None:
    def is_let_in(token: str, **changes: Any) -> bool:
        return ask(make_token_verifier(attributes(issuer, tmp_path, **changes)), token).is_valid

    good = issuer.token(exp=FAR)
    result = ask(make_token_verifier(attributes(issuer, tmp_path)), good)
    assert (result.user, result.groups, result.ends_at_s) == ("alice", ("staff", "night shift"), FAR + 60)
    assert result.proof is not None
    assert result.proof.verifier == "staff"
    assert not is_let_in(good, issuer="https://other.example")
    assert not is_let_in(good, audience="other")
    assert not is_let_in(good, algorithms="RS256 EdDSA")
    assert is_let_in(good, algorithms="RS256 ES256")
    assert is_let_in(good, requiredClaims=f"iss={ISSUER} sub")
    assert not is_let_in(good, requiredClaims="iss sub=bob")
    assert not is_let_in(good, requiredClaims="iss=")
    assert is_let_in(issuer.token(exp=FAR, azp="a=b"), requiredClaims="azp=a=b")
    assert not is_let_in(good, userClaim="preferred_username")
    assert ask(make_token_verifier(attributes(issuer, tmp_path, groupsClaim="")), good).groups == ()
    assert ask(make_token_verifier(attributes(issuer, tmp_path, clockSkewSeconds=7)), good).ends_at_s == FAR + 7
    assert ask(make_token_verifier(attributes(issuer, tmp_path, groupsClaim="sub")), good).groups == ("alice",)


@pytest.mark.parametrize("algorithm", DEFAULT_ALGORITHMS)
def test_without_a_list_the_usual_algorithms_are_permitted(issuer: Issuer, tmp_path: Path, algorithm: str) -> None:
    verifier = make_token_verifier(attributes(issuer, tmp_path, algorithms=""))
    kid = {"R": "rsa", "P": "rsa", "E": "ec"}[algorithm[0]] if algorithm != "EdDSA" else "ed"
    if algorithm == "ES384":
        assert "none of the issuer's keys" in ask(verifier, signed(issuer, {"alg": algorithm, "kid": "ec"})).detail
    else:
        assert ask(verifier, issuer.token(kid, algorithm, exp=FAR)).is_valid


@pytest.mark.parametrize("seconds", [0, MAX_KEYS_SECONDS])
def test_keys_may_be_kept_so_long(issuer: Issuer, tmp_path: Path, seconds: int) -> None:
    make_token_verifier(attributes(issuer, tmp_path, keysSeconds=seconds))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"keysUrl": "https://localhost/"}, "expected one of keysFile and keysUrl"),
        ({"keysFile": None}, "expected one of keysFile and keysUrl"),
        ({"keysFile": "", "keysUrl": ""}, "expected one of keysFile and keysUrl"),
        ({"keysSeconds": -1}, "keysSeconds: '-1': expected 0 to 86400"),
        ({"keysSeconds": MAX_KEYS_SECONDS + 1}, "keysSeconds: '86401': expected 0 to 86400"),
        ({"keysFile": "/no/such"}, "/no/such: cannot be read: No such file or directory"),
        ({"requiredClaims": "=x"}, "requiredClaims: '': expected NAME or NAME=VALUE, separated by blanks"),
        ({"clockSkewSeconds": 601}, "clockSkewSeconds: '601': expected 0 to 600"),
        ({"keysFile": None, "keysUrl": "https://a:b@localhost/"},
         "keysUrl: the address of the keys has a password in it, which everybody could read: take it out"),
    ],
)  # fmt: skip
def test_attributes_that_will_not_do_are_named(
    issuer: Issuer, tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    with pytest.raises(TokenSettingsError) as caught:
        make_token_verifier(attributes(issuer, tmp_path, **changes))
    assert str(caught.value) == why


def test_keys_of_a_server_are_asked_for_as_the_attributes_say(
    issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is fetched before a token comes; a file of no authorities, and http, are refused at once."""
    url = "https://localhost:1/keys"
    told: list[Any] = []

    class Server:
        def __init__(self, url: str, **options: Any) -> None:
            told.append((url, options))

    with monkeypatch.context() as patched:
        patched.setattr("auth.verifiers.tokens.KeyServer", Server)
        make_token_verifier(
            attributes(
                issuer, tmp_path, keysFile=None, keysUrl=url, keysCaFile="/ca.pem", keysOverHttp=True, keysSeconds=7
            )
        )
    assert told == [(url, {"ca_file": "/ca.pem", "is_http_permitted": True, "max_age_s": 7.0})]
    http = attributes(issuer, tmp_path, keysFile=None, keysUrl="http://localhost:1/")
    with pytest.raises(TokenSettingsError, match="has to begin with https"):
        make_token_verifier(http)
    make_token_verifier({**http, "keysOverHttp": True})
    with pytest.raises(TokenSettingsError, match="keysCaFile /no/such: cannot be used"):
        make_token_verifier(attributes(issuer, tmp_path, keysFile=None, keysUrl=url, keysCaFile="/no/such"))
