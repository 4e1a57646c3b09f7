"""What an exchange must not let pass, word for word: bounds, results nobody asked for, refusals and their reasons."""

from base64 import b64encode
from dataclasses import replace
from typing import Any

import pytest
from scramp import ScramClient, ScramMechanism

from auth import sasl_frames
from auth.client_scram import Derive, derive
from auth.credentials import (
    MAX_PASSWORD_BYTES,
    MAX_TICKET_BYTES,
    MAX_USER_BYTES,
    UNKNOWN_USER,
    WRONG_PASSWORD,
    CheckPassword,
    CheckTicket,
    FetchGroups,
    FetchScramKeys,
    ScramKeys,
    TicketStep,
    VerifyResult,
)
from auth.gssapi import Gssapi
from auth.identity import Proof
from auth.mechanisms import NOT_OWN_AUTHZID, Accepted, Ask, Challenge, Channel, External, Plain, Refused, parse_plain
from auth.negotiation import (
    FRAMING_ERROR,
    MAX_ROUNDS,
    Authenticated,
    ClientNegotiation,
    Rejected,
    Reply,
    SaslEffect,
    ServerNegotiation,
    Verify,
)
from auth.sasl_frames import Init, Mechanisms, Outcome, Response
from auth.scram import Scram
from auth.secrets import Secret

PROOF = Proof(verifier="files", user="alice", value="1")
VALID = VerifyResult(is_valid=True, groups=("staff",), proof=PROOF, ends_at_s=5.0)
UNASKED = Refused(detail="SASL(-1): generic failure: a verification that was not asked for")
NO_PLAIN = Refused(detail="SASL(-5): bad protocol / cancel: PLAIN wants authzid, user and password separated by NUL")
NO_GSSAPI = Refused(detail="SASL(-5): bad protocol / cancel: a message that is none of GSSAPI's")
PLAIN = b"\0alice\0secret"


def frames(*each: Any) -> bytes:
    return b"".join(sasl_frames.encode(frame) for frame in each)


def frames_of(effects: list[SaslEffect]) -> list[Any]:
    reader = sasl_frames.FrameReader()
    reader.feed(b"".join(effect.data for effect in effects if isinstance(effect, Reply)))
    found = []
    while (frame := reader.next_frame()) is not None:
        found.append(frame)
    return found


def init(mechanism: str, response: bytes | None = None) -> bytes:
    return frames(Init(mechanism=mechanism, initial_response=response))


def answer(data: bytes) -> bytes:
    return frames(Response(response=data))


def server(*offered: str, mechanism: Any = None) -> ServerNegotiation:
    more = {"mechanisms": lambda _name, _channel: mechanism} if mechanism is not None else {}
    negotiation = ServerNegotiation(offered=offered, channel=Channel(), **more)
    negotiation.start()
    return negotiation


# Mechanisms


def refused(why: str) -> Refused:
    return Refused(detail=f"SASL(-13): authentication failure: {why}")


@pytest.mark.parametrize(
    ("response", "step"),
    [
        (b"", NO_PLAIN),
        (b"\0alice", NO_PLAIN),
        (b"\0alice\0secret\0", NO_PLAIN),
        (b"\0\xff\0secret", NO_PLAIN),
        (b"\0alice\0\xff", NO_PLAIN),
        (b"\0\0secret", refused("empty user name or password")),
        (b"\0alice\0", refused("empty user name or password")),
        (b"\0" + b"a" * (MAX_USER_BYTES + 1) + b"\0secret", refused("user name or password too long")),
        (b"\0alice\0" + b"s" * (MAX_PASSWORD_BYTES + 1), refused("user name or password too long")),
        (b"bob\0alice\0secret", Refused(detail=NOT_OWN_AUTHZID)),
        (b"\0ali\nce\0secret", refused("unprintable character in user name")),
        (b"alice\0alice\0secret", CheckPassword(user="alice", password=Secret("secret"))),
    ],
)
def test_what_a_plain_response_may_be(response: bytes, step: CheckPassword | Refused) -> None:
    assert parse_plain(response) == step


def test_the_longest_name_and_password_are_verified() -> None:
    step = parse_plain(b"\0" + b"a" * MAX_USER_BYTES + b"\0" + b"s" * MAX_PASSWORD_BYTES)
    assert isinstance(step, CheckPassword)
    assert len(step.user) == MAX_USER_BYTES
    assert len(step.password.reveal()) == MAX_PASSWORD_BYTES


