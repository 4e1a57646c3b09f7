"""Both SASL machines: the exchanges that must work, and every state against every input."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auth import sasl_frames
from auth.credentials import (
    UNKNOWN_USER,
    WRONG_PASSWORD,
    CheckPassword,
    FetchGroups,
    ScramKeys,
    VerifyResult,
    unavailable,
)
from auth.identity import Identity, Proof
from auth.mechanisms import Channel
from auth.negotiation import (
    FRAMING_ERROR,
    MAX_PENDING_BYTES,
    NOT_OFFERED,
    UNAUTHORIZED,
    Authenticated,
    ClientNegotiation,
    Rejected,
    Reply,
    SaslEffect,
    ServerNegotiation,
    Verify,
)
from auth.sasl_frames import Challenge, Init, Mechanisms, Outcome, Response, SaslFrame
from auth.secrets import Secret

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
VALID = VerifyResult(is_valid=True, groups=("staff",))
WRONG = VerifyResult(is_valid=False, detail=WRONG_PASSWORD)


def server(*offered: str, external_user: str | None = None) -> ServerNegotiation:
    negotiation = ServerNegotiation(offered=offered, channel=Channel(external_user=external_user))
    negotiation.start()
    return negotiation


def client(
    allowed: list[str] | None = None,
    username: str | None = None,
    password: str | None = None,
    *,
    has_certificate: bool = False,
    is_encrypted: bool = False,
) -> ClientNegotiation:
    return ClientNegotiation(
        allowed=allowed,
        username=username,
        password=None if password is None else Secret(password),
        has_certificate=has_certificate,
        is_encrypted=is_encrypted,
    )


def init(mechanism: str, response: bytes | None = None) -> bytes:
    return sasl_frames.encode(Init(mechanism=mechanism, initial_response=response))


def frames_of(effects: list[SaslEffect]) -> list[SaslFrame]:
    reader = sasl_frames.FrameReader()
    for effect in effects:
        if isinstance(effect, Reply):
            reader.feed(effect.data)
    found = []
    while (frame := reader.next_frame()) is not None:
        found.append(frame)
    return found


def rejection(effects: list[SaslEffect]) -> Rejected:
    assert isinstance(effects[-1], Rejected), effects
    return effects[-1]


# The server -------------------------------------------------------------------------------------------------------


def test_the_offer_is_sent_in_order_and_may_be_empty() -> None:
    for offered in ((), ("PLAIN",), ("SCRAM-SHA-256", "PLAIN", "ANONYMOUS")):
        effects = ServerNegotiation(offered=offered, channel=Channel()).start()
        assert frames_of(effects) == [Mechanisms(names=offered)]


@pytest.mark.parametrize("response", [None, b"", b"anonymous@example.com", b"\xff\x00"])
def test_anonymous_is_the_user_anonymous_whatever_it_says(response: bytes | None) -> None:
    effects = server("ANONYMOUS").receive(init("ANONYMOUS", response))
    assert frames_of(effects) == [Outcome(code=0)]
    identity = Identity(user="anonymous", mechanism="ANONYMOUS", is_authenticated=True)
    assert effects[-1] == Authenticated(identity=identity)


def test_plain_is_verified_and_the_name_is_kept_with_its_domain() -> None:
    """policy 56"""
    negotiation = server("PLAIN")
    effects = negotiation.receive(init("PLAIN", b"\0test@domain.com\0secret"))
    request = CheckPassword(user="test@domain.com", password=Secret("secret"))
    assert effects == [Verify(request=request)]
    effects = negotiation.resume(VALID)
    assert frames_of(effects) == [Outcome(code=0)]
    identity = Identity(user="test@domain.com", mechanism="PLAIN", is_authenticated=True, groups=("staff",))
    assert effects[-1] == Authenticated(identity=identity)


def test_plain_without_initial_response_is_asked_for_it() -> None:
    negotiation = server("PLAIN")
    assert frames_of(negotiation.receive(init("PLAIN"))) == [Challenge(challenge=b"")]
    effects = negotiation.receive(sasl_frames.encode(Response(response=b"\0u\0p")))
    assert effects == [Verify(request=CheckPassword(user="u", password=Secret("p")))]


@pytest.mark.parametrize("detail", [WRONG_PASSWORD, UNKNOWN_USER])
def test_a_wrong_password_gets_outcome_1_and_the_log_text(detail: str) -> None:
    negotiation = server("PLAIN")
    negotiation.receive(init("PLAIN", b"\0u\0p"))
    effects = negotiation.resume(VerifyResult(is_valid=False, detail=detail))
    assert frames_of(effects) == [Outcome(code=1)]
    rejected = rejection(effects)
    assert (rejected.mechanism, rejected.condition, rejected.detail) == ("PLAIN", UNAUTHORIZED, detail)
    assert rejected.description == f"{detail} (Failed to authenticate client [mech=PLAIN])"
    assert rejected.is_compared


def test_where_nothing_was_compared_the_outcome_says_that_it_may_do_another_time() -> None:
    negotiation = server("PLAIN")
    negotiation.receive(init("PLAIN", b"\0u\0p"))
    effects = negotiation.resume(unavailable("too many"))
    assert frames_of(effects) == [Outcome(code=4)]
    rejected = rejection(effects)
    assert not rejected.is_compared
    assert rejected.description == "verifier unavailable: too many (Failed to authenticate client [mech=PLAIN])"


@pytest.mark.parametrize(
    "response",
    [
        b"\0user\0",
        b"\0\0password",
        b"\0\0",
        b"",
        b"user\0password",
        b"\0user\0pass\0word",
        b"\0user",
        b"\0\xff\0password",
        b"\0user\0\xff",
        b"admin\0user\0password",
        b"\0us\ner\0password",
        b"\0us\x1b[2Jer\0password",
        "\0us\u202eer\0password".encode(),
        b"\0" + b"u" * 1025 + b"\0password",
        b"\0user\0" + b"p" * 4097,
    ],
)
def test_a_bad_plain_response_never_reaches_a_verifier(response: bytes) -> None:
    """Among them: empty password (LDAP's anonymous bind), another's authzid, log injection, megabytes to hash."""
    large = framed_init(b"PLAIN", response)
    effects = server("PLAIN").receive(large)
    assert not any(isinstance(effect, Verify) for effect in effects)
    assert frames_of(effects) == [Outcome(code=1)]
    assert rejection(effects).mechanism == "PLAIN"
    assert rejection(effects).detail.isprintable()


def framed_init(mechanism: bytes, response: bytes) -> bytes:
    """An init of any size, which the encoder would not write."""
    fields = b"\xa3" + bytes((len(mechanism),)) + mechanism + b"\xb0" + len(response).to_bytes(4, "big") + response
    content = (2).to_bytes(4, "big") + fields
    body = b"\x00\x53\x41\xd0" + len(content).to_bytes(4, "big") + content
    return (8 + len(body)).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body


def test_an_own_authzid_is_accepted() -> None:
    effects = server("PLAIN").receive(init("PLAIN", b"user\0user\0p"))
    assert effects == [Verify(request=CheckPassword(user="user", password=Secret("p")))]


@pytest.mark.parametrize("response", [None, b"", b"CN=alice"])
def test_external_is_the_certificate_s_user(response: bytes | None) -> None:
    effects = server("EXTERNAL", external_user="CN=alice").receive(init("EXTERNAL", response))
    identity = Identity(user="CN=alice", mechanism="EXTERNAL", is_authenticated=True)
    assert effects[-1] == Authenticated(identity=identity)


def test_external_with_another_s_authzid_is_refused() -> None:
    effects = server("EXTERNAL", external_user="CN=alice").receive(init("EXTERNAL", b"CN=admin"))
    assert frames_of(effects) == [Outcome(code=1)]
    assert rejection(effects).mechanism == "EXTERNAL"


@pytest.mark.parametrize("user", [None, ""])
def test_external_without_a_certificate_is_refused_even_if_it_was_offered(user: str | None) -> None:
    effects = server("EXTERNAL", external_user=user).receive(init("EXTERNAL", b""))
    assert frames_of(effects) == [Outcome(code=1)]


def asked_about_alice() -> ServerNegotiation:
    """Where an authenticator has the groups of certificates' users; it is asked, and nothing is decided."""
    negotiation = ServerNegotiation(offered=["EXTERNAL"], channel=Channel(external_user="alice", asks_groups=True))
    negotiation.start()
    assert negotiation.receive(init("EXTERNAL", b"")) == [Verify(request=FetchGroups(user="alice"))]
    return negotiation


def test_a_certificate_s_user_has_the_groups_of_the_authenticator() -> None:
    proof = Proof(verifier="staff", user="alice", value="x")
    effects = asked_about_alice().resume(VerifyResult(is_valid=True, groups=("staff",), proof=proof, ends_at_s=7.0))
    assert effects[-1] == Authenticated(
        identity=Identity(
            user="alice", mechanism="EXTERNAL", is_authenticated=True, groups=("staff",), proof=proof, ends_at_s=7.0
        )
    )


def test_a_certificate_s_user_whom_the_authenticator_does_not_know_is_refused() -> None:
    effects = asked_about_alice().resume(VerifyResult(is_valid=False))
    assert frames_of(effects) == [Outcome(code=1)]
    assert rejection(effects).detail == UNKNOWN_USER


def test_without_the_authenticator_s_answer_a_certificate_lets_nobody_in() -> None:
    """Fail closed: without groups the policy would decide as for somebody else."""
    effects = asked_about_alice().resume(unavailable("down"))
    assert frames_of(effects) == [Outcome(code=4)]
    assert not rejection(effects).is_compared
    keys = ScramKeys(salt=b"", iterations=1, stored_key=b"", server_key=b"", is_known=True)
    assert frames_of(asked_about_alice().resume(keys)) == [Outcome(code=1)]


def test_another_s_authzid_is_not_asked_about() -> None:
    negotiation = ServerNegotiation(offered=["EXTERNAL"], channel=Channel(external_user="alice", asks_groups=True))
    negotiation.start()
    assert frames_of(negotiation.receive(init("EXTERNAL", b"admin"))) == [Outcome(code=1)]


@pytest.mark.parametrize("mechanism", ["ANONYMOUS", "GSSAPI", "EXTERNAL"])
def test_a_mechanism_that_was_not_offered_is_refused(mechanism: str) -> None:
    """policy 53, 55: ANONYMOUS too, when it is not on the list."""
    effects = server("PLAIN", external_user="CN=alice").receive(init(mechanism, b""))
    assert frames_of(effects) == [Outcome(code=1)]
    rejected = rejection(effects)
    assert rejected.detail == NOT_OFFERED
    assert rejected.description == f"{NOT_OFFERED} (Failed to authenticate client [mech={mechanism}])"


def test_a_mechanism_name_cannot_forge_a_log_line() -> None:
    effects = server("PLAIN").receive(init("X\nSERVER (info) all is well", b""))
    assert rejection(effects).mechanism is None
    assert rejection(effects).description.endswith("[mech=none])")


def test_an_offered_name_we_have_no_mechanism_for_is_refused() -> None:
    effects = server("DIGEST-MD5").receive(init("DIGEST-MD5", b""))
    assert rejection(effects).detail == NOT_OFFERED


def test_bytes_during_verification_wait_and_those_after_it_are_handed_on() -> None:
    negotiation = server("PLAIN")
    negotiation.receive(init("PLAIN", b"\0u\0p") + AMQP_HEADER[:3])
    assert negotiation.receive(AMQP_HEADER[3:] + b"open") == []
    assert negotiation.take_rest() == b""
    negotiation.resume(VALID)
    assert negotiation.take_rest() == AMQP_HEADER + b"open"
    assert negotiation.receive(b"more") == []
    assert negotiation.take_rest() == b"more"


def test_a_flood_during_verification_is_refused() -> None:
    """Attack: fill memory while the verifier works."""
    negotiation = server("PLAIN")
    negotiation.receive(init("PLAIN", b"\0u\0p"))
    assert negotiation.receive(b"x" * MAX_PENDING_BYTES) == []
    assert rejection(negotiation.receive(b"x")).condition == FRAMING_ERROR
    assert negotiation.resume(VALID) == []
    assert negotiation.take_rest() == b""


def test_bytes_before_the_start_wait_for_it() -> None:
    negotiation = ServerNegotiation(offered=["ANONYMOUS"], channel=Channel())
    assert negotiation.receive(init("ANONYMOUS")) == []
    effects = negotiation.start()
    assert frames_of(effects) == [Mechanisms(names=("ANONYMOUS",)), Outcome(code=0)]
    assert negotiation.start() == []


def test_an_answer_nobody_asked_for_authenticates_nobody() -> None:
    assert server("PLAIN").resume(VALID) == []
    negotiation = server("PLAIN")
    negotiation.receive(init("PLAIN", b"\0u\0p"))
    negotiation.resume(WRONG)
    assert negotiation.resume(VALID) == []


def test_a_failed_negotiation_ignores_what_follows() -> None:
    negotiation = server("PLAIN")
    negotiation.receive(init("GSSAPI"))
    assert negotiation.receive(init("PLAIN", b"\0u\0p")) == []
    assert negotiation.take_rest() == b""


# The client -------------------------------------------------------------------------------------------------------


def offer(*names: str) -> bytes:
    return sasl_frames.encode(Mechanisms(names=names))


@pytest.mark.parametrize(
    ("negotiation", "offered", "chosen"),
    [
        (client(), ("PLAIN", "ANONYMOUS"), Init(mechanism="ANONYMOUS", initial_response=b"anonymous")),
        (client(None, "u", "p"), ("ANONYMOUS", "PLAIN"), Init(mechanism="PLAIN", initial_response=b"\0u\0p")),
        (client(["plain"], "u", "p"), ("PLAIN",), Init(mechanism="PLAIN", initial_response=b"\0u\0p")),
        (
            client(["ANONYMOUS"], "u", "p"),
            ("ANONYMOUS", "PLAIN"),
            Init(mechanism="ANONYMOUS", initial_response=b"anonymous"),
        ),
        (
            client(None, "u", "p", has_certificate=True, is_encrypted=True),
            ("PLAIN", "EXTERNAL"),
            Init(mechanism="EXTERNAL", initial_response=b""),
        ),
        (
            client(None, "u", "p", has_certificate=True),
            ("PLAIN", "EXTERNAL"),
            Init(mechanism="PLAIN", initial_response=b"\0u\0p"),
        ),
    ],
)
def test_the_client_chooses_the_strongest_it_can_carry_through(
    negotiation: ClientNegotiation, offered: tuple[str, ...], chosen: Init
) -> None:
    assert negotiation.start() == []
    assert frames_of(negotiation.receive(offer(*offered))) == [chosen]


@pytest.mark.parametrize(
    ("negotiation", "offered"),
    [
        (client(), ()),
        (client(), ("PLAIN",)),
        (client(None, "u"), ("PLAIN",)),
        (client(None, "u", ""), ("PLAIN",)),
        (client(["PLAIN"], "u", "p"), ("ANONYMOUS",)),
        (client([], "u", "p"), ("ANONYMOUS", "PLAIN")),
        (client(), ("GSSAPI", "EXTERNAL")),
    ],
)
def test_no_common_mechanism_fails_with_mech_none(negotiation: ClientNegotiation, offered: tuple[str, ...]) -> None:
    """policy 55"""
    effects = negotiation.receive(offer(*offered))
    assert [type(effect) for effect in effects] == [Rejected]
    assert rejection(effects).description == "Authentication failed [mech=none]"
    assert rejection(effects).condition == UNAUTHORIZED


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (1, "Authentication failed [mech=PLAIN]"),
        (2, "the server could not check the login (Authentication failed [mech=PLAIN])"),
        (
            3,
            "the server cannot check logins until its operator has changed something"
            " (Authentication failed [mech=PLAIN])",
        ),
        (4, "the server cannot check logins at present: try again later (Authentication failed [mech=PLAIN])"),
    ],
)
def test_failed_login_says_whether_the_password_was_judged(code: int, text: str) -> None:
    """policy 57: an outage of the server's directory does not look like a wrong password."""
    negotiation = client(None, "u", "p")
    negotiation.receive(offer("PLAIN"))
    rejected = rejection(negotiation.receive(sasl_frames.encode(Outcome(code=code))))
    assert f"{rejected.condition} {rejected.description}" == f"amqp:unauthorized-access {text}"


