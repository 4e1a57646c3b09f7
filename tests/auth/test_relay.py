"""The relayed exchange, both sides in memory (docs/spec/policy-and-auth.md §9.2)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auth import sasl_frames
from auth.identity import Grants, Identity
from auth.negotiation import (
    FRAMING_ERROR,
    MAX_PENDING_BYTES,
    MAX_ROUNDS,
    NOT_OFFERED,
    TOO_MUCH,
    Authenticated,
    Rejected,
    Reply,
    framing_fault,
)
from auth.relay import MAX_RELAYED_BYTES, Forward, RelayedNegotiation, RelayEffect, ServiceFailed, Voucher

INIT = sasl_frames.encode(sasl_frames.Init(mechanism="PLAIN", initial_response=b"\0alice\0secret"))
OK = sasl_frames.encode(sasl_frames.Outcome(code=0))
REFUSED = sasl_frames.encode(sasl_frames.Outcome(code=1))


def negotiation(*, allowed: frozenset[str] | None = None, without: tuple[str, ...] = ()) -> RelayedNegotiation:
    return RelayedNegotiation(allowed=allowed, without=without, realm="REALM")


def forwarded(made: RelayedNegotiation) -> RelayedNegotiation:
    """The client's PLAIN is with the service."""
    made.offer(("PLAIN",))
    (effect,) = made.receive(INIT)
    assert isinstance(effect, Forward)
    return made


def replies(effects: list[RelayEffect]) -> bytes:
    return b"".join(effect.data for effect in effects if isinstance(effect, Reply))


def rejection(effects: list[RelayEffect]) -> Rejected:
    (found,) = (effect for effect in effects if isinstance(effect, Rejected))
    assert found is effects[-1]
    return found


def test_what_comes_early_waits_for_the_offer() -> None:
    made = negotiation()
    assert made.receive(INIT + b"AMQP") == []
    offer, forward = made.offer(("PLAIN",))
    assert isinstance(offer, Reply)
    assert forward == Forward(
        frame=sasl_frames.Init(mechanism="PLAIN", initial_response=b"\0alice\0secret", hostname="REALM")
    )
    assert "secret" not in repr(forward)
    assert made.claimed_user == "alice"
    grants = Grants(sources=("s",), targets=("t",))
    effects = made.vouch(Voucher(user="alice@r", groups=("g",), grants=grants))
    assert replies(effects) == OK
    identity = Identity(user="alice@r", mechanism="PLAIN", is_authenticated=True, groups=("g",), grants=grants)
    assert effects[-1] == Authenticated(identity=identity)
    assert made.take_rest() == b"AMQP"


def test_more_than_may_wait_is_refused() -> None:
    """Attack: bytes without end while a service is slow."""
    made = negotiation()
    assert made.receive(INIT * 3) == []
    found = rejection(made.receive(b"x" * MAX_PENDING_BYTES))
    assert found.condition == FRAMING_ERROR
    assert made.pending_bytes == 0
    assert made.receive(b"x") == []


@pytest.mark.parametrize("code", [1, 2, 3, 4])
def test_the_client_hears_auth_whatever_the_code_was(code: int) -> None:
    """Policy 64. What was not compared counts against nobody."""
    effects = forwarded(negotiation()).refuse(code)
    assert replies(effects) == REFUSED
    assert rejection(effects).is_compared is (code == 1)


def test_a_service_that_fails_says_nothing_about_the_password() -> None:
    for made in (negotiation(), forwarded(negotiation())):
        effects = made.fail("it broke")
        assert effects[0] == ServiceFailed(why="it broke")
        assert not rejection(effects).is_compared
        assert made.fail("again") == []
        assert made.vouch(Voucher(user="root")) == []


def test_nobody_is_vouched_for_before_it_has_shown_anything() -> None:
    made = negotiation()
    assert not rejection(made.vouch(Voucher(user="root"))).is_compared
    made = negotiation()
    made.offer(("PLAIN",))
    assert not rejection(made.vouch(Voucher(user="root"))).is_compared


