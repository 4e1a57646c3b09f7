"""SCRAM, the client's side: docs/spec/policy-and-auth.md §8b, RFC 5802 and RFC 7677; policy 72 to 74."""

from base64 import b64encode
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auth.client_mechanisms import Means, choose
from auth.client_scram import MAX_ITERATIONS, MIN_ITERATIONS, Derive, MechanismFault, Scram, derive
from auth.credentials import FetchScramKeys
from auth.mechanisms import Channel
from auth.negotiation import (
    MAX_PENDING_BYTES,
    Authenticated,
    ClientNegotiation,
    Rejected,
    Reply,
    SaslEffect,
    ServerNegotiation,
    Verify,
)
from auth.sasl_frames import Challenge, Init, Mechanisms, Outcome, Response, encode
from auth.secrets import Secret
from auth.verifiers.files import UserFileVerifier, set_user
from auth.verifiers.hashes import Argon2idCost

END_POINT = b"\x01" * 32
Binding = Callable[[str], bytes | None]


def bound(kind: str) -> bytes | None:
    return END_POINT if kind == "tls-server-end-point" else None


def unbound(_kind: str) -> None:
    return None


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> UserFileVerifier:
    path = str(tmp_path_factory.mktemp("users") / "users")
    cost = Argon2idCost(memory_kib=8, iterations=1, lanes=1)
    for user in ("alice", "a=b,c"):
        set_user(path, user, Secret("wonderland"), cost=cost, scram=("SHA-256", "SHA-512", "SHA-1"), must_exist=False)
    return UserFileVerifier(path)