def test_success_names_the_user_and_hands_on_what_follows() -> None:
    negotiation = client(None, "u", "p")
    negotiation.receive(offer("PLAIN"))
    assert negotiation.take_rest() == b""
    effects = negotiation.receive(sasl_frames.encode(Outcome(code=0)) + AMQP_HEADER)
    assert effects == [Authenticated(identity=Identity(user="u", mechanism="PLAIN", is_authenticated=True))]
    assert negotiation.take_rest() == AMQP_HEADER


def test_an_outcome_before_the_choice_is_no_success() -> None:
    assert rejection(client(None, "u", "p").receive(sasl_frames.encode(Outcome(code=0)))).condition == FRAMING_ERROR


@pytest.mark.parametrize(("username", "password"), [("u\0admin", "p"), ("u", "p\0"), ("\udc80", "p"), ("u", "p" * 600)])
def test_credentials_that_plain_cannot_carry_are_not_sent(username: str, password: str) -> None:
    effects = client(None, username, password).receive(offer("PLAIN"))
    assert [type(effect) for effect in effects] == [Rejected]


def test_no_effect_prints_a_password() -> None:
    assert "hunter2" not in repr(client(None, "u", "hunter2").receive(offer("PLAIN")))
    assert "hunter2" not in repr(server("PLAIN").receive(init("PLAIN", b"\0u\0hunter2")))