def test_plain_asks_once_for_a_response_that_does_not_come() -> None:
    mechanism = Plain()
    assert mechanism.respond(None) == Challenge(data=b"")
    assert mechanism.respond(None) == NO_PLAIN


def test_plain_lets_nobody_in_whom_it_has_not_asked_about() -> None:
    assert Plain().conclude(VALID) == UNASKED
    mechanism = Plain()
    mechanism.respond(PLAIN)
    assert mechanism.conclude(TicketStep(context=None, reply=b"", offer=None)) == UNASKED
    assert mechanism.conclude(VerifyResult(is_valid=False)) == Refused(detail=WRONG_PASSWORD)
    accepted = Accepted(user="alice", groups=("staff",), proof=PROOF, ends_at_s=5.0)
    assert mechanism.conclude(VALID) == accepted


@pytest.mark.parametrize("user", [None, ""])
def test_external_needs_a_certificate_with_a_user(user: str | None) -> None:
    mechanism = External(user, asks_groups=True)
    assert mechanism.respond(None) == refused("no verified client certificate")
    assert mechanism.respond(b"alice") == refused("no verified client certificate")
    assert mechanism.conclude(VALID) == UNASKED


def test_external_lets_name_nobody_else() -> None:
    mechanism = External("alice")
    assert mechanism.respond(b"bob") == Refused(detail=NOT_OWN_AUTHZID)
    assert mechanism.respond(b"alice") == Accepted(user="alice")
    assert External("a\ud800").respond(b"a\xed\xa0\x80") == Accepted(user="a\ud800")
    assert mechanism.conclude(VALID) == UNASKED, "nobody asks for groups here"
    assert External("alice", asks_groups=False).respond(b"") == Accepted(user="alice")


def test_external_has_the_groups_of_whom_it_asked_about() -> None:
    mechanism = External("alice", asks_groups=True)
    assert mechanism.respond(b"") == Ask(request=FetchGroups(user="alice"))
    assert mechanism.conclude(VerifyResult(is_valid=False)) == Refused(detail=UNKNOWN_USER)
    assert mechanism.conclude(TicketStep(context=None, reply=b"", offer=None)) == UNASKED
    assert mechanism.conclude(VALID) == Accepted(user="alice", groups=("staff",), proof=PROOF, ends_at_s=5.0)


def test_kerberos_keeps_what_the_verifier_says_of_the_user() -> None:
    mechanism = Gssapi()
    assert mechanism.respond(b"x" * (MAX_TICKET_BYTES + 1)) == NO_GSSAPI
    longest = b"x" * MAX_TICKET_BYTES
    assert mechanism.respond(longest) == Ask(request=CheckTicket(token=longest))
    mechanism.conclude(TicketStep(context=1, reply=b"", offer=b"layers"))
    mechanism.respond(b"none")
    assert mechanism.conclude(VerifyResult(is_valid=False)) == Refused(detail="SASL(-13): authentication failure")
    result = VerifyResult(is_valid=True, user="alice", groups=("staff",), proof=PROOF, ends_at_s=5.0)
    assert mechanism.conclude(result) == Accepted(user="alice", groups=("staff",), proof=PROOF, ends_at_s=5.0)


KEYS = ScramKeys(
    salt=b"s" * 16, iterations=4096, stored_key=b"k" * 32, server_key=b"k" * 32, is_known=True, groups=("staff",)
)
NO_SCRAM = Refused(detail="SASL(-5): bad protocol / cancel: a message that is none of SCRAM's")


@pytest.mark.parametrize(
    ("message", "step"),
    [
        (b"", NO_SCRAM),
        (b"n", NO_SCRAM),
        (b"n,", NO_SCRAM),
        (b"n,n=alice", NO_SCRAM),
        (b",,n=alice,r=x", NO_SCRAM),
        (b"\xff,,n=alice,r=x", NO_SCRAM),
        (b"n,a=alice,n=alice,r=x", Refused(detail=NOT_OWN_AUTHZID)),
        (b"n,,n=,r=x", refused("empty, unprintable or too long a user name")),
        (b"n,,r=x", refused("empty, unprintable or too long a user name")),
        (b"n,,n=a\n,r=x", refused("empty, unprintable or too long a user name")),
        (b"n,,n=" + b"a" * (MAX_USER_BYTES + 1) + b",r=x", refused("empty, unprintable or too long a user name")),
        (b"n,,n=" + b"a" * (MAX_USER_BYTES + 1024), NO_SCRAM),
        (
            b"n,,n=" + b"a" * MAX_USER_BYTES + b",r=x",
            Ask(request=FetchScramKeys(user="a" * MAX_USER_BYTES, hash_name="SHA-256")),
        ),
        (
            b"n,,n=alice,r=".ljust(MAX_USER_BYTES + 1024, b"x"),
            Ask(request=FetchScramKeys(user="alice", hash_name="SHA-256")),
        ),
    ],
)
def test_what_the_first_message_of_scram_may_be(message: bytes, step: Ask | Refused) -> None:
    assert Scram("SCRAM-SHA-256", Channel()).respond(message) == step