VECTORS = {
    "SCRAM-SHA-1": (
        "fyko+d2lbbFgONRv9qkxdawL",
        b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
        b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
        b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    ),
    "SCRAM-SHA-256": (
        "rOprNGfwEbeRWgbNEkqO",
        b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
}


def made(monkeypatch: pytest.MonkeyPatch, name: str) -> tuple[Scram, bytes]:
    """A client with the vector's nonce that has answered the server-first message, and that answer."""
    nonce, first, server_first, _, _ = VECTORS[name]
    monkeypatch.setattr("secrets.token_urlsafe", lambda _size: nonce)
    client = Scram(name, "user", Secret("pencil"), binding=None, offers_plus=False)
    assert client.initial_response() == first
    question = client.answer(server_first)
    assert isinstance(question, Derive)
    return client, client.derived(derive(question))


@pytest.mark.parametrize("name", VECTORS)
def test_the_vectors_of_the_rfcs(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    client, final = made(monkeypatch, name)
    assert final == VECTORS[name][3]
    assert client.answer(VECTORS[name][4]) == b""
    client.confirm(None)


@pytest.mark.parametrize("name", VECTORS)
def test_the_last_message_may_come_with_the_outcome(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    client, _ = made(monkeypatch, name)
    client.confirm(VECTORS[name][4])


@pytest.mark.parametrize(
    "last", [None, b"", b"v=", b"v=AAAA", b"v=smF9pqV8S7suAoZWja4dJRkFsKQ=", b"e=other-error", b"\xff", b"v=!"]
)
def test_success_without_the_servers_proof_is_not_believed(monkeypatch: pytest.MonkeyPatch, last: bytes | None) -> None:
    """policy 73. Attack: a server that does not know the password says that all is well."""
    client, _ = made(monkeypatch, "SCRAM-SHA-1")
    with pytest.raises(MechanismFault):
        client.confirm(last)
    early = Scram("SCRAM-SHA-256", "user", Secret("pencil"), binding=None, offers_plus=False)
    early.initial_response()
    with pytest.raises(MechanismFault):
        early.confirm(last)


def first_answer(message: str) -> bytes | Derive:
    client = Scram("SCRAM-SHA-256", "user", Secret("pencil"), binding=None, offers_plus=False)
    nonce = client.initial_response().rpartition(b"r=")[2].decode()
    return client.answer(message.replace("NONCE", nonce).encode())


def test_what_a_server_may_begin_with() -> None:
    assert isinstance(first_answer("r=NONCEx,s=QSXCR+Q6sek8bf92,i=4096,x=y"), Derive)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (f"r=NONCEx,s=QSXCR+Q6sek8bf92,i={MIN_ITERATIONS - 1}", "iterations"),
        (f"r=NONCEx,s=QSXCR+Q6sek8bf92,i={MAX_ITERATIONS + 1}", "iterations"),
        ("r=NONCEx,s=QSXCR+Q6sek8bf92,i=10000000", "iterations"),
        ("r=NONCEx,s=QSXCR+Q6sek8bf92,i=" + "9" * 5000, "too long"),
        ("r=NONCEx,s=QSXCR+Q6sek8bf92,i=-4096", "not SCRAM's"),
        ("r=NONCEx,s=QSXCR+Q6sek8bf92,i=04096", "not SCRAM's"),
        ("r=NONCE,s=QSXCR+Q6sek8bf92,i=4096", "does not go on"),
        ("r=xNONCE,s=QSXCR+Q6sek8bf92,i=4096", "does not go on"),
        ("r=NONCE x,s=QSXCR+Q6sek8bf92,i=4096", "not SCRAM's"),
        ("r=NONCEx,s=Q,i=4096", "not base64"),
        ("m=x,r=NONCEx,s=QSXCR+Q6sek8bf92,i=4096", "not SCRAM's"),
        ("e=unknown-user", "refuses: unknown-user"),
        ("e=\x1b[2J", "not SCRAM's"),
        ("", "not SCRAM's"),
        ("r=NONCEé,s=QSXCR+Q6sek8bf92,i=4096", "not SCRAM's"),
    ],
)
def test_a_server_that_does_not_keep_to_it(message: str, why: str) -> None:
    """policy 74. Attacks: ten million iterations; one, so that our proof is cheap to guess at."""
    with pytest.raises(MechanismFault, match=why):
        first_answer(message)


@given(message=st.binary(max_size=100))
def test_any_bytes_are_a_question_or_a_fault(message: bytes) -> None:
    client = Scram("SCRAM-SHA-512", "user", Secret("pencil"), binding=None, offers_plus=False)
    client.initial_response()
    with pytest.raises(MechanismFault):
        client.answer(message)


def test_credentials_that_scram_cannot_carry() -> None:
    with pytest.raises(MechanismFault):
        Scram("SCRAM-SHA-256", "user", Secret("a\x07b"), binding=None, offers_plus=False)
    with pytest.raises(MechanismFault):
        Scram("SCRAM-SHA-256", "a\nb", Secret("x"), binding=None, offers_plus=False).initial_response()


# Against our server


def log_in(
    users: UserFileVerifier,
    offered: tuple[str, ...],
    *,
    user: str = "alice",
    password: str = "wonderland",
    allowed: list[str] | None = None,
    client_binding: Binding = bound,
    server_binding: Binding = bound,
) -> list[SaslEffect]:
    """A whole exchange. Returns the last effect of the client and of the server."""
    client = ClientNegotiation(
        allowed=allowed,
        username=user,
        password=Secret(password),
        has_certificate=False,
        is_encrypted=True,
        binding=client_binding,
    )
    server = ServerNegotiation(offered=offered, channel=Channel(is_encrypted=True, binding=server_binding))
    to_do: list[tuple[object, SaslEffect]] = [(server, effect) for effect in server.start()]
    last: dict[object, SaslEffect] = {}
    while to_do:
        side, effect = to_do.pop(0)
        other = client if side is server else server
        match effect:
            case Reply(data=data):
                to_do += [(other, each) for each in other.receive(data)]
            case Derive():
                to_do += [(client, each) for each in client.resume(derive(effect))]
            case Verify(request=request):
                assert isinstance(request, FetchScramKeys)
                to_do += [(server, each) for each in server.resume(users.verify(request))]
            case _:
                last[side] = effect
    return [last[side] for side in (client, server) if side in last]


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (("PLAIN", "SCRAM-SHA-1", "SCRAM-SHA-256", "SCRAM-SHA-512"), "SCRAM-SHA-512"),
        (("SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-256-PLUS"), "SCRAM-SHA-256-PLUS"),
        (("SCRAM-SHA-512-PLUS", "SCRAM-SHA-512", "ANONYMOUS"), "SCRAM-SHA-512-PLUS"),
        (("scram-sha-256".upper(), "SCRAM-SHA-1-PLUS"), "SCRAM-SHA-256"),
    ],
)
def test_the_strongest_is_chosen_and_both_believe_each_other(
    users: UserFileVerifier, offered: tuple[str, ...], chosen: str
) -> None:
    """policy 72."""
    client, server = log_in(users, offered)
    assert isinstance(client, Authenticated)
    assert isinstance(server, Authenticated)
    assert client.identity.mechanism == server.identity.mechanism == chosen
    assert server.identity.user == "alice"


def test_names_with_signs_and_hashes_that_are_named(users: UserFileVerifier) -> None:
    _, server = log_in(users, ("SCRAM-SHA-1", "PLAIN"), user="a=b,c", allowed=["scram-sha-1"])
    assert isinstance(server, Authenticated)
    assert (server.identity.user, server.identity.mechanism) == ("a=b,c", "SCRAM-SHA-1")


