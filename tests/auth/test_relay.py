"""The relayed exchange, both sides in memory (docs/spec/policy-and-auth.md §9.2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auth import sasl_frames
from auth.identity import Grants, Identity
from auth.negotiation import FRAMING_ERROR, MAX_PENDING_BYTES, MAX_ROUNDS, Authenticated, Rejected, Reply
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
