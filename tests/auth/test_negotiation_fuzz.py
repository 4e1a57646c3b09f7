"""Whole server negotiations against a peer that knows everything but alice's password: nobody becomes alice.

The peer has an account of its own (mallory), has seen alice log in, and says anything in any order: honest messages,
some of another exchange or another user, pieces of them, noise. Spec: docs/spec/policy-and-auth.md §8.1, §8.6.
"""

import os
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scramp import ScramClient, ScramException

from auth.identity import Identity
from auth.installed import create_server_mechanism
from auth.mechanisms import Channel
from auth.negotiation import (
    MAX_PENDING_BYTES,
    MAX_ROUNDS,
    Authenticated,
    Rejected,
    Reply,
    SaslEffect,
    ServerNegotiation,
    Verify,
)
from auth.sasl_frames import Challenge, FrameReader, Init, Response, SaslFrameError, encode
from auth.secrets import Secret
from auth.verifiers.files import UserFileVerifier, set_user
from auth.verifiers.hashes import Argon2idCost

CHEAP = Argon2idCost(memory_kib=8, iterations=1, lanes=1)
ALICES, MALLORYS = "alice's own", "mallory's own"
SCRAMS = tuple(f"SCRAM-{name}{plus}" for name in ("SHA-512", "SHA-256", "SHA-1") for plus in ("-PLUS", ""))
OFFERED = (*SCRAMS, "EXTERNAL", "PLAIN", "OAUTHBEARER", "XOAUTH2", "ANONYMOUS")
END_POINT = b"\x07" * 32
CHANNELS = (
    Channel(),
    Channel(is_encrypted=True, binding=lambda kind: END_POINT if kind == "tls-server-end-point" else None),
    Channel(is_encrypted=True, has_certificate=True, external_user="carol"),
    Channel(is_encrypted=True, has_certificate=True),
)
MAX_REPLIES_BYTES = MAX_ROUNDS * 4096
# What the peer may know: users, with passwords that are not alice's.
LOGINS = (
    ("alice", "perhaps"),
    ("mallory", MALLORYS),
    ("mallory", "perhaps"),
    ("nobody", MALLORYS),
    ("alice", MALLORYS),
)


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> UserFileVerifier:
    path = str(tmp_path_factory.mktemp("users") / "users")
    for user, password in (("alice", ALICES), ("mallory", MALLORYS)):
        scram = ("SHA-256", "SHA-512", "SHA-1")
        set_user(path, user, Secret(password), cost=CHEAP, scram=scram, must_exist=False)
    return UserFileVerifier(path)


