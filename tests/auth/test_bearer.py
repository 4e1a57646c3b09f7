"""OAUTHBEARER and XOAUTH2, the server's side: docs/spec/policy-and-auth.md §8.1, RFC 7628; policy 66, 67."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auth.bearer import DUMMY, MAX_RESPONSE_BYTES, Bearer
from auth.credentials import MAX_TOKEN_BYTES, MAX_USER_BYTES, CheckToken, VerifyResult, unavailable
from auth.identity import Proof
from auth.installed import create_server_mechanism
from auth.mechanisms import NOT_OWN_AUTHZID, Accepted, Ask, Challenge, Channel, Refused, Step
from auth.negotiation import Authenticated, Rejected, Reply, ServerNegotiation, Verify
from auth.sasl_frames import Challenge as ChallengeFrame
from auth.sasl_frames import Init, Outcome, Response, encode
from auth.secrets import Secret

GOOD = VerifyResult(is_valid=True, user="alice", groups=("staff",), ends_at_s=9.0)
BAD = VerifyResult(is_valid=False, detail="SASL(-13): authentication failure: token: it has expired")

# RFC 7628 §4.1, and the same user for XOAUTH2.
TOKEN = "vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg=="
RFC = f"n,a=user@example.com,\x01host=server.example.com\x01port=143\x01auth=Bearer {TOKEN}\x01\x01".encode()


def asked(step: Step) -> CheckToken:
    assert isinstance(step, Ask), step
    assert isinstance(step.request, CheckToken)
    return step.request


def made(name: str = "OAUTHBEARER") -> Bearer:
    found = create_server_mechanism(name, Channel(is_encrypted=True))
    assert isinstance(found, Bearer)
    return found


def test_the_example_of_the_rfc() -> None:
    assert asked(made().respond(RFC)) == CheckToken(token=Secret(TOKEN), user="user@example.com")


@pytest.mark.parametrize(
    ("response", "user", "token"),
    [
        (b"n,,\x01auth=Bearer a.b.c\x01\x01", "", "a.b.c"),
        (b"y,,\x01auth=bearer  a\x01\x01", "", "a"),
        (b"n,a=a=2Cb=3Dc,\x01x=1\x01auth=BEARER a\x01y=\x01\x01", "a,b=c", "a"),
        (b"n,,\x01auth=Bearer " + b"a" * MAX_TOKEN_BYTES + b"\x01\x01", "", "a" * MAX_TOKEN_BYTES),
    ],
)
def test_what_a_client_may_say(response: bytes, user: str, token: str) -> None:
    assert asked(made().respond(response)) == CheckToken(token=Secret(token), user=user)


def test_xoauth2() -> None:
    for user in ("alice", ""):
        step = made("XOAUTH2").respond(f"user={user}\x01auth=Bearer a.b.c\x01\x01".encode())
        assert asked(step) == CheckToken(token=Secret("a.b.c"), user=user)


MALFORMED = [
    b"",
    DUMMY,
    b"n,,",
    b"n,,\x01\x01",
    b"n,,\x01auth=Bearer a\x01",
    b"n,,\x01auth=Bearer a\x01\x01\x01",
    b"n,,\x01auth=Bearer a\x01\x01x",
    b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01",
    b"n,,\x01auth=Basic a\x01\x01",
    b"n,,\x01auth=Bearer\x01\x01",
    b"n,,\x01auth=Bearer \x01\x01",
    b"n,,\x01auth=Bearer a b\x01\x01",
    b"n,,\x01auth=Bearer a=b\x01\x01",
    b"n,,\x01AUTH=Bearer a\x01\x01",
    b"n,,\x01host=x\x01\x01",
    b"n,,\x01auth=Bearer a\x01k\xc3\xa9=x\x01\x01",
    b"n,,\x01auth=Bearer a\x01k=\xc3\xa9\x01\x01",
    b"n,,\x01auth=Bearer " + b"a" * (MAX_TOKEN_BYTES + 1) + b"\x01\x01",
    b"n,,\x01auth=Bearer a\x01" + b"k=\x01" * 20 + b"\x01",
    b"p=tls-exporter,,\x01auth=Bearer a\x01\x01",
    b"n,alice,\x01auth=Bearer a\x01\x01",
    b"n,a=,\x01auth=Bearer a\x01\x01",
    b"n,a=a=b,\x01auth=Bearer a\x01\x01",
    b"n,a=\xff,\x01auth=Bearer a\x01\x01",
    b"n,a=a\0,\x01auth=Bearer a\x01\x01",
    b"n,,x\x01auth=Bearer a\x01\x01",
    b"n,,n=b,\x01auth=Bearer a\x01\x01",
    b"user=alice\x01auth=Bearer a\x01\x01",
    b"x" * (MAX_RESPONSE_BYTES + 1),
]


@pytest.mark.parametrize("response", MALFORMED)
def test_what_is_no_response_of_it_is_refused(response: bytes) -> None:
    step = made().respond(response)
    assert isinstance(step, Refused)
    assert "SASL(-5)" in step.detail


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[2J", "\u2028", "a" * 1025])
@pytest.mark.parametrize("form", ["n,a={0},\x01auth=Bearer a\x01\x01", "user={0}\x01auth=Bearer a\x01\x01"])
def test_a_name_that_no_user_has_is_refused(form: str, name: str) -> None:
    mechanism = made("OAUTHBEARER" if form[0] == "n" else "XOAUTH2")
    assert isinstance(mechanism.respond(form.format(name).encode()), Refused)


def test_the_user_is_the_tokens() -> None:
    """policy 67."""
    mechanism = made()
    mechanism.respond(b"n,,\x01auth=Bearer a\x01\x01")
    assert mechanism.conclude(GOOD) == Accepted(user="alice", groups=("staff",), ends_at_s=9.0)


@pytest.mark.parametrize("named", ["bob", "Alice", "alice "])
def test_another_user_than_the_tokens_is_refused_whatever_the_verifier_says(named: str) -> None:
    mechanism = made("XOAUTH2")
    mechanism.respond(f"user={named}\x01auth=Bearer a\x01\x01".encode())
    assert mechanism.conclude(GOOD) == Refused(detail=NOT_OWN_AUTHZID)


def test_an_answer_without_a_user_lets_nobody_in() -> None:
    for name in ("", "alice"):
        mechanism = made("XOAUTH2")
        mechanism.respond(f"user={name}\x01auth=Bearer a\x01\x01".encode())
        assert isinstance(mechanism.conclude(VerifyResult(is_valid=True)), Refused)


def test_a_bad_token_is_answered_with_an_error_and_refused_after_the_dummy_response() -> None:
    """policy 66, RFC 7628 §3.2.3."""
    mechanism = made()
    mechanism.respond(RFC)
    assert mechanism.conclude(BAD) == Challenge(data=b'{"status":"invalid_token"}')
    assert isinstance(mechanism.conclude(GOOD), Refused)
    assert mechanism.respond(DUMMY) == Refused(detail=BAD.detail)


@pytest.mark.parametrize("response", [None, b"", RFC, b"\x01\x01"])
def test_whatever_follows_the_error_it_is_over(response: bytes | None) -> None:
    mechanism = made()
    mechanism.respond(RFC)
    mechanism.conclude(BAD)
    assert isinstance(mechanism.respond(response), Refused)


def test_an_outage_is_said_at_once_and_does_not_blame_the_token() -> None:
    mechanism = made()
    mechanism.respond(RFC)
    assert mechanism.conclude(unavailable("x")) == Refused(detail="verifier unavailable: x", is_compared=False)


def test_without_an_initial_response_it_is_asked_for_once() -> None:
    mechanism = made()
    assert mechanism.respond(None) == Challenge(data=b"")
    assert asked(mechanism.respond(RFC)).user
    assert isinstance(mechanism.respond(RFC), Refused)
    again = made()
    again.respond(None)
    assert isinstance(again.respond(None), Refused)


@given(response=st.binary(max_size=200) | st.sampled_from(MALFORMED), name=st.sampled_from(["OAUTHBEARER", "XOAUTH2"]))
def test_any_bytes_are_a_question_or_refused(response: bytes, name: str) -> None:
    assert isinstance(made(name).respond(response), Ask | Refused)


def test_the_exchange_in_frames() -> None:
    negotiation = ServerNegotiation(offered=("OAUTHBEARER",), channel=Channel(is_encrypted=True))
    negotiation.start()
    init = encode(Init(mechanism="OAUTHBEARER", initial_response=RFC))
    (verify,) = negotiation.receive(init)
    assert isinstance(verify, Verify)
    (challenge,) = negotiation.resume(BAD)
    assert challenge == Reply(data=encode(ChallengeFrame(challenge=b'{"status":"invalid_token"}')))
    outcome, rejected = negotiation.receive(encode(Response(response=DUMMY)))
    assert outcome == Reply(data=encode(Outcome(code=1)))
    assert isinstance(rejected, Rejected)
    assert rejected.description == f"{BAD.detail} (Failed to authenticate client [mech=OAUTHBEARER])"


def test_who_is_let_in_has_the_tokens_end_and_groups() -> None:
    negotiation = ServerNegotiation(offered=("XOAUTH2",), channel=Channel(is_encrypted=True))
    negotiation.start()
    init = Init(mechanism="XOAUTH2", initial_response=b"user=alice\x01auth=Bearer a.b.c\x01\x01")
    negotiation.receive(encode(init))
    _, authenticated = negotiation.resume(GOOD)
    assert isinstance(authenticated, Authenticated)
    assert authenticated.identity.groups == ("staff",)
    assert authenticated.identity.ends_at_s == 9.0


PROOF = Proof(verifier="issuer", user="alice", value="1")
WHY_MALFORMED = "SASL(-5): bad protocol / cancel: a message that is none of a bearer token's"
WHY_NAME = "SASL(-13): authentication failure: unprintable or too long a user name"


def test_who_is_let_in_has_all_that_the_verifier_said() -> None:
    """Without the proof an open connection would outlive its issuer's key."""
    exchange = made()
    exchange.respond(b"n,,\x01auth=Bearer a\x01\x01")
    step = exchange.conclude(VerifyResult(is_valid=True, user="alice", groups=("staff",), proof=PROOF, ends_at_s=9.0))
    assert step == Accepted(user="alice", groups=("staff",), proof=PROOF, ends_at_s=9.0)