def test_scram_lets_nobody_in_whom_it_has_not_asked_about() -> None:
    assert Scram("SCRAM-SHA-256", Channel()).conclude(KEYS) == UNASKED
    mechanism = Scram("SCRAM-SHA-256", Channel())
    mechanism.respond(b"n,,n=alice,r=x")
    assert mechanism.respond(b"c=biws,r=x,p=eA==") == NO_SCRAM, "the keys are not there yet"
    assert isinstance(mechanism.conclude(KEYS), Challenge)
    assert mechanism.conclude(KEYS) == UNASKED


@pytest.mark.parametrize(("is_known", "why"), [(True, WRONG_PASSWORD), (False, UNKNOWN_USER)])
def test_scram_refuses_whose_proof_is_not_that_of_the_keys(is_known: bool, why: str) -> None:
    mechanism = Scram("SCRAM-SHA-256", Channel())
    mechanism.respond(b"n,,n=alice,r=x")
    step = mechanism.conclude(replace(KEYS, is_known=is_known))
    assert isinstance(step, Challenge)
    nonce = step.data.split(b",")[0]
    proof = b64encode(b"\0" * 32)
    assert mechanism.respond(b"c=biws," + nonce + b",p=" + proof) == Refused(detail=why)


@pytest.mark.parametrize(("is_known", "last"), [(True, b""), (True, None), (True, b"x"), (False, b"")])
def test_scram_has_the_groups_and_the_proof_of_its_keys(is_known: bool, last: bytes | None) -> None:
    """Attack: keys that are made up fit a proof; nobody is let in by them, whatever it says."""
    made = ScramMechanism("SCRAM-SHA-256").make_auth_info("secret", iteration_count=4096)
    keys = ScramKeys(
        salt=made[0], stored_key=made[1], server_key=made[2], iterations=made[3],
        is_known=is_known, groups=("staff",), proof=PROOF,
    )  # fmt: skip
    mechanism, peer = Scram("SCRAM-SHA-256", Channel()), ScramClient(["SCRAM-SHA-256"], "alice", "secret")
    mechanism.respond(peer.get_client_first().encode())
    step = mechanism.conclude(keys)
    assert isinstance(step, Challenge)
    peer.set_server_first(step.data.decode())
    step = mechanism.respond(peer.get_client_final().encode())
    if not is_known:
        assert step == Refused(detail=UNKNOWN_USER)
        return
    assert isinstance(step, Challenge)
    accepted = Accepted(user="alice", groups=("staff",), proof=PROOF)
    assert mechanism.respond(last) == (NO_SCRAM if last else accepted)


# The server's side


class Endless:
    """A mechanism that never comes to an end."""

    def respond(self, response: bytes | None) -> Challenge:
        return Challenge(data=b"more")

    def conclude(self, result: Any) -> Challenge:
        return Challenge(data=b"more")


def test_a_mechanism_that_never_ends_is_ended() -> None:
    """Attack: an exchange that goes on for ever holds its connection for ever."""
    negotiation = server("ENDLESS", mechanism=Endless())
    effects = negotiation.receive(init("ENDLESS"))
    for _ in range(MAX_ROUNDS - 1):
        assert [type(frame) for frame in frames_of(effects)] == [sasl_frames.Challenge]
        effects = negotiation.receive(answer(b""))
    assert [type(frame) for frame in frames_of(effects)] == [sasl_frames.Challenge]
    effects = negotiation.receive(answer(b""))
    assert frames_of(effects) == [Outcome(code=sasl_frames.OUTCOME_AUTH)]
    why = "SASL(-1): generic failure: too many challenges"
    assert effects[-1] == Rejected(
        mechanism="ENDLESS", detail=why, description=f"{why} (Failed to authenticate client [mech=ENDLESS])"
    )
    assert negotiation.receive(answer(b"")) == []