# Both -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 2, 7, 1000])
def test_client_and_server_understand_each_other_in_pieces(step: int) -> None:
    ours = ServerNegotiation(offered=["PLAIN", "ANONYMOUS"], channel=Channel())
    theirs = client(None, "alice@example.com", "correct horse")
    to_client = b"".join(effect.data for effect in ours.start() if isinstance(effect, Reply))
    results: list[SaslEffect] = []
    while to_client:
        to_server = b""
        for start in range(0, len(to_client), step):
            effects = theirs.receive(to_client[start : start + step])
            results += [effect for effect in effects if not isinstance(effect, Reply)]
            to_server += b"".join(effect.data for effect in effects if isinstance(effect, Reply))
        to_client = b""
        for start in range(0, len(to_server), step):
            effects = ours.receive(to_server[start : start + step])
            if any(isinstance(effect, Verify) for effect in effects):
                effects = ours.resume(VALID)
            results += [effect for effect in effects if not isinstance(effect, Reply)]
            to_client += b"".join(effect.data for effect in effects if isinstance(effect, Reply))
    assert [type(result) for result in results] == [Authenticated, Authenticated]


INPUTS = st.one_of(
    st.sampled_from(
        [
            init("PLAIN", b"\0u\0p"),
            init("PLAIN"),
            init("plain", b"\0u\0"),
            init("ANONYMOUS"),
            init("EXTERNAL", b""),
            init("EXTERNAL", b"root"),
            init("GSSAPI", b"x"),
            offer("PLAIN", "ANONYMOUS"),
            offer(),
            sasl_frames.encode(Challenge(challenge=b"")),
            sasl_frames.encode(Response(response=b"\0u\0p")),
            sasl_frames.encode(Response(response=b"")),
            sasl_frames.encode(Outcome(code=0)),
            sasl_frames.encode(Outcome(code=1)),
            AMQP_HEADER,
            b"\x00" * 8,
            b"x" * (MAX_PENDING_BYTES + 1),
            b"",
        ]
    ),
    st.binary(max_size=40),
)
ACTIONS = st.lists(st.one_of(INPUTS, st.sampled_from([VALID, WRONG, None])), max_size=8)


