"""SCRAM, the server's side: docs/spec/policy-and-auth.md §8.1, with the vectors of RFC 5802 and RFC 7677."""

import hashlib
import hmac
from base64 import b64decode, b64encode

import pytest
import scramp
from hypothesis import given, settings
from hypothesis import strategies as st
from scramp import ScramClient, ScramException, ScramMechanism

import auth.scram
from auth.credentials import UNKNOWN_USER, WRONG_PASSWORD, FetchScramKeys, ScramKeys, unavailable
from auth.installed import create_server_mechanism
from auth.mechanisms import NOT_OWN_AUTHZID, Accepted, Ask, Challenge, Channel, Refused, Step
from auth.scram import MAX_MESSAGE_BYTES, Scram, hash_of
from auth.secrets import Secret
from auth.verifiers.files import UserFile, UserFileError, UserFileVerifier, parse_users, set_user
from auth.verifiers.hashes import Argon2idCost, HashError
from auth.verifiers.sasl_config import SaslConfig, offered_mechanisms
from auth.verifiers.scram_keys import make_scram_keys, read_scram_keys

CHEAP = Argon2idCost(memory_kib=8, iterations=1, lanes=1)
END_POINT = b"\x01" * 32
INSIDE_TLS = Channel(is_encrypted=True, binding=lambda kind: END_POINT if kind == "tls-server-end-point" else None)


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> UserFileVerifier:
    path = str(tmp_path_factory.mktemp("users") / "users")
    names = ("SHA-256", "SHA-512", "SHA-1")
    set_user(path, "alice", Secret("wonderland"), cost=CHEAP, scram=names, must_exist=False)
    set_user(path, "a=b,c", Secret("wonderland"), cost=CHEAP, scram=names)
    set_user(path, "plain", Secret("wonderland"), cost=CHEAP)
    return UserFileVerifier(path)


def asked(step: Step) -> FetchScramKeys:
    assert isinstance(step, Ask)
    assert isinstance(step.request, FetchScramKeys)
    return step.request


def text_of(step: Step) -> str:
    assert isinstance(step, Challenge), step
    return step.data.decode()


def log_in(
    verifier: UserFileVerifier,
    user: str = "alice",
    password: str = "wonderland",
    mechanism: str = "SCRAM-SHA-256",
    channel: Channel = INSIDE_TLS,
    binding: tuple[str, bytes] | None = None,
) -> Step:
    """A whole exchange with scramp's client. Returns the last step."""
    server = Scram(mechanism, channel)
    client = ScramClient([mechanism], user, password, channel_binding=binding)
    request = asked(server.respond(client.get_client_first().encode()))
    assert request.user == user
    step = server.conclude(verifier.verify(request))
    if not isinstance(step, Challenge):
        return step
    client.set_server_first(text_of(step))
    step = server.respond(client.get_client_final().encode())
    if not isinstance(step, Challenge):
        return step
    client.set_server_final(text_of(step))
    return server.respond(b"")


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-1", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("user", ["alice", "a=b,c"])
def test_a_user_logs_in(verifier: UserFileVerifier, mechanism: str, user: str) -> None:
    step = log_in(verifier, user, mechanism=mechanism, channel=Channel())
    assert isinstance(step, Accepted)
    assert step.user == user
    assert step.proof is not None
    assert step.proof.user == user


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256-PLUS", "SCRAM-SHA-512-PLUS"])
def test_the_channel_is_bound(verifier: UserFileVerifier, mechanism: str) -> None:
    assert isinstance(log_in(verifier, mechanism=mechanism, binding=("tls-server-end-point", END_POINT)), Accepted)


def test_the_binding_of_another_channel_is_refused(verifier: UserFileVerifier) -> None:
    """Attack: somebody in the middle with a certificate of his own passes the messages on."""
    step = log_in(verifier, mechanism="SCRAM-SHA-256-PLUS", binding=("tls-server-end-point", b"\x02" * 32))
    assert step == Refused(detail=WRONG_PASSWORD)


def test_hiding_the_binding_from_the_client_is_noticed(verifier: UserFileVerifier) -> None:
    """Attack: somebody in the middle takes the -PLUS mechanisms out of the offer (RFC 5802 §6)."""
    step = log_in(verifier, mechanism="SCRAM-SHA-256", binding=("tls-server-end-point", END_POINT))
    assert isinstance(step, Refused)
    assert "server-does-support-channel-binding" in step.detail


def test_the_wrong_password_and_the_unknown_user_look_alike(verifier: UserFileVerifier) -> None:
    """Only the log tells them apart."""
    assert log_in(verifier, password="x") == Refused(detail=WRONG_PASSWORD)
    assert log_in(verifier, user="nobody") == Refused(detail=UNKNOWN_USER)
    assert log_in(verifier, user="plain") == Refused(detail=UNKNOWN_USER)