def test_a_result_that_was_not_asked_for_changes_nothing() -> None:
    negotiation = server("PLAIN")
    assert negotiation.resume(VALID) == []
    negotiation.receive(init("PLAIN"))
    assert negotiation.resume(VALID) == []
    effects = negotiation.receive(answer(PLAIN))
    assert effects == [Verify(request=CheckPassword(user="alice", password=Secret("secret")))]
    assert isinstance(negotiation.resume(VALID)[-1], Authenticated)
    assert negotiation.resume(VALID) == []


def test_frames_that_come_together_are_answered_in_their_order() -> None:
    effects = server("PLAIN").receive(init("PLAIN") + answer(PLAIN))
    assert frames_of(effects) == [sasl_frames.Challenge(challenge=b"")]
    assert isinstance(effects[-1], Verify)
    late = server("PLAIN").receive(init("PLAIN", PLAIN) + answer(b"x" * 400) * 200)
    assert [type(effect) for effect in late] == [Verify, Rejected]


@pytest.mark.parametrize(
    ("data", "mechanism", "detail"),
    [
        (frames(Response(response=b"")), None, "unexpected SASL frame response"),
        (init("PLAIN") + init("PLAIN"), "PLAIN", "unexpected SASL frame init"),
        (
            init("PLAIN", PLAIN) + b"\0" * (64 * 1024 + 1),
            "PLAIN",
            "more than 65536 bytes before authentication",
        ),
    ],
)
def test_a_frame_out_of_turn_ends_the_exchange(data: bytes, mechanism: str | None, detail: str) -> None:
    effects = server("PLAIN").receive(data)
    assert effects[-1] == Rejected(
        mechanism=mechanism, detail=detail, condition=FRAMING_ERROR, description=f"SASL protocol error: {detail}"
    )


def test_what_is_no_frame_ends_the_exchange_with_the_reason() -> None:
    negotiation = server("PLAIN")
    negotiation.receive(init("PLAIN"))
    (rejected,) = negotiation.receive(b"\0\0\0\x04\2\1\0\0")
    assert isinstance(rejected, Rejected)
    assert (rejected.mechanism, rejected.condition) == ("PLAIN", FRAMING_ERROR)
    assert rejected.detail == "SASL frame of 4 bytes with a data offset of 2 words"
    assert rejected.description == f"SASL protocol error: {rejected.detail}"
    assert negotiation.receive(b"x" * 1000) == []
    assert negotiation.pending_bytes == 0, "attack: bytes are held for whom nobody reads any more"


class Silent:
    """A mechanism that refuses without a word."""

    def respond(self, response: bytes | None) -> Refused:
        return Refused(detail="", is_compared=False)


def test_a_refusal_without_a_reason_names_the_mechanism() -> None:
    effects = server("SILENT", mechanism=Silent()).receive(init("SILENT"))
    assert frames_of(effects) == [Outcome(code=sasl_frames.OUTCOME_SYS_TEMP)]
    description = "Failed to authenticate client [mech=SILENT]"
    assert effects[-1] == Rejected(mechanism="SILENT", detail="", description=description, is_compared=False)


# The client's side


def client(**more: Any) -> ClientNegotiation:
    given: dict[str, Any] = {"username": None, "password": None, "has_certificate": False, "is_encrypted": False}
    return ClientNegotiation(**{"allowed": None, **given, **more})


def offer(*names: str) -> bytes:
    return frames(Mechanisms(names=names))


@pytest.mark.parametrize(
    ("has_certificate", "is_encrypted", "chosen"),
    [(True, True, "EXTERNAL"), (False, True, "ANONYMOUS"), (True, False, "ANONYMOUS")],
)
def test_a_client_shows_the_certificate_that_it_has(has_certificate: bool, is_encrypted: bool, chosen: str) -> None:
    negotiation = client(has_certificate=has_certificate, is_encrypted=is_encrypted)
    (frame,) = frames_of(negotiation.receive(offer("EXTERNAL", "ANONYMOUS")))
    assert frame.mechanism == chosen