def test_an_answer_that_nobody_asked_for_lets_nobody_in() -> None:
    assert made().conclude(GOOD) == Refused(detail="SASL(-1): generic failure: a verification that was not asked for")


def test_after_the_error_only_its_dummy_answer_is_none_of_a_token() -> None:
    exchange = made()
    exchange.respond(b"n,,\x01auth=Bearer a\x01\x01")
    assert isinstance(exchange.conclude(BAD), Challenge)
    assert exchange.respond(b"n,,\x01auth=Bearer a\x01\x01") == Refused(detail=WHY_MALFORMED)
    assert exchange.respond(DUMMY) == Refused(detail=BAD.detail)


def oauth(header: bytes, *pairs: bytes) -> bytes:
    return b"\x01".join((header, *pairs, b"auth=Bearer a", b"", b""))


@pytest.mark.parametrize(
    "header", [b"n", b"n,", b"n,a=alice", b",,", b"p=x,,", b"n,,,", b"n,a=alice,x", b"n,a=x,,", b"x,,"]
)
def test_a_header_has_a_flag_and_a_name_and_no_more(header: bytes) -> None:
    assert made().respond(oauth(header)) == Refused(detail=WHY_MALFORMED)


@pytest.mark.parametrize(
    "response", [b"n,,", b"", b"user=alice", b"user=", b"name=alice\x01auth=Bearer a\x01\x01", b"user"]
)
@pytest.mark.parametrize("name", ["OAUTHBEARER", "XOAUTH2"])
def test_a_message_has_its_separator(name: str, response: bytes) -> None:
    assert made(name).respond(response) == Refused(detail=WHY_MALFORMED)