@dataclass
class Exchange:
    """A server, and what it has said and decided."""

    verifier: UserFileVerifier
    channel: Channel
    identity: Identity | None = None
    rejections: int = 0
    questions: int = 0
    replied: bytes = b""
    challenges: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.server = ServerNegotiation(offered=OFFERED, channel=self.channel)
        self._reader = FrameReader()
        self._follow(self.server.start())

    def say(self, data: bytes) -> None:
        self._follow(self.server.receive(data))
        assert self.identity is not None or self.server.pending_bytes <= MAX_PENDING_BYTES + len(data)

    def _follow(self, effects: list[SaslEffect]) -> None:
        for effect in effects:
            match effect:
                case Reply(data=data):
                    assert not self.rejections
                    self.replied += data
                    self._read(data)
                case Verify(request=request):
                    self.questions += 1
                    self._follow(self.server.resume(self.verifier.verify(request)))
                case Authenticated(identity=identity):
                    assert self.identity is None
                    self.identity = identity
                case Rejected():
                    self.rejections += 1
        assert self.rejections <= 1
        assert self.rejections == 0 or self.identity is None
        assert self.questions <= 1
        assert len(self.replied) <= MAX_REPLIES_BYTES

    def _read(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (frame := self._reader.next_frame()) is not None:
                if isinstance(frame, Challenge):
                    self.challenges.append(frame.challenge)
        except SaslFrameError as fault:
            raise AssertionError("the router's own frames are sound") from fault


class Peer:
    """One way to go on, by honest clients."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.client: ScramClient | None = None

    def scram_first(self, mechanism: str, login: tuple[str, str]) -> bytes:
        binding = ("tls-server-end-point", END_POINT) if mechanism.endswith("-PLUS") else None
        self.client = ScramClient([mechanism], *login, channel_binding=binding)
        return str(self.client.get_client_first()).encode()

    def scram_final(self) -> bytes:
        if self.client is None or not self.exchange.challenges:
            return b""
        try:
            self.client.set_server_first(self.exchange.challenges[-1].decode())
            return str(self.client.get_client_final()).encode()
        except (ScramException, UnicodeDecodeError, ValueError):
            return b""


@pytest.fixture(scope="module")
def overheard(verifier: UserFileVerifier) -> list[bytes]:
    """Everything that alice has said in logins that succeeded."""
    said = []
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        exchange = Exchange(verifier, CHANNELS[0])
        peer = Peer(exchange)
        first = peer.scram_first(mechanism, ("alice", ALICES))
        exchange.say(encode(Init(mechanism=mechanism, initial_response=first)))
        final = peer.scram_final()
        exchange.say(encode(Response(response=final)))
        exchange.say(encode(Response(response=b"")))
        assert exchange.identity is not None
        assert exchange.identity.user == "alice"
        said += [first, final]
    return said


NOISE = st.binary(max_size=60)
DAMAGE = st.one_of(
    st.none(),
    st.tuples(st.just("cut"), st.integers(0, 200), NOISE),
    st.tuples(st.just("set"), st.integers(0, 200), NOISE),
)
PLAIN_PARTS = st.sampled_from([b"", b"alice", b"mallory", b"carol", MALLORYS.encode(), b"perhaps", b"\0", b"\xff"])
CONTENTS = st.one_of(
    st.tuples(st.just("first"), st.sampled_from(SCRAMS), st.sampled_from(LOGINS)),
    st.tuples(st.just("final"), st.none(), st.none()),
    st.tuples(st.just("overheard"), st.integers(0, 3), st.none()),
    st.tuples(st.just("text"), st.lists(PLAIN_PARTS, min_size=1, max_size=4).map(b"\0".join), st.none()),
    st.tuples(st.just("text"), st.sampled_from([b"", b"alice", b"n,,n=alice,r=", b"c=biws,r=,p="]), st.none()),
    st.tuples(st.just("text"), NOISE, st.none()),
)
MOVES = st.lists(
    st.tuples(
        st.one_of(st.none(), st.sampled_from(OFFERED), st.sampled_from(["plain", "CRAM-MD5", ""]), st.just("bytes")),
        CONTENTS,
        DAMAGE,
        st.integers(1, 600),
    ),
    max_size=6,
)


def content_of(peer: Peer, content: tuple[str, object, object], overheard: list[bytes]) -> bytes:
    match content:
        case "first", str(mechanism), (str(user), str(password)):
            return peer.scram_first(mechanism, (user, password))
        case "final", _, _:
            return peer.scram_final()
        case "overheard", int(number), _:
            return overheard[number]
        case _, bytes(text), _:
            return text
    raise AssertionError(content)


def damaged(data: bytes, damage: tuple[str, int, bytes] | None) -> bytes:
    if damage is None:
        return data
    kind, at, noise = damage
    at = min(at, len(data))
    return data[:at] + noise + (data[at + len(noise) :] if kind == "set" else b"")


def play(
    verifier: UserFileVerifier, overheard: list[bytes], channel: Channel, moves: list[tuple[object, ...]]
) -> Exchange:
    exchange = Exchange(verifier, channel)
    peer = Peer(exchange)
    for mechanism, content, damage, step in moves:
        data = damaged(content_of(peer, content, overheard), damage)  # type: ignore[arg-type]
        if mechanism != "bytes":
            frame = Init(mechanism=mechanism, initial_response=data) if mechanism else Response(response=data)  # type: ignore[arg-type]
            data = encode(frame)
        for at in range(0, len(data), step):  # type: ignore[call-overload]
            exchange.say(data[at : at + step])
    return exchange


def check(exchange: Exchange) -> None:
    identity = exchange.identity
    if identity is None:
        return
    assert identity.is_authenticated
    expected = {"ANONYMOUS": "anonymous", "EXTERNAL": exchange.channel.external_user}
    assert identity.user is not None
    assert identity.user == expected.get(identity.mechanism or "", "mallory"), identity


@given(st.sampled_from(CHANNELS), MOVES)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nobody_becomes_alice(
    verifier: UserFileVerifier, overheard: list[bytes], channel: Channel, moves: list[tuple[object, ...]]
) -> None:
    """Attack: replays, mixed exchanges, other names, noise, in pieces."""
    check(play(verifier, overheard, channel, moves))


@pytest.mark.slow
@given(st.sampled_from(CHANNELS), MOVES)
@settings(
    max_examples=int(os.environ.get("PALISADE_FUZZ_EXAMPLES", "2000")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_nobody_becomes_alice_in_a_long_run(
    verifier: UserFileVerifier, overheard: list[bytes], channel: Channel, moves: list[tuple[object, ...]]
) -> None:
    check(play(verifier, overheard, channel, moves))


FIRST = ("first", "SCRAM-SHA-256", ("mallory", MALLORYS))
END = (None, ("text", b"", None), None, 9)


@pytest.mark.parametrize(
    ("moves", "user"),
    [
        ([("SCRAM-SHA-256", FIRST, None, 7), (None, ("final", None, None), None, 7), END], "mallory"),
        ([("PLAIN", ("text", f"\0mallory\0{MALLORYS}".encode(), None), None, 3)], "mallory"),
        ([("ANONYMOUS", ("text", b"me", None), None, 3)], "anonymous"),
        ([("SCRAM-SHA-256", ("overheard", 0, None), None, 9), (None, ("overheard", 1, None), None, 9), END], None),
        ([("PLAIN", ("text", f"\0alice\0{MALLORYS}".encode(), None), None, 3)], None),
        ([("PLAIN", ("text", f"alice\0mallory\0{MALLORYS}".encode(), None), None, 3)], None),
    ],
)
def test_these_moves_can_log_in(
    verifier: UserFileVerifier, overheard: list[bytes], moves: list[tuple[object, ...]], user: str | None
) -> None:
    """So the search above is not for nothing: what is right gets in by the same steps."""
    exchange = play(verifier, overheard, CHANNELS[0], moves)
    assert (exchange.identity.user if exchange.identity is not None else None) == user


def test_every_mechanism_there_is_is_tried() -> None:
    assert all(create_server_mechanism(name, CHANNELS[1]) for name in (*SCRAMS, "EXTERNAL", "PLAIN", "ANONYMOUS"))
