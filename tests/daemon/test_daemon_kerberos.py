"""GSSAPI with a real KDC: docs/spec/policy-and-auth.md §8.1, §8.10; RFC 4752."""

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from daemon_process import LISTENER, Daemon, denials, eventually, start
from kerberos_realm import SKEW_S, KerberosRealm

from auth import sasl_frames
from auth.credentials import CheckTicket, TicketStep, VerifyResult
from auth.verifiers.kerberos import KerberosError, KerberosVerifier

pytestmark = pytest.mark.interop

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
LOGIN = "listener {{\n name: login\n host: 127.0.0.1\n port: 0\n authenticatePeer: yes\n {}\n}}\n"
NO_LAYER = b"\1\0\0\0"
TICKET_S = 4
OPENED = b"AMQP\x00\x01\x00\x00" + bytes.fromhex("00000017 02000000 005310 d0 00000007 00000001 a10161")


@pytest.fixture
def client(realm: KerberosRealm, gssapi: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`client("alice", "wonderland", "amqp@localhost")`: the security context of one who has logged in."""
    for name, value in realm.environment.items():
        monkeypatch.setenv(name, value)

    def make(user: str, password: str, service: str = "amqp@localhost", *options: str) -> Any:
        store = {"ccache": f"FILE:{realm.log_in(user, password, *options)}"}
        name = gssapi.Name(service, gssapi.NameType.hostbased_service)
        flags = gssapi.RequirementFlag
        return gssapi.SecurityContext(
            name=name,
            creds=gssapi.Credentials(usage="initiate", store=store),
            usage="initiate",
            mech=gssapi.MechType.kerberos,
            flags=flags.mutual_authentication | flags.integrity | flags.confidentiality,
        )

    return make


class Peer:
    """GSSAPI by the frames of AMQP."""

    def __init__(self, router: Daemon) -> None:
        self.reader = sasl_frames.FrameReader()
        self.connection = socket.create_connection(("127.0.0.1", router.port("login")), timeout=20)
        self.connection.sendall(SASL_HEADER)
        assert self.connection.recv(8, socket.MSG_WAITALL) == SASL_HEADER
        offer = self.next()
        assert isinstance(offer, sasl_frames.Mechanisms)
        self.offered = offer.names

    def next(self) -> sasl_frames.SaslFrame:
        while (frame := self.reader.next_frame()) is None:
            data = self.connection.recv(65536)
            assert data
            self.reader.feed(data)
        return frame

    def init(self, response: bytes | None) -> sasl_frames.SaslFrame:
        self.connection.sendall(
            sasl_frames.encode(sasl_frames.Init(mechanism="GSSAPI", initial_response=None)) if response is None
            else init_of(response)
        )  # fmt: skip
        return self.next()

    def answer(self, response: bytes) -> sasl_frames.SaslFrame:
        self.connection.sendall(frame_of(0x43, binary(response)))
        return self.next()

    def rest(self) -> bytes:
        """What comes until the end of the connection."""
        with self.connection.makefile("rb") as stream:
            return stream.read()

    def log_in(self, context: Any, choice: bytes = NO_LAYER, *, waits: bool = False) -> int:
        """The code of the outcome."""
        if waits:
            empty = self.init(None)
            assert isinstance(empty, sasl_frames.Challenge)
            assert empty.challenge == b""
            frame = self.answer(context.step())
        else:
            frame = self.init(context.step())
        if isinstance(frame, sasl_frames.Challenge):
            assert context.step(frame.challenge) is None
            assert context.complete
            frame = self.answer(b"")
        if isinstance(frame, sasl_frames.Challenge):
            assert context.unwrap(frame.challenge).message == NO_LAYER
            frame = self.answer(context.wrap(choice, False).message)
        assert isinstance(frame, sasl_frames.Outcome)
        return frame.code


def binary(data: bytes) -> bytes:
    return b"\xb0" + len(data).to_bytes(4, "big") + data


def init_of(response: bytes) -> bytes:
    return frame_of(0x41, b"\xa3\x06GSSAPI" + binary(response), count=2)


def frame_of(code: int, fields: bytes, count: int = 1) -> bytes:
    """Beyond the 512 bytes that our own encoder stops at: tickets are longer."""
    listed = b"\x00\x53" + bytes([code]) + b"\xd0" + (len(fields) + 4).to_bytes(4, "big") + count.to_bytes(4, "big")
    return (8 + len(listed) + len(fields)).to_bytes(4, "big") + b"\x02\x01\x00\x00" + listed + fields


def sasl(folder: Path, text: str) -> str:
    (folder / "sasl").mkdir()
    (folder / "sasl" / "qdrouterd.conf").write_text(text)
    return f"router {{\n id: kerberos\n saslConfigDir: {folder}/sasl\n}}\n"


@pytest.fixture
def router(daemon: Callable[..., Daemon], realm: KerberosRealm, tmp_path: Path) -> Daemon:
    text = f"keytab: {realm.keytab('amqp/localhost', 'host/localhost')}\nmech_list: GSSAPI PLAIN ANONYMOUS\n"
    return daemon(sasl(tmp_path, text) + LOGIN.format("") + LISTENER, environment=realm.environment)


def test_who_has_a_ticket_logs_in(router: Daemon, client: Callable[..., Any]) -> None:
    assert Peer(router).offered == ("GSSAPI",)
    assert Peer(router).log_in(client("alice", "wonderland")) == sasl_frames.OUTCOME_OK
    assert Peer(router).log_in(client("bob", "builder"), waits=True) == sasl_frames.OUTCOME_OK
    assert Peer(router).log_in(client("alice", "wonderland"), NO_LAYER + b"alice") == sasl_frames.OUTCOME_OK
    own = NO_LAYER + b"alice@EXAMPLE.TEST"
    assert Peer(router).log_in(client("alice", "wonderland"), own) == sasl_frames.OUTCOME_OK


def test_the_user_is_the_principal_of_the_own_realm(router: Daemon, client: Callable[..., Any]) -> None:
    peer = Peer(router)
    assert peer.log_in(client("alice", "wonderland")) == sasl_frames.OUTCOME_OK
    peer.connection.sendall(OPENED)
    assert router.wait_for_log(r"Connection Opened: .*auth=GSSAPI user=alice ")
    peer.connection.close()


@pytest.mark.parametrize(
    "choice", [NO_LAYER + b"bob", NO_LAYER + b"\xff", b"\2\0\1\0", b"\4\0\1\0", b"\1\0\0\1", b"\1", b""]
)
def test_other_layers_and_other_identities_are_refused(
    router: Daemon, client: Callable[..., Any], choice: bytes
) -> None:
    assert Peer(router).log_in(client("alice", "wonderland"), choice) == sasl_frames.OUTCOME_AUTH


def test_a_ticket_for_another_service_is_refused(router: Daemon, client: Callable[..., Any]) -> None:
    """Its key is in the keytab, too."""
    assert Peer(router).log_in(client("alice", "wonderland", "host@localhost")) == sasl_frames.OUTCOME_AUTH


def test_a_ticket_shown_twice_is_refused(router: Daemon, client: Callable[..., Any]) -> None:
    """Attack: to repeat what was overheard."""
    token = client("alice", "wonderland").step()
    first, second = Peer(router), Peer(router)
    assert isinstance(first.init(token), sasl_frames.Challenge)
    refused = second.init(token)
    assert isinstance(refused, sasl_frames.Outcome)
    assert refused.code == sasl_frames.OUTCOME_AUTH


def test_steps_cannot_be_left_out(router: Daemon, client: Callable[..., Any]) -> None:
    for early in (client("alice", "wonderland"), client("bob", "builder")):
        peer = Peer(router)
        challenge = peer.init(early.step())
        assert isinstance(challenge, sasl_frames.Challenge)
        early.step(challenge.challenge)
        outcome = peer.answer(early.wrap(NO_LAYER, False).message)  # where an empty one is due
        assert isinstance(outcome, sasl_frames.Outcome)
        assert outcome.code == sasl_frames.OUTCOME_AUTH
    for garbage in (b"", b"garbage", b"`" * 40_000):
        outcome = Peer(router).init(garbage)
        assert isinstance(outcome, sasl_frames.Outcome)
        assert outcome.code == sasl_frames.OUTCOME_AUTH
    peer, context = Peer(router), client("alice", "wonderland")
    challenge = peer.init(context.step())
    assert isinstance(challenge, sasl_frames.Challenge)
    peer.answer(b"")
    outcome = peer.answer(NO_LAYER)  # without Kerberos' checksum
    assert isinstance(outcome, sasl_frames.Outcome)
    assert outcome.code == sasl_frames.OUTCOME_AUTH


def test_a_login_ends_with_its_ticket(realm: KerberosRealm, client: Callable[..., Any]) -> None:
    verifier = KerberosVerifier(str(realm.keytab("amqp/localhost")), "k")
    context = client("alice", "wonderland", "amqp@localhost", "-l", "10m")
    step = verifier.verify(CheckTicket(token=context.step()))
    assert isinstance(step, TicketStep)
    context.step(step.reply)
    choice = context.wrap(NO_LAYER, False).message
    result = verifier.verify(CheckTicket(token=choice, context=step.context, is_last=True))
    assert isinstance(result, VerifyResult)
    assert result.user == "alice"
    assert result.ends_at_s is not None
    assert 300 < result.ends_at_s - time.time() <= 600 + SKEW_S + 1


def test_a_connection_ends_with_its_ticket(
    daemon: Callable[..., Daemon], realm: KerberosRealm, client: Callable[..., Any], tmp_path: Path
) -> None:
    """On record; another's, whose ticket is good for longer, goes on."""
    audit = tmp_path / "audit"
    audit.mkdir()
    staff = f"kerberosAuthenticator {{\n name: staff\n keytab: {realm.keytab('amqp/localhost')}\n}}\n"
    text = f"router {{\n auditDir: {audit}\n}}\n" + staff + LOGIN.format("authenticators: staff") + LISTENER
    router = daemon(text, environment=realm.environment)
    alice, bob = Peer(router), Peer(router)
    brief = client("alice", "wonderland", "amqp@localhost", "-l", f"{TICKET_S}s")
    started = time.time()
    for peer, context in ((alice, brief), (bob, client("bob", "builder"))):
        assert peer.log_in(context) == sasl_frames.OUTCOME_OK
        peer.connection.sendall(OPENED)
    router.wait_for_log("failed: amqp:connection:forced The credentials have expired")
    # Tickets count whole seconds.
    assert TICKET_S - 1 < time.time() - started < TICKET_S + SKEW_S + 5
    assert b"amqp:connection:forced" in alice.rest()
    (event,) = eventually(lambda: denials(audit))
    assert (event["reason"], event["user"]) == ("credentials_expired", "alice")
    with router.client() as operator:
        assert "bob" in [row[0] for row in operator.query("connection", ["user"]).rows]
    bob.connection.close()


def test_by_name(daemon: Callable[..., Daemon], realm: KerberosRealm, client: Callable[..., Any]) -> None:
    entity = f"kerberosAuthenticator {{\n name: staff\n keytab: {realm.keytab('amqp/localhost')}\n}}\n"
    router = daemon(entity + LOGIN.format("authenticators: staff") + LISTENER, environment=realm.environment)
    assert Peer(router).log_in(client("alice", "wonderland")) == sasl_frames.OUTCOME_OK


def test_keytabs_that_cannot_be_used(gssapi: Any, tmp_path: Path) -> None:
    keytab = tmp_path / "keytab"
    for content, mode, says in ((b"no keytab", 0o600, "not a keytab"), (b"\5\2", 0o644, "chmod 600")):
        keytab.write_bytes(content)
        keytab.chmod(mode)
        with pytest.raises(KerberosError, match=says):
            KerberosVerifier(str(keytab), "k")
    router = start(tmp_path, f"kerberosAuthenticator {{\n name: k\n keytab: {tmp_path}/none\n}}\n" + LISTENER)
    assert router.wait() == 1
    assert router.log("authenticator 'k': .*none: cannot be read")