def test_a_message_has_so_many_pairs() -> None:
    """Attack: thousands of keys to be compared with each other."""
    pairs = [chr(ord("a") + number).encode() + b"x=1" for number in range(16)]
    assert asked(made().respond(oauth(b"n,,", *pairs[:15]))).token.reveal() == "a"
    assert made().respond(oauth(b"n,,", *pairs)) == Refused(detail=WHY_MALFORMED)
    assert made().respond(b"n,,\x01" + b"a=1\x01" * 10_000 + b"auth=Bearer a\x01\x01") == Refused(detail=WHY_MALFORMED)


@pytest.mark.parametrize("name", ["OAUTHBEARER", "XOAUTH2"])
def test_the_longest_message(name: str) -> None:
    begins = b"n,,\x01x=" if name == "OAUTHBEARER" else b"user=\x01x="
    ends = b"\x01auth=Bearer a\x01\x01"
    room = MAX_RESPONSE_BYTES - len(begins) - len(ends)
    assert asked(made(name).respond(begins + b"y" * room + ends)).token.reveal() == "a"
    assert made(name).respond(begins + b"y" * (room + 1) + ends) == Refused(detail=WHY_MALFORMED)


@pytest.mark.parametrize(
    ("user", "is_taken"),
    [
        ("é" * (MAX_USER_BYTES // 2), True),
        ("é" * (MAX_USER_BYTES // 2) + "x", False),
        ("al\tice", False),
        ("\x7f", False),
    ],
)
def test_the_names_that_a_client_may_want(user: str, is_taken: bool) -> None:
    for name, response in (
        ("OAUTHBEARER", oauth(b"n,a=" + user.encode() + b",")),
        ("XOAUTH2", oauth(b"user=" + user.encode())),
    ):
        step = made(name).respond(response)
        assert (asked(step).user == user) if is_taken else step == Refused(detail=WHY_NAME)


def test_a_message_without_a_token_is_none() -> None:
    for response in (b"n,,\x01host=a\x01\x01", b"n,,\x01auth=\x01\x01", b"n,,\x01\x01"):
        assert made().respond(response) == Refused(detail=WHY_MALFORMED)