@pytest.mark.slow
@settings(max_examples=400)
@given(ACTIONS, st.sampled_from([None, "CN=alice"]))
def test_server_every_state_meets_every_input(actions: list[bytes | VerifyResult | None], user: str | None) -> None:
    """Never an exception; one ending at most; nothing after it; success only by a valid answer to our own question."""
    negotiation = ServerNegotiation(offered=["EXTERNAL", "PLAIN"], channel=Channel(external_user=user))
    is_over, is_asked = False, False
    for action in actions:
        if action is None:
            effects = negotiation.start()
        elif isinstance(action, bytes):
            effects = negotiation.receive(action)
        else:
            effects = negotiation.resume(action)
        if is_over:
            assert effects == []
        for effect in effects:
            assert not is_over
            if isinstance(effect, Authenticated):
                if effect.identity.mechanism == "PLAIN":
                    assert is_asked
                    assert action == VALID
                else:
                    assert effect.identity == Identity(user="CN=alice", mechanism="EXTERNAL", is_authenticated=True)
            is_asked = is_asked or isinstance(effect, Verify)
            is_over = isinstance(effect, Authenticated | Rejected)
        assert is_over or negotiation._reader.pending_bytes <= MAX_PENDING_BYTES


@settings(max_examples=400)
@given(st.lists(INPUTS, max_size=8), st.booleans())
def test_client_every_state_meets_every_input(actions: list[bytes], has_password: bool) -> None:
    """Never an exception; one ending at most; nothing after it; success only after a choice of ours."""
    negotiation = client(None, "u" if has_password else None, "p" if has_password else None)
    is_over, has_chosen = False, False
    for action in actions:
        effects = negotiation.receive(action)
        if is_over:
            assert effects == []
        for effect in effects:
            assert not is_over
            has_chosen = has_chosen or isinstance(effect, Reply)
            is_over = isinstance(effect, Authenticated | Rejected)
            assert has_chosen or not isinstance(effect, Authenticated)