def test_the_first_answer_does_not_tell_who_is_known(verifier: UserFileVerifier) -> None:
    def parts(user: str) -> tuple[int, str, str]:
        server = Scram("SCRAM-SHA-256", Channel())
        request = asked(server.respond(f"n,,n={user},r=abc".encode()))
        nonce, salt, iterations = text_of(server.conclude(verifier.verify(request))).split(",")
        return len(nonce), salt, iterations

    known, unknown = parts("alice"), parts("nobody")
    assert (known[0], len(known[1]), known[2]) == (unknown[0], len(unknown[1]), unknown[2])
    assert parts("nobody") == unknown  # asking twice tells nothing
    assert parts("nobody2")[1] != unknown[1]


def test_decoys_outlive_a_restart(verifier: UserFileVerifier) -> None:
    again = UserFileVerifier(verifier.path)
    request = FetchScramKeys(user="nobody", hash_name="SHA-256")
    assert again.verify(request) == verifier.verify(request)


def test_the_vectors_of_rfc_7677(monkeypatch: pytest.MonkeyPatch) -> None:
    nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    monkeypatch.setattr(auth.scram, "make_nonce", lambda: nonce)
    made = scramp.ScramMechanism("SCRAM-SHA-256").make_auth_info("pencil", 4096, b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
    keys = ScramKeys(salt=made[0], stored_key=made[1], server_key=made[2], iterations=made[3], is_known=True)
    server = Scram("SCRAM-SHA-256", Channel())
    assert asked(server.respond(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")).user == "user"
    first = f"r=rOprNGfwEbeRWgbNEkqO{nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert text_of(server.conclude(keys)) == first
    final = f"c=biws,r=rOprNGfwEbeRWgbNEkqO{nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert text_of(server.respond(final.encode())) == "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.respond(None) == Accepted(user="user")


def test_the_vectors_of_rfc_5802(monkeypatch: pytest.MonkeyPatch) -> None:
    nonce = "3rfcNHYJY1ZVvWVs7j"
    monkeypatch.setattr(auth.scram, "make_nonce", lambda: nonce)
    made = scramp.ScramMechanism("SCRAM-SHA-1").make_auth_info("pencil", 4096, b64decode("QSXCR+Q6sek8bf92"))
    keys = ScramKeys(salt=made[0], stored_key=made[1], server_key=made[2], iterations=made[3], is_known=True)
    server = Scram("SCRAM-SHA-1", Channel())
    server.respond(b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL")
    server.conclude(keys)
    final = b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
    assert text_of(server.respond(final)) == "v=rmF9pqV8S7suAoZWja4dJRkFsKQ="


@pytest.mark.parametrize(
    ("first", "says"),
    [
        (b"n,a=root,n=alice,r=abc", NOT_OWN_AUTHZID),
        (b"n,a=alice,n=alice,r=abc", NOT_OWN_AUTHZID),  # scramp carries none
        (b"n,,n=,r=abc", "empty"),
        (b"n,,r=abc", "empty"),
        (b"n,,n=a\x1bb,r=abc", "unprintable"),
        (b"n,,n=" + b"a" * 1025 + b",r=abc", "too long"),
        (b"", "none of SCRAM's"),
        (b"alice", "none of SCRAM's"),
        (b"n,,n=\xff,r=abc", "none of SCRAM's"),
        (b"n" * (MAX_MESSAGE_BYTES + 1), "none of SCRAM's"),
    ],
)
def test_a_first_message_that_is_refused(first: bytes, says: str) -> None:
    step = Scram("SCRAM-SHA-256", Channel()).respond(first)
    assert isinstance(step, Refused)
    assert says in step.detail


@pytest.mark.parametrize("first", [b"n,,m=x,n=alice,r=abc", b"p=tls-unique,,n=alice,r=abc", b"x,,n=alice,r=abc"])
def test_an_extension_or_another_binding_is_refused(verifier: UserFileVerifier, first: bytes) -> None:
    server = Scram("SCRAM-SHA-256", Channel())
    step = server.conclude(verifier.verify(asked(server.respond(first))))
    assert isinstance(step, Refused)
    assert "alice" not in step.detail


def test_an_absent_initial_response_is_asked_for_once() -> None:
    server = Scram("SCRAM-SHA-256", Channel())
    assert server.respond(None) == Challenge(data=b"")
    assert isinstance(server.respond(None), Refused)


def test_a_verifier_that_does_not_answer_says_nothing_about_the_user() -> None:
    server = Scram("SCRAM-SHA-256", Channel())
    server.respond(b"n,,n=alice,r=abc")
    step = server.conclude(unavailable("down"))
    assert step == Refused(detail="verifier unavailable: down", is_compared=False)


def test_nothing_is_accepted_twice_or_out_of_turn(verifier: UserFileVerifier) -> None:
    server = Scram("SCRAM-SHA-256", Channel())
    assert isinstance(server.conclude(unavailable("unasked")), Refused)
    request = asked(server.respond(b"n,,n=alice,r=abc"))
    assert isinstance(server.respond(b"c=biws,r=abc,p=AAAA"), Refused)  # the proof before the keys
    server.conclude(verifier.verify(request))
    assert isinstance(server.conclude(verifier.verify(request)), Refused)


@settings(deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=80), st.none()), max_size=4))
def test_no_bytes_get_in_or_break_it(verifier: UserFileVerifier, messages: list[bytes | None]) -> None:
    server = Scram("SCRAM-SHA-256", INSIDE_TLS)
    for message in messages:
        step = server.respond(message)
        if isinstance(step, Ask):
            step = server.conclude(verifier.verify(step.request))
        assert not isinstance(step, Accepted)
        if isinstance(step, Refused):
            return


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 400), st.binary(min_size=1, max_size=3))
def test_no_changed_proof_gets_in(verifier: UserFileVerifier, at: int, change: bytes) -> None:
    server = Scram("SCRAM-SHA-256", INSIDE_TLS)
    client = ScramClient(["SCRAM-SHA-256"], "alice", "wonderland")
    step = server.conclude(verifier.verify(asked(server.respond(client.get_client_first().encode()))))
    client.set_server_first(text_of(step))
    final = bytearray(client.get_client_final().encode())
    at %= len(final)
    before = bytes(final)
    final[at : at + len(change)] = change
    step = server.respond(bytes(final))
    if isinstance(step, Challenge):  # base64 may be written in more than one way
        assert b64decode(final.rpartition(b"p=")[2]) == b64decode(before.rpartition(b"p=")[2])
        assert final.rpartition(b"p=")[0] == before.rpartition(b"p=")[0]