def test_rounds_and_bytes_are_bounded() -> None:
    response = sasl_frames.encode(sasl_frames.Response(response=b"r"))
    made = negotiation()
    made.offer(("X",))
    made.receive(sasl_frames.encode(sasl_frames.Init(mechanism="X")))
    for _ in range(MAX_ROUNDS):
        made.challenge(b"c")
        made.receive(response)
    assert isinstance(made.challenge(b"c")[0], ServiceFailed)
    made = negotiation()
    made.offer(("X",))
    large = sasl_frames.encode(sasl_frames.Response(response=b"r" * 60_000), 1 << 16)
    made.receive(sasl_frames.encode(sasl_frames.Init(mechanism="X")))
    sent = 0
    while not made.is_over:
        made.challenge(b"")
        sent += sum(isinstance(effect, Forward) for effect in made.receive(large))
    assert sent * 60_000 <= MAX_RELAYED_BYTES


def test_the_listener_and_the_channel_filter_the_offer() -> None:
    offered = ("scram-sha-256", "SCRAM-SHA-256-PLUS", "EXTERNAL", "GSSAPI", "PLAIN", "PLAIN", "ANONYMOUS", "a b")
    names = ("SCRAM-SHA-256", "PLAIN", "ANONYMOUS")
    assert replies(negotiation().offer(offered)) == sasl_frames.encode(sasl_frames.Mechanisms(names=names))
    few = negotiation(allowed=frozenset({"PLAIN", "ANONYMOUS", "EXTERNAL"}), without=("ANONYMOUS",))
    assert replies(few.offer(offered)) == sasl_frames.encode(sasl_frames.Mechanisms(names=("PLAIN",)))
    assert rejection(few.receive(sasl_frames.encode(sasl_frames.Init(mechanism="EXTERNAL")))).mechanism == "EXTERNAL"


# Word for word: what the log says, what the client is told, and the bounds themselves

NOTHING_OFFERED = sasl_frames.encode(sasl_frames.Mechanisms(names=()))
RESPONSE = sasl_frames.Response(response=b"r")


def said(text: bytes, mechanism: str) -> bytes:
    return sasl_frames.encode(sasl_frames.Init(mechanism=mechanism, initial_response=text), 1 << 18)


def asked(mechanism: str = "X") -> RelayedNegotiation:
    """The client has chosen a mechanism that begins with a message of the service's."""
    made = negotiation()
    made.offer((mechanism,))
    (effect,) = made.receive(sasl_frames.encode(sasl_frames.Init(mechanism=mechanism)))
    assert effect == Forward(frame=sasl_frames.Init(mechanism=mechanism, hostname="REALM"))
    return made


def test_an_exchange_of_several_rounds_passes_unchanged() -> None:
    made = asked()
    assert made.claimed_user is None
    for challenge in (b"one", b"x" * 3000):
        assert made.challenge(challenge) == [
            Reply(data=sasl_frames.encode(sasl_frames.Challenge(challenge=challenge), 1 << 16))
        ]
        assert made.receive(sasl_frames.encode(RESPONSE)) == [Forward(frame=RESPONSE)]
    assert made.claimed_user is None
    success, authenticated = made.vouch(Voucher(user="u"))
    assert success == Reply(data=OK)
    assert authenticated == Authenticated(identity=Identity(user="u", mechanism="X", is_authenticated=True))


def test_what_the_client_sends_early_stays_where_it_is_until_it_is_in() -> None:
    made = forwarded(negotiation())
    made.receive(b"AMQP")
    assert made.take_rest() == b""
    assert made.pending_bytes == 4
    made.vouch(Voucher(user="alice"))
    assert made.take_rest() == b"AMQP"
    made = forwarded(negotiation())
    made.receive(b"AMQP")
    made.refuse(1)
    assert (made.take_rest(), made.pending_bytes) == (b"", 0)


def test_an_offer_may_be_longer_than_the_frames_of_sasl() -> None:
    names = tuple(f"MECHANISM-{number}" for number in range(100))
    (reply,) = negotiation().offer(names)
    assert reply == Reply(data=sasl_frames.encode(sasl_frames.Mechanisms(names=names), 1 << 16))


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (OK, "unexpected SASL frame outcome"),
        (sasl_frames.encode(RESPONSE), "unexpected SASL frame response"),
        (b"\0\1\0\1\2\1\0\0", "SASL frame of 65537 bytes, at most 65536 are accepted"),
    ],
)
def test_a_client_that_does_not_keep_to_sasl_is_refused_with_the_reason(data: bytes, detail: str) -> None:
    made = negotiation()
    made.offer(("X",))
    assert made.receive(data) == [framing_fault(None, detail)]
    assert (made.is_over, made.pending_bytes) == (True, 0)
    begun = asked()
    begun.challenge(b"c")
    unexpected = data if data != sasl_frames.encode(RESPONSE) else INIT
    assert begun.receive(unexpected) == [framing_fault("X", detail.replace("response", "init"))]