def scram(signature_in: str, *, is_right: bool) -> list[SaslEffect]:
    """An exchange whose server proves itself before the outcome, with it, or not at all."""
    mechanism = ScramMechanism("SCRAM-SHA-256")
    auth = mechanism.make_auth_info("secret", iteration_count=4096)
    scram_server = mechanism.make_server(lambda _user: auth)
    negotiation = client(username="alice", password=Secret("secret"))
    (first,) = frames_of(negotiation.receive(offer("SCRAM-SHA-256")))
    scram_server.set_client_first(first.initial_response.decode())
    challenge = sasl_frames.Challenge(challenge=scram_server.get_server_first().encode())
    (question,) = negotiation.receive(frames(challenge))
    assert isinstance(question, Derive)
    (final,) = frames_of(negotiation.resume(derive(question)))
    scram_server.set_client_final(final.response.decode())
    proof = scram_server.get_server_final().encode() if is_right else b"v=" + b64encode(b"\0" * 32)
    if signature_in == "challenge":
        effects = negotiation.receive(frames(sasl_frames.Challenge(challenge=proof)))
        if isinstance(effects[-1], Rejected):
            return effects
        proof = b""
    additional = proof if signature_in == "outcome" else None
    return negotiation.receive(frames(Outcome(code=sasl_frames.OUTCOME_OK, additional_data=additional)))


@pytest.mark.parametrize("signature_in", ["challenge", "outcome"])
def test_a_server_that_proves_itself_is_believed(signature_in: str) -> None:
    assert isinstance(scram(signature_in, is_right=True)[-1], Authenticated)


@pytest.mark.parametrize(("signature_in", "is_right"), [("challenge", False), ("outcome", False), ("nowhere", True)])
def test_attack_a_server_that_does_not_know_the_password_is_not_believed(signature_in: str, is_right: bool) -> None:
    assert isinstance(scram(signature_in, is_right=is_right)[-1], Rejected)


def test_a_client_gives_out_nothing_before_the_exchange_is_over() -> None:
    negotiation = client()
    negotiation.receive(offer("ANONYMOUS") + b"\0\0")
    assert negotiation.take_rest() == b""
    negotiation.receive(frames(Outcome(code=sasl_frames.OUTCOME_OK))[2:] + b"AMQP")
    assert negotiation.take_rest() == b"AMQP"


def test_a_result_that_a_client_did_not_ask_for_changes_nothing() -> None:
    negotiation = client(username="alice", password=Secret("secret"))
    assert negotiation.resume(b"salted") == []
    negotiation.receive(offer("PLAIN"))
    assert negotiation.resume(b"salted") == []
    effects = negotiation.receive(frames(Outcome(code=sasl_frames.OUTCOME_OK)))
    assert isinstance(effects[-1], Authenticated)


class Patient:
    """A mechanism of the client that has an answer to everything."""

    name = "ANONYMOUS"

    def initial_response(self) -> bytes:
        return b""

    def answer(self, challenge: bytes) -> bytes:
        return b""


def test_a_server_that_challenges_for_ever_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: a server keeps a connector busy with one challenge after the other."""
    monkeypatch.setattr("auth.negotiation.choose", lambda *_: Patient())
    negotiation = client()
    negotiation.receive(offer("ANONYMOUS"))
    challenge = frames(sasl_frames.Challenge(challenge=b""))
    for _ in range(MAX_ROUNDS):
        assert [type(effect) for effect in negotiation.receive(challenge)] == [Reply]
    (rejected,) = negotiation.receive(challenge)
    assert isinstance(rejected, Rejected)
    assert rejected.detail == "too many challenges"


def test_a_nonce_that_makes_an_answer_too_long_ends_the_exchange() -> None:
    negotiation = client(username="alice", password=Secret("secret"))
    (first,) = frames_of(negotiation.receive(offer("SCRAM-SHA-256")))
    nonce = first.initial_response.decode().rpartition("r=")[2] + "x" * 400
    salt = b64encode(b"salt" * 4).decode()
    challenge = sasl_frames.encode(sasl_frames.Challenge(challenge=f"r={nonce},s={salt},i=4096".encode()))
    (question,) = negotiation.receive(challenge)
    assert isinstance(question, Derive)
    (rejected,) = negotiation.resume(b"s" * 32)
    assert isinstance(rejected, Rejected)
    assert rejected.detail == "SASL frame of 513 bytes, at most 512 may be sent"


def test_a_client_that_is_told_nonsense_says_which_mechanism_it_was() -> None:
    negotiation = client()
    (rejected,) = negotiation.receive(frames(Response(response=b"")))
    detail = "unexpected SASL frame response"
    description = f"SASL protocol error: {detail}"
    assert rejected == Rejected(mechanism=None, detail=detail, condition=FRAMING_ERROR, description=description)
    negotiation = client()
    negotiation.receive(offer("ANONYMOUS"))
    (rejected,) = negotiation.receive(frames(Response(response=b"")))
    assert rejected == Rejected(mechanism="ANONYMOUS", detail=detail, condition=FRAMING_ERROR, description=description)