def test_a_second_proof_is_not_looked_at(verifier: UserFileVerifier) -> None:
    """Attack: to guess on within one exchange, behind one delay."""
    server = Scram("SCRAM-SHA-256", Channel())
    client = ScramClient(["SCRAM-SHA-256"], "alice", "wonderland")
    step = server.conclude(verifier.verify(asked(server.respond(client.get_client_first().encode()))))
    client.set_server_first(text_of(step))
    final = client.get_client_final()
    assert server.respond(f"{final.rpartition('p=')[0]}p=AAAA".encode()) == Refused(detail=WRONG_PASSWORD)
    assert isinstance(server.respond(final.encode()), Refused)


PIECES = [
    "n", "y", "p=tls-server-end-point", "p=tls-unique", "p=", "a=x", "",
    "n=alice", "n=a=2Cb", "n=a=b", "n=\u2168", "n=\u0627x", "n=\u00aa", "n= a", "n=x",
    "r=abc", "r=", "r=\u00e9", "m=x", "x=y", "x=z", "X=1", "s=1", "n=bob", "=", "x", "x=\0",
]  # fmt: skip


@settings(deadline=None, max_examples=400)
@given(
    pieces=st.one_of(
        st.lists(st.sampled_from(PIECES), max_size=7),
        st.builds(
            lambda flag, name, more: [flag, "", name, "r=abc", *more],
            st.sampled_from(PIECES[:4]),
            st.sampled_from(PIECES[7:15]),
            st.lists(st.sampled_from(PIECES[15:]), max_size=2),
        ),
        st.just(["n", "", "n=alice", "r=abc"]),
        st.just(["p=tls-server-end-point", "", "n=alice", "r=abc"]),
    ),
    behind=st.lists(st.sampled_from(["x=y", "x=z", "y=1", "m=1", "c=1", "p=1", "i=1", "=", ""]), max_size=2),
    is_plus=st.booleans(),
    is_bound=st.booleans(),
    claimed=st.sampled_from(["right", "none", "other"]),
)
def test_its_verdicts_are_those_of_scramps_server(
    pieces: list[str], behind: list[str], is_plus: bool, is_bound: bool, claimed: str
) -> None:
    """Every message is refused by both or by neither, with the client's proof computed by the password itself."""
    name = "SCRAM-SHA-256-PLUS" if is_plus and is_bound else "SCRAM-SHA-256"
    binding = ("tls-server-end-point", END_POINT) if is_bound else None
    first = ",".join(pieces)
    made = ScramMechanism(name).make_auth_info("pencil", 4096, b"0123456789abcdef")
    keys = ScramKeys(salt=made[0], stored_key=made[1], server_key=made[2], iterations=made[3], is_known=True)
    ours = Scram(name, INSIDE_TLS if is_bound else Channel())
    step = ours.respond(first.encode())
    if isinstance(step, Ask):
        step = ours.conclude(keys)
    theirs = ScramMechanism(name).make_server(lambda _user: made, channel_binding=binding)
    try:
        theirs.set_client_first(first)
        theirs.get_server_first()
        is_taken = True
    except ScramException:
        is_taken = False
    assert isinstance(step, Challenge) == is_taken, first
    if not isinstance(step, Challenge):
        return
    # The final message for our server's nonce; scramp's server gets that nonce.
    theirs = ScramMechanism(name).make_server(lambda _user: made, channel_binding=binding)
    nonce = text_of(step).partition(",")[0].removeprefix("r=")
    theirs.s_nonce = scramp.core.Nonce(nonce.removeprefix("abc"))
    theirs.set_client_first(first)
    assert theirs.get_server_first() == text_of(step)
    flag, _, bare = first.split(",", 2)
    data = {"right": END_POINT if flag.startswith("p=") else b"", "none": b"", "other": b"x"}[claimed]
    without = ",".join([f"c={b64encode(f'{flag},,'.encode() + data).decode()}", f"r={nonce}", *behind])
    message = f"{bare},{text_of(step)},{without}".encode()
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", made[0], made[3])
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    mask = hmac.digest(hashlib.sha256(client_key).digest(), message, "sha256")
    proof = b64encode(bytes(a ^ b for a, b in zip(client_key, mask, strict=True))).decode()
    final = f"{without},p={proof}"
    try:
        theirs.set_client_final(final)
        expected = theirs.get_server_final()
    except ScramException:
        expected = ""
    step = ours.respond(final.encode())
    assert (text_of(step) if isinstance(step, Challenge) else "") == expected, final