def test_as_much_may_wait_as_the_limit_and_no_more() -> None:
    made = negotiation()
    assert made.receive(b"x" * MAX_PENDING_BYTES) == []
    assert made.receive(b"x") == [framing_fault(None, TOO_MUCH)]
    made = negotiation()
    made.offer(("PLAIN",))
    forward, rejected = made.receive(INIT + b"x" * (MAX_PENDING_BYTES + 1))
    assert isinstance(forward, Forward)
    assert rejected == framing_fault("PLAIN", TOO_MUCH)


@pytest.mark.parametrize(
    ("mechanism", "known", "named"), [("NONSENSE", "NONSENSE", "NONSENSE"), ("a\nb", None, "none")]
)
def test_a_mechanism_that_was_not_offered_is_named_only_if_it_is_a_name(
    mechanism: str, known: str | None, named: str
) -> None:
    """Attack: a name that forges a line of the log."""
    made = negotiation()
    made.offer(("PLAIN",))
    reply, rejected = made.receive(sasl_frames.encode(sasl_frames.Init(mechanism=mechanism)))
    assert reply == Reply(data=REFUSED)
    assert rejected == Rejected(
        mechanism=known,
        detail=NOT_OFFERED,
        description=f"{NOT_OFFERED} (Failed to authenticate client [mech={named}])",
        is_compared=True,
    )


def test_an_empty_password_reaches_no_service() -> None:
    """Attack: an anonymous bind to an LDAP server, which "succeeds"."""
    made = negotiation()
    made.offer(("PLAIN",))
    effects = made.receive(said(b"\0alice\0", "PLAIN"))
    assert not any(isinstance(effect, Forward) for effect in effects)
    found = rejection(effects)
    assert found.detail
    assert found.description == f"{found.detail} (Failed to authenticate client [mech=PLAIN])"
    assert made.claimed_user is None


def test_a_client_may_send_so_many_bytes_and_no_more() -> None:
    for size, is_refused in ((MAX_RELAYED_BYTES, False), (MAX_RELAYED_BYTES + 1, True)):
        made = asked()
        for piece in (60_000, 60_000, size - 120_000):
            made.challenge(b"")
            effects = made.receive(sasl_frames.encode(sasl_frames.Response(response=b"r" * piece), 1 << 16))
        assert any(isinstance(effect, Rejected) for effect in effects) is is_refused
    detail = f"more than {MAX_RELAYED_BYTES} bytes for the authentication service"
    assert rejection(effects).detail == detail


def test_a_service_may_send_so_many_bytes_and_no_more() -> None:
    """Attack: a service that pours bytes into its clients, in steps that are each small enough."""
    for size, is_failed in ((MAX_RELAYED_BYTES, False), (MAX_RELAYED_BYTES + 1, True)):
        made = asked()
        for piece in (60_000, 60_000, size - 120_000):
            effects = made.challenge(b"c" * piece)
            made.receive(sasl_frames.encode(RESPONSE))
        assert made.is_over is is_failed
    assert effects[0] == ServiceFailed(why=f"the service sent more than {MAX_RELAYED_BYTES} bytes")


FIRST = b"n,,n=alice,r=abcdefgh"


def test_the_user_that_a_client_of_scram_says_it_is() -> None:
    made = negotiation()
    made.offer(("SCRAM-SHA-256", "X"))
    made.receive(said(FIRST, "SCRAM-SHA-256"))
    assert made.claimed_user == "alice"
    made.challenge(b"c")
    final = sasl_frames.Response(response=b"c=biws,r=abc,n=bob,n=bob")
    assert made.receive(sasl_frames.encode(final)) == [Forward(frame=final)]
    assert made.claimed_user == "alice"
    late = asked("SCRAM-SHA-256")
    assert late.claimed_user is None
    late.challenge(b"")
    late.receive(sasl_frames.encode(sasl_frames.Response(response=FIRST)))
    assert late.claimed_user == "alice"
    other = negotiation()
    other.offer(("X",))
    other.receive(said(FIRST, "X"))
    assert other.claimed_user is None


