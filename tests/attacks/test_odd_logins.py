"""Attack: logins that a mechanism, a service or a verifier does not expect.

An error of our own does not count towards a ban. An empty password is an anonymous bind that a directory accepts. A
user without a name has the rights that policy gives to the name "".
"""

from typing import Any

import pytest
from memory_net import Net

from auth.credentials import Answer, FetchScramKeys, ScramKeys, VerifyRequest
from auth.negotiation import Authenticated, Rejected
from auth.relay import Forward, RelayedNegotiation, ServiceFailed, Voucher
from auth.sasl_frames import Init, Response, encode
from router.connection.relay import RelayTerms
from router.connection.service import Asker
from router.effects import AdmissionFailed, Log

SASL = b"AMQP\x03\x01\x00\x00"
KEYS = ScramKeys(salt=b"salt" * 4, iterations=4096, stored_key=b"s" * 32, server_key=b"k" * 32, is_known=True)


@pytest.mark.parametrize("length", [300, 500, 1_500])
@pytest.mark.parametrize("service", [False, True], ids=["router", "qdauthd"])
def test_a_nonce_of_any_length_is_a_failed_login_that_counts(length: int, service: bool) -> None:
    net = Net(mechanisms=lambda _channel: ("SCRAM-SHA-256",), is_auth_service=service)

    def verify(request: VerifyRequest, _host: str, _begins: Any, done: Any) -> Any:
        assert isinstance(request, FetchScramKeys)
        answers.append(lambda: done(KEYS))
        return lambda: None

    answers: list[Any] = []
    net.verify = verify
    client = net.client(opens=False)
    client.push_to_router = lambda: False  # type: ignore[method-assign]
    first = b"n,,n=alice,r=" + b"x" * length
    client.say(SASL + encode(Init(mechanism="SCRAM-SHA-256", initial_response=first), max_bytes=4096))
    for answer in answers:
        answer()
    net.pump()
    assert [event["reason"] for event in net.audits] == ["sasl_failed"]
    assert sum(isinstance(effect, AdmissionFailed) for effect in net.effects) == 1


def relayed(mechanism: str = "LOGIN") -> RelayedNegotiation:
    negotiation = RelayedNegotiation(allowed=None, without=(), realm=None)
    negotiation.offer((mechanism,))
    return negotiation


def said(negotiation: RelayedNegotiation, *responses: bytes | None) -> list[Any]:
    """Effects after a sasl-init with the first response, and the others each after a challenge."""
    effects = negotiation.receive(encode(Init(mechanism="LOGIN", initial_response=responses[0]), max_bytes=8192))
    for response in responses[1:]:
        negotiation.challenge(b"?")
        effects = negotiation.receive(encode(Response(response=response or b""), max_bytes=8192))
    return effects


@pytest.mark.parametrize(
    "responses",
    [
        (None, b"alice", b""),
        (b"alice", b""),
        (b"", b"alice", b""),
        (None, b""),
        (None, b"alice", b"\0secret"),
        (None, b"al\0ice"),
        (None, b"al\nice"),
        (None, b"a" * 1025),
        (None, b"alice", b"p" * 4097),
        (None, b"\xff"),
        (None, b"alice", b"\xff"),
    ],
)
def test_a_relayed_login_passes_no_odd_name_and_no_empty_password_on(responses: tuple[bytes | None, ...]) -> None:
    effects = said(relayed(), *responses)
    assert not any(isinstance(effect, Forward) for effect in effects)
    assert isinstance(effects[-1], Rejected)
    assert effects[-1].is_compared


@pytest.mark.parametrize("responses", [(None, b"alice", b"secret"), (b"alice", b"secret"), (b"", b"alice", b"s")])
def test_an_ordinary_relayed_login_is_passed_on(responses: tuple[bytes | None, ...]) -> None:
    negotiation = relayed()
    assert isinstance(said(negotiation, *responses)[-1], Forward)
    assert negotiation.claimed_user == "alice"


def test_a_service_that_names_nobody_lets_nobody_in() -> None:
    negotiation = relayed()
    said(negotiation, b"alice", b"secret")
    effects = negotiation.vouch(Voucher(user=""))
    assert isinstance(effects[0], ServiceFailed)
    assert not any(isinstance(effect, Authenticated) for effect in effects)
    assert isinstance(effects[-1], Rejected)


class Login:
    """A login with a service, for which the test speaks."""

    def __init__(self) -> None:
        self.sent: list[Init | Response] = []
        self.is_closed = False

    def send(self, frame: Init | Response) -> None:
        self.sent.append(frame)

    def close(self) -> None:
        self.is_closed = True


def test_that_a_service_names_nobody_is_in_both_logs() -> None:
    askers: list[Asker] = []
    login = Login()

    def begin(_host: str, asker: Asker) -> Login:
        askers.append(asker)
        return login

    terms = RelayTerms(begin=begin, place="s:1", allowed=None, without=frozenset(), realm=None)
    net = Net(relay=terms)
    client = net.client(opens=False)
    client.push_to_router = lambda: False  # type: ignore[method-assign]
    client.say(SASL)
    askers[0].offered(("PLAIN",))
    client.say(encode(Init(mechanism="PLAIN", initial_response=b"\0alice\0secret")))
    assert len(login.sent) == 1
    askers[0].vouched(Voucher(groups=("staff",)))
    net.pump()
    (event,) = net.audits
    assert (event["decision"], event["stage"], event["reason"]) == ("deny", "sasl", "verifier_unavailable")
    assert "named no user" in "".join(effect.text for effect in net.effects if isinstance(effect, Log))
    assert login.is_closed


def test_a_verifier_that_names_nobody_lets_nobody_in() -> None:
    """The siblings: no mechanism ends with a user without a name."""
    from auth.bearer import Bearer
    from auth.credentials import VerifyResult
    from auth.mechanisms import Accepted, Plain

    plain = Plain()
    plain.respond(b"\0alice\0secret")
    for name in ("", None):
        answer: Answer = VerifyResult(is_valid=True, user=name)
        step = plain.conclude(answer)
        assert isinstance(step, Accepted)
        assert step.user == "alice"
    bearer = Bearer("XOAUTH2")
    bearer.respond(b"user=\x01auth=Bearer abc\x01\x01")
    assert not isinstance(bearer.conclude(VerifyResult(is_valid=True, user="")), Accepted)