# Names and files


@pytest.mark.parametrize(
    ("name", "found"),
    [("SCRAM-SHA-256", "SHA-256"), ("SCRAM-SHA-512-PLUS", "SHA-512"), ("SCRAM-MD5", None), ("PLAIN", None),
     ("SCRAM-SHA-256-PLUS-PLUS", None)],
)  # fmt: skip
def test_names(name: str, found: str | None) -> None:
    assert hash_of(name) == found
    assert isinstance(create_server_mechanism(name, Channel()), Scram) == (found is not None)


def test_the_offer(verifier: UserFileVerifier) -> None:
    def offered(words: str | None = None, channel: Channel = INSIDE_TLS) -> tuple[str, ...]:
        return offered_mechanisms(
            SaslConfig(),
            served=verifier.mechanisms,
            sasl_mechanisms=words,
            authenticate_peer=True,
            channel=channel,
        )

    assert offered() == (
        "SCRAM-SHA-512-PLUS", "SCRAM-SHA-512", "SCRAM-SHA-256-PLUS", "SCRAM-SHA-256", "PLAIN",
    )  # fmt: skip
    assert offered(channel=Channel()) == ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
    assert offered("scram-sha-1") == ("SCRAM-SHA-1",)  # only when named


def test_keys_of_a_file_are_those_of_qdpasswd() -> None:
    text = make_scram_keys(Secret("pencil"), "SHA-256", 4096)
    hash_name, keys = read_scram_keys(text)
    assert (hash_name, keys.iterations, keys.is_known) == ("SHA-256", 4096, True)
    with pytest.raises(HashError, match="RFC 4013"):
        make_scram_keys(Secret("a\x00b"), "SHA-256", 4096)


GOOD = make_scram_keys(Secret("pencil"), "SHA-256", 4096)
PHC = "$argon2id$v=19$m=8,t=1,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (f"{PHC} {GOOD} {GOOD}", "one hash twice"),
        (f"{PHC} {GOOD.replace('$4096:', '$1024:')}", "1024 iterations"),
        (f"{PHC} {GOOD.replace('SHA-256', 'SHA-512')}", "wrong length"),
        (f"{PHC} nonsense", "not of the form SCRAM"),
        (GOOD, "not a hash of the form"),
    ],
)
def test_a_wrong_line_is_named_without_its_content(entry: str, says: str) -> None:
    with pytest.raises(UserFileError, match=says) as caught:
        parse_users(f"bob:{PHC}\nalice:{entry}\n", "/etc/users")
    assert "/etc/users:2" in str(caught.value)
    assert GOOD.partition(":")[2] not in str(caught.value)


def test_a_file_without_scram_offers_none() -> None:
    assert UserFile(parse_users(f"bob:{PHC}\n", "users")).scram_hashes == ()
    assert UserFile(parse_users(f"bob:{PHC} {GOOD}\n", "users")).scram_hashes == ("SHA-256",)