def test_a_service_out_of_turn_is_told_to_the_log_and_the_client_hears_no() -> None:
    voucher = Voucher(user="root")
    cases: Any = (
        (lambda: forwarded(negotiation()), lambda made: made.offer(("PLAIN",)), "offered mechanisms a second time"),
        (negotiation, lambda made: made.challenge(b"c"), "sent a challenge out of turn"),
        (negotiation, lambda made: made.refuse(1), "sent an outcome out of turn"),
        (negotiation, lambda made: made.vouch(voucher), "vouched for nobody"),
    )
    for make, ask, why in cases:
        made = make()
        failed, *replied, rejected = ask(made)
        assert failed == ServiceFailed(why=f"the service {why}")
        offer = NOTHING_OFFERED if made._mechanism is None else b""
        assert replies(list(replied)) == offer + REFUSED
        assert rejected == Rejected(
            mechanism=made._mechanism,
            detail="",
            description=f"Failed to authenticate client [mech={made._mechanism or 'none'}]",
            is_compared=False,
        )


def test_too_many_challenges_are_said() -> None:
    made = asked()
    for _ in range(MAX_ROUNDS):
        made.challenge(b"c")
        made.receive(sasl_frames.encode(RESPONSE))
    assert made.challenge(b"c")[0] == ServiceFailed(why="the service sent too many challenges")


def test_a_service_that_refuses_says_nothing_more() -> None:
    found = rejection(forwarded(negotiation()).refuse(1))
    assert (found.detail, found.description) == ("", "Failed to authenticate client [mech=PLAIN]")
    assert (found.mechanism, found.is_compared) == ("PLAIN", True)


def test_a_client_that_the_router_declines_hears_no_and_nothing_counts_against_it() -> None:
    made = forwarded(negotiation())
    reply, rejected = made.decline("too many wait")
    assert reply == Reply(data=REFUSED)
    assert rejected == Rejected(
        mechanism="PLAIN",
        detail="too many wait",
        description="too many wait (Failed to authenticate client [mech=PLAIN])",
        is_compared=False,
    )
    assert made.vouch(Voucher(user="alice")) == []
    assert made.decline("again") == []
    done = forwarded(negotiation())
    done.vouch(Voucher(user="alice"))
    assert done.decline("late") == []


FRAMES = st.sampled_from(
    [
        INIT,
        OK,
        REFUSED,
        sasl_frames.encode(sasl_frames.Init(mechanism="X", initial_response=b"")),
        sasl_frames.encode(sasl_frames.Response(response=b"r")),
        sasl_frames.encode(sasl_frames.Challenge(challenge=b"c")),
        sasl_frames.encode(sasl_frames.Mechanisms(names=("X",))),
        b"\0\0\0\x08\x02\x01\0\0",
    ]
)
STEPS = st.one_of(
    st.tuples(st.just("receive"), st.one_of(FRAMES, st.binary(max_size=40))),
    st.tuples(st.just("offer"), st.lists(st.sampled_from(["X", "PLAIN", "EXTERNAL", ""]), max_size=3)),
    st.tuples(st.just("challenge"), st.binary(max_size=20)),
    st.tuples(st.just("refuse"), st.integers(1, 4)),
    st.tuples(st.just("fail"), st.text(max_size=5)),
    st.tuples(st.just("vouch"), st.just(Voucher(user="root"))),
)


@given(st.lists(STEPS, max_size=25))
def test_in_any_order_nobody_comes_in_who_has_not_shown_anything(steps: list[tuple[str, object]]) -> None:
    """Whatever both sides say, nothing raises, and success is the service's word on something the client has sent."""
    made = negotiation()
    waits_for_service = False
    for name, argument in steps:
        was_over = made.is_over
        effects = getattr(made, name)(argument)
        if any(isinstance(effect, Authenticated) for effect in effects):
            assert name == "vouch"
            assert waits_for_service
        assert not was_over or name == "receive" or effects == []
        if name != "receive":
            waits_for_service = False
        waits_for_service = waits_for_service or any(isinstance(effect, Forward) for effect in effects)
        assert made.pending_bytes <= MAX_PENDING_BYTES or made.is_over