def test_sha1_only_where_it_is_named(users: UserFileVerifier) -> None:
    (client,) = log_in(users, ("SCRAM-SHA-1",))
    assert isinstance(client, Rejected)
    assert client.description == "Authentication failed [mech=none]"


def test_a_wrong_password(users: UserFileVerifier) -> None:
    client, server = log_in(users, ("SCRAM-SHA-256",), password="x", server_binding=unbound)
    assert isinstance(client, Rejected)
    assert client.description == "Authentication failed [mech=SCRAM-SHA-256]"
    assert isinstance(server, Rejected)


def test_a_listener_without_plus_takes_a_client_that_knows_it(users: UserFileVerifier) -> None:
    """The client says that it could bind the channel, and that the server does not: it does not."""
    _, server = log_in(users, ("SCRAM-SHA-256",))
    assert isinstance(server, Authenticated)


def test_somebody_in_the_middle_who_takes_plus_away_is_noticed() -> None:
    """Attack, RFC 5802 §6: the client says that the server offered none, and the server, which did, refuses."""
    client = ClientNegotiation(
        allowed=None, username="u", password=Secret("p"), has_certificate=False, is_encrypted=True, binding=bound
    )
    (reply,) = client.receive(encode(Mechanisms(names=("SCRAM-SHA-256",))))
    assert isinstance(reply, Reply)
    assert b"y,,n=u,r=" in reply.data
    server = ServerNegotiation(
        offered=("SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"), channel=Channel(is_encrypted=True, binding=bound)
    )
    server.start()
    (verify,) = server.receive(reply.data)
    assert isinstance(verify, Verify)


def test_another_certificate_in_between_is_noticed(users: UserFileVerifier) -> None:
    client, server = log_in(users, ("SCRAM-SHA-256-PLUS",), client_binding=lambda _kind: b"\x02" * 32)
    assert isinstance(client, Rejected)
    assert isinstance(server, Rejected)


def test_bytes_that_come_while_the_key_is_computed_wait_and_are_bounded() -> None:
    client = ClientNegotiation(
        allowed=None, username="u", password=Secret("p"), has_certificate=False, is_encrypted=False
    )
    (reply,) = client.receive(encode(Mechanisms(names=("SCRAM-SHA-256",))))
    assert isinstance(reply, Reply)
    nonce = reply.data.rpartition(b"r=")[2].decode()
    first = f"r={nonce}x,s={b64encode(b'0' * 16).decode()},i=4096".encode()
    (question,) = client.receive(encode(Challenge(challenge=first)))
    assert isinstance(question, Derive)
    assert client.receive(b"x" * MAX_PENDING_BYTES) == []
    (rejected,) = client.receive(b"x")
    assert isinstance(rejected, Rejected)
    assert client.resume(b"") == []


# Tokens

TOKEN = "aGVhZGVy.cGF5bG9hZA.c2ln" + "A" * 2000


def with_token(offered: tuple[str, ...], *, is_encrypted: bool = True, user: str | None = "al,ice") -> list[SaslEffect]:
    client = ClientNegotiation(
        allowed=None,
        username=user,
        password=None,
        has_certificate=False,
        is_encrypted=is_encrypted,
        token=Secret(TOKEN),
    )
    return client.receive(encode(Mechanisms(names=offered)))


@pytest.mark.parametrize(
    ("user", "name", "said"),
    [
        ("al,ice", "OAUTHBEARER", "n,a=al=2Cice,\x01auth=Bearer {}\x01\x01"),
        ("a=l,ice", "OAUTHBEARER", "n,a=a=3Dl=2Cice,\x01auth=Bearer {}\x01\x01"),
        (None, "OAUTHBEARER", "n,,\x01auth=Bearer {}\x01\x01"),
        ("al,ice", "XOAUTH2", "user=al,ice\x01auth=Bearer {}\x01\x01"),
    ],
)
def test_a_token_is_sent(user: str | None, name: str, said: str) -> None:
    (reply,) = with_token(("PLAIN", "XOAUTH2", name), user=user)
    assert isinstance(reply, Reply)
    init = Init(mechanism=name, initial_response=said.format(TOKEN).encode())
    assert reply.data == encode(init, max_bytes=65536)
    assert TOKEN not in repr(reply)


def test_no_token_is_sent_in_the_clear() -> None:
    (rejected,) = with_token(("OAUTHBEARER", "XOAUTH2"), is_encrypted=False)
    assert isinstance(rejected, Rejected)
    assert rejected.mechanism is None


@pytest.mark.parametrize(("name", "answer"), [("OAUTHBEARER", b"\x01"), ("XOAUTH2", b"")])
def test_the_error_challenge_is_answered_and_success_after_it_not_believed(name: str, answer: bytes) -> None:
    for code in (0, 1):
        client = ClientNegotiation(
            allowed=[name],
            username=None,
            password=None,
            has_certificate=False,
            is_encrypted=True,
            token=Secret(TOKEN),
        )
        client.receive(encode(Mechanisms(names=(name,))))
        (reply,) = client.receive(encode(Challenge(challenge=b'{"status":"invalid_token"}')))
        assert reply == Reply(data=encode(Response(response=answer)))
        (rejected,) = client.receive(encode(Outcome(code=code)))
        assert isinstance(rejected, Rejected)
        assert rejected.mechanism == name


@pytest.mark.parametrize("token", ["a b", "a\x01b", "a\nb", "é"])
def test_a_token_that_cannot_be_sent(token: str) -> None:
    client = ClientNegotiation(
        allowed=None, username=None, password=None, has_certificate=False, is_encrypted=True, token=Secret(token)
    )
    (rejected,) = client.receive(encode(Mechanisms(names=("OAUTHBEARER",))))
    assert isinstance(rejected, Rejected)


def client(password: str = "pencil", user: str = "user") -> Scram:
    return Scram("SCRAM-SHA-256", user, Secret(password), binding=None, offers_plus=False)


def fault(ask: Callable[[], object]) -> str:
    with pytest.raises(MechanismFault) as caught:
        ask()
    return str(caught.value)


def test_what_is_wrong_with_the_credentials_or_the_server_is_said() -> None:
    """An operator has nothing else to find the mistake by."""
    assert fault(lambda: client("a\u0007b")) == "the password has a character that SCRAM does not permit (RFC 4013)"
    assert fault(client(user="a\nb").initial_response) == "the user name has an unprintable character"
    assert fault(lambda: client().answer(b"\xff")) == "a message of the server is not UTF-8"
    assert fault(lambda: client().answer(b"x" * 4097)) == "a message of the server is too long"
    assert fault(lambda: client().answer(b"x" * 4096)) == "the server's first message is not SCRAM's"
    assert fault(lambda: client().answer(b"e=other-error")) == "the server refuses: other-error"
    unproven = "the server says success and has not proven that it knows the password"
    assert fault(lambda: client().confirm(None)) == unproven
    begun = client()
    begun.initial_response()
    assert fault(lambda: begun.answer(b"r=x,s=c2FsdHNhbHQ=,i=4096")) == "the server's nonce does not go on from ours"
    first = f"r={begun._nonce}x,s=c2FsdHNhbHQ=,i=".encode()
    assert isinstance(begun.answer(first + b"4096"), Derive)
    assert fault(lambda: begun.answer(first + b"4096")) == "a challenge that SCRAM does not have"
    begun.derived(b"k" * 32)
    assert fault(lambda: begun.answer(b"x")) == "the server's last message is not SCRAM's"
    ours = "the server does not know the password: is it the one it should be?"
    assert fault(lambda: begun.answer(b"v=AAAA")) == ours
    assert fault(lambda: begun.answer(b"v=A=AA")) == "a message of the server is not base64"


def test_a_server_may_want_a_million_iterations() -> None:
    begun = client()
    begun.initial_response()
    step = begun.answer(f"r={begun._nonce}x,s=c2FsdHNhbHQ=,i=1000000".encode())
    assert isinstance(step, Derive)
    assert step.iterations == 1_000_000


def test_why_a_mechanism_of_one_message_ends_is_said() -> None:
    """An operator has nothing else to find the mistake by."""
    means = Means(username="u", password=Secret("p"), has_certificate=True, is_encrypted=True)
    for name in ("EXTERNAL", "PLAIN", "ANONYMOUS"):
        chosen = choose((name,), None, means)
        assert chosen is not None
        assert chosen.name == name
        assert fault(partial(chosen.answer, b"c")) == f"a challenge in {name}, which has none"
        assert fault(partial(chosen.derived, b"s")) == f"nothing is derived in {name}"
        chosen.confirm(None)
    for name in ("OAUTHBEARER", "XOAUTH2"):
        for token, user in (("a b", ""), ("token", "a\nb")):
            chosen = choose((name,), None, Means(token=Secret(token), username=user, is_encrypted=True))
            assert chosen is not None
            said = "the token or the user name has a character that cannot be sent"
            assert fault(chosen.initial_response) == said
        assert chosen is not None
        chosen.confirm(None)
        chosen.answer(b"{}")
        assert fault(partial(chosen.answer, b"{}")) == f"a second challenge in {name}"
        assert fault(partial(chosen.confirm, None)) == "the server has refused the token, and says success"
